//! Status line: strict when it is written, lenient when it is parsed.

mod parse;

use std::fmt;
use std::str::FromStr;

use lockkeeper_platform::wall_clock::WallTime;
use serde::Serialize;
use thiserror::Error;

use super::python_json;
use crate::json::Json;

/// The longest line that is written, in bytes, with its newline.
pub const MAX_LINE: usize = 64 * 1024;
/// The longest task or worker id that is written, in bytes.
const MAX_ID: usize = 255;
/// The most nested levels of `meta`. All known readers can read this.
const MAX_DEPTH: usize = 64;
/// The key of the worker's id in `meta`.
const WORKER: &str = "worker_id";

/// The state of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// It starts.
    Start,
    /// It is done.
    Done,
    /// It waits for something.
    Wait,
    /// It failed.
    Error,
    /// It needs a person.
    Help,
    /// It was skipped.
    Skip,
    /// It was assigned to a worker. Other programs write this; we only read it.
    Assigned,
}

impl State {
    /// The states that may be written.
    pub const WRITTEN: [Self; 6] = [Self::Start, Self::Done, Self::Wait, Self::Error, Self::Help, Self::Skip];

    /// Returns the word in the log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Start => "START",
            Self::Done => "DONE",
            Self::Wait => "WAIT",
            Self::Error => "ERROR",
            Self::Help => "HELP",
            Self::Skip => "SKIP",
            Self::Assigned => "ASSIGNED",
        }
    }

    /// Says whether a person should look at it.
    pub const fn needs_help(self) -> bool {
        match self {
            Self::Error | Self::Help => true,
            Self::Start | Self::Done | Self::Wait | Self::Skip | Self::Assigned => false,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for State {
    type Err = LineError;

    fn from_str(text: &str) -> Result<Self, LineError> {
        let mut known = Self::WRITTEN.into_iter().chain([Self::Assigned]);
        known.find(|state| state.as_str() == text).ok_or_else(|| LineError::State(text.to_owned()))
    }
}

/// Which fields a line is written with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// Those of the design.
    #[default]
    Design,
    /// Also `ts` and `worker_id` at the top, which the swarm's master reads. It skips lines without a worker.
    Scanner,
}

/// One line of the log.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusLine {
    dialect: Dialect,
    state: State,
    task: String,
    at: WallTime,
    message: Option<String>,
    meta: Option<Json>,
    worker: Option<String>,
}

impl StatusLine {
    /// Creates a line to be written.
    pub fn new(state: State, task: impl Into<String>, at: WallTime) -> Result<Self, LineError> {
        if state == State::Assigned {
            return Err(LineError::NeverWritten);
        }
        let task = checked("task id", task.into())?;
        let at = at.in_milliseconds();
        Ok(Self { dialect: Dialect::Design, state, task, at, message: None, meta: None, worker: None })
    }

    /// Chooses the fields. Fails if the dialect needs a worker and the line has none.
    pub fn with_dialect(self, dialect: Dialect) -> Result<Self, LineError> {
        match dialect {
            Dialect::Scanner if self.worker.is_none() => Err(LineError::NoWorker),
            Dialect::Scanner | Dialect::Design => Ok(Self { dialect, ..self }),
        }
    }

    /// Adds a message for people.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// Adds data for programs. This is the only place for extensions.
    pub fn with_meta(mut self, meta: impl Into<Json>) -> Result<Self, LineError> {
        let meta = meta.into();
        if !is_shallow(&meta, MAX_DEPTH + 1) {
            return Err(LineError::TooDeep);
        }
        let worker = worker_in(&meta);
        let known = std::mem::take(&mut self.worker);
        self.meta = Some(meta);
        match (worker, known) {
            (None, Some(worker)) => self.with_worker(worker),
            (worker, _) => Ok(Self { worker, ..self }),
        }
    }

    /// Adds the worker, as `meta.worker_id`.
    pub fn with_worker(mut self, worker: impl Into<String>) -> Result<Self, LineError> {
        let worker = checked("worker id", worker.into())?;
        self.meta.get_or_insert_with(|| Json::Object(Vec::new())).set(WORKER, worker.as_str());
        self.worker = Some(worker);
        Ok(self)
    }

    /// Returns the state.
    pub const fn state(&self) -> State {
        self.state
    }

    /// Returns the task.
    pub fn task(&self) -> &str {
        &self.task
    }

    /// Returns the time.
    pub const fn at(&self) -> WallTime {
        self.at
    }

