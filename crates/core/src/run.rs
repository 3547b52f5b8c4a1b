//! Runs: the eight states that an attempt at a request goes through, and the only moves between them.
//!
//! Everything that happens to a run is a function from one record to the next, in [`life`]. A store replaces the old
//! record by the new one only if nobody else did meanwhile, and appends the event that the function gave, in the
//! same transaction. So a run is executed by at most one worker, whatever dies or freezes: every claim of it has a
//! larger number than the one before, and whoever comes with an older number has lost.

mod event;
pub mod life;
mod record;

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

pub use event::{Event, EventId, EventKind};
pub use record::{Ending, Inconsistent, Process, Reason, Run, Stamp};

/// Where a run is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// It waits for somebody to execute it.
    Queued,
    /// Somebody executes it, or it waits for its next attempt.
    Running,
    /// It was asked to end, and has not yet.
    Cancelling,
    /// Its command ended well.
    Succeeded,
    /// Its command ended badly, could not be started, or was lost.
    Failed,
    /// It was called off.
    Canceled,
    /// It waited or ran for too long.
    TimedOut,
    /// It was refused when it came, and never queued.
    Rejected,
}

impl Status {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Queued,
        Self::Running,
        Self::Cancelling,
        Self::Succeeded,
        Self::Failed,
        Self::Canceled,
        Self::TimedOut,
        Self::Rejected,
    ];

    /// The word for it, which programs and files use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Cancelling => "cancelling",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
            Self::TimedOut => "timedOut",
            Self::Rejected => "rejected",
        }
    }

    /// Whether nothing can happen to it any more.
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Queued | Self::Running | Self::Cancelling => false,
            Self::Succeeded | Self::Failed | Self::Canceled | Self::TimedOut | Self::Rejected => true,
        }
    }

    /// Whether a command of it may be there.
    pub const fn is_active(self) -> bool {
        match self {
            Self::Running | Self::Cancelling => true,
            Self::Queued
            | Self::Succeeded
            | Self::Failed
            | Self::Canceled
            | Self::TimedOut
            | Self::Rejected => false,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Status {
    type Err = NotAStatus;

    fn from_str(text: &str) -> Result<Self, NotAStatus> {
        let found = Self::ALL.into_iter().find(|status| status.as_str() == text);
        found.ok_or_else(|| NotAStatus(text.to_owned()))
    }
}

/// A word that is no status.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not the status of a run")]
pub struct NotAStatus(String);

impl NotAStatus {
    /// The way out, for the person who wrote it.
    pub fn hint(&self) -> String {
        format!("one of {}", Status::ALL.map(Status::as_str).join(", "))
    }
}

/// One move of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Where it begins.
    pub from: Status,
    /// Where it ends.
    pub to: Status,
    /// Who makes it.
    pub by: &'static str,
}

/// Every move that there is. Documents, the database's own rules and [`step`] all come from this table.
pub const MOVES: [Move; 10] = [
    Move { from: Status::Queued, to: Status::Running, by: "worker" },
    Move { from: Status::Queued, to: Status::Canceled, by: "user" },
    Move { from: Status::Queued, to: Status::TimedOut, by: "timeout" },
    Move { from: Status::Running, to: Status::Succeeded, by: "worker" },
    Move { from: Status::Running, to: Status::Failed, by: "worker" },
    Move { from: Status::Running, to: Status::Cancelling, by: "user" },
    Move { from: Status::Running, to: Status::TimedOut, by: "timeout" },
    Move { from: Status::Cancelling, to: Status::Canceled, by: "worker" },
    Move { from: Status::Cancelling, to: Status::Succeeded, by: "worker" },
    Move { from: Status::Cancelling, to: Status::Failed, by: "worker" },
];

/// The states that a run can begin in.
pub const FIRST: [Status; 2] = [Status::Queued, Status::Rejected];

/// Moves along the table, or refuses.
pub fn step(from: Status, to: Status) -> Result<Status, NoSuchMove> {
    let known = MOVES.iter().any(|known| (known.from, known.to) == (from, to));
    if known { Ok(to) } else { Err(NoSuchMove { from, to }) }
}

/// A move that is not in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a run that is {from} cannot become {to}")]
pub struct NoSuchMove {
    /// Where the run is.
    pub from: Status,
    /// Where it was to go.
    pub to: Status,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requirements 72, 73, 74, 75, 76, 77, 78, 79, 80, 81, 85, 89. Invariant 9.
    #[test]
    fn only_the_moves_of_the_table_are_made() {
        let allowed = [
            "queued running",
            "queued canceled",
            "queued timedOut",
            "running succeeded",
            "running failed",
            "running cancelling",
            "running timedOut",
            "cancelling canceled",
            "cancelling succeeded",
            "cancelling failed",
        ];
        let mut moves = 0;
        for from in Status::ALL {
            for to in Status::ALL {
                let expected = allowed.contains(&format!("{from} {to}").as_str());
                assert_eq!(step(from, to).is_ok(), expected, "{from} -> {to}");
                assert!(!(from.is_terminal() && step(from, to).is_ok()), "{from} is the end");
                moves += usize::from(expected);
            }
        }
        assert_eq!(moves, MOVES.len());
    }

    /// Requirement 89.
    #[test]
    fn no_sequence_of_moves_comes_back() {
        fn longest(from: Status) -> usize {
            MOVES
                .iter()
                .filter(|known| known.from == from)
                .map(|known| 1 + longest(known.to))
                .max()
                .unwrap_or(0)
        }
        assert_eq!(longest(Status::Queued), 3);
        assert_eq!(longest(Status::Rejected), 0);
    }

    #[test]
    fn words_come_back() {
        for status in Status::ALL {
            assert_eq!(status.as_str().parse(), Ok(status));
        }
        let refusal = "cancelled".parse::<Status>().unwrap_err();
        assert!(refusal.hint().contains("canceled"));
    }
}
