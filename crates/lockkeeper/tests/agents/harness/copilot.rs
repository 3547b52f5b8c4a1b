//! Copilot CLI.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lockkeeper_testing::http::Http;
use lockkeeper_testing::{Call, FakeModel, World, files};
use serde_json::{Value, json};

use super::{EVENTS, Harness, text};

pub struct Copilot;

impl Harness for Copilot {
    fn name(&self) -> &'static str {
        "copilot"
    }

    fn package(&self) -> &'static str {
        "@github/copilot"
    }

    fn program(&self, folder: &Path) -> PathBuf {
        let package = if cfg!(target_arch = "aarch64") { "copilot-linux-arm64" } else { "copilot-linux-x64" };
        folder.join("@github").join(package).join("copilot")
    }

    fn set_up(&self, world: &World, hook: &str, limit: Duration) {
        let seconds = limit.as_secs();
        let hook = json!({ "type": "command", "command": hook, "bash": hook, "timeout": seconds,
            "timeoutSec": seconds });
        let hooks: Value = EVENTS.iter().map(|event| ((*event).to_owned(), json!([hook]))).collect();
        let settings = json!({ "version": 1, "hooks": hooks });
        files::write(&world.home().join(".copilot/hooks/test.json"), settings.to_string());
    }

    fn add_server(&self, world: &World, name: &str, program: &Path) -> bool {
        let server = json!({ "type": "local", "command": text(program), "args": [], "tools": ["*"] });
        let servers = json!({ "mcpServers": { name: server } });
        files::write(&world.home().join(".copilot/mcp-config.json"), servers.to_string());
        true
    }

    fn command(&self, world: &World, program: &Path, model: &FakeModel, prompt: &str) -> Command {
        let mut command = world.command(program);
        // The commands of a test name programs outside of the repository.
        command.args(["--allow-all-tools", "--allow-all-paths", "--prompt", prompt]);
        command.env("COPILOT_PROVIDER_BASE_URL", model.url("/v1")).env("COPILOT_PROVIDER_API_KEY", "dummy");
        // The name of a model decides which tools it is offered.
        command.env("COPILOT_PROVIDER_TYPE", "openai").env("COPILOT_MODEL", "claude-sonnet-4.5");
        command.env("COPILOT_OFFLINE", "true").env("COPILOT_AUTO_UPDATE", "false");
        command
    }

    fn create(&self, file: &Path, line: &str) -> Call {
        Call::new("create", json!({ "path": text(file), "file_text": format!("{line}\n") }))
    }

    fn replace(&self, file: &Path, line: &str, with: &str) -> Vec<Call> {
        vec![Call::new("edit", json!({ "path": text(file), "old_str": line, "new_str": with }))]
    }

    fn shell(&self, line: &str) -> Call {
        Call::new("bash", json!({ "command": line, "description": "test" }))
    }

    fn mcp_tool(&self, server: &str, tool: &str, input: &Value) -> Call {
        Call::new(&format!("{server}-{tool}"), input.clone())
    }

    fn sub_agent(&self, name: &str, prompt: &str) -> Option<Call> {
        let input = json!({ "name": name, "description": name, "prompt": prompt,
            "agent_type": "general-purpose", "mode": "sync" });
        Some(Call::new("task", input))
    }
}
