//! The record of a run. Its state is an enum whose variants carry the data of that state and nothing else.

use std::time::Duration;

use super::{Ending, Reason, Status};
use crate::id::{HolderId, LeaseId, RequestId, RunId, Token, WorkerId};
use crate::liveness::ProcessRef;
use crate::time::Moment;

/// A timestamp on two clocks: the store's clock measures spans, the wall clock is for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// On the store's clock of this boot.
    pub moment: Moment,
    /// On the wall clock, in microseconds since 1970.
    pub unix_micros: i64,
}

/// A run: one execution of a request, with as many attempts as the request allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its id. No two runs have the same.
    pub id: RunId,
    /// The request that it executes.
    pub request: RequestId,
    /// The number of its events. Each transition adds one, and a store compares it (compare-and-set).
    pub version: u32,
    /// When it was submitted.
    pub queued_at: Stamp,
    /// How long one attempt may take.
    pub timeout: Option<Duration>,
    /// Its state.
    pub state: RunState,
}

/// The state of a run, with its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunState {
    /// It waits for a worker.
    Queued {
        /// When it times out if no worker has claimed it.
        give_up_at: Option<Moment>,
    },
    /// A worker executes it.
    Running(Execution),
    /// Its last attempt failed, and it waits for the next one. Its status is `running`.
    WaitingForRetry {
        /// The attempt that failed.
        last: LastAttempt,
        /// When the next attempt is due.
        retry_at: Moment,
    },
    /// It was canceled while a worker executes it. The worker stops the command.
    Cancelling(Execution),
    /// It was canceled while it waited for its next attempt. The next transition ends it.
    CancellingRetry(LastAttempt),
    /// It has ended.
    Ended(End),
    /// It was refused on submission and never queued.
    Rejected {
        /// When.
        at: Stamp,
        /// Why, as a code.
        reason: Reason,
        /// Why, in words.
        message: Option<String>,
    },
}

/// The numbers and the start of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Its number, from 1.
    pub number: u32,
    /// The fencing number of the run: it grows with every claim, and a worker with an older one has lost the run.
    pub claim: u64,
    /// When it was claimed.
    pub started_at: Stamp,
}

/// What is reported about an attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How its command ended, if that is known.
    pub ending: Option<Ending>,
    /// A message for people.
    pub message: Option<String>,
    /// Whether its command asked for help.
    pub help: bool,
}

/// An attempt that a worker executes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Execution {
    /// The attempt.
    pub attempt: Attempt,
    /// The worker.
    pub worker: WorkerId,
    /// Its processes; none for an executor outside of Lockkeeper.
    pub process: Option<Process>,
    /// The lease that it holds.
    pub lease: Option<(LeaseId, Token)>,
    /// What is reported so far.
    pub report: Report,
}

/// An attempt that has ended, of a run that has not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastAttempt {
    /// The attempt.
    pub attempt: Attempt,
    /// Why it failed; none if its worker died before the command began, so that the attempt is still to be made.
    pub reason: Option<Reason>,
    /// What is reported about it.
    pub report: Report,
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// How it ended.
    pub result: RunResult,
    /// When.
    pub at: Stamp,
    /// Its last attempt; none if it ended in the queue.
    pub attempt: Option<Attempt>,
    /// Processes of the attempt that may still live. Cleared when a worker has seen that none does.
    pub process: Option<Process>,
    /// The lease that those processes hold.
    pub lease: Option<(LeaseId, Token)>,
    /// What is reported about the run.
    pub report: Report,
}

/// How a run ended. Each end but success has a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunResult {
    /// Its command succeeded.
    Succeeded,
    /// Its command failed, could not be started, or was lost.
    Failed(Reason),
    /// It was canceled.
    Canceled(Reason),
    /// It waited or ran for too long.
    TimedOut(Reason),
}

impl RunResult {
    /// Its public word.
    pub const fn status(self) -> Status {
        match self {
            Self::Succeeded => Status::Succeeded,
            Self::Failed(_) => Status::Failed,
            Self::Canceled(_) => Status::Canceled,
            Self::TimedOut(_) => Status::TimedOut,
        }
    }

    /// Why; none for a success.
    pub const fn reason(self) -> Option<Reason> {
        match self {
            Self::Succeeded => None,
            Self::Failed(reason) | Self::Canceled(reason) | Self::TimedOut(reason) => Some(reason),
        }
    }
}

/// The processes of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// The liveness lock that they share: while it is held, one of them lives.
    pub holder: HolderId,
    /// The process of the command, once it is recorded.
    pub command: Option<ProcessRef>,
}
