//! JSON records: reads and writes lock files that hold one JSON object.

use std::time::Duration;

use lockkeeper_platform::wall_clock::WallTime;
use serde_json::{Map, Value};
use thiserror::Error;

use super::safe_open::Snapshot;
use super::{HeldReason, StaleReason, Verdict};

/// Why a record cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RecordError {
    /// It is incomplete: its writer is not done yet, or died.
    #[error("it is not written to its end")]
    Torn,
    /// It is complete, but not a record of this format.
    #[error("{0}")]
    NotUnderstood(String),
}

impl RecordError {
    /// Judges such a record. An incomplete record expires one TTL after its last write.
    pub(super) fn verdict(&self, snapshot: &Snapshot, ttl: Duration, now: WallTime) -> Verdict {
        match self {
            Self::NotUnderstood(_) => Verdict::Held(HeldReason::NotUnderstood),
            Self::Torn if snapshot.is_settling(now) => Verdict::Held(HeldReason::BeingWritten),
            Self::Torn if snapshot.modified_at().after(ttl) < now => Verdict::Stale(StaleReason::Torn),
            Self::Torn => Verdict::Held(HeldReason::InTime),
        }
    }
}

/// Parses the object.
pub(super) fn object(snapshot: &Snapshot) -> Result<Map<String, Value>, RecordError> {
    if snapshot.is_blank() {
        return Err(RecordError::Torn);
    }
    match serde_json::from_slice(snapshot.bytes()) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(RecordError::NotUnderstood("it is not a JSON object".to_owned())),
        Err(error) if error.is_eof() => Err(RecordError::Torn),
        Err(error) => Err(RecordError::NotUnderstood(format!("it is not JSON: {error}"))),
    }
}

/// Returns a text field of the object.
pub(super) fn text(object: &Map<String, Value>, key: &str) -> Result<String, RecordError> {
    let text = object.get(key).and_then(Value::as_str);
    text.map(str::to_owned).ok_or_else(|| missing(key, "text"))
}

/// Returns a time field of the object.
pub(super) fn time(
    object: &Map<String, Value>,
    key: &str,
    written_at: WallTime,
) -> Result<WallTime, RecordError> {
    WallTime::read(&text(object, key)?, written_at).ok_or_else(|| missing(key, "time"))
}

pub(super) fn missing(key: &str, what: &str) -> RecordError {
    RecordError::NotUnderstood(format!("its `{key}` is missing, or is no {what}"))
}

/// Formats the object, with each key on a line of its own.
pub(super) fn content(object: &Map<String, Value>) -> Vec<u8> {
    let value = Value::Object(object.clone());
    format!("{value:#}\n").into_bytes()
}

/// Says whether the content is a complete JSON object.
pub(super) fn is_object(content: &[u8]) -> bool {
    serde_json::from_slice::<Map<String, Value>>(content).is_ok()
}
