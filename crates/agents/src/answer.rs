//! Answers to a hook call, in the form that each harness reads.
//!
//! The hook exits with 0 and prints one JSON object, or nothing. It never answers "allow": the harness would then skip its
//! question to the user. Windsurf is the one exception: a deny is exit code 2 and a text on standard error.

use serde_json::{Value, json};

use crate::harness::Harness;
use crate::input::Event;
use crate::quote::{cut, one_line};

/// The longest text of a deny, in characters.
const MAX_DENY: usize = 600;
/// The longest message to a model, in characters.
const MAX_TELL: usize = 4_000;

/// What the hook answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing: the call goes on as if there were no hook.
    Pass,
    /// The call goes on, and the model reads this.
    Tell(String),
    /// The tool does not run, and the model reads why.
    Deny(String),
}

/// What the hook prints, and how it exits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Printed {
    /// For standard output.
    pub stdout: String,
    /// For standard error.
    pub stderr: String,
    /// The exit code.
    pub code: u8,
}

impl Answer {
    /// Whether the harness passes a text on to its model at this event. If not, the caller keeps the text for a later event.
    pub fn can_tell(harness: Harness, event: &Event) -> bool {
        match harness {
            // Qwen Code 0.15.10 drops texts that a hook prints before a tool.
            Harness::Qwen => matches!(event, Event::AfterTool | Event::TurnBegins),
            Harness::Claude => matches!(
                event,
                Event::BeforeTool
                    | Event::AfterTool
                    | Event::SessionBegins
                    | Event::TurnBegins
                    | Event::SubagentBegins
            ),
            Harness::Codex => matches!(
                event,
                Event::BeforeTool | Event::AfterTool | Event::SessionBegins | Event::TurnBegins
            ),
            Harness::Gemini => matches!(event, Event::AfterTool | Event::SessionBegins | Event::TurnBegins),
            Harness::Copilot | Harness::OpenCode | Harness::Cursor => matches!(event, Event::AfterTool),
            Harness::Windsurf => false,
        }
    }

    /// Renders the answer for the harness. Prints nothing if the harness does not understand this answer at this event.
    pub fn render(&self, harness: Harness, event: &Event) -> Printed {
        let object = match self {
            Self::Pass => None,
            Self::Tell(text) if Self::can_tell(harness, event) => {
                Some(tell(harness, event, &cut(&clean(text), MAX_TELL)))
            }
            Self::Tell(_) => None,
            Self::Deny(reason) if *event == Event::BeforeTool => {
                let reason = cut(&clean(reason), MAX_DENY);
                if harness == Harness::Windsurf {
                    return Printed { stdout: String::new(), stderr: reason, code: 2 };
                }
                Some(deny(harness, &reason))
            }
            Self::Deny(_) => None,
        };
        Printed { stdout: object.map(|object| object.to_string()).unwrap_or_default(), ..Printed::default() }
    }
}

fn deny(harness: Harness, reason: &str) -> Value {
    match harness {
        Harness::Claude | Harness::Codex | Harness::Qwen | Harness::Copilot => json!({"hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": reason,
        }}),
        Harness::Gemini => json!({"decision": "deny", "reason": reason}),
        Harness::OpenCode => json!({"deny": reason}),
        Harness::Cursor | Harness::Windsurf => {
            json!({"permission": "deny", "user_message": reason, "agent_message": reason})
        }
    }
}

fn tell(harness: Harness, event: &Event, text: &str) -> Value {
    match harness {
        Harness::Claude | Harness::Codex | Harness::Qwen | Harness::Gemini => {
            let name = event_name(harness, event);
            json!({"hookSpecificOutput": {"hookEventName": name, "additionalContext": text}})
        }
        Harness::Copilot => json!({"additionalContext": text}),
        Harness::OpenCode => json!({"tell": text}),
        Harness::Cursor | Harness::Windsurf => json!({"additional_context": text}),
    }
}

fn event_name(harness: Harness, event: &Event) -> &'static str {
    match (harness, event) {
        (Harness::Gemini, Event::AfterTool) => "AfterTool",
        (Harness::Gemini, Event::TurnBegins) => "BeforeAgent",
        (_, Event::AfterTool) => "PostToolUse",
        (_, Event::TurnBegins) => "UserPromptSubmit",
        (_, Event::SessionBegins) => "SessionStart",
        (_, Event::SubagentBegins) => "SubagentStart",
        (_, _) => "PreToolUse",
    }
}

/// Removes control characters and invisible characters from each line.
fn clean(text: &str) -> String {
    text.lines().map(one_line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests;
