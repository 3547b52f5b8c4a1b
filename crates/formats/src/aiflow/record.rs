//! Aiflow lock record, and the rule that says when it is stale.

use std::fmt;
use std::time::Duration;

use lockkeeper_platform::process::{self, IdentifyError, MAX_PID};
use lockkeeper_platform::wall_clock::WallTime;
use serde_json::{Map, Value};

use crate::json_record::{self, RecordError};
use crate::safe_open::Snapshot;
use crate::{HeldReason, StaleReason, Verdict};

const VERSION: &str = "1.0";
/// The host that the format writes for the local machine.
const HERE: &str = "127.0.0.1";

/// What a lock protects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// The whole queue.
    Queue,
    /// One request.
    Request(String),
}

impl Subject {
    /// Returns the value of `lock_type`.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Request(_) => "request",
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queue => f.write_str("the queue"),
            Self::Request(id) => write!(f, "request {id}"),
        }
    }
}

/// The holder of a request or of the queue, and when its lock expires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AiflowRecord {
    /// What is locked.
    pub subject: Subject,
    /// The request of the lock, or the current request of the queue.
    pub request_id: Option<String>,
    /// The current run.
    pub run_id: Option<String>,
    /// The process that holds the lock; `None` when the record has no valid pid.
    pub pid: Option<u32>,
    /// The machine of that process.
    pub host: String,
    /// When the lock was taken.
    pub created_at: WallTime,
    /// When the lock expires unless it is extended.
    pub expires_at: WallTime,
}

impl AiflowRecord {
    /// Creates a record for a process on this machine.
    pub(super) fn new(
        subject: &Subject,
        run_id: Option<&str>,
        pid: u32,
        ttl: Duration,
        now: WallTime,
    ) -> Self {
        let request_id = match subject {
            Subject::Queue => None,
            Subject::Request(id) => Some(id.clone()),
        };
        Self {
            subject: subject.clone(),
            request_id,
            run_id: run_id.map(str::to_owned),
            pid: Some(pid),
            host: HERE.to_owned(),
            created_at: now,
            expires_at: now.after(ttl),
        }
    }

    /// Applies the rule of the format: a lock is stale if it has expired and its process is dead or unknown. A live
    /// process keeps an expired lock.
    pub fn judge(&self, now: WallTime) -> Verdict {
        if self.expires_at >= now {
            return Verdict::Held(HeldReason::InTime);
        }
        // A pid is only valid on its own machine. For another machine only the time counts.
        let Some(pid) = self.pid.filter(|_| self.is_of_this_machine()) else {
            return Verdict::Stale(StaleReason::Expired);
        };
        match process::identify(pid) {
            Ok(_) => Verdict::Held(HeldReason::ProcessAlive),
            Err(IdentifyError::NotRunning(_) | IdentifyError::Thread(_)) => {
                Verdict::Stale(StaleReason::ProcessGone)
            }
            Err(IdentifyError::OutOfRange(_)) => Verdict::Stale(StaleReason::Expired),
            Err(IdentifyError::Unreadable { .. }) => Verdict::Held(HeldReason::NotUnderstood),
        }
    }

    fn is_of_this_machine(&self) -> bool {
        let loopback = matches!(self.host.as_str(), "" | HERE | "localhost" | "::1");
        loopback || self.host.as_bytes() == rustix::system::uname().nodename().to_bytes()
    }

    /// Parses the record of a subject.
    pub(super) fn read(subject: &Subject, snapshot: &Snapshot) -> Result<Self, RecordError> {
        let object = json_record::object(snapshot)?;
        let wrong = |what: String| Err(RecordError::NotUnderstood(what));
        match object.get("version") {
            Some(Value::String(version)) if version == VERSION => {}
            Some(version) => return wrong(format!("its version is {version}, not \"{VERSION}\"")),
            None => return wrong("it has no version".to_owned()),
        }
        let kind = json_record::text(&object, "lock_type")?;
        if kind != subject.word() {
            return wrong(format!("its lock_type is `{}`, not `{}`", kind.escape_debug(), subject.word()));
        }
        let optional = |key: &str| object.get(key).and_then(Value::as_str).map(str::to_owned);
        let request_id = optional("request_id");
        if let Subject::Request(id) = subject
            && request_id.as_ref() != Some(id)
        {
            return wrong(format!("its request_id is {:?}, not {id:?}", request_id.unwrap_or_default()));
        }
        let written_at = snapshot.modified_at();
        Ok(Self {
            subject: subject.clone(),
            request_id,
            run_id: optional("run_id"),
            pid: pid(object.get("pid")),
            host: optional("host").unwrap_or_default(),
            created_at: json_record::time(&object, "created_at", written_at)?,
            expires_at: json_record::time(&object, "expires_at", written_at)?,
        })
    }

    pub(super) fn content(&self) -> Vec<u8> {
        json_record::content(&self.to_object())
    }

    /// Returns the record with the keys and values of the file.
    pub fn to_object(&self) -> Map<String, Value> {
        let values: [(&str, Value); 8] = [
            ("version", VERSION.into()),
            ("lock_type", self.subject.word().into()),
            ("request_id", self.request_id.clone().into()),
            ("run_id", self.run_id.clone().into()),
            ("pid", self.pid.into()),
            ("host", self.host.as_str().into()),
            ("created_at", self.created_at.local().into()),
            ("expires_at", self.expires_at.local().into()),
        ];
        values.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

/// Returns a valid pid. 0 and negative numbers mean process groups in `kill(2)`.
fn pid(value: Option<&Value>) -> Option<u32> {
    let number = u32::try_from(value?.as_u64()?).ok()?;
    (1..=MAX_PID).contains(&number).then_some(number)
}
