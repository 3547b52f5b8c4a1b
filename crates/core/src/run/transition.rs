//! Transitions: pure functions from the record of a run to its next record and the event of the change.
//!
//! None of them reads a clock or looks for processes: the caller says what it has seen, and when.

mod finish;
mod mark;
mod write_again;

use thiserror::Error;

use super::{
    Attempt, End, Event, EventKind, Execution, LastAttempt, NoSuchMove, Process, Reason, Report, Run,
    RunResult, RunState, Stamp, Status, step,
};
use crate::id::{HolderId, LeaseId, RunId, Token, WorkerId};
use crate::liveness::ProcessRef;
use crate::request::Request;

pub use finish::{AttemptOutcome, FinishPolicy, NEEDS_INPUT_CODE, finish};
pub use mark::{Mark, mark, succeed_elsewhere};
pub use write_again::write_again;

/// The next record of a run, and its event. A store writes both or none, and only if the run has the version before.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "nothing has changed until a store has written it"]
pub struct Transition {
    /// The next record.
    pub run: Run,
    /// What happened.
    pub event: Event,
}

/// Why a transition is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TransitionError {
    /// The run is in a state that does not allow it.
    #[error(transparent)]
    Status(#[from] NoSuchMove),
    /// The run has another claim number: another worker has claimed it since.
    #[error("claim {given} does not count: the current claim of the run is {current}")]
    Claim {
        /// The claim that the caller has.
        given: u64,
        /// The claim that counts.
        current: u64,
    },
    /// The run has another status than the caller expects.
    #[error("the run was expected to be {expected}, and is {found}")]
    Expected {
        /// What the caller expects.
        expected: Status,
        /// The status of the run.
        found: Status,
    },
    /// A worker executes the run, or its next attempt is not due yet.
    #[error("the run does not wait for an attempt")]
    NotDue,
    /// No worker executes the run: the end of this attempt is recorded already.
    #[error("no worker executes the run")]
    NotExecuted,
    /// The store may have lost claims, and their workers write them again.
    #[error("the store has lost data: nothing is claimed until workers have written again what they execute")]
    Silent,
}

/// A worker that claims a run, and what it holds for the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimant {
    /// The worker.
    pub worker: WorkerId,
    /// The liveness lock that the processes will share; none for executors outside of Lockkeeper.
    pub holder: Option<HolderId>,
    /// The lease of the run.
    pub lease: Option<(LeaseId, Token)>,
}

/// Queues a new run of a request.
pub fn submit(request: &Request, id: RunId, now: Stamp) -> Transition {
    let give_up_at = request.queue_timeout.map(|span| now.moment.after(span));
    first(request, id, RunState::Queued { give_up_at }, now)
}

/// Rejects a request on submission. The run only records the refusal.
pub fn reject(request: &Request, id: RunId, reason: Reason, message: &str, now: Stamp) -> Transition {
    let state = RunState::Rejected { at: now, reason, message: Some(message.to_owned()) };
    first(request, id, state, now)
}

/// Claims a run that is queued, or whose next attempt is due.
///
/// An attempt whose worker died before the command began is made now: it is not counted twice.
pub fn claim(run: &Run, claimant: Claimant, now: Stamp) -> Result<Transition, TransitionError> {
    let kind = match &run.state {
        RunState::Running(_) => return Err(TransitionError::NotDue),
        RunState::WaitingForRetry { retry_at, .. } if *retry_at > now.moment => {
            return Err(TransitionError::NotDue);
        }
        RunState::WaitingForRetry { .. } if run.was_returned() => EventKind::Claimed,
        RunState::WaitingForRetry { .. } => EventKind::Retried,
        RunState::Queued { .. }
        | RunState::Cancelling(_)
        | RunState::CancellingRetry(_)
        | RunState::Ended(_)
        | RunState::Rejected { .. } => {
            step(run.status(), Status::Running)?;
            EventKind::Claimed
        }
    };
    let number = run.attempt() + u32::from(!run.was_returned());
    let message = format!("worker {}, attempt {number}", claimant.worker);
    let state = RunState::Running(Execution {
        attempt: Attempt { number, claim: run.claim() + 1, started_at: now },
        worker: claimant.worker,
        process: claimant.holder.map(|holder| Process { holder, command: None }),
        lease: claimant.lease,
        report: Report::default(),
    });
    Ok(next(run, state, kind, Some(message), now))
}

