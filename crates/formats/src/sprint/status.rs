//! Answer of a sprint command: mode, status and lock info, as JSON and YAML.

use std::str::FromStr;

use serde_json::{Map, Value, json};

use super::judgement::{Judged, hours};
use super::problem::Problem;
use super::quote::quoted;
use super::record::Record;

/// The operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Take the lock.
    Acquire,
    /// Remove the lock.
    Release,
    /// Only read the lock.
    Check,
}

impl FromStr for Mode {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        match text {
            "acquire" => Ok(Self::Acquire),
            "release" => Ok(Self::Release),
            "check" => Ok(Self::Check),
            _ => Err(Problem::InvalidMode),
        }
    }
}

/// The result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The lock was taken.
    Acquired,
    /// There is no lock any more.
    Released,
    /// Another sprint has the lock.
    Blocked,
    /// The holder has ended, or has held the lock for too long.
    ZombieDetected,
    /// There is no lock.
    Clean,
    /// The operation failed.
    Failure,
}

impl Status {
    /// Returns its name in the answer.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Acquired => "acquired",
            Self::Released => "released",
            Self::Blocked => "blocked",
            Self::ZombieDetected => "zombie-detected",
            Self::Clean => "clean",
            Self::Failure => "failure",
        }
    }
}

/// What the answer says about the lock.
#[derive(Clone, Debug, PartialEq)]
pub enum LockInfo {
    /// There is no lock.
    Absent,
    /// There is a file that could not be read.
    Unread,
    /// The lock that was read and judged. Missing values are null.
    Present {
        /// The process.
        pid: Option<i64>,
        /// The session.
        session_id: Option<String>,
        /// When it was taken, as the file has it.
        started_at: Option<String>,
        /// What the sprint works on.
        epic_spec: Option<String>,
        /// The age in hours.
        age_hours: Option<f64>,
        /// Whether the process is alive.
        pid_alive: Option<bool>,
        /// Whether the lock may be taken over.
        is_zombie: bool,
    },
}

impl LockInfo {
    /// Describes a lock that was judged.
    pub fn judged(judged: &Judged) -> Self {
        let age_hours = judged.age.map(hours);
        Self::present(judged.record.as_ref(), age_hours, judged.pid_alive, judged.is_zombie())
    }

    /// Describes a lock that was just taken.
    pub fn taken(record: &Record) -> Self {
        Self::present(Some(record), Some(0.0), Some(true), false)
    }

    /// Returns JSON, with the keys in the order of the format.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Absent => json!({ "exists": false }),
            Self::Unread => json!({ "exists": true }),
            Self::Present { pid, session_id, started_at, epic_spec, age_hours, pid_alive, is_zombie } => {
                json!({
                    "exists": true,
                    "pid": pid,
                    "session_id": session_id,
                    "started_at": started_at,
                    "epic_spec": epic_spec,
                    "age_hours": age_hours.map(number),
                    "pid_alive": pid_alive,
                    "is_zombie": is_zombie,
                })
            }
        }
    }

    fn present(
        record: Option<&Record>,
        age_hours: Option<f64>,
        pid_alive: Option<bool>,
        is_zombie: bool,
    ) -> Self {
        Self::Present {
            pid: record.map(|record| record.pid),
            session_id: record.and_then(|record| record.session_id.clone()),
            started_at: record.map(|record| record.started_at.as_str().to_owned()),
            epic_spec: record.and_then(|record| record.epic_spec.clone()),
            age_hours,
            pid_alive,
            is_zombie,
        }
    }
}

/// The whole answer.
#[derive(Debug)]
pub struct Answer {
    /// The result.
    pub status: Status,
    /// The lock after the operation.
    pub lock_info: LockInfo,
    /// One sentence.
    pub message: String,
    /// The error, or the warnings.
    pub problems: Vec<Problem>,
}

impl Answer {
    /// Creates an answer without problems.
    pub fn new(status: Status, lock_info: LockInfo, message: impl Into<String>) -> Self {
        Self { status, lock_info, message: message.into(), problems: Vec::new() }
    }

    /// Creates the answer of a failure. The message has the sentence and its causes.
    pub fn failure(problem: Problem, lock_info: LockInfo) -> Self {
        let message = problem.with_causes();
        Self { status: Status::Failure, lock_info, message, problems: vec![problem] }
    }

    /// Adds warnings before the existing problems.
    #[must_use]
    pub fn with_warnings(mut self, mut warnings: Vec<Problem>) -> Self {
        warnings.append(&mut self.problems);
        self.problems = warnings;
        self
    }

