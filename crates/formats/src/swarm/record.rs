//! The record of a task lock: five keys, no more.

use std::time::Duration;

use lockkeeper_core::time::Ttl;
use serde_json::{Map, Number, Value};

use crate::hostile::Sighting;
use crate::json::{self, Unread};
use crate::{HeldReason, StaleReason, Verdict};
use lockkeeper_platform::wall_clock::WallTime;

/// Who holds a task, since when, and until when unless it says more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRecord {
    /// The worker that holds it.
    pub worker_id: String,
    /// The task.
    pub task_id: String,
    /// When the worker took it.
    pub acquired_at: WallTime,
    /// When the worker last said that it is still there.
    pub heartbeat_at: WallTime,
    /// How long the lock lives from there.
    pub ttl: Duration,
}

impl TaskRecord {
    /// When the lock may be taken over, unless its worker says more.
    pub fn expires_at(&self) -> WallTime {
        self.heartbeat_at.after(self.ttl)
    }

    /// The rule of the format: stale strictly after its end.
    pub fn judge(&self, now: WallTime) -> Verdict {
        if self.expires_at() < now {
            Verdict::Stale(StaleReason::Expired)
        } else {
            Verdict::Held(HeldReason::InTime)
        }
    }

    /// Reads a record: keys in any order, others beside them, `ttl_sec` for `ttl`, times as Python writes them.
    pub(super) fn read(sighting: &Sighting) -> Result<Self, Unread> {
        let object = json::object(sighting)?;
        let written_at = sighting.modified_at();
        let heartbeat_at = json::time(&object, "heartbeat_at", written_at)?;
        let acquired_at = match object.contains_key("acquired_at") {
            true => json::time(&object, "acquired_at", written_at)?,
            false => heartbeat_at,
        };
        Ok(Self {
            worker_id: json::text(&object, "worker_id")?,
            task_id: json::text(&object, "task_id")?,
            acquired_at,
            heartbeat_at,
            ttl: ttl(&object)?,
        })
    }

    /// The record as a file: exactly the five keys, since the original reader rejects others.
    pub(super) fn content(&self) -> Vec<u8> {
        json::content(&self.to_object())
    }

    /// The same keys and spellings as in the file.
    pub fn to_object(&self) -> Map<String, Value> {
        let mut object = Map::new();
        object.insert("worker_id".to_owned(), self.worker_id.as_str().into());
        object.insert("task_id".to_owned(), self.task_id.as_str().into());
        object.insert("acquired_at".to_owned(), self.acquired_at.to_string().into());
        object.insert("heartbeat_at".to_owned(), self.heartbeat_at.to_string().into());
        object.insert("ttl".to_owned(), seconds(self.ttl));
        object
    }
}

/// The same file with a later heartbeat. What else stands in it, its writer wanted there.
pub(super) fn renewed(sighting: &Sighting, now: WallTime, ttl: Option<Ttl>) -> Result<Vec<u8>, Unread> {
    let mut object = json::object(sighting)?;
    object.insert("heartbeat_at".to_owned(), now.to_string().into());
    if let Some(ttl) = ttl {
        object.insert("ttl".to_owned(), seconds(ttl.get()));
        if let Some(other) = object.get_mut("ttl_sec") {
            *other = seconds(ttl.get());
        }
    }
    Ok(json::content(&object))
}

/// Whole seconds where they are whole: the original writes `300`.
fn seconds(span: Duration) -> Value {
    if span.subsec_nanos() == 0 {
        return span.as_secs().into();
    }
    Number::from_f64(span.as_secs_f64()).map_or(Value::Null, Value::Number)
}

/// `ttl`, else `ttl_sec`; where both are there and differ, the longer one.
fn ttl(object: &Map<String, Value>) -> Result<Duration, Unread> {
    let spans = ["ttl", "ttl_sec"].into_iter().filter_map(|key| object.get(key)).map(span);
    let spans: Option<Vec<Duration>> = spans.collect();
    spans.and_then(|spans| spans.into_iter().max()).ok_or_else(|| json::missing("ttl", "span in seconds"))
}

fn span(value: &Value) -> Option<Duration> {
    let seconds = value.as_f64().filter(|seconds| *seconds >= 0.0)?;
    // What does not fit is longer than anybody waits.
    Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}
