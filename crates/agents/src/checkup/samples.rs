//! Inputs as each harness sends them before an edit, for a scratch repository.

use std::path::Path;

use serde_json::{Value, json};

use crate::harness::Harness;

/// What a harness gives to its hook.
pub struct Sample {
    /// On standard input.
    pub input: Value,
    /// Environment variables that the harness sets.
    pub variables: Vec<(&'static str, String)>,
}

/// Environment variables of harnesses and of this program that a hook of another harness must not see.
pub const FOREIGN: [&str; 9] = [
    "CLAUDE_CODE_SESSION_ID",
    "CLAUDE_PID",
    "COPILOT_CLI",
    "GEMINI_SESSION_ID",
    "LOCKKEEPER_DIR",
    "LOCKKEEPER_OWNER",
    "LOCKKEEPER_PID",
    "LOCKKEEPER_RUNS",
    "LOCKKEEPER_STORE",
];

/// The edit of a file by a session.
pub fn edit(harness: Harness, session: &str, folder: &Path, file: &Path) -> Sample {
    let (cwd, path) = (folder.display().to_string(), file.display().to_string());
    let mut variables = Vec::new();
    let input = match harness {
        Harness::Claude => {
            variables.push(("CLAUDE_CODE_SESSION_ID", session.to_owned()));
            json!({"session_id": session, "transcript_path": format!("{cwd}/projects/-scratch/{session}.jsonl"),
                "cwd": cwd, "permission_mode": "default", "hook_event_name": "PreToolUse", "tool_name": "Write",
                "tool_input": {"file_path": path, "content": "x\n"}, "tool_use_id": "toolu_1"})
        }
        Harness::Codex => {
            let patch = format!("*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch\n");
            json!({"session_id": session, "turn_id": "turn-1", "cwd": cwd, "hook_event_name": "PreToolUse",
                "permission_mode": "default", "tool_name": "apply_patch", "tool_input": {"command": patch},
                "tool_use_id": "call_1"})
        }
        Harness::Gemini => {
            variables.push(("GEMINI_SESSION_ID", session.to_owned()));
            json!({"session_id": session, "cwd": cwd, "hook_event_name": "BeforeTool", "tool_name": "write_file",
                "tool_input": {"file_path": path, "content": "x\n"}})
        }
        Harness::Copilot => {
            variables.push(("COPILOT_CLI", "1".to_owned()));
            json!({"session_id": session, "cwd": cwd, "hook_event_name": "PreToolUse", "tool_name": "Write",
                "tool_input": {"path": path, "file_text": "x\n"}})
        }
        Harness::OpenCode => json!({"harness": "opencode", "hook_event_name": "tool.execute.before",
            "session_id": session, "cwd": cwd, "tool_name": "write", "tool_input": {"filePath": path, "content": "x\n"}}),
        Harness::Qwen => {
            json!({"session_id": session, "transcript_path": format!("{cwd}/.qwen/projects/-scratch/{session}.jsonl"),
                "cwd": cwd, "hook_event_name": "PreToolUse", "permission_mode": "default", "tool_name": "write_file",
                "tool_input": {"file_path": path, "content": "x\n"}})
        }
        Harness::Cursor => json!({"conversation_id": session, "hook_event_name": "preToolUse",
            "cursor_version": "2026.09.23", "workspace_roots": [cwd], "tool_name": "Write",
            "tool_input": {"file_path": path, "content": "x\n"}, "cwd": cwd}),
        Harness::Windsurf => json!({"agent_action_name": "pre_write_code", "trajectory_id": session,
            "tool_info": {"file_path": path, "edits": [{"old_string": "", "new_string": "x\n"}]}}),
    };
    Sample { input, variables }
}

/// Whether the harness takes an answer as a deny.
pub fn is_deny(harness: Harness, code: Option<i32>, stdout: &[u8]) -> bool {
    let answer: Value = serde_json::from_slice(stdout).unwrap_or_default();
    match harness {
        Harness::Claude | Harness::Codex | Harness::Copilot | Harness::Qwen => {
            answer["hookSpecificOutput"]["permissionDecision"] == "deny"
        }
        Harness::Gemini => answer["decision"] == "deny",
        Harness::OpenCode => answer["deny"].is_string(),
        Harness::Cursor => answer["permission"] == "deny",
        Harness::Windsurf => code == Some(2),
    }
}
