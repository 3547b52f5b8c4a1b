//! Sprint lock record: parsed from YAML or JSON leniently, written exactly as the format says.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use lockkeeper_platform::wall_clock::WallTime;
use thiserror::Error;

use super::fields::Fields;
use super::quote::quoted;

/// The version that this program writes.
pub const LOCK_VERSION: u64 = 1;

/// The process and the session of a sprint, when it started, and what it works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The process of the sprint, as the file has it. It may be outside the range of pids.
    pub pid: i64,
    /// The session, if the file has one.
    pub session_id: Option<String>,
    /// When the lock was taken.
    pub started_at: StartedAt,
    /// What the sprint works on, if the file says so.
    pub epic_spec: Option<String>,
    /// The version of the format, if the file has one.
    pub lock_version: Option<String>,
}

/// A wall clock time, as text and as a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartedAt {
    text: String,
    at: WallTime,
}

/// Why a file has no record that can be judged.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RecordError {
    /// It is not a mapping with a pid and a time.
    #[error("{0}")]
    Invalid(String),
    /// It has another version, whose fields may mean something else.
    #[error("lock_version {} is not known to this program", .0.escape_debug())]
    UnknownVersion(String),
}

impl Record {
    /// Creates the record of a sprint that starts now.
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
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordError> {
        let fields = Fields::read(bytes).map_err(RecordError::Invalid)?;
        match Self::from_fields(&fields) {
            Ok(record) => Ok(record),
            Err(reason) => match fields.unknown_version() {
                Some(version) => Err(RecordError::UnknownVersion(version)),
                None => Err(RecordError::Invalid(reason)),
            },
        }
    }

    /// Says whether this program knows the version. A record without a version has version 1.
    pub fn version_is_known(&self) -> bool {
        self.lock_version.as_ref().is_none_or(|version| *version == LOCK_VERSION.to_string())
    }

    /// Formats the file.
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
    /// Returns the text in the file.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the time.
    pub fn time(&self) -> WallTime {
        self.at
    }

    /// Formats a time in UTC, in whole seconds.
    fn at(at: WallTime) -> Self {
        let stamp =
            Timestamp::from_second(at.as_micros().div_euclid(1_000_000)).unwrap_or(Timestamp::UNIX_EPOCH);
        Self { text: stamp.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(), at: wall_time(stamp) }
    }

    /// Parses ISO 8601 with `Z`, with an offset, or with neither, which means UTC.
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
