//! OpenCode. Its hooks are functions of a plugin, which calls the command line.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lockkeeper_testing::http::Http;
use lockkeeper_testing::{Call, FakeModel, World, files};
use serde_json::{Value, json};

use super::{Harness, add_settings, text};

pub struct OpenCode;

impl Harness for OpenCode {
    fn name(&self) -> &'static str {
        "opencode"
    }

    fn package(&self) -> &'static str {
        "opencode-ai"
    }

    fn program(&self, folder: &Path) -> PathBuf {
        folder.join("opencode-ai/bin/opencode.exe")
    }

    fn set_up(&self, world: &World, hook: &str, limit: Duration) {
        let constants = format!("const hook = {}\nconst limit = {}\n", json!(hook), limit.as_millis());
        let plugin = constants + include_str!("opencode.js");
        files::write(&world.home().join(".config/opencode/plugins/test.js"), &plugin);
    }

    fn add_server(&self, world: &World, name: &str, program: &Path) -> bool {
        let server = json!({ "type": "local", "command": [text(program)], "enabled": true });
        add_settings(
            &world.home().join(".config/opencode/opencode.json"),
            &json!({ "mcp": { name: server } }),
        );
        true
    }

    fn command(&self, world: &World, program: &Path, model: &FakeModel, prompt: &str) -> Command {
        let limits = json!({ "context": 200_000, "output": 8_000 });
        let fake = json!({ "npm": "@ai-sdk/openai-compatible",
            "options": { "baseURL": model.url("/v1"), "apiKey": "dummy" },
            "models": { "fake": { "name": "fake", "tool_call": true, "limit": limits } } });
        let ours = json!({ "autoupdate": false, "share": "disabled", "model": "fake/fake",
            "small_model": "fake/fake", "provider": { "fake": fake } });
        // What `init` has written stays.
        add_settings(&world.home().join(".config/opencode/opencode.json"), &ours);
        // It quotes a prompt among its arguments, but not one on stdin.
        let mut command = world.command("bash");
        command.args(["-c", "exec \"$0\" run --auto <<< \"$1\"", super::text(program), prompt]);
        command.env("OPENCODE_DISABLE_MODELS_FETCH", "1").env("OPENCODE_DISABLE_AUTOUPDATE", "1");
        // It installs a package for plugins. That fails at once here, and the plugin of the test does not need it.
        command.env("npm_config_registry", model.url("/npm")).env("npm_config_fetch_retries", "0");
        command
    }

    fn create(&self, file: &Path, line: &str) -> Call {
        Call::new("write", json!({ "filePath": text(file), "content": format!("{line}\n") }))
    }

    fn replace(&self, file: &Path, line: &str, with: &str) -> Vec<Call> {
        // It edits only what it has read.
        let read = Call::new("read", json!({ "filePath": text(file) }));
        let edit = json!({ "filePath": text(file), "oldString": line, "newString": with });
        vec![read, Call::new("edit", edit)]
    }

    fn shell(&self, line: &str) -> Call {
        Call::new("bash", json!({ "command": line, "description": "test" }))
    }

    fn mcp_tool(&self, server: &str, tool: &str, input: &Value) -> Call {
        Call::new(&format!("{server}_{tool}"), input.clone())
    }

    fn sub_agent(&self, name: &str, prompt: &str) -> Option<Call> {
        let input = json!({ "description": name, "prompt": prompt, "subagent_type": "general" });
        Some(Call::new("task", input))
    }

    fn deny(&self, reason: &str) -> Value {
        json!({ "deny": reason })
    }

    fn before_tool(&self) -> &'static str {
        "tool.execute.before"
    }
}