/// Records the process of the command.
pub fn record_process(
    run: &Run,
    claim: u64,
    command: ProcessRef,
    now: Stamp,
) -> Result<Transition, TransitionError> {
    let execution = current_execution(run, claim)?;
    let process = execution.process.map(|process| Process { command: Some(command), ..process });
    let state = with_execution(run, Execution { process, ..execution.clone() });
    Ok(next(run, state, EventKind::Started, Some(format!("process {}", command.pid)), now))
}

/// Records that the command asks for help. The command goes on; its end will say so. None if that is recorded already.
pub fn ask_for_help(
    run: &Run,
    message: Option<String>,
    now: Stamp,
) -> Result<Option<Transition>, TransitionError> {
    if !run.status().is_active() {
        return Err(NoSuchMove { from: run.status(), to: run.status() }.into());
    }
    if run.help() && run.message() == message.as_deref() {
        return Ok(None);
    }
    let report = Report { help: true, message: message.clone(), ending: run.ending() };
    Ok(Some(next(run, with_report(run, report), EventKind::HelpAsked, message, now)))
}

/// Cancels a run: at once if no worker executes it, else the worker has to stop it.
///
/// A run that waits for its next attempt needs two transitions. The first one is returned; call this again for the second.
pub fn cancel(run: &Run, now: Stamp, message: Option<String>) -> Result<Transition, TransitionError> {
    let state = match &run.state {
        RunState::Queued { .. } | RunState::CancellingRetry(_) => {
            return Ok(end(run, RunResult::Canceled(Reason::UserCanceled), message, now)?);
        }
        RunState::Running(execution) => {
            let report = Report { message: message.clone(), ..execution.report.clone() };
            RunState::Cancelling(Execution { report, ..execution.clone() })
        }
        RunState::WaitingForRetry { last, .. } => {
            let report = Report { message: message.clone(), ..last.report.clone() };
            RunState::CancellingRetry(LastAttempt { report, ..last.clone() })
        }
        RunState::Cancelling(_) | RunState::Ended(_) | RunState::Rejected { .. } => {
            return Err(NoSuchMove { from: run.status(), to: Status::Cancelling }.into());
        }
    };
    Ok(next(run, state, EventKind::Cancelling, message, now))
}

/// Ends a run that waits for an attempt which nobody will make. It fails as its last attempt did. A run that has made no attempt
/// is canceled.
pub fn give_up_attempt(run: &Run, why: String, now: Stamp) -> Result<Transition, TransitionError> {
    let result = match &run.state {
        RunState::Queued { .. } => RunResult::Canceled(Reason::UserCanceled),
        RunState::WaitingForRetry { last, .. } => RunResult::Failed(last.reason.unwrap_or(Reason::Lost)),
        RunState::Running(_)
        | RunState::Cancelling(_)
        | RunState::CancellingRetry(_)
        | RunState::Ended(_)
        | RunState::Rejected { .. } => {
            return Err(NoSuchMove { from: run.status(), to: Status::Failed }.into());
        }
    };
    Ok(end(run, result, Some(why), now)?)
}

/// Ends a run whose time is up, if it is. Its processes may still live: the record keeps them and the lease.
pub fn time_out(run: &Run, now: Stamp) -> Option<Transition> {
    let (reason, span, what) = if run.is_given_up(now.moment) {
        (Reason::QueueTimeout, now.moment.since(run.queued_at.moment), "waited")
    } else if run.times_out_at().is_some_and(|at| at <= now.moment) {
        (Reason::ExecutionTimeout, run.timeout.unwrap_or_default(), "ran")
    } else {
        return None;
    };
    let message = format!("it {what} for {}", crate::time::format_span(span));
    end(run, RunResult::TimedOut(reason), Some(message), now).ok()
}

