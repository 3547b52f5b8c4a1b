//! Packages that a harness installs by itself: a plugin for Claude Code, an extension for Gemini CLI.
//!
//! They have the same hooks and the same MCP server as `init --shared` writes, and find the program in the search path. The files
//! are in `packages/` of the repository; a test compares them with what is made here.

use serde_json::{Value, json};

use super::command_line::{SHARED_PROGRAM, shared};
use super::server::with_server;
use super::settings_text::{TextError, with_entries};
use crate::harness::Harness;

/// What the package is for, in one sentence.
const DESCRIPTION: &str = "Keeps several coding agents in one repository from overwriting each other's files: asks lockkeeper before each edit";

/// The files of the package of a harness: path and text. None if it has no packages, or ours are not made for it.
///
/// # Errors
///
/// Does not happen: the texts are our own.
pub fn package(harness: Harness) -> Result<Option<Vec<(&'static str, String)>>, TextError> {
    let manifest = json!({
        "name": "lockkeeper", "version": env!("CARGO_PKG_VERSION"), "description": DESCRIPTION,
    });
    let hooks = || with_entries(harness, "", &shared());
    let files = match harness {
        Harness::Claude => {
            let mut manifest = manifest;
            manifest["author"] = json!({ "name": "Lockkeeper contributors" });
            manifest["license"] = json!("MIT OR Apache-2.0");
            vec![
                (".claude-plugin/plugin.json", pretty(&manifest)),
                (".mcp.json", with_server(harness, "", SHARED_PROGRAM)?),
                ("hooks/hooks.json", hooks()?),
            ]
        }
        Harness::Gemini => vec![
            ("gemini-extension.json", with_server(harness, &pretty(&manifest), SHARED_PROGRAM)?),
            ("hooks/hooks.json", hooks()?),
        ],
        Harness::Codex
        | Harness::Copilot
        | Harness::OpenCode
        | Harness::Qwen
        | Harness::Cursor
        | Harness::Windsurf => return Ok(None),
    };
    let with_end = |(path, text): (&'static str, String)| (path, format!("{}\n", text.trim_end()));
    Ok(Some(files.into_iter().map(with_end).collect()))
}

fn pretty(value: &Value) -> String {
    format!("{value:#}")
}
