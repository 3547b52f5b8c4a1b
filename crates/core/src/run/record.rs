//! The record of a run, and what each of its states has to say.

use std::fmt;
use std::time::Duration;

use thiserror::Error;

use super::Status;
use crate::id::{HolderId, LeaseId, RequestId, RunId, Token, WorkerId};
use crate::liveness::ProcessRef;
use crate::time::Moment;

/// A point in time on both clocks: the store's, by which spans are measured, and the wall's, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// On the store's clock of this boot.
    pub moment: Moment,
    /// On the wall clock, in microseconds since 1970.
    pub unix_micros: i64,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// By itself, with this exit code.
    Exited(u8),
    /// By a signal.
    Signaled(u8),
}

impl Ending {
    /// The exit code that shells give: the command's own, or 128 and the signal.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Exited(code) => code,
            Self::Signaled(signal) => signal.saturating_add(128),
        }
    }
}

/// Why a run is where it is, as programs read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The command's exit code says that it failed.
    ExitCode,
    /// A signal ended the command.
    Signal,
    /// There is no such program, or it cannot be executed.
    CommandNotStarted,
    /// The command asks for somebody: the exit code for it, or a HELP status line.
    NeedsInput,
    /// It waited too long for somebody to execute it.
    QueueTimeout,
    /// Its command took too long.
    ExecutionTimeout,
    /// Somebody called it off.
    UserCanceled,
    /// Whoever executed it died, and how the command ended cannot be known.
    Lost,
    /// Whoever executed it gave no sign of life for too long, and was replaced.
    WorkerSilent,
    /// What it needed to hold was taken away while it ran.
    LeaseLost,
    /// It was refused because the queue is full.
    QueueFull,
    /// It was refused because the request is there already.
    Duplicate,
    /// It was refused because a rule forbids it beside what is there.
    ConflictAbort,
    /// A program outside of Lockkeeper said so.
    Marked,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::ExitCode,
        Self::Signal,
        Self::CommandNotStarted,
        Self::NeedsInput,
        Self::QueueTimeout,
        Self::ExecutionTimeout,
        Self::UserCanceled,
        Self::Lost,
        Self::WorkerSilent,
        Self::LeaseLost,
        Self::QueueFull,
        Self::Duplicate,
        Self::ConflictAbort,
        Self::Marked,
    ];

    /// The code, which never changes.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ExitCode => "EXIT_CODE",
            Self::Signal => "SIGNAL",
            Self::CommandNotStarted => "COMMAND_NOT_STARTED",
            Self::NeedsInput => "NEEDS_INPUT",
            Self::QueueTimeout => "QUEUE_TIMEOUT",
            Self::ExecutionTimeout => "EXECUTION_TIMEOUT",
            Self::UserCanceled => "USER_CANCELED",
            Self::Lost => "LOST",
            Self::WorkerSilent => "WORKER_SILENT",
            Self::LeaseLost => "LEASE_LOST",
            Self::QueueFull => "QUEUE_FULL",
            Self::Duplicate => "DUPLICATE",
            Self::ConflictAbort => "CONFLICT_ABORT",
            Self::Marked => "MARKED",
        }
    }

    /// Reads a code.
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == code)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What is known of the processes of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// The kernel lock that they share: as long as it is held, one of them lives.
    pub holder: HolderId,
    /// The command itself, once it was started.
    pub command: Option<ProcessRef>,
}

/// A run: one try at a request, with as many attempts as the request allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its id, never given twice.
    pub id: RunId,
    /// What is to be done.
    pub request: RequestId,
    /// Where it is.
    pub status: Status,
    /// Which attempt this is; 0 before the first.
    pub attempt: u32,
    /// Grows with every claim; whoever names an older one has lost the run.
    pub claim: u64,
    /// Who executes it.
    pub worker: Option<WorkerId>,
    /// What may still live of the attempt. It stays after the end until somebody has seen that nothing does.
    pub process: Option<Process>,
    /// What it holds while it runs.
    pub lease: Option<(LeaseId, Token)>,
    /// When it came.
    pub queued_at: Stamp,
    /// When it is given up if nobody has begun with it.
    pub give_up_at: Option<Moment>,
    /// When the present attempt was claimed.
    pub started_at: Option<Stamp>,
    /// How long an attempt may take.
    pub timeout: Option<Duration>,
    /// When the next attempt may begin, while it waits for that.
    pub retry_at: Option<Moment>,
    /// When it ended.
    pub completed_at: Option<Stamp>,
    /// How the last command ended.
    pub ending: Option<Ending>,
    /// Why it is where it is.
    pub reason: Option<Reason>,
    /// In words, for people.
    pub message: Option<String>,
    /// Whether its command asked for somebody.
    pub help: bool,
}

impl Run {
    /// When the present attempt is to be over.
    pub fn times_out_at(&self) -> Option<Moment> {
        let started = self.started_at.filter(|_| self.status == Status::Running && self.worker.is_some());
        started.zip(self.timeout).map(|(started, timeout)| started.moment.after(timeout))
    }

    /// Whether it waits for its next attempt, with nobody executing it.
    pub fn waits_for_retry(&self) -> bool {
        self.status == Status::Running && self.worker.is_none()
    }

    /// Whether a worker of Lockkeeper 0.1.0 had taken it and gave it back before its command began. Nobody else does that.
    /// A failed attempt says why it waits.
    pub fn was_given_back(&self) -> bool {
        self.waits_for_retry() && self.reason.is_none()
    }

    /// Checks that the record says what its state has to say, and no more. Stores check it too.
    pub fn check(&self) -> Result<(), Inconsistent> {
        let wrong = |what| Err(Inconsistent { run: self.id.clone(), status: self.status, what });
        let begun = self.attempt > 0;
        match self.status {
            Status::Queued if self.worker.is_some() || self.claim != 0 => wrong("somebody executes it"),
            Status::Queued | Status::Rejected if begun || self.started_at.is_some() => wrong("it has begun"),
            Status::Running | Status::Cancelling if !begun || self.started_at.is_none() => {
                wrong("it has not begun")
            }
            Status::Running if self.worker.is_some() == self.retry_at.is_some() => {
                wrong("either somebody executes it or it waits for that")
            }
            Status::Queued | Status::Running | Status::Cancelling if self.completed_at.is_some() => {
                wrong("it is over")
            }
            status if status.is_terminal() && self.completed_at.is_none() => wrong("it is not over"),
            status if status.is_terminal() && self.worker.is_some() => wrong("somebody executes it"),
            Status::Failed | Status::Canceled | Status::TimedOut | Status::Rejected
                if self.reason.is_none() =>
            {
                wrong("it does not say why")
            }
            Status::Queued
            | Status::Running
            | Status::Cancelling
            | Status::Succeeded
            | Status::Failed
            | Status::Canceled
            | Status::TimedOut
            | Status::Rejected => Ok(()),
        }
    }
}

/// A record that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the record of run {run} says that it is {status} and that {what}")]
pub struct Inconsistent {
    /// Which run.
    pub run: RunId,
    /// Where it says to be.
    pub status: Status,
    /// What does not fit to that.
    pub what: &'static str,
}