/// Replaces the worker of a run, because it is gone. The command, if it lives, goes on.
pub fn adopt(run: &Run, claim: u64, worker: WorkerId, now: Stamp) -> Result<Transition, TransitionError> {
    let execution = current_execution(run, claim)?;
    let message = format!("worker {worker}");
    let attempt = Attempt { claim: claim + 1, ..execution.attempt };
    let state = with_execution(run, Execution { attempt, worker, ..execution.clone() });
    Ok(next(run, state, EventKind::Adopted, Some(message), now))
}

/// The record of an ended run without processes and lease: a worker has seen that no process lives. There is no event for that.
pub fn clear_processes(run: &Run) -> Run {
    match &run.state {
        RunState::Ended(end) => {
            let end = End { process: None, lease: None, ..end.clone() };
            Run { state: RunState::Ended(end), ..run.clone() }
        }
        RunState::Queued { .. }
        | RunState::Running(_)
        | RunState::WaitingForRetry { .. }
        | RunState::Cancelling(_)
        | RunState::CancellingRetry(_)
        | RunState::Rejected { .. } => run.clone(),
    }
}

/// Ends a run. Its processes may still live.
fn end(run: &Run, result: RunResult, message: Option<String>, now: Stamp) -> Result<Transition, NoSuchMove> {
    step(run.status(), result.status())?;
    let report = Report { ending: run.ending(), message: message.clone(), help: run.help() };
    let (attempt, process, lease) = (run.last_attempt(), run.process(), run.lease());
    let end = End { result, at: now, attempt, process, lease, report };
    Ok(next(run, RunState::Ended(end), EventKind::Ended, message, now))
}

/// The first record of a run.
fn first(request: &Request, id: RunId, state: RunState, now: Stamp) -> Transition {
    let (request, timeout) = (request.id.clone(), request.timeout);
    let run = Run { id, request, version: 1, queued_at: now, timeout, state };
    let message = run.message().map(ToOwned::to_owned);
    let (to, reason) = (run.status(), run.reason());
    Transition { event: Event { kind: EventKind::Submitted, at: now, from: None, to, reason, message }, run }
}

/// The record after `before`.
fn next(before: &Run, state: RunState, kind: EventKind, message: Option<String>, now: Stamp) -> Transition {
    let (id, request) = (before.id.clone(), before.request.clone());
    let (version, queued_at, timeout) = (before.version + 1, before.queued_at, before.timeout);
    let run = Run { id, request, version, queued_at, timeout, state };
    let (from, to, reason) = (Some(before.status()), run.status(), run.reason());
    Transition { event: Event { kind, at: now, from, to, reason, message }, run }
}

/// The same state with a changed execution.
fn with_execution(run: &Run, execution: Execution) -> RunState {
    if run.status() == Status::Cancelling {
        RunState::Cancelling(execution)
    } else {
        RunState::Running(execution)
    }
}

/// The same state with another report. A state without a report stays as it is.
fn with_report(run: &Run, report: Report) -> RunState {
    match run.state.clone() {
        RunState::Running(execution) => RunState::Running(Execution { report, ..execution }),
        RunState::Cancelling(execution) => RunState::Cancelling(Execution { report, ..execution }),
        RunState::WaitingForRetry { last, retry_at } => {
            RunState::WaitingForRetry { last: LastAttempt { report, ..last }, retry_at }
        }
        RunState::CancellingRetry(last) => RunState::CancellingRetry(LastAttempt { report, ..last }),
        RunState::Ended(end) => RunState::Ended(End { report, ..end }),
        state @ (RunState::Queued { .. } | RunState::Rejected { .. }) => state,
    }
}

fn check_claim(run: &Run, given: Option<u64>) -> Result<(), TransitionError> {
    match given {
        Some(given) if given != run.claim() => Err(TransitionError::Claim { given, current: run.claim() }),
        Some(_) | None => Ok(()),
    }
}

/// The execution under this claim. Only the worker with the current claim may report about the command.
fn current_execution(run: &Run, claim: u64) -> Result<&Execution, TransitionError> {
    check_claim(run, Some(claim))?;
    if !run.status().is_active() {
        return Err(NoSuchMove { from: run.status(), to: Status::Running }.into());
    }
    run.execution().ok_or(TransitionError::NotExecuted)
}
