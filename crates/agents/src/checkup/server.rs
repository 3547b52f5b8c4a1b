//! Examines the MCP server in the settings of a harness: whether it is there and switched on, and answers.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Checkup, Health, again, json_rpc, unreadable};
use crate::setup::{Folders, Scope, SetUp, SettingsFile, server_in};

/// How long the server may take to answer. Harnesses wait longer for the start of a server.
const LIMIT: Duration = Duration::from_secs(10);
/// The JSON-RPC id of the request.
const QUESTION: u64 = 2;

/// Adds what was seen of the server.
pub fn check(checkup: &mut Checkup, folders: &Folders, scope: Scope, file: &SettingsFile, program: &str) {
    let shown = folders.shown(&file.path);
    let fix = || Some(again(checkup.harness, scope));
    let (health, detail, fix) = match server_in(file) {
        // If the file also has hooks, the check of the hooks has reported the error already.
        Err(_) if file.has_hooks() => return,
        Err(error) => return unreadable(checkup, folders, file, &error),
        Ok(None) => (Health::Warns, format!("{shown} has no MCP server lockkeeper"), fix()),
        Ok(Some((_, false))) => {
            let fix = Some(format!("switch it on in {shown}"));
            (Health::Warns, format!("the MCP server lockkeeper is switched off in {shown}"), fix)
        }
        // Others can write the files of a project: only what we would write is run.
        Ok(Some(_)) if !is_current(folders, scope, file, program) => {
            (Health::Warns, format!("the MCP server in {shown} is not as this version writes it"), fix())
        }
        Ok(Some((words, true))) => {
            let started_at = Instant::now();
            match count_tools(&words, folders) {
                Some(count) => {
                    let took = started_at.elapsed().as_millis();
                    (Health::Works, format!("its MCP server answers with {count} tools in {took} ms"), None)
                }
                None => (Health::Fails, format!("the MCP server in {shown} does not answer"), fix()),
            }
        }
    };
    checkup.add(health, &detail, fix);
}

fn is_current(folders: &Folders, scope: Scope, file: &SettingsFile, program: &str) -> bool {
    // What belongs to the project may have been written by --project or --shared.
    let scopes = if scope == Scope::User { &[Scope::User][..] } else { &[Scope::Project, Scope::Shared] };
    let words = server_in(file).ok().flatten().map(|(words, _)| words);
    scopes.iter().any(|scope| words == Some(SetUp::new(folders, *scope, program).server_words()))
}

/// Starts the server as the harness does, and counts its tools.
fn count_tools(words: &[String], folders: &Folders) -> Option<usize> {
    let (program, arguments) = words.split_first()?;
    let client = json!({"name": "lockkeeper doctor", "version": env!("CARGO_PKG_VERSION")});
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
    let messages = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": QUESTION, "method": "tools/list"}),
    ];
    let mut command = Command::new(program);
    command.args(arguments).current_dir(&folders.location().root);
    let answer = json_rpc::ask(&mut command, &messages, QUESTION, LIMIT).ok()??;
    answer.pointer("/result/tools").and_then(Value::as_array).map(Vec::len).filter(|count| *count > 0)
}
