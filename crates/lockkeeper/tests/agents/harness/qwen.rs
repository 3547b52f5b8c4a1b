//! Qwen Code.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lockkeeper_testing::http::Http;
use lockkeeper_testing::{Call, FakeModel, World};
use serde_json::json;

use super::{EVENTS, Harness, add_settings, hooks, text};

pub struct Qwen;

impl Harness for Qwen {
    fn name(&self) -> &'static str {
        "qwen"
    }

    fn package(&self) -> &'static str {
        "@qwen-code/qwen-code"
    }

    fn program(&self, folder: &Path) -> PathBuf {
        folder.join("@qwen-code/qwen-code/cli.js")
    }

    fn set_up(&self, world: &World, hook: &str, limit: Duration) {
        let milliseconds = u64::try_from(limit.as_millis()).expect("a short time");
        let hook = json!({ "name": "test", "type": "command", "command": hook, "timeout": milliseconds });
        let settings = json!({ "hooks": hooks(&EVENTS, &hook) });
        add_settings(&world.home().join(".qwen/settings.json"), &settings);
    }

    fn add_server(&self, world: &World, name: &str, program: &Path) -> bool {
        let servers = json!({ "mcpServers": { name: { "command": text(program), "args": [] } } });
        add_settings(&world.home().join(".qwen/settings.json"), &servers);
        true
    }

    fn command(&self, world: &World, program: &Path, model: &FakeModel, prompt: &str) -> Command {
        let mut command = world.command(program);
        command.args(["--auth-type", "openai", "--openai-api-key", "dummy", "--openai-base-url"]);
        command.args([&model.url("/v1"), "--model", "fake", "--yolo", prompt]);
        // Else it starts itself again as a child, with more memory.
        command.env("QWEN_CODE_NO_RELAUNCH", "true");
        command
    }

    fn create(&self, file: &Path, line: &str) -> Call {
        Call::new("write_file", json!({ "file_path": text(file), "content": format!("{line}\n") }))
    }

    fn replace(&self, file: &Path, line: &str, with: &str) -> Vec<Call> {
        // It edits only what it has read.
        let read = Call::new("read_file", json!({ "file_path": text(file) }));
        let edit = json!({ "file_path": text(file), "old_string": line, "new_string": with });
        vec![read, Call::new("edit", edit)]
    }

    fn shell(&self, line: &str) -> Call {
        Call::new("run_shell_command", json!({ "command": line, "is_background": false }))
    }

    fn sub_agent(&self, _name: &str, _prompt: &str) -> Option<Call> {
        None
    }
}
