//! Task lock record: exactly five keys. Also reads the four keys of `swarm_lock.sh`.

use std::time::Duration;

use lockkeeper_core::time::Ttl;
use lockkeeper_platform::wall_clock::WallTime;
use serde_json::{Map, Number, Value};

use super::DEFAULT_TTL;
use crate::json::Json;
use crate::json_record::{self, RecordError};
use crate::safe_open::Snapshot;
use crate::{HeldReason, StaleReason, Verdict};

const HEARTBEAT: &str = "heartbeat_at";
const EXPIRES: &str = "expires_at";

/// The worker that holds a task, since when, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRecord {
    /// The worker that holds it.
    pub worker_id: String,
    /// The task.
    pub task_id: String,
    /// When the worker took it.
    pub acquired_at: WallTime,
    /// When the worker last renewed it.
    pub heartbeat_at: WallTime,
    /// How long the lock is valid after that.
    pub ttl: Duration,
}

impl TaskRecord {
    /// Returns when the lock expires without another heartbeat; none if it never does.
    pub fn expires_at(&self) -> Option<WallTime> {
        let end = self.heartbeat_at.after(self.ttl);
        (end < WallTime::from_micros(i64::MAX)).then_some(end)
    }

    /// Applies the rule of the format: a lock is stale strictly after its end.
    pub fn judge(&self, now: WallTime) -> Verdict {
        if self.expires_at().is_some_and(|end| end < now) {
            Verdict::Stale(StaleReason::Expired)
        } else {
            Verdict::Held(HeldReason::InTime)
        }
    }

    /// Parses a record. Keys may have any order, unknown keys are ignored, `ttl_sec` may replace `ttl`, a lock without either
    /// has [`DEFAULT_TTL`], and times may be written as Python writes them.
    pub(super) fn read(snapshot: &Snapshot) -> Result<Self, RecordError> {
        let object = json_record::object(snapshot)?;
        let time = |key| json_record::time(&object, key, snapshot.modified_at());
        let task_id = json_record::text(&object, "task_id")?;
        if is_of_script(&object) {
            let acquired_at = time("acquired_at")?;
            let heartbeat_at = if object.contains_key(HEARTBEAT) { time(HEARTBEAT)? } else { acquired_at };
            let ttl = match object.get(EXPIRES) {
                Some(Value::String(text)) if !text.is_empty() => time(EXPIRES)?.since(heartbeat_at),
                // The script writes null for a lock that never expires.
                Some(Value::Null | Value::String(_)) => Duration::MAX,
                Some(_) | None => return Err(json_record::missing(EXPIRES, "time")),
            };
            let worker_id = json_record::text(&object, "worker")?;
            return Ok(Self { worker_id, task_id, acquired_at, heartbeat_at, ttl });
        }
        let heartbeat_at = time(HEARTBEAT)?;
        let acquired_at =
            if object.contains_key("acquired_at") { time("acquired_at")? } else { heartbeat_at };
        let worker_id = json_record::text(&object, "worker_id")?;
        Ok(Self { worker_id, task_id, acquired_at, heartbeat_at, ttl: ttl(&object)? })
    }

    /// Formats the file: exactly the five keys, because the original program rejects others.
    pub(super) fn content(&self) -> Vec<u8> {
        json_record::content(&self.to_object())
    }

    /// Returns the record with the keys and values of the file.
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

/// Returns the same file with a later heartbeat. Keeps the other keys of its writer, and numbers of any size.
pub(super) fn renewed(snapshot: &Snapshot, now: WallTime, ttl: Option<Ttl>) -> Result<Vec<u8>, RecordError> {
    let object = json_record::object(snapshot)?;
    let text = std::str::from_utf8(snapshot.bytes()).unwrap_or_default();
    let mut file = Json::parse(text).unwrap_or_else(|_| Json::from(object.clone()));
    if is_of_script(&object) {
        let ttl = match ttl {
            Some(ttl) => ttl.get(),
            None => TaskRecord::read(snapshot)?.ttl,
        };
        // The script looks only at the end.
        if ttl != Duration::MAX {
            file.set(EXPIRES, now.after(ttl).to_string().as_str());
        }
    }
    file.set(HEARTBEAT, now.to_string().as_str());
    if let Some(ttl) = ttl.filter(|_| !is_of_script(&object)) {
        file.set("ttl", seconds(ttl.get()));
        if object.contains_key("ttl_sec") {
            file.set("ttl_sec", seconds(ttl.get()));
        }
    }
    Ok(format!("{}\n", file.to_pretty()).into_bytes())
}

/// Formats whole seconds without a fraction, as the original program does: `300`. Null for a lock that never expires.
fn seconds(span: Duration) -> Value {
    if span == Duration::MAX {
        return Value::Null;
    }
    if span.subsec_nanos() == 0 {
        return span.as_secs().into();
    }
    Number::from_f64(span.as_secs_f64()).map_or(Value::Null, Value::Number)
}

/// Says whether `swarm_lock.sh` wrote the record: `task_id`, `worker`, `acquired_at`, `expires_at`.
fn is_of_script(object: &Map<String, Value>) -> bool {
    object.contains_key("worker") && object.contains_key(EXPIRES) && !object.contains_key("worker_id")
}

/// Returns `ttl` or `ttl_sec`. If both are there, the longer one counts; if none is, the default of the format.
fn ttl(object: &Map<String, Value>) -> Result<Duration, RecordError> {
    let spans = ["ttl", "ttl_sec"].into_iter().filter_map(|key| object.get(key)).map(span);
    let spans: Option<Vec<Duration>> = spans.collect();
    let spans = spans.ok_or_else(|| json_record::missing("ttl", "span in seconds"))?;
    Ok(spans.into_iter().max().unwrap_or(DEFAULT_TTL))
}

fn span(value: &Value) -> Option<Duration> {
    let seconds = value.as_f64().filter(|seconds| *seconds >= 0.0)?;
    // A number that is too large means for ever.
    Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}
