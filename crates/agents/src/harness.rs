//! Which program a hook call comes from, worked out from its input.

use std::path::Path;

use serde_json::{Map, Value};

use crate::input::Event;

/// A program that runs a coding agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Harness {
    /// Claude Code.
    Claude,
    /// Codex CLI.
    Codex,
    /// Gemini CLI.
    Gemini,
    /// Copilot CLI, and Copilot in VS Code.
    Copilot,
    /// OpenCode, through our plugin.
    OpenCode,
    /// Qwen Code.
    Qwen,
    /// Cursor.
    Cursor,
    /// Windsurf.
    Windsurf,
}

impl Harness {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Claude,
        Self::Codex,
        Self::Gemini,
        Self::Copilot,
        Self::OpenCode,
        Self::Qwen,
        Self::Cursor,
        Self::Windsurf,
    ];

    /// The kind of the owners: `claude` in `claude:SESSION`.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Copilot => "copilot",
            Self::OpenCode => "opencode",
            Self::Qwen => "qwen",
            Self::Cursor => "cursor",
            Self::Windsurf => "windsurf",
        }
    }
}

/// The environment variables that tell harnesses apart whose inputs look alike.
///
/// They only confirm what the input says. `CLAUDE_PROJECT_DIR` is not among them: four harnesses set it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// `COPILOT_CLI` is set.
    pub copilot: bool,
    /// `GEMINI_SESSION_ID`.
    pub gemini_session: Option<String>,
    /// `CLAUDE_CODE_SESSION_ID`.
    pub claude_session: Option<String>,
}

impl Marks {
    /// Reads the marks with a function that looks up an environment variable.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Self {
        Self {
            copilot: variable("COPILOT_CLI").is_some(),
            gemini_session: variable("GEMINI_SESSION_ID"),
            claude_session: variable("CLAUDE_CODE_SESSION_ID"),
        }
    }
}

/// Finds the harness; the first rule that fits decides. `Err`: one that is known and not supported.
pub(crate) fn detect(
    input: &Map<String, Value>,
    event: &Event,
    marks: &Marks,
) -> Result<Option<Harness>, &'static str> {
    let text = |key: &str| input.get(key).and_then(Value::as_str);
    let has = |key: &str| input.contains_key(key);
    let session = text("session_id");
    let is_session = |mark: &Option<String>| session.is_some() && mark.as_deref() == session;
    let transcript = text("transcript_path");
    let below =
        |folder: &str| transcript.is_some_and(|path| Path::new(path).iter().any(|part| part == folder));
    let gemini_event =
        matches!(text("hook_event_name"), Some("BeforeTool" | "AfterTool" | "BeforeAgent" | "AfterAgent"));
    let foreign_transcript = below(".codex") || below(".qwen") || below("projects");

    Ok(Some(if text("harness") == Some("opencode") {
        // Our own plugin says so.
        Harness::OpenCode
    } else if has("cursor_version") {
        Harness::Cursor
    } else if has("agent_action_name") {
        Harness::Windsurf
    } else if has("tool_call") && has("clineVersion") {
        return Err("cline");
    } else if gemini_event || is_session(&marks.gemini_session) {
        Harness::Gemini
    } else if has("turn_id") || below(".codex") {
        Harness::Codex
    } else if has("sessionId") && (has("toolName") || has("hookEventName")) {
        // Copilot's own keys: `preToolUse` of the CLI, and VS Code.
        Harness::Copilot
    } else if marks.copilot && transcript.is_none_or(|_| *event != Event::BeforeTool && !foreign_transcript) {
        Harness::Copilot
    } else if below(".qwen") {
        Harness::Qwen
    } else if below("projects") && is_session(&marks.claude_session) {
        Harness::Claude
    } else {
        return Ok(None);
    }))
}
