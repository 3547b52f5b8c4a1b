//! Arguments of tools: read strictly, so that a field that is not known, such as an owner, is refused and not ignored.

use rmcp::model::JsonObject;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The most paths and names of one call.
pub(super) const MAX_TARGETS: usize = 100;
/// The longest text of an argument, in bytes.
const MAX_TEXT: usize = 4096;
/// The longest note, in characters.
pub(super) const MAX_NOTE: usize = 200;
/// The longest wait, in seconds. Cursor ends calls after 60 s.
pub(super) const MAX_SECONDS: u64 = 50;

/// Why a call has no result.
#[derive(Debug)]
pub(super) enum CallError {
    /// The call does not fit the schema of the tool: an error of the protocol.
    Malformed(String),
    /// The call is understood, and cannot be done: the model reads why, and what it can do.
    Refused(String),
}

/// What a call wants.
#[derive(Clone, Debug)]
pub(super) enum ToolCall {
    Board(BoardCall),
    Check(CheckCall),
    Claim(ClaimCall),
    Commit(CommitCall),
    HandOver(HandOverCall),
    Note(NoteCall),
    Release(ReleaseCall),
    Wait(WaitCall),
    Why(WhyCall),
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BoardCall {
    pub(super) path: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CheckCall {
    pub(super) paths: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClaimCall {
    paths: Option<Vec<String>>,
    names: Option<Vec<String>>,
    pub(super) note: Option<String>,
    shared: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CommitCall {
    pub(super) message: String,
    paths: Option<Vec<String>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HandOverCall {
    pub(super) paths: Vec<String>,
    pub(super) to: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoteCall {
    pub(super) text: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReleaseCall {
    paths: Option<Vec<String>>,
    names: Option<Vec<String>>,
    all: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WaitCall {
    paths: Option<Vec<String>>,
    names: Option<Vec<String>>,
    seconds: Option<u64>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WhyCall {
    pub(super) target: String,
}

/// What a call is about.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) paths: &'a [String],
    pub(super) names: &'a [String],
    pub(super) shared: bool,
}

impl ToolCall {
    /// Reads the arguments of a tool.
    pub(super) fn read(tool: &str, arguments: &JsonObject) -> Result<Self, CallError> {
        let call = match tool {
            "board" => Self::Board(parse(arguments)?),
            "check" => Self::Check(parse(arguments)?),
            "claim" => Self::Claim(parse(arguments)?),
            "commit" => Self::Commit(parse(arguments)?),
            "hand_over" => Self::HandOver(parse(arguments)?),
            "note" => Self::Note(parse(arguments)?),
            "release" => Self::Release(parse(arguments)?),
            "wait" => Self::Wait(parse(arguments)?),
            "why" => Self::Why(parse(arguments)?),
            other => {
                let name: String = other.chars().filter(|c| !c.is_control()).take(80).collect();
                return Err(CallError::Malformed(format!("there is no tool `{name}`")));
            }
        };
        call.check().map_err(|wrong| CallError::Malformed(wrong.to_owned()))?;
        Ok(call)
    }

    fn check(&self) -> Result<(), &'static str> {
        match self {
            Self::Check(call) => check_targets(&call.paths, &[]),
            Self::Claim(call) => check_targets(call.asked().paths, call.asked().names),
            Self::Commit(call) if call.message.trim().is_empty() => Err("`message` is empty"),
            Self::Commit(call) if call.paths.is_none() => Ok(()),
            Self::Commit(call) => check_targets(call.paths(), &[]),
            Self::HandOver(call) => check_targets(&call.paths, &[]),
            Self::Release(call) if call.all() => Ok(()),
            Self::Release(call) => check_targets(call.asked().paths, call.asked().names),
            Self::Wait(call) if call.seconds.is_some_and(|seconds| seconds > MAX_SECONDS) => {
                Err("`seconds` is more than 50: call again to wait longer, the place in line is kept")
            }
            Self::Wait(call) => check_targets(call.asked().paths, call.asked().names),
            Self::Board(_) | Self::Note(_) | Self::Why(_) => Ok(()),
        }
    }
}

impl ClaimCall {
    pub(super) fn asked(&self) -> Asked<'_> {
        asked(self.paths.as_ref(), self.names.as_ref(), self.shared.unwrap_or(false))
    }
}

impl CommitCall {
    /// The paths that were named. None of them: what the caller has claimed.
    pub(super) fn paths(&self) -> &[String] {
        self.paths.as_deref().unwrap_or_default()
    }
}

impl ReleaseCall {
    pub(super) fn asked(&self) -> Asked<'_> {
        asked(self.paths.as_ref(), self.names.as_ref(), false)
    }

    pub(super) fn all(&self) -> bool {
        self.all.unwrap_or(false)
    }
}

impl WaitCall {
    pub(super) fn asked(&self) -> Asked<'_> {
        asked(self.paths.as_ref(), self.names.as_ref(), false)
    }

    pub(super) fn seconds(&self) -> u64 {
        self.seconds.unwrap_or(MAX_SECONDS)
    }
}

fn asked<'a>(paths: Option<&'a Vec<String>>, names: Option<&'a Vec<String>>, shared: bool) -> Asked<'a> {
    let list = |list: Option<&'a Vec<String>>| list.map(Vec::as_slice).unwrap_or_default();
    Asked { paths: list(paths), names: list(names), shared }
}

fn check_targets(paths: &[String], names: &[String]) -> Result<(), &'static str> {
    match paths.len() + names.len() {
        0 => Err("name at least one path, or a name where the tool takes names"),
        1..=MAX_TARGETS => Ok(()),
        _ => Err("more than 100 paths and names in one call"),
    }
}

fn parse<T: DeserializeOwned>(arguments: &JsonObject) -> Result<T, CallError> {
    let too_long = |value: &Value| match value {
        Value::String(text) => text.len() > MAX_TEXT,
        Value::Array(list) => list.iter().any(|one| one.as_str().is_some_and(|text| text.len() > MAX_TEXT)),
        _ => false,
    };
    if let Some((key, _)) = arguments.iter().find(|(_, value)| too_long(value)) {
        let key: String = key.chars().take(80).collect();
        return Err(CallError::Malformed(format!("`{key}` has a text of more than {MAX_TEXT} bytes")));
    }
    serde_json::from_value(Value::Object(arguments.clone())).map_err(|error| {
        // The message repeats what was given.
        let message: String = error.to_string().chars().filter(|c| !c.is_control()).take(300).collect();
        CallError::Malformed(message)
    })
}
