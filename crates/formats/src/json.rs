//! Records that are one JSON object: read with every doubt kept, and written the way people lay them out.

use std::time::Duration;

use serde_json::{Map, Value};
use thiserror::Error;

use super::hostile::Sighting;
use super::{HeldReason, StaleReason, Verdict};
use lockkeeper_platform::wall_clock::WallTime;

/// Why a record cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unread {
    /// It ends too early: its writer is still at it, or died.
    #[error("it is not written to its end")]
    Torn,
    /// It is something else.
    #[error("{0}")]
    NotUnderstood(String),
}

impl Unread {
    /// What is to be made of such a record: a torn one is held until its time is up, counted from its last write.
    pub(super) fn verdict(&self, sighting: &Sighting, ttl: Duration, now: WallTime) -> Verdict {
        match self {
            Self::NotUnderstood(_) => Verdict::Held(HeldReason::NotUnderstood),
            Self::Torn if sighting.is_settling(now) => Verdict::Held(HeldReason::BeingWritten),
            Self::Torn if sighting.modified_at().after(ttl) < now => Verdict::Stale(StaleReason::Torn),
            Self::Torn => Verdict::Held(HeldReason::InTime),
        }
    }
}

/// Reads the object.
pub(super) fn object(sighting: &Sighting) -> Result<Map<String, Value>, Unread> {
    if sighting.is_blank() {
        return Err(Unread::Torn);
    }
    match serde_json::from_slice(sighting.bytes()) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(Unread::NotUnderstood("it is not a JSON object".to_owned())),
        Err(error) if error.is_eof() => Err(Unread::Torn),
        Err(error) => Err(Unread::NotUnderstood(format!("it is not JSON: {error}"))),
    }
}

/// A text of the object.
pub(super) fn text(object: &Map<String, Value>, key: &str) -> Result<String, Unread> {
    let text = object.get(key).and_then(Value::as_str);
    text.map(str::to_owned).ok_or_else(|| missing(key, "text"))
}

/// A time of the object.
pub(super) fn time(object: &Map<String, Value>, key: &str, written_at: WallTime) -> Result<WallTime, Unread> {
    WallTime::read(&text(object, key)?, written_at).ok_or_else(|| missing(key, "time"))
}

pub(super) fn missing(key: &str, what: &str) -> Unread {
    Unread::NotUnderstood(format!("its `{key}` is missing, or is no {what}"))
}

/// Writes the object, one key a line.
pub(super) fn content(object: &Map<String, Value>) -> Vec<u8> {
    let value = Value::Object(object.clone());
    format!("{value:#}\n").into_bytes()
}

/// Whether it is a whole JSON object.
pub(super) fn is_object(content: &[u8]) -> bool {
    serde_json::from_slice::<Map<String, Value>>(content).is_ok()
}
