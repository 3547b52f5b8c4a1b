//! Accessors of a run: facts that can be asked for in every state.

use super::state::End;
use super::{Attempt, Ending, Execution, Process, Reason, Report, Run, RunState, Stamp, Status};
use crate::id::{LeaseId, Token, WorkerId};
use crate::time::Moment;

impl Run {
    /// The public word for its state.
    pub const fn status(&self) -> Status {
        match &self.state {
            RunState::Queued { .. } => Status::Queued,
            RunState::Running(_) | RunState::WaitingForRetry { .. } => Status::Running,
            RunState::Cancelling(_) | RunState::CancellingRetry(_) => Status::Cancelling,
            RunState::Ended(end) => end.result.status(),
            RunState::Rejected { .. } => Status::Rejected,
        }
    }

    /// Its current or last attempt; none before the first claim.
    pub const fn last_attempt(&self) -> Option<Attempt> {
        match &self.state {
            RunState::Queued { .. } | RunState::Rejected { .. } => None,
            RunState::Running(execution) | RunState::Cancelling(execution) => Some(execution.attempt),
            RunState::WaitingForRetry { last, .. } | RunState::CancellingRetry(last) => Some(last.attempt),
            RunState::Ended(end) => end.attempt,
        }
    }

    /// The number of that attempt; 0 before the first claim.
    pub fn attempt(&self) -> u32 {
        self.last_attempt().map_or(0, |attempt| attempt.number)
    }

    /// The number of the last claim; 0 before the first.
    pub fn claim(&self) -> u64 {
        self.last_attempt().map_or(0, |attempt| attempt.claim)
    }

    /// When the current or last attempt was claimed.
    pub fn started_at(&self) -> Option<Stamp> {
        self.last_attempt().map(|attempt| attempt.started_at)
    }

    /// The execution by a worker, while there is one.
    pub const fn execution(&self) -> Option<&Execution> {
        match &self.state {
            RunState::Running(execution) | RunState::Cancelling(execution) => Some(execution),
            RunState::Queued { .. }
            | RunState::WaitingForRetry { .. }
            | RunState::CancellingRetry(_)
            | RunState::Ended(_)
            | RunState::Rejected { .. } => None,
        }
    }

    /// The worker that executes it.
    pub fn worker(&self) -> Option<&WorkerId> {
        self.execution().map(|execution| &execution.worker)
    }

    /// The end, once it has ended.
    pub const fn end(&self) -> Option<&End> {
        match &self.state {
            RunState::Ended(end) => Some(end),
            RunState::Queued { .. }
            | RunState::Running(_)
            | RunState::WaitingForRetry { .. }
            | RunState::Cancelling(_)
            | RunState::CancellingRetry(_)
            | RunState::Rejected { .. } => None,
        }
    }

    /// Its processes, if some of them may still live.
    pub fn process(&self) -> Option<Process> {
        let ended = self.end().and_then(|end| end.process);
        self.execution().map_or(ended, |execution| execution.process)
    }

    /// The lease that it holds.
    pub fn lease(&self) -> Option<(LeaseId, Token)> {
        let ended = self.end().and_then(|end| end.lease);
        self.execution().map_or(ended, |execution| execution.lease)
    }

    /// When it times out in the queue.
    pub const fn give_up_at(&self) -> Option<Moment> {
        match &self.state {
            RunState::Queued { give_up_at } => *give_up_at,
            RunState::Running(_)
            | RunState::WaitingForRetry { .. }
            | RunState::Cancelling(_)
            | RunState::CancellingRetry(_)
            | RunState::Ended(_)
            | RunState::Rejected { .. } => None,
        }
    }

    /// Whether it has waited in the queue for too long.
    pub fn is_given_up(&self, now: Moment) -> bool {
        self.give_up_at().is_some_and(|at| at <= now)
    }

    /// When the next attempt is due, while it waits for that.
    pub const fn retry_at(&self) -> Option<Moment> {
        match &self.state {
            RunState::WaitingForRetry { retry_at, .. } => Some(*retry_at),
            RunState::Queued { .. }
            | RunState::Running(_)
            | RunState::Cancelling(_)
            | RunState::CancellingRetry(_)
            | RunState::Ended(_)
            | RunState::Rejected { .. } => None,
        }
    }

    /// When it ended.
    pub const fn completed_at(&self) -> Option<Stamp> {
        match &self.state {
            RunState::Ended(end) => Some(end.at),
            RunState::Rejected { at, .. } => Some(*at),
            RunState::Queued { .. }
            | RunState::Running(_)
            | RunState::WaitingForRetry { .. }
            | RunState::Cancelling(_)
            | RunState::CancellingRetry(_) => None,
        }
    }

    /// Why it is in its state.
    pub const fn reason(&self) -> Option<Reason> {
        match &self.state {
            RunState::Queued { .. } | RunState::Running(_) | RunState::Cancelling(_) => None,
            RunState::WaitingForRetry { last, .. } | RunState::CancellingRetry(last) => last.reason,
            RunState::Ended(end) => end.result.reason(),
            RunState::Rejected { reason, .. } => Some(*reason),
        }
    }

    /// What is reported about its current or last attempt.
    pub const fn report(&self) -> Option<&Report> {
        match &self.state {
            RunState::Queued { .. } | RunState::Rejected { .. } => None,
            RunState::Running(execution) | RunState::Cancelling(execution) => Some(&execution.report),
            RunState::WaitingForRetry { last, .. } | RunState::CancellingRetry(last) => Some(&last.report),
            RunState::Ended(end) => Some(&end.report),
        }
    }

    /// How the last command ended.
    pub fn ending(&self) -> Option<Ending> {
        self.report().and_then(|report| report.ending)
    }

    /// A message for people.
    pub fn message(&self) -> Option<&str> {
        match &self.state {
            RunState::Rejected { message, .. } => message.as_deref(),
            RunState::Queued { .. }
            | RunState::Running(_)
            | RunState::WaitingForRetry { .. }
            | RunState::Cancelling(_)
            | RunState::CancellingRetry(_)
            | RunState::Ended(_) => self.report().and_then(|report| report.message.as_deref()),
        }
    }

    /// Whether its command asked for help.
    pub fn help(&self) -> bool {
        self.report().is_some_and(|report| report.help)
    }

    /// When the current attempt has to be over.
    pub fn times_out_at(&self) -> Option<Moment> {
        match &self.state {
            RunState::Running(execution) => {
                self.timeout.map(|timeout| execution.attempt.started_at.moment.after(timeout))
            }
            RunState::Queued { .. }
            | RunState::WaitingForRetry { .. }
            | RunState::Cancelling(_)
            | RunState::CancellingRetry(_)
            | RunState::Ended(_)
            | RunState::Rejected { .. } => None,
        }
    }

    /// Whether it waits for its next attempt.
    pub const fn waits_for_retry(&self) -> bool {
        self.retry_at().is_some()
    }

    /// Whether its worker died between the claim and the start of the command. The next claim makes the same attempt.
    pub fn was_returned(&self) -> bool {
        self.waits_for_retry() && self.reason().is_none()
    }
}
