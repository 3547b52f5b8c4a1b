//! Codex CLI.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lockkeeper_testing::http::Http;
use lockkeeper_testing::{Call, FakeModel, World, files};
use serde_json::json;

use super::{EVENTS, Harness, hooks, text};

pub struct Codex;

/// A model that Codex knows, so that it offers `apply_patch` to it.
const MODEL: &str = "gpt-5.5";

impl Harness for Codex {
    fn name(&self) -> &'static str {
        "codex"
    }

    fn package(&self) -> &'static str {
        "@openai/codex"
    }

    fn program(&self, folder: &Path) -> PathBuf {
        let (package, target) = if cfg!(target_arch = "aarch64") {
            ("codex-linux-arm64", "aarch64-unknown-linux-musl")
        } else {
            ("codex-linux-x64", "x86_64-unknown-linux-musl")
        };
        folder.join("@openai").join(package).join("vendor").join(target).join("bin/codex")
    }

    fn set_up(&self, world: &World, hook: &str, limit: Duration) {
        let hook = json!({ "type": "command", "command": hook, "timeout": limit.as_secs() });
        let settings = json!({ "hooks": hooks(&EVENTS, &hook) });
        files::write(&world.home().join(".codex/hooks.json"), &settings.to_string());
    }

    fn command(&self, world: &World, program: &Path, model: &FakeModel, prompt: &str) -> Command {
        let url = model.url("/v1");
        let provider = format!(
            "{{ name = \"fake\", base_url = \"{url}\", wire_api = \"responses\", env_key = \"KEY\" }}"
        );
        let mut command = world.command(program);
        command.args([
            "exec",
            "--dangerously-bypass-approvals-and-sandbox",
            "--dangerously-bypass-hook-trust",
        ]);
        command.args(["-c", &format!("model_providers.fake={provider}"), "-c", "model_provider=fake"]);
        command.args(["--model", MODEL, prompt]).env("KEY", "dummy");
        command
    }

    fn create(&self, file: &Path, line: &str) -> Call {
        patch(&format!("*** Add File: {}\n+{line}", text(file)))
    }

    fn replace(&self, file: &Path, line: &str, with: &str) -> Vec<Call> {
        vec![patch(&format!("*** Update File: {}\n@@\n-{line}\n+{with}", text(file)))]
    }

    fn shell(&self, line: &str) -> Call {
        Call::new("exec_command", json!({ "cmd": line }))
    }

    fn sub_agent(&self, _name: &str, prompt: &str) -> Option<Call> {
        Some(Call::new("multi_agent_v1/spawn_agent", json!({ "message": prompt })))
    }
}

fn patch(body: &str) -> Call {
    Call::new("apply_patch", json!(format!("*** Begin Patch\n{body}\n*** End Patch\n")))
}
