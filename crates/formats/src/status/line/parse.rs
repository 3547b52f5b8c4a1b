//! Parser of a status line, lenient: it reads the lines of all programs that use the protocol.

use std::borrow::Cow;
use std::str::FromStr;

use lockkeeper_platform::wall_clock::WallTime;
use serde::Deserialize;
use serde_json::Value;

use super::{Dialect, LineError, StatusLine, WORKER, worker_in};
use crate::json::Json;

/// A number with this many digits may not fit into the numbers that serde reads.
const LONG_NUMBER: usize = 16;

impl FromStr for StatusLine {
    type Err = LineError;

    /// Parses a line of any program of the protocol.
    fn from_str(text: &str) -> Result<Self, LineError> {
        // serde would accept a list as the fields in order.
        if !text.trim_start().starts_with('{') {
            return Err(LineError::NotAnObject);
        }
        match serde_json::from_str::<Read<'_>>(text) {
            Ok(read) if !has_long_number(text) => Self::of_fields(read, None),
            Ok(read) => Self::of_fields(read, exact_meta(text).map(|(_, meta)| meta)),
            // Serde may have failed at a number in `meta` that is too large for it. Such a number is kept as it is written.
            Err(error) => {
                let Some((fields, meta)) = exact_meta(text) else { return Err(LineError::Json(error)) };
                Self::of_fields(
                    serde_json::from_str(&fields).map_err(|_| LineError::Json(error))?,
                    Some(meta),
                )
            }
        }
    }
}

impl StatusLine {
    /// Builds a line from its fields. `exact` is `meta` without loss, where serde would lose digits.
    fn of_fields(read: Read<'_>, exact: Option<Json>) -> Result<Self, LineError> {
        let state = read.state.parse()?;
        if read.task_id.is_empty() {
            return Err(LineError::Empty { what: "task id" });
        }
        let at = time_of(read.timestamp.or(read.ts))?;
        // An optional field with a wrong type is ignored.
        let is_object = |meta: &Json| matches!(meta, Json::Object(_));
        let mut meta = exact.or_else(|| read.meta.map(Json::from)).filter(is_object);
        let mut worker = meta.as_ref().and_then(worker_in);
        if let Some(top) = read.worker_id.as_ref().and_then(text_of).filter(|_| worker.is_none()) {
            meta.get_or_insert_with(|| Json::Object(Vec::new())).set(WORKER, top.as_str());
            worker = Some(top);
        }
        let message = read.message.as_ref().and_then(text_of);
        let task = read.task_id.into_owned();
        Ok(Self { dialect: Dialect::Design, state, task, at, message, meta, worker })
    }
}

/// The fields that are parsed. Other fields are ignored.
#[derive(Deserialize)]
struct Read<'l> {
    #[serde(borrow)]
    state: Cow<'l, str>,
    #[serde(borrow)]
    task_id: Cow<'l, str>,
    timestamp: Option<Value>,
    ts: Option<Value>,
    message: Option<Value>,
    meta: Option<Value>,
    worker_id: Option<Value>,
}

/// Whether a number of the line may be too long for serde.
fn has_long_number(text: &str) -> bool {
    let is_number = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E');
    text.as_bytes().split(|byte| !is_number(byte)).any(|run| run.len() >= LONG_NUMBER)
}

/// Splits a line into its other fields and `meta`, which is read without loss.
fn exact_meta(text: &str) -> Option<(String, Json)> {
    let Json::Object(mut fields) = Json::parse(text).ok()? else { return None };
    let place = fields.iter().position(|(key, _)| key == "meta")?;
    let (_, meta) = fields.remove(place);
    Some((Json::Object(fields).to_line(), meta))
}

/// Returns a text. Other programs also write numbers and other values where a text belongs.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => Some(value.to_string()),
    }
}

/// Parses ISO 8601, or seconds since 1970 as Python's `time.time()` returns them.
fn time_of(value: Option<Value>) -> Result<WallTime, LineError> {
    let read = match value {
        Some(Value::String(text)) => text.parse().ok(),
        Some(Value::Number(seconds)) => seconds.as_f64().and_then(WallTime::from_unix_seconds),
        Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) | None => None,
    };
    read.map(WallTime::in_milliseconds).ok_or(LineError::Time)
}
