//! What happens in a harness when it calls a hook: one name for the names of all harnesses.

use serde_json::{Map, Value};

use super::Unread;

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A tool is about to run: the only event that can be denied.
    BeforeTool,
    /// A tool has run.
    AfterTool,
    /// A tool has failed.
    ToolFailed,
    /// The user has asked for something.
    TurnBegins,
    /// The agent has answered.
    TurnEnds,
    /// A session begins, or is resumed.
    SessionBegins,
    /// A session ends.
    SessionEnds,
    /// A sub-agent begins.
    SubagentBegins,
    /// A sub-agent ends.
    SubagentEnds,
    /// Something that is of no use here.
    Other(String),
}

impl Event {
    pub(super) fn of_input(input: &Map<String, Value>) -> Result<Self, Unread> {
        for key in ["hook_event_name", "hookEventName", "agent_action_name"] {
            match input.get(key) {
                Some(Value::String(name)) => return Ok(Self::of_name(name)),
                Some(_) => return Err(Unread::WrongType(key)),
                None => {}
            }
        }
        // With its own keys, Copilot does not name the event.
        match (input.contains_key("toolName"), input.contains_key("toolResult")) {
            (true, false) => Ok(Self::BeforeTool),
            (true, true) => Ok(Self::AfterTool),
            // For the begin and the end of a sub-agent it does not name the event with the keys of Claude, either.
            (false, _) if input.contains_key("agentName") && input.contains_key("stopReason") => {
                Ok(Self::SubagentEnds)
            }
            (false, _) if input.contains_key("agentName") => Ok(Self::SubagentBegins),
            (false, _) if input.contains_key("clineVersion") => Ok(Self::Other("cline".to_owned())),
            (false, _) => Err(Unread::Missing("the name of the event")),
        }
    }

    fn of_name(name: &str) -> Self {
        match name {
            "PreToolUse"
            | "preToolUse"
            | "BeforeTool"
            | "tool.execute.before"
            | "pre_write_code"
            | "pre_run_command"
            | "pre_mcp_tool_use"
            | "beforeShellExecution"
            | "beforeMCPExecution" => Self::BeforeTool,
            "PostToolUse"
            | "postToolUse"
            | "AfterTool"
            | "tool.execute.after"
            | "post_write_code"
            | "post_run_command"
            | "post_mcp_tool_use"
            | "afterFileEdit"
            | "afterShellExecution"
            | "afterMCPExecution" => Self::AfterTool,
            "PostToolUseFailure" | "postToolUseFailure" => Self::ToolFailed,
            "UserPromptSubmit"
            | "userPromptSubmitted"
            | "BeforeAgent"
            | "beforeSubmitPrompt"
            | "session.status"
            | "pre_user_prompt" => Self::TurnBegins,
            "Stop" | "stop" | "agentStop" | "AfterAgent" | "session.idle" | "post_cascade_response" => {
                Self::TurnEnds
            }
            "SessionStart" | "sessionStart" | "session.created" => Self::SessionBegins,
            "SessionEnd" | "sessionEnd" | "session.deleted" => Self::SessionEnds,
            "SubagentStart" | "subagentStart" => Self::SubagentBegins,
            "SubagentStop" | "subagentStop" => Self::SubagentEnds,
            other => Self::Other(other.chars().take(80).collect()),
        }
    }
}
