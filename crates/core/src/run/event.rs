//! Events: the log of what happened to a run. Their numbers count from 1 without gaps.

use std::fmt;
use std::str::FromStr;

use super::{Reason, Stamp, Status};
use crate::id::{IdError, RunId};

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// It was submitted: queued, or rejected at once.
    Submitted,
    /// A worker claimed it.
    Claimed,
    /// The process of its command was recorded.
    Started,
    /// An attempt failed, and there will be another one.
    Retrying,
    /// A worker claimed the next attempt.
    Retried,
    /// Its worker died before the command began. The run waits to be claimed for the same attempt.
    Returned,
    /// Another worker took it over, because the one before is gone.
    Adopted,
    /// Its command asks for help.
    HelpAsked,
    /// It was canceled, and its worker has to stop it.
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

    /// Its public word.
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

/// An event. A store appends it in the same transaction as the change of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// When it happened.
    pub at: Stamp,
    /// The status before; none on submission.
    pub from: Option<Status>,
    /// The status after.
    pub to: Status,
    /// Why, as a code.
    pub reason: Option<Reason>,
    /// A message for people.
    pub message: Option<String>,
}

/// The id of an event: its run and its number, written `RUN:SEQ`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId {
    /// The run.
    pub run: RunId,
    /// Its number, from 1.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Programs read these words.
    #[test]
    fn the_words_of_events_never_change() {
        let words = EventKind::ALL.map(EventKind::as_str).join(" ");
        assert_eq!(
            words,
            "submitted claimed started retrying retried returned adopted help cancelling ended"
        );
    }

    #[test]
    fn the_id_of_an_event_is_its_run_and_a_number_from_one() {
        for text in ["RUN-1:1", "RUN-1:20"] {
            assert_eq!(text.parse::<EventId>().unwrap().to_string(), text);
        }
        for text in ["RUN-1:0", "RUN-1:-1", "RUN-1:", "RUN-1", ":1", ""] {
            assert!(text.parse::<EventId>().is_err(), "{text}");
        }
    }
}
