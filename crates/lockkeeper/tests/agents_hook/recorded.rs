//! Inputs of every harness as files, piped into the real program: none fails, and every edit of a held file is denied.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use lockkeeper_testing::World;
use serde_json::Value;

use crate::agents::{log, repository};

/// Inputs whose tool writes a file of the repository.
const EDITS: [&str; 18] = [
    "claude/write",
    "claude/edit-of-subagent",
    "claude/multi-edit",
    "claude/notebook-edit",
    "claude/bash",
    "codex/apply-patch",
    "codex/apply-patch-in-shell",
    "codex/bash",
    "copilot/write",
    "copilot/own-keys",
    "cursor/write",
    "gemini/write-file",
    "gemini/replace",
    "opencode/write",
    "opencode/apply-patch",
    "qwen/edit",
    "qwen/write-file",
    "windsurf/write",
];

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../agents/tests/data")
}

/// The inputs of a folder, in a fixed order.
fn inputs(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(data().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let mut names: Vec<String> =
        entries.map(|path| format!("{folder}/{}", path.file_stem().unwrap().to_str().unwrap())).collect();
    names.sort();
    names
}

/// Sends an input as if it had been recorded in this repository.
fn send(world: &World, name: &str) -> Output {
    let text = fs::read_to_string(data().join(format!("{name}.json"))).unwrap();
    let text = text.replace("/work/repo", world.cwd().canonicalize().unwrap().to_str().unwrap());
    let input: Value = serde_json::from_str(&text).unwrap();
    let session = input["session_id"].as_str().unwrap_or_default();
    let mut command = world.lockkeeper(["hook"]);
    match name.split('/').next() {
        Some("claude") => command.env("CLAUDE_CODE_SESSION_ID", session),
        Some("copilot") => command.env("COPILOT_CLI", "1"),
        Some("gemini") => command.env("GEMINI_SESSION_ID", session),
        _ => &mut command,
    };
    let mut hook =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    hook.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    hook.wait_with_output().unwrap()
}

const HARNESSES: [&str; 8] =
    ["claude", "codex", "copilot", "cursor", "gemini", "opencode", "qwen", "windsurf"];

/// Nobody else is there: nothing is denied and nothing is logged.
#[test]
fn every_input_passes_where_nothing_is_held() {
    for harness in HARNESSES {
        for name in inputs(harness) {
            // Each input has a repository of its own: sub-agents in them edit the same files.
            let world = repository();
            let output = send(&world, &name);
            let text = String::from_utf8(output.stdout).unwrap();
            assert_eq!((output.status.code(), text.as_str()), (Some(0), ""), "{name}");
            assert_eq!(log(&world), [""; 0], "{name}");
        }
    }
}

/// Windsurf is denied by exit code 2, all others by JSON and exit code 0.
#[test]
fn every_edit_is_denied_where_somebody_holds_all_files() {
    let world = repository();
    world.acquire(&["--path", "**", "--owner", "person:ann"]);
    for name in EDITS {
        let output = send(&world, name);
        let (code, text) = match name.starts_with("windsurf") {
            true => (2, output.stderr),
            false => (0, output.stdout),
        };
        let text = String::from_utf8(text).unwrap();
        assert_eq!(output.status.code(), Some(code), "{name}: {text}");
        assert!(text.contains("person:ann"), "{name}: {text}");
    }
    assert_eq!(log(&world), [""; 0]);
}

/// What is not understood has no owner, is not denied, and is logged once.
#[test]
fn every_unread_input_passes_and_is_logged() {
    let world = repository();
    world.acquire(&["--path", "**", "--owner", "person:ann"]);
    for (count, name) in inputs("unread").iter().enumerate() {
        let output = send(&world, name);
        assert_eq!((output.status.code(), output.stdout), (Some(0), Vec::new()), "{name}");
        assert_eq!(log(&world).len(), count + 1, "{name}: {:?}", log(&world));
    }
}
