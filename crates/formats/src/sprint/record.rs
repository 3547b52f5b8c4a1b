//! The record in a sprint's lock file: read from YAML or JSON as others write it, written as the format says.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use lockkeeper_platform::wall_clock::WallTime;
use thiserror::Error;

use super::fields::Fields;
use super::quote::quoted;

/// The version that this program writes.
pub const LOCK_VERSION: u64 = 1;

/// Who runs the sprint, since when, and on what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The process that stands for the sprint, as the file says it: it may be no number of a process at all.
    pub pid: i64,
    /// The session, where the file names one.
    pub session_id: Option<String>,
    /// When the lock was taken.
    pub started_at: StartedAt,
    /// What the sprint works on, where the file says so.
    pub epic_spec: Option<String>,
    /// The version of the format, where the file gives one.
    pub lock_version: Option<String>,
}

/// A time of the wall clock, as it is written and as it is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartedAt {
    text: String,
    at: WallTime,
}

/// Why a file holds no record that could be judged.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoRecord {
    /// It is not one mapping with a pid and a time.
    #[error("{0}")]
    Invalid(String),
    /// It says to be of a version that may mean something else by its fields.
    #[error("lock_version {} is not known to this program", .0.escape_debug())]
    UnknownVersion(String),
}

impl Record {
    /// A record for a sprint that starts now.
    pub fn new(pid: u32, session_id: &str, epic_spec: &str, now: WallTime) -> Self {
        Self {
            pid: i64::from(pid),
            session_id: Some(session_id.to_owned()),
            started_at: StartedAt::at(now),
            epic_spec: Some(epic_spec.to_owned()),
            lock_version: Some(LOCK_VERSION.to_string()),
        }
    }

    /// Reads a whole file, YAML or JSON. Ignores unknown fields. Only pid and time are required: a lock is judged by them.
    pub fn parse(bytes: &[u8]) -> Result<Self, NoRecord> {
        let fields = Fields::read(bytes).map_err(NoRecord::Invalid)?;
        match Self::from_fields(&fields) {
            Ok(record) => Ok(record),
            Err(reason) => match fields.unknown_version() {
                Some(version) => Err(NoRecord::UnknownVersion(version)),
                None => Err(NoRecord::Invalid(reason)),
            },
        }
    }

    /// Whether its version is one that this program knows; without one it is the first.
    pub fn version_is_known(&self) -> bool {
        self.lock_version.as_ref().is_none_or(|version| *version == LOCK_VERSION.to_string())
    }

    /// The file's text.
    pub fn to_yaml(&self) -> String {
        let text = |value: &Option<String>| quoted(value.as_deref().unwrap_or_default());
        format!(
            "pid: {}\nsession_id: {}\nstarted_at: {}\nepic_spec: {}\nlock_version: {LOCK_VERSION}\n",
            self.pid,
            text(&self.session_id),
            quoted(self.started_at.as_str()),
            text(&self.epic_spec),
        )
    }

    fn from_fields(fields: &Fields) -> Result<Self, String> {
        let text = |name| fields.text(name);
        let required = |name| text(name)?.ok_or_else(|| format!("{name} is missing"));
        let (pid, started_at) = (required("pid")?, required("started_at")?);
        let digits = pid.strip_prefix('-').unwrap_or(&pid);
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let number = pid.parse().ok().filter(|_| is_number);
        Ok(Self {
            pid: number.ok_or_else(|| format!("pid is `{}`, not a number", pid.escape_debug()))?,
            session_id: text("session_id")?,
            started_at: StartedAt::parse(&started_at)?,
            epic_spec: text("epic_spec")?,
            lock_version: text("lock_version")?,
        })
    }
}

impl StartedAt {
    /// As the file has it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// As the clock has it.
    pub fn time(&self) -> WallTime {
        self.at
    }

    /// In UTC, to the second.
    fn at(at: WallTime) -> Self {
        let stamp =
            Timestamp::from_second(at.as_micros().div_euclid(1_000_000)).unwrap_or(Timestamp::UNIX_EPOCH);
        Self { text: stamp.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(), at: wall_time(stamp) }
    }

    /// ISO 8601 with `Z`, with an offset, or with neither, which means UTC.
    fn parse(text: &str) -> Result<Self, String> {
        let trimmed = text.trim();
        let in_utc = || -> Option<Timestamp> {
            let civil: DateTime = trimmed.parse().ok()?;
            civil.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
        };
        let stamp = trimmed.parse().ok().or_else(in_utc);
        let stamp = stamp.ok_or_else(|| format!("started_at is `{}`, not a time", text.escape_debug()))?;
        Ok(Self { text: text.to_owned(), at: wall_time(stamp) })
    }
}

fn wall_time(stamp: Timestamp) -> WallTime {
    WallTime::from_micros(stamp.as_microsecond())
}

#[cfg(test)]
mod tests;
