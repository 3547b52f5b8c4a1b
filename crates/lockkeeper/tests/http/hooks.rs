//! Agents whose hooks run in the world of a server.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use serde_json::json;

use super::server::Server;

/// Runs the hook before an edit of a session of Claude. Returns what it prints. The process of this test is that of the agent.
pub fn edit(server: &Server, session: &str, path: &str) -> String {
    let world = server.world();
    fs::create_dir_all(world.path("state/agents")).unwrap();
    let input = json!({
        "session_id": session, "transcript_path": format!("/u/.claude/projects/x/{session}.jsonl"),
        "cwd": world.cwd(), "hook_event_name": "PreToolUse", "tool_name": "Edit",
        "tool_input": { "file_path": world.cwd().join(path) },
    });
    let mut command = world.lockkeeper(["hook"]);
    command.env("LOCKKEEPER_PID", std::process::id().to_string()).env("LOCKKEEPER_AGENTS_LIMIT", "60s");
    command.env("CLAUDE_CODE_SESSION_ID", session).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut hook = command.spawn().unwrap();
    hook.stdin.take().unwrap().write_all(input.to_string().as_bytes()).unwrap();
    let output = hook.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    String::from_utf8(output.stdout).unwrap()
}

/// Two agents that want one file: the first has it and a note, the second waits.
pub fn collide(server: &Server, note: &str) {
    assert_eq!(edit(server, "one", "a.rs"), "");
    server.world().run(["note", "--owner", "claude:one", note]).code(0);
    assert!(edit(server, "two", "a.rs").contains("deny"));
}