    /// Returns the message.
    pub fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }

    /// Returns the data for programs.
    pub const fn meta(&self) -> Option<&Json> {
        self.meta.as_ref()
    }

    /// Returns the worker.
    pub fn worker(&self) -> Option<&str> {
        self.worker.as_deref()
    }

    /// Formats the line without its newline, of any length.
    pub fn to_text(&self) -> String {
        let timestamp = self.at.to_string();
        let (ts, worker_id) = match self.dialect {
            Dialect::Design => (None, None),
            Dialect::Scanner => (Some(timestamp.clone()), self.worker.as_deref()),
        };
        let fields = Written {
            state: self.state.as_str(),
            task_id: &self.task,
            timestamp,
            ts,
            worker_id,
            message: self.message.as_deref(),
        };
        let text = python_json::to_text(&fields).expect("texts can always be written");
        match (&self.meta, text.strip_suffix('}')) {
            (Some(meta), Some(fields)) => format!("{fields}, \"meta\": {}}}", meta.to_line()),
            (Some(_), None) | (None, _) => text,
        }
    }

    /// Returns the bytes to write, newline included.
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, LineError> {
        if self.state == State::Assigned {
            return Err(LineError::NeverWritten);
        }
        let mut bytes = self.to_text().into_bytes();
        bytes.push(b'\n');
        if bytes.len() > MAX_LINE {
            return Err(LineError::TooLong { length: bytes.len() });
        }
        Ok(bytes)
    }
}

/// Why something is not a status line.
#[derive(Debug, Error)]
pub enum LineError {
    /// The protocol does not have this state.
    #[error("`{}` is not a state", .0.escape_debug())]
    State(String),
    /// ASSIGNED is never written.
    #[error("the state ASSIGNED is read, but never written")]
    NeverWritten,
    /// An id is empty.
    #[error("the {what} is empty")]
    Empty {
        /// Which id.
        what: &'static str,
    },
    /// An id is too long or has control characters.
    #[error("the {what} is longer than {MAX_ID} bytes or has control characters")]
    Id {
        /// Which id.
        what: &'static str,
    },
    /// The dialect needs a worker.
    #[error("a line for the swarm's master needs a worker")]
    NoWorker,
    /// The line is too long to be appended safely.
    #[error("the status line has {length} bytes, more than {MAX_LINE}")]
    TooLong {
        /// Its length.
        length: usize,
    },
    /// `meta` has too many nested levels for some readers.
    #[error("meta is nested more than {MAX_DEPTH} deep")]
    TooDeep,
    /// It is not a JSON object.
    #[error("it is not a JSON object")]
    NotAnObject,
    /// It is not JSON, or a field is missing.
    #[error("it is not a status line")]
    Json(#[source] serde_json::Error),
    /// It has no valid time.
    #[error("it has no time that can be read")]
    Time,
}

impl LineError {
    /// What the user can do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::State(_) | Self::NeverWritten => "states are START, DONE, WAIT, ERROR, HELP, SKIP",
            Self::Empty { .. } => "give it at least one character",
            Self::Id { .. } => "use a shorter one, without control characters",
            Self::NoWorker => "name it: --worker worker-1",
            Self::TooLong { .. } => "put long text into a file and its path into the message",
            Self::TooDeep => "make meta flatter",
            Self::NotAnObject | Self::Json(_) | Self::Time => {
                "a status line is a JSON object with state, task_id and timestamp"
            }
        }
    }
}

/// The fields that are written, in this order.
#[derive(Serialize)]
struct Written<'l> {
    state: &'static str,
    task_id: &'l str,
    timestamp: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker_id: Option<&'l str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'l str>,
}

fn checked(what: &'static str, id: String) -> Result<String, LineError> {
    if id.is_empty() {
        Err(LineError::Empty { what })
    } else if id.len() > MAX_ID || id.contains(char::is_control) {
        Err(LineError::Id { what })
    } else {
        Ok(id)
    }
}

fn worker_in(meta: &Json) -> Option<String> {
    match meta.get(WORKER)? {
        Json::Null => None,
        Json::Text(text) => Some(text.clone()),
        other => Some(other.to_line()),
    }
}

fn is_shallow(value: &Json, depth: usize) -> bool {
    match value {
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::Text(_) => true,
        Json::List(values) => depth > 1 && values.iter().all(|value| is_shallow(value, depth - 1)),
        Json::Object(fields) => depth > 1 && fields.iter().all(|(_, value)| is_shallow(value, depth - 1)),
    }
}
