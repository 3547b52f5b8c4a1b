//! Events: what happened to a run, one after the other, without gaps.

use std::fmt;
use std::str::FromStr;

use super::Status;
use super::record::Reason;
use crate::id::{IdError, RunId};

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// It came in: queued, or rejected at once.
    Submitted,
    /// Somebody took it.
    Claimed,
    /// Its command was started.
    Started,
    /// An attempt failed, and there will be another.
    Retrying,
    /// The next attempt was taken.
    Retried,
    /// A worker of Lockkeeper 0.1.0 had taken it and gave it back, because its command had not begun.
    Returned,
    /// Another worker looks after it, because the one before is gone.
    Adopted,
    /// Its command needs somebody.
    HelpAsked,
    /// It was asked to end.
    Cancelling,
    /// It has ended.
    Ended,
}

impl EventKind {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Submitted,
        Self::Claimed,
        Self::Started,
        Self::Retrying,
        Self::Retried,
        Self::Returned,
        Self::Adopted,
        Self::HelpAsked,
        Self::Cancelling,
        Self::Ended,
    ];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Submitted => "submitted",
            Self::Claimed => "claimed",
            Self::Started => "started",
            Self::Retrying => "retrying",
            Self::Retried => "retried",
            Self::Returned => "returned",
            Self::Adopted => "adopted",
            Self::HelpAsked => "help",
            Self::Cancelling => "cancelling",
            Self::Ended => "ended",
        }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A fact that happened, to be appended with the change that it tells of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// Where the run was before; none when it came in.
    pub from: Option<Status>,
    /// Where it is now.
    pub to: Status,
    /// Why, where that is known.
    pub reason: Option<Reason>,
    /// In words, for people.
    pub message: Option<String>,
}

/// An event's place: the run and a number that counts from 1 without gaps, written `RUN:SEQ`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId {
    /// Whose event it is.
    pub run: RunId,
    /// Which one.
    pub seq: u32,
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.run, self.seq)
    }
}

impl FromStr for EventId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let number = || IdError::EventForm(text.to_owned());
        let (run, seq) = text.rsplit_once(':').ok_or_else(number)?;
        let seq = seq.parse().ok().filter(|seq| *seq > 0).ok_or_else(number)?;
        Ok(Self { run: run.parse()?, seq })
    }
}
