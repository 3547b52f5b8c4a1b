//! Runs: a state machine. A run is one execution of a request. This module has its eight public states, and the moves between
//! them.
//!
//! Each change is a pure function from one record to the next, in [`transition`]. A store writes the next record only if
//! the run still has the version that the function read (compare-and-set), and appends the event in the same transaction.
//! So at most one worker executes a run, whichever process dies or freezes: every claim has a larger number than the one
//! before, and a worker with an older number is refused.

mod accessors;
pub mod admission;
mod event;
mod reason;
mod row;
mod state;
pub mod transition;

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

pub use event::{Event, EventId, EventKind};
pub use reason::{Ending, Reason};
pub use row::{ImpossibleRow, RunRow};
pub use state::{Attempt, End, Execution, LastAttempt, Process, Report, Run, RunResult, RunState, Stamp};

/// The public word for the state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// It waits for a worker.
    Queued,
    /// A worker executes it, or it waits for its next attempt.
    Running,
    /// It was canceled, and its worker has not stopped it yet.
    Cancelling,
    /// Its command succeeded.
    Succeeded,
    /// Its command failed, could not be started, or was lost.
    Failed,
    /// It was canceled.
    Canceled,
    /// It waited or ran for too long.
    TimedOut,
    /// It was refused on submission and never queued.
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

    /// The word itself, which programs and files use.
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

    /// Whether the run has ended. It never changes after that.
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Queued | Self::Running | Self::Cancelling => false,
            Self::Succeeded | Self::Failed | Self::Canceled | Self::TimedOut | Self::Rejected => true,
        }
    }

    /// Whether the run was claimed and has not ended.
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
    /// What the user can do about it.
    pub fn hint(&self) -> String {
        format!("one of {}", Status::ALL.map(Status::as_str).join(", "))
    }
}

/// One allowed change of the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The status before.
    pub from: Status,
    /// The status after.
    pub to: Status,
    /// What makes it: a worker, a user or a timeout.
    pub by: &'static str,
}

/// All allowed moves. The documents, the constraints of the database and [`step`] come from this table.
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

/// The statuses of new runs.
pub const FIRST: [Status; 2] = [Status::Queued, Status::Rejected];

/// Checks that a move is allowed.
pub fn step(from: Status, to: Status) -> Result<Status, NoSuchMove> {
    let known = MOVES.iter().any(|known| (known.from, known.to) == (from, to));
    if known { Ok(to) } else { Err(NoSuchMove { from, to }) }
}

/// A move that is not in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a run that is {from} cannot become {to}")]
pub struct NoSuchMove {
    /// The status of the run.
    pub from: Status,
    /// The status that it should get.
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
    fn a_status_is_terminal_if_no_move_leaves_it_and_active_between_the_claim_and_the_end() {
        for status in Status::ALL {
            assert_eq!(status.is_terminal(), !MOVES.iter().any(|known| known.from == status), "{status}");
            assert_eq!(status.is_active(), status != Status::Queued && !status.is_terminal(), "{status}");
        }
    }

    /// Requirement 89.
    #[test]
    fn the_moves_form_no_cycle() {
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
    fn each_status_is_parsed_from_its_own_text() {
        for status in Status::ALL {
            assert_eq!(status.as_str().parse(), Ok(status));
        }
        let refusal = "cancelled".parse::<Status>().unwrap_err();
        assert!(refusal.hint().contains("canceled"));
    }
}
