//! Gemini CLI.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lockkeeper_testing::http::Http;
use lockkeeper_testing::{Call, FakeModel, World, files};
use serde_json::{Value, json};

use super::{Harness, add_settings, hooks, text};

pub struct Gemini;

const EVENTS: [&str; 6] =
    ["SessionStart", "BeforeAgent", "BeforeTool", "AfterTool", "AfterAgent", "SessionEnd"];

impl Harness for Gemini {
    fn name(&self) -> &'static str {
        "gemini"
    }

    fn package(&self) -> &'static str {
        "@google/gemini-cli"
    }

    fn program(&self, folder: &Path) -> PathBuf {
        folder.join("@google/gemini-cli/bundle/gemini.js")
    }

    fn set_up(&self, world: &World, hook: &str, limit: Duration) {
        let milliseconds = u64::try_from(limit.as_millis()).expect("a short time");
        let hook = json!({ "name": "test", "type": "command", "command": hook, "timeout": milliseconds });
        let settings = json!({ "hooks": hooks(&EVENTS, &hook) });
        add_settings(&world.home().join(".gemini/settings.json"), &settings);
    }

    fn add_server(&self, world: &World, name: &str, program: &Path) -> bool {
        let servers = json!({ "mcpServers": { name: { "command": text(program), "args": [] } } });
        add_settings(&world.home().join(".gemini/settings.json"), &servers);
        true
    }

    fn command(&self, world: &World, program: &Path, model: &FakeModel, prompt: &str) -> Command {
        choose_the_key(world);
        let mut command = world.command(program);
        command.args(["--model", "gemini-2.5-flash", "--yolo", "--skip-trust", "--prompt", prompt]);
        command.env("GEMINI_API_KEY", "dummy").env("GOOGLE_GEMINI_BASE_URL", model.url(""));
        // Else it starts itself again as a child, with more memory.
        command.env("GEMINI_CLI_NO_RELAUNCH", "true");
        command
    }

    fn create(&self, file: &Path, line: &str) -> Call {
        Call::new("write_file", json!({ "file_path": text(file), "content": format!("{line}\n") }))
    }

    fn replace(&self, file: &Path, line: &str, with: &str) -> Vec<Call> {
        let input = json!({ "file_path": text(file), "old_string": line, "new_string": with,
            "instruction": format!("replace {line} by {with}") });
        vec![Call::new("replace", input)]
    }

    fn shell(&self, line: &str) -> Call {
        Call::new("run_shell_command", json!({ "command": line }))
    }

    fn mcp_tool(&self, server: &str, tool: &str, input: &Value) -> Call {
        Call::new(&format!("mcp_{server}_{tool}"), input.clone())
    }

    fn sub_agent(&self, _name: &str, _prompt: &str) -> Option<Call> {
        None
    }

    fn deny(&self, reason: &str) -> Value {
        json!({ "decision": "deny", "reason": reason })
    }

    fn before_tool(&self) -> &'static str {
        "BeforeTool"
    }
}

/// Adds to the user's settings that a key is used. The variable with the address of the model alone means something
/// else to it, and it refuses to start.
fn choose_the_key(world: &World) {
    let file = world.home().join(".gemini/settings.json");
    let text = fs::read_to_string(&file).unwrap_or_else(|_| "{}".to_owned());
    let mut settings: Value = serde_json::from_str(&text).unwrap();
    if settings["security"].is_null() {
        settings["security"] = json!({ "auth": { "selectedType": "gemini-api-key" } });
        files::write(&file, settings.to_string());
    }
}
