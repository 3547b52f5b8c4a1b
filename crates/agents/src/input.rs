//! Hook inputs: the JSON of every harness, read into one shape.
//!
//! Input comes from programs that change monthly, and from every process that can start the hook. An input that cannot be
//! read becomes an [`Unread`], which is logged. Such a call is never denied.

mod event;
mod fields;
mod halves;

use std::path::PathBuf;

use lockkeeper_core::id::Owner;
use serde_json::{Map, Value};
use thiserror::Error;

pub use event::Event;

use crate::harness::{self, Harness, Marks};
use crate::tool::ToolCall;
use fields::{absolute, id, optional_text};

/// The largest input, in bytes. Tools that write a file send its whole content.
pub const MAX_BYTES: usize = 32 << 20;

/// Why an input was not understood.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unread {
    /// Longer than [`MAX_BYTES`].
    #[error("the input has {0} bytes, more than {MAX_BYTES}")]
    TooLong(usize),
    /// Not UTF-8, or not JSON, cut off, or nested too deeply.
    #[error("the input is not JSON: {0}")]
    NotJson(String),
    /// JSON, but no object.
    #[error("the input is no JSON object")]
    NoObject,
    /// A field is missing that the harness always sends.
    #[error("the input has no {0}")]
    Missing(&'static str),
    /// A field has another type than the harness sends.
    #[error("{0} of the input has the wrong type")]
    WrongType(&'static str),
    /// An id that cannot be part of an owner.
    #[error("{0} of the input is empty, too long, or has characters that an owner may not have")]
    BadId(&'static str),
    /// No rule recognises the harness.
    #[error("the input is of no harness that is known")]
    UnknownHarness,
    /// A harness that is known and cannot be served.
    #[error("the harness {0} is not supported")]
    Unsupported(&'static str),
}

/// Work that goes on after a turn has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackgroundTask {
    /// For a sub-agent, its id.
    pub id: String,
    /// `subagent`, `shell`, …
    pub kind: String,
}

/// What a harness says when it calls a hook.
#[derive(Clone, Debug, PartialEq)]
pub struct HookInput {
    /// The harness that calls.
    pub harness: Harness,
    /// The event.
    pub event: Event,
    /// The id of the session.
    pub session: String,
    /// The id of the sub-agent, if it is one.
    pub agent: Option<String>,
    /// The session above this one, where a sub-agent has a session of its own (Copilot, OpenCode).
    pub parent: Option<String>,
    /// The absolute folder in which the agent works. `None`: the harness does not say.
    pub cwd: Option<PathBuf>,
    /// The tool, for events before and after tools.
    pub tool: Option<ToolCall>,
    /// The id of the tool call.
    pub call: Option<String>,
    /// After a shell command: what it changed, where the harness knows it.
    pub changed: Option<Vec<String>>,
    /// At the end of a turn: what still runs.
    pub background: Vec<BackgroundTask>,
    /// After a shell command: what the harness calls it, if it goes on in the background.
    pub task: Option<String>,
}

/// Parses JSON, also with halves of characters in it.
pub(crate) fn json(bytes: &[u8]) -> Result<Value, Unread> {
    let error = match serde_json::from_slice(bytes) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    let whole = halves::without_halves(bytes).and_then(|whole| serde_json::from_slice(&whole).ok());
    whole.ok_or_else(|| Unread::NotJson(error.to_string()))
}

impl HookInput {
    /// Reads what a harness has written to the hook's standard input.
    ///
    /// # Errors
    ///
    /// Anything but an input that says who calls and what happens. The caller logs the reason and lets the call pass.
    pub fn read(bytes: &[u8], marks: &Marks) -> Result<Self, Unread> {
        if bytes.len() > MAX_BYTES {
            return Err(Unread::TooLong(bytes.len()));
        }
        let Value::Object(input) = json(bytes)? else { return Err(Unread::NoObject) };
        Self::of_object(&input, marks)
    }

    fn of_object(input: &Map<String, Value>, marks: &Marks) -> Result<Self, Unread> {
        let event = Event::of_input(input)?;
        let harness = harness::detect(input, &event, marks).map_err(Unread::Unsupported)?;
        let harness = harness.ok_or(Unread::UnknownHarness)?;
        let session = match harness {
            Harness::Cursor => id(input, &["conversation_id"])?,
            Harness::Windsurf => id(input, &["trajectory_id"])?,
            _ => id(input, &["session_id", "sessionId"])?,
        };
        let session = session.ok_or(Unread::Missing("the id of the session"))?;
        let agent = match harness {
            Harness::Claude | Harness::Codex | Harness::Copilot => id(input, &["agent_id", "agentId"])?,
            _ => None,
        };
        let parent = match harness {
            Harness::Copilot => id(input, &["parent_agent_id", "parentAgentId"])?,
            Harness::OpenCode => id(input, &["parent_id"])?,
            _ => None,
        };
        let has_tool = matches!(event, Event::BeforeTool | Event::AfterTool | Event::ToolFailed);
        let tool = if has_tool { Some(ToolCall::read(harness, input)?) } else { None };
        Ok(Self {
            harness,
            event,
            session,
            agent,
            parent,
            cwd: absolute(input),
            tool,
            call: optional_text(input, &["tool_use_id", "toolUseId", "tool_call_id", "call_id"]),
            changed: changed_files(input),
            background: background_tasks(input),
            task: background_task(input),
        })
    }

    /// The owner in whose name the call is made: `kind:SESSION`, or `kind:SESSION:AGENT` for a sub-agent.
    ///
    /// A session with a parent is a sub-agent of it. If the parent is itself a sub-agent, its owner has more parts than this input
    /// says: then use [`HookInput::owner_below`].
    pub fn owner(&self) -> Owner {
        match &self.parent {
            Some(parent) if *parent != self.session => owner(self.harness, &[parent, &self.session]),
            _ => match &self.agent {
                Some(agent) if *agent != self.session => owner(self.harness, &[&self.session, agent]),
                _ => owner(self.harness, &[&self.session]),
            },
        }
    }

    /// The owner of a call whose parent session is registered as `above`.
    ///
    /// `None`: this input names no parent, or the name would be too long.
    pub fn owner_below(&self, above: &Owner) -> Option<Owner> {
        self.parent.as_ref().filter(|parent| **parent != self.session)?;
        format!("{above}:{}", self.session).parse().ok()
    }

    /// Whether a sub-agent makes the call.
    pub fn is_subagent(&self) -> bool {
        self.owner().as_str().matches(':').count() > 1
    }
}

fn owner(harness: Harness, ids: &[&str]) -> Owner {
    let text = format!("{}:{}", harness.kind(), ids.join(":"));
    text.parse().expect("ids are checked where they are read, and two of them fit into an owner")
}

/// Claude tells what a shell command changed.
fn changed_files(input: &Map<String, Value>) -> Option<Vec<String>> {
    let told = input.get("tool_response")?.get("bashEditDiff")?;
    let files = told.get("changedFiles")?.as_array()?;
    // The list is not complete.
    if told.get("moreFiles").and_then(Value::as_u64).is_some_and(|more| more > 0) {
        return None;
    }
    // An entry is a path, or an object that has one. Anything else: the harness has changed, so look with git.
    let path = |file: &Value| {
        let text =
            file.as_str().or_else(|| file.get("path")?.as_str()).or_else(|| file.get("filePath")?.as_str());
        text.map(str::to_owned)
    };
    files.iter().map(path).collect()
}

/// Claude names the background command that a tool has started.
fn background_task(input: &Map<String, Value>) -> Option<String> {
    let response = input.get("tool_response")?;
    let id =
        ["backgroundTaskId", "background_task_id"].iter().find_map(|key| response.get(*key)?.as_str())?;
    (id.len() <= 100).then(|| id.to_owned())
}

fn background_tasks(input: &Map<String, Value>) -> Vec<BackgroundTask> {
    let tasks =
        input.get("background_tasks").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let text = |task: &Value, key: &str| task.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let runs =
        |task: &&Value| task.get("status").and_then(Value::as_str).is_none_or(|status| status == "running");
    let tasks = tasks.iter().filter(runs).take(1000);
    tasks.map(|task| BackgroundTask { id: text(task, "id"), kind: text(task, "type") }).collect()
}
