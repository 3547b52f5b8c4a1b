//! Coding agents ("harnesses") that tests drive: where they are, how they are set up and started, and how their
//! model edits files.

mod claude;
mod codex;
mod copilot;
mod gemini;
mod opencode;
mod qwen;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use lockkeeper_testing::{Call, FakeModel, World, files};
use serde_json::{Map, Value, json};

pub use claude::Claude;
pub use codex::{Codex, CodexInSandbox, CodexWithCode};
pub use copilot::Copilot;
pub use gemini::Gemini;
pub use opencode::OpenCode;
pub use qwen::Qwen;

/// All harnesses, in the order of the tables in the documents.
pub const ALL: [&dyn Harness; 6] = [&Claude, &Codex, &Gemini, &Copilot, &OpenCode, &Qwen];

/// A harness: how to configure and start it, and the names of its tools.
pub trait Harness: Sync {
    /// Its name, as `scripts/agents-install` has it. Its folder has this name.
    fn name(&self) -> &'static str;

    /// The name of files with its inputs.
    fn label(&self) -> &'static str {
        self.name()
    }

    /// The package of npm that it is installed from.
    fn package(&self) -> &'static str;

    /// The program within the folder where npm installed it. Not a wrapper: tests kill this process.
    fn program(&self, folder: &Path) -> PathBuf;

    /// Writes the user's settings so that the harness calls this command line at every event. A call may take `limit`.
    fn set_up(&self, world: &World, hook: &str, limit: Duration);

    /// The command that answers a prompt without a terminal, asks nobody for permission, and ends.
    fn command(&self, world: &World, program: &Path, model: &FakeModel, prompt: &str) -> Command;

    /// The call that makes a new file with one line.
    fn create(&self, file: &Path, line: &str) -> Call;

    /// The calls that replace the only line of a file.
    fn replace(&self, file: &Path, line: &str, with: &str) -> Vec<Call>;

    /// The call that runs a line of shell.
    fn shell(&self, line: &str) -> Call;

    /// The call that starts a sub-agent with a prompt. None if its hooks do not say which sub-agent calls.
    fn sub_agent(&self, name: &str, prompt: &str) -> Option<Call>;

    /// The call of a tool of an MCP server.
    fn mcp_tool(&self, server: &str, tool: &str, input: &Value) -> Call {
        Call::new(&format!("mcp__{server}__{tool}"), input.clone())
    }

    /// Adds an MCP server to the user's settings. False if tests do not know how.
    fn add_server(&self, _world: &World, _name: &str, _program: &Path) -> bool {
        false
    }

    /// What a hook prints to deny a call.
    fn deny(&self, reason: &str) -> Value {
        json!({ "hookSpecificOutput": { "hookEventName": "PreToolUse", "permissionDecision": "deny",
            "permissionDecisionReason": reason } })
    }

    /// The name of the event before a call of a tool.
    fn before_tool(&self) -> &'static str {
        "PreToolUse"
    }
}

/// The program of a harness, if `scripts/agents-install` has installed it.
pub fn installed(harness: &dyn Harness) -> Option<PathBuf> {
    let program = harness.program(&folder(harness));
    program.is_file().then_some(program)
}

/// The version that is installed.
pub fn version(harness: &dyn Harness) -> Option<String> {
    installed(harness)?;
    let text = fs::read_to_string(folder(harness).join(harness.package()).join("package.json")).unwrap();
    let package: Value = serde_json::from_str(&text).unwrap();
    Some(package["version"].as_str().expect("a package has a version").to_owned())
}

/// The folder with the packages of a harness. A relative folder is one of the repository, as in `scripts/agents-install`.
fn folder(harness: &dyn Harness) -> PathBuf {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let beside_what_is_built = || Path::new(env!("CARGO_TARGET_TMPDIR")).join("..");
    let root = env::var_os("LOCKKEEPER_HARNESSES").map_or_else(beside_what_is_built, PathBuf::from);
    repository.join(root).join("harnesses").join(harness.name()).join("node_modules")
}

/// Settings in the shape that most harnesses share: each event has a list of groups, each with a list of hooks.
fn hooks(events: &[&str], hook: &Value) -> Value {
    let groups = events.iter().map(|event| ((*event).to_owned(), json!([{ "hooks": [hook] }])));
    Value::Object(groups.collect())
}

/// Adds settings to a JSON file. Those that it has stay.
fn add_settings(file: &Path, settings: &Value) {
    let text = fs::read_to_string(file).unwrap_or_else(|_| "{}".to_owned());
    let mut all: Map<String, Value> = serde_json::from_str(&text).unwrap();
    all.extend(settings.as_object().cloned().unwrap_or_default());
    files::write(file, Value::Object(all).to_string());
}

/// The events of Claude Code, which others have taken over.
const EVENTS: [&str; 8] = [
    "SessionStart",
    "UserPromptSubmit",
    "PreToolUse",
    "PostToolUse",
    "SubagentStart",
    "SubagentStop",
    "Stop",
    "SessionEnd",
];

fn text(path: &Path) -> &str {
    path.to_str().expect("paths of tests are text")
}
