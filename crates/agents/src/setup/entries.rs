//! The hooks that each harness gets: events, which tools they are for, and the form of one entry.

use serde_json::{Value, json};

use crate::harness::Harness;

/// How long a harness waits for a hook. The hook answers within half of it.
const TIMEOUT_SECONDS: u64 = 10;

/// An event and the tools that it is for. None: all, or an event that is not about tools.
type EventOf = (&'static str, Option<&'static str>);

/// Only tools that may write: reading costs no process.
const CLAUDE_TOOLS: Option<&str> = Some("Edit|Write|NotebookEdit|MultiEdit|Bash|PowerShell|Monitor|mcp__.*");
const CODEX_TOOLS: Option<&str> = Some("Bash|apply_patch|mcp__.*");
const GEMINI_TOOLS: Option<&str> = Some("write_file|replace|run_shell_command|mcp_.*");
const QWEN_TOOLS: Option<&str> = Some("write_file|edit|run_shell_command|mcp__.*");

/// What the settings of a harness look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// `{"hooks": {EVENT: [{"matcher", "hooks": [HOOK]}]}}` among other settings.
    Groups,
    /// `{"hooks": {EVENT: [HOOK]}}` among other hooks.
    Flat,
    /// A plugin that is ours alone.
    Plugin,
}

/// What the settings of a harness look like.
pub fn layout(harness: Harness) -> Layout {
    match harness {
        Harness::Claude | Harness::Codex | Harness::Gemini | Harness::Qwen => Layout::Groups,
        Harness::Copilot | Harness::Cursor | Harness::Windsurf => Layout::Flat,
        Harness::OpenCode => Layout::Plugin,
    }
}

/// Whether the harness reads settings with comments. One that does not ignores the whole file without a word.
pub fn reads_comments(harness: Harness) -> bool {
    matches!(harness, Harness::Copilot | Harness::Gemini | Harness::OpenCode | Harness::Qwen)
}

/// Whether the settings begin with a version.
pub fn has_version(harness: Harness) -> bool {
    matches!(harness, Harness::Copilot | Harness::Cursor)
}

/// The events at which the hook is called.
pub fn events(harness: Harness) -> &'static [EventOf] {
    match harness {
        Harness::Claude => &[
            ("SessionStart", None),
            ("UserPromptSubmit", None),
            ("PreToolUse", CLAUDE_TOOLS),
            ("PostToolUse", CLAUDE_TOOLS),
            ("SubagentStart", None),
            ("SubagentStop", None),
            ("Stop", None),
            ("SessionEnd", None),
        ],
        Harness::Codex => &[
            ("SessionStart", None),
            ("UserPromptSubmit", None),
            ("PreToolUse", CODEX_TOOLS),
            ("PostToolUse", CODEX_TOOLS),
            ("SubagentStart", None),
            ("SubagentStop", None),
            ("Stop", None),
            ("SessionEnd", None),
        ],
        Harness::Copilot => &[
            ("SessionStart", None),
            ("UserPromptSubmit", None),
            ("PreToolUse", None),
            ("PostToolUse", None),
            ("SubagentStart", None),
            ("SubagentStop", None),
            ("Stop", None),
            ("SessionEnd", None),
        ],
        Harness::Gemini => &[
            ("SessionStart", None),
            ("BeforeAgent", None),
            ("BeforeTool", GEMINI_TOOLS),
            ("AfterTool", GEMINI_TOOLS),
            ("AfterAgent", None),
            ("SessionEnd", None),
        ],
        Harness::Qwen => &[
            ("SessionStart", None),
            ("UserPromptSubmit", None),
            ("PreToolUse", QWEN_TOOLS),
            ("PostToolUse", QWEN_TOOLS),
            ("Stop", None),
            ("SessionEnd", None),
        ],
        Harness::OpenCode => &[
            ("tool.execute.before", None),
            ("tool.execute.after", None),
            ("shell.env", None),
            ("session.created", None),
            ("session.idle", None),
            ("session.deleted", None),
        ],
        Harness::Cursor => &[
            ("sessionStart", None),
            ("beforeSubmitPrompt", None),
            ("preToolUse", None),
            ("postToolUse", None),
            ("stop", None),
            ("sessionEnd", None),
        ],
        Harness::Windsurf => &[
            ("pre_user_prompt", None),
            ("pre_write_code", None),
            ("post_write_code", None),
            ("pre_run_command", None),
            ("post_run_command", None),
            ("pre_mcp_tool_use", None),
            ("post_mcp_tool_use", None),
            ("post_cascade_response", None),
        ],
    }
}

/// The entry of one event: a group with one hook, or the hook itself.
pub fn entry(harness: Harness, tools: Option<&str>, command: &str) -> Value {
    let (seconds, milliseconds) = (TIMEOUT_SECONDS, TIMEOUT_SECONDS * 1000);
    let hook = match harness {
        Harness::Claude | Harness::Codex => {
            json!({"type": "command", "command": command, "timeout": seconds})
        }
        Harness::Gemini | Harness::Qwen => {
            json!({"name": "lockkeeper", "type": "command", "command": command, "timeout": milliseconds})
        }
        // The command line and VS Code read this file with different keys.
        Harness::Copilot | Harness::OpenCode => {
            json!({"type": "command", "command": command, "bash": command,
            "timeout": seconds, "timeoutSec": seconds})
        }
        Harness::Cursor => json!({"command": command, "timeout": seconds}),
        Harness::Windsurf => json!({"command": command, "show_output": false}),
    };
    match (layout(harness), tools) {
        (Layout::Groups, Some(tools)) => json!({"matcher": tools, "hooks": [hook]}),
        (Layout::Groups, None) => json!({"hooks": [hook]}),
        (Layout::Flat | Layout::Plugin, _) => hook,
    }
}

/// The text of our plugin.
pub fn plugin(command: &str) -> String {
    let limit = TIMEOUT_SECONDS * 1000;
    format!("const hook = {}\nconst limit = {limit}\n{}", json!(command), include_str!("opencode.js"))
}

/// The command line in the text of our plugin.
pub fn command_in_plugin(text: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.strip_prefix("const hook = "))?;
    serde_json::from_str(line).ok()
}