    /// Returns the document of the format. `mode` is the mode as the user gave it.
    pub fn to_json(&self, mode: &str) -> Value {
        let errors: Vec<String> = self.problems.iter().map(ToString::to_string).collect();
        json!({
            "status": self.status.word(),
            "mode": mode,
            "lock_info": self.lock_info.to_json(),
            "message": self.message,
            "errors": errors,
        })
    }

    /// Returns the same document as YAML.
    pub fn to_yaml(&self, mode: &str) -> String {
        let document = self.to_json(mode);
        let mut text = String::new();
        for (key, value) in document.as_object().into_iter().flatten() {
            match value {
                Value::Object(fields) => text.push_str(&block(key, fields)),
                Value::Array(items) if !items.is_empty() => {
                    let items: Vec<String> =
                        items.iter().map(|item| format!("  - {}\n", scalar(item))).collect();
                    text.push_str(&format!("{key}:\n{}", items.concat()));
                }
                other => text.push_str(&format!("{key}: {}\n", scalar(other))),
            }
        }
        text
    }
}

fn block(key: &str, fields: &Map<String, Value>) -> String {
    let fields: Vec<String> =
        fields.iter().map(|(key, value)| format!("  {key}: {}\n", scalar(value))).collect();
    format!("{key}:\n{}", fields.concat())
}

fn scalar(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), quoted)
}

/// Writes a whole number without a fraction, as the format does.
fn number(hours: f64) -> Value {
    if hours.fract() == 0.0 && hours < 1e15 { json!(hours as u64) } else { json!(hours) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lockkeeper_platform::wall_clock::WallTime;

    use super::*;
    use crate::yaml;

    const START: WallTime = WallTime::from_micros(1_770_503_400_000_000);

    /// Requirements 7, 8.
    #[test]
    fn the_answer_is_the_document_of_the_format() {
        let record = Record::new(12345, "sprint-2026-02-07-001", "epic5", START);
        let judged = Judged::new(Ok(record), |_| Ok(true), START.after(Duration::from_secs(9000)), false);
        let answer = Answer::new(Status::Blocked, LockInfo::judged(&judged), "no");
        let expected = r#"status: "blocked"
mode: "check"
lock_info:
  exists: true
  pid: 12345
  session_id: "sprint-2026-02-07-001"
  started_at: "2026-02-07T22:30:00Z"
  epic_spec: "epic5"
  age_hours: 2.5
  pid_alive: true
  is_zombie: false
message: "no"
errors: []
"#;
        assert_eq!(answer.to_yaml("check"), expected);
        let read = yaml::compose(&yaml::Source::new(expected.to_owned())).unwrap().unwrap();
        assert_eq!(to_json(&read), answer.to_json("check"));
    }

    /// Converts a node as YAML's JSON schema does.
    fn to_json(node: &yaml::Node) -> Value {
        match &node.value {
            yaml::Value::Scalar { text, plain: true } => text.parse().unwrap(),
            yaml::Value::Scalar { text, plain: false } => text.as_str().into(),
            yaml::Value::List(items) => items.iter().map(to_json).collect(),
            yaml::Value::Map(entries) => {
                entries.iter().map(|(key, value)| (key.text().unwrap().to_owned(), to_json(value))).collect()
            }
        }
    }

    /// Requirement 36.
    #[test]
    fn a_new_lock_has_the_age_zero() {
        let info = LockInfo::taken(&Record::new(1, "s", "e", START)).to_json();
        assert_eq!(
            (&info["age_hours"], &info["pid_alive"], &info["is_zombie"]),
            (&json!(0), &json!(true), &json!(false))
        );
    }

    /// Requirements 9, 44.
    #[test]
    fn a_failure_has_its_cause_in_the_message_and_not_in_the_errors() {
        let problem = Problem::WriteFailed(std::io::Error::other("disk full\n\u{1b}[2J"));
        let answer = Answer::failure(problem, LockInfo::Absent);
        let expected = "status: \"failure\"\nmode: \"acquire\"\nlock_info:\n  exists: false\n\
            message: \"Failed to write lock file: disk full\\n\\U0000001B[2J\"\nerrors:\n  - \"Failed to write lock file\"\n";
        assert_eq!(answer.to_yaml("acquire"), expected);
    }

    /// Requirement 1.
    #[test]
    fn there_are_three_modes() {
        assert_eq!("acquire".parse::<Mode>().unwrap(), Mode::Acquire);
        assert_eq!("release".parse::<Mode>().unwrap(), Mode::Release);
        assert_eq!("check".parse::<Mode>().unwrap(), Mode::Check);
        for text in ["", "Acquire", "acquire ", "status"] {
            assert!(matches!(text.parse::<Mode>(), Err(Problem::InvalidMode)), "{text}");
        }
    }
}
