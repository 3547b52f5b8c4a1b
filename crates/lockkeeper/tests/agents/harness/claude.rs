//! Claude Code.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lockkeeper_testing::http::Http;
use lockkeeper_testing::{Call, FakeModel, World, files};
use serde_json::json;

use super::{EVENTS, Harness, hooks, text};

pub struct Claude;

impl Harness for Claude {
    fn name(&self) -> &'static str {
        "claude"
    }

    fn package(&self) -> &'static str {
        "@anthropic-ai/claude-code"
    }

    fn program(&self, folder: &Path) -> PathBuf {
        folder.join("@anthropic-ai/claude-code/bin/claude.exe")
    }

    fn set_up(&self, world: &World, hook: &str, limit: Duration) {
        let hook = json!({ "type": "command", "command": hook, "timeout": limit.as_secs() });
        let settings = json!({ "hooks": hooks(&EVENTS, &hook) });
        files::write(&world.home().join(".claude/settings.json"), settings.to_string());
    }

    fn command(&self, world: &World, program: &Path, model: &FakeModel, prompt: &str) -> Command {
        let mut command = world.command(program);
        command.args(["--print", prompt, "--permission-mode", "bypassPermissions"]);
        command.env("ANTHROPIC_BASE_URL", model.url("")).env("ANTHROPIC_API_KEY", "dummy");
        command.env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1").env("DISABLE_AUTOUPDATER", "1");
        // Without this it refuses to run as root without questions.
        command.env("IS_SANDBOX", "1");
        command
    }

    fn create(&self, file: &Path, line: &str) -> Call {
        Call::new("Write", json!({ "file_path": text(file), "content": format!("{line}\n") }))
    }

    fn replace(&self, file: &Path, line: &str, with: &str) -> Vec<Call> {
        // It edits only what it has read.
        let read = Call::new("Read", json!({ "file_path": text(file) }));
        let edit = json!({ "file_path": text(file), "old_string": line, "new_string": with });
        vec![read, Call::new("Edit", edit)]
    }

    fn shell(&self, line: &str) -> Call {
        Call::new("Bash", json!({ "command": line }))
    }

    fn add_server(&self, world: &World, name: &str, program: &Path) -> bool {
        let server = json!({ "type": "stdio", "command": text(program), "args": [] });
        files::write(
            &world.home().join(".claude.json"),
            json!({ "mcpServers": { name: server } }).to_string(),
        );
        true
    }

    fn sub_agent(&self, name: &str, prompt: &str) -> Option<Call> {
        let input = json!({ "description": name, "prompt": prompt, "subagent_type": "general-purpose" });
        Some(Call::new("Agent", input))
    }
}
