//! Codex CLI.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lockkeeper_testing::http::Http;
use lockkeeper_testing::{Call, FakeModel, World, files};
use serde_json::{Value, json};

use super::{EVENTS, Harness, hooks, text};

/// Codex with a model that calls its tools directly.
pub struct Codex;

/// Codex with a model that calls its tools from JavaScript.
pub struct CodexWithCode;

/// Codex whose commands run in its sandbox: the git folder is read-only, and processes have other numbers.
pub struct CodexInSandbox;

/// What lets Codex do all without questions, outside of its sandbox and in it.
const NO_SANDBOX: [&str; 1] = ["--dangerously-bypass-approvals-and-sandbox"];
const SANDBOX: [&str; 2] = ["--sandbox", "workspace-write"];

/// Models that Codex knows: the name decides which tools it offers.
const MODEL: &str = "gpt-5.5";
const MODEL_WITH_CODE: &str = "gpt-6.1-sol";

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
        files::write(&world.home().join(".codex/hooks.json"), settings.to_string());
    }

    fn command(&self, world: &World, program: &Path, model: &FakeModel, prompt: &str) -> Command {
        command(world, program, model, MODEL, prompt, &NO_SANDBOX)
    }

    fn create(&self, file: &Path, line: &str) -> Call {
        Call::new("apply_patch", json!(added(file, line)))
    }

    fn replace(&self, file: &Path, line: &str, with: &str) -> Vec<Call> {
        vec![Call::new("apply_patch", json!(updated(file, line, with)))]
    }

    fn shell(&self, line: &str) -> Call {
        Call::new("exec_command", json!({ "cmd": line }))
    }

    fn mcp_tool(&self, server: &str, tool: &str, input: &Value) -> Call {
        Call::new(&format!("mcp__{server}/{tool}"), input.clone())
    }

    fn add_server(&self, world: &World, name: &str, program: &Path) -> bool {
        let settings = format!("[mcp_servers.{name}]\ncommand = {:?}\n", text(program));
        files::write(&world.home().join(".codex/config.toml"), settings);
        true
    }

    fn sub_agent(&self, _name: &str, prompt: &str) -> Option<Call> {
        Some(Call::new("multi_agent_v1/spawn_agent", json!({ "message": prompt })))
    }
}

impl Harness for CodexWithCode {
    fn name(&self) -> &'static str {
        Codex.name()
    }

    fn label(&self) -> &'static str {
        "codex-with-code"
    }

    fn package(&self) -> &'static str {
        Codex.package()
    }

    fn program(&self, folder: &Path) -> PathBuf {
        Codex.program(folder)
    }

    fn set_up(&self, world: &World, hook: &str, limit: Duration) {
        Codex.set_up(world, hook, limit);
    }

    fn command(&self, world: &World, program: &Path, model: &FakeModel, prompt: &str) -> Command {
        command(world, program, model, MODEL_WITH_CODE, prompt, &NO_SANDBOX)
    }

    fn create(&self, file: &Path, line: &str) -> Call {
        code("apply_patch", &json!(added(file, line)))
    }

    fn replace(&self, file: &Path, line: &str, with: &str) -> Vec<Call> {
        vec![code("apply_patch", &json!(updated(file, line, with)))]
    }

    fn shell(&self, line: &str) -> Call {
        code("exec_command", &json!({ "cmd": line }))
    }

    fn mcp_tool(&self, server: &str, tool: &str, input: &Value) -> Call {
        code(&format!("mcp__{server}__{tool}"), input)
    }

    fn add_server(&self, world: &World, name: &str, program: &Path) -> bool {
        Codex.add_server(world, name, program)
    }

    /// The prompt of a sub-agent is encrypted by the model.
    fn sub_agent(&self, _name: &str, _prompt: &str) -> Option<Call> {
        None
    }
}

impl Harness for CodexInSandbox {
    fn name(&self) -> &'static str {
        Codex.name()
    }

    fn package(&self) -> &'static str {
        Codex.package()
    }

    fn program(&self, folder: &Path) -> PathBuf {
        Codex.program(folder)
    }

    fn set_up(&self, world: &World, hook: &str, limit: Duration) {
        Codex.set_up(world, hook, limit);
    }

    fn command(&self, world: &World, program: &Path, model: &FakeModel, prompt: &str) -> Command {
        command(world, program, model, MODEL, prompt, &SANDBOX)
    }

    fn create(&self, file: &Path, line: &str) -> Call {
        Codex.create(file, line)
    }

    fn replace(&self, file: &Path, line: &str, with: &str) -> Vec<Call> {
        Codex.replace(file, line, with)
    }

    fn shell(&self, line: &str) -> Call {
        Codex.shell(line)
    }

    fn sub_agent(&self, name: &str, prompt: &str) -> Option<Call> {
        Codex.sub_agent(name, prompt)
    }
}

fn command(
    world: &World,
    program: &Path,
    model: &FakeModel,
    name: &str,
    prompt: &str,
    permissions: &[&str],
) -> Command {
    let url = model.url("/v1");
    let provider =
        format!("{{ name = \"fake\", base_url = \"{url}\", wire_api = \"responses\", env_key = \"KEY\" }}");
    let mut command = world.command(program);
    command.arg("exec").args(permissions).arg("--dangerously-bypass-hook-trust");
    command.args(["-c", &format!("model_providers.fake={provider}"), "-c", "model_provider=fake"]);
    command.args(["--model", name, prompt]).env("KEY", "dummy");
    command
}

/// A call of a tool from JavaScript. An error of the call is the result.
fn code(tool: &str, input: &Value) -> Call {
    let script = format!(
        "try {{ text(JSON.stringify(await tools.{tool}({input}))) }} catch (error) {{ text(String(error)) }}"
    );
    Call::new("functions/exec", json!(script))
}

fn added(file: &Path, line: &str) -> String {
    patch(&format!("*** Add File: {}\n+{line}", text(file)))
}

fn updated(file: &Path, line: &str, with: &str) -> String {
    patch(&format!("*** Update File: {}\n@@\n-{line}\n+{with}", text(file)))
}

fn patch(body: &str) -> String {
    format!("*** Begin Patch\n{body}\n*** End Patch\n")
}
