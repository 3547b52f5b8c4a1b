//! The end of an attempt: the run ends, or waits for its next attempt.

use std::time::Duration;

use super::{Transition, TransitionError, current_execution, next};
use crate::retry::RetryPolicy;
use crate::run::{
    End, Ending, EventKind, LastAttempt, Reason, Report, Run, RunResult, RunState, Stamp, Status, step,
};

/// The exit code by which a command asks for help.
pub const NEEDS_INPUT_CODE: u8 = 10;

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The command ended by itself.
    Ended(Ending),
    /// The worker stopped the command because the run was canceled.
    Stopped(Option<Ending>),
    /// The command could not be started: the exit code that a shell reports, and why.
    NotStarted(u8, String),
    /// No process of the attempt lives, and no worker saw how it ended.
    Vanished,
    /// Its worker died between the claim and the start of the command. The run waits to be claimed for the same attempt.
    NotBegun,
    /// It was stopped because its time was up.
    TimedOut(Option<Ending>),
    /// It was stopped because its worker sent no heartbeat.
    Replaced,
    /// It was stopped because it lost its lease.
    LeaseLost(Option<Ending>),
}

impl AttemptOutcome {
    fn ending(&self) -> Option<Ending> {
        match self {
            Self::Ended(ending)
            | Self::Stopped(Some(ending))
            | Self::TimedOut(Some(ending))
            | Self::LeaseLost(Some(ending)) => Some(*ending),
            Self::NotStarted(code, _) => Some(Ending::Exited(*code)),
            Self::Stopped(None)
            | Self::TimedOut(None)
            | Self::LeaseLost(None)
            | Self::Vanished
            | Self::NotBegun
            | Self::Replaced => None,
        }
    }
}

/// What decides whether an attempt succeeded, and whether there is another one.
#[derive(Clone, Copy, Debug)]
pub struct FinishPolicy<'p> {
    /// The exit codes that mean success.
    pub success: &'p [u8],
    /// When another attempt is made.
    pub retry: &'p RetryPolicy,
    /// A random number: it spreads retries over time.
    pub random: u64,
}

/// Ends an attempt: the run ends, or waits for its next attempt.
///
/// A worker that stops the command of a canceled run reports [`AttemptOutcome::Stopped`], whatever the command then
/// returned: such a run is never a success.
pub fn finish(
    run: &Run,
    claim: u64,
    outcome: AttemptOutcome,
    policy: FinishPolicy<'_>,
    now: Stamp,
) -> Result<Transition, TransitionError> {
    let execution = current_execution(run, claim)?;
    if outcome == AttemptOutcome::NotBegun && run.status() == Status::Running {
        let last = LastAttempt { attempt: execution.attempt, reason: None, report: execution.report.clone() };
        let state = RunState::WaitingForRetry { last, retry_at: now.moment };
        let message = format!("worker {} died before the command began", execution.worker);
        return Ok(next(run, state, EventKind::Returned, Some(message), now));
    }
    let ending = outcome.ending();
    let (result, message) = result_of(run, outcome, policy.success);
    if let Some((reason, wait)) = wait_for_retry(run, result, ending, policy) {
        let message = format!(
            "attempt {} of {}: the next in {}",
            execution.attempt.number,
            policy.retry.limit + 1,
            crate::time::format_span(wait)
        );
        let report = Report { ending, ..execution.report.clone() };
        let last = LastAttempt { attempt: execution.attempt, reason: Some(reason), report };
        let state = RunState::WaitingForRetry { last, retry_at: now.moment.after(wait) };
        return Ok(next(run, state, EventKind::Retrying, Some(message), now));
    }
    step(run.status(), result.status())?;
    let report = Report { ending, message: message.clone(), help: execution.report.help };
    let attempt = Some(execution.attempt);
    let end = End { result, at: now, attempt, process: None, lease: None, report };
    Ok(next(run, RunState::Ended(end), EventKind::Ended, message, now))
}

/// The result of a run whose attempt ended like this, and the message.
fn result_of(run: &Run, outcome: AttemptOutcome, success: &[u8]) -> (RunResult, Option<String>) {
    match outcome {
        AttemptOutcome::Stopped(_) => (RunResult::Canceled(Reason::UserCanceled), None),
        AttemptOutcome::Vanished | AttemptOutcome::NotBegun | AttemptOutcome::TimedOut(_)
            if run.status() == Status::Cancelling =>
        {
            (RunResult::Canceled(Reason::UserCanceled), None)
        }
        AttemptOutcome::TimedOut(_) => {
            let span = crate::time::format_span(run.timeout.unwrap_or_default());
            (RunResult::TimedOut(Reason::ExecutionTimeout), Some(format!("it ran for {span}")))
        }
        AttemptOutcome::Ended(Ending::Exited(code)) if run.help() || code == NEEDS_INPUT_CODE => {
            (RunResult::Failed(Reason::NeedsInput), run.message().map(ToOwned::to_owned))
        }
        AttemptOutcome::Ended(Ending::Exited(code)) if success.contains(&code) => {
            (RunResult::Succeeded, None)
        }
        AttemptOutcome::Ended(Ending::Exited(_)) => (RunResult::Failed(Reason::ExitCode), None),
        AttemptOutcome::Ended(Ending::Signaled(_)) => (RunResult::Failed(Reason::Signal), None),
        AttemptOutcome::NotStarted(_, why) => (RunResult::Failed(Reason::CommandNotStarted), Some(why)),
        AttemptOutcome::Vanished | AttemptOutcome::NotBegun => (RunResult::Failed(Reason::Lost), None),
        AttemptOutcome::Replaced => (RunResult::Failed(Reason::WorkerSilent), None),
        AttemptOutcome::LeaseLost(_) => (RunResult::Failed(Reason::LeaseLost), None),
    }
}

/// Why and for how long a run waits for another attempt; none if there is no other.
fn wait_for_retry(
    run: &Run,
    result: RunResult,
    ending: Option<Ending>,
    policy: FinishPolicy<'_>,
) -> Option<(Reason, Duration)> {
    let reason = match result {
        RunResult::Failed(
            reason @ (Reason::ExitCode
            | Reason::Signal
            | Reason::Lost
            | Reason::WorkerSilent
            | Reason::LeaseLost),
        ) if run.status() == Status::Running => reason,
        RunResult::Failed(_) | RunResult::Succeeded | RunResult::Canceled(_) | RunResult::TimedOut(_) => {
            return None;
        }
    };
    let wait = policy.retry.wait_after(run.attempt(), ending.map(Ending::exit_code), policy.random)?;
    Some((reason, wait))
}
