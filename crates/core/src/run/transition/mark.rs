//! Transitions that executors outside of Lockkeeper ask for.

use super::{Claimant, Transition, TransitionError, cancel, check_claim, claim, end, with_report};
use crate::id::WorkerId;
use crate::run::{Ending, NoSuchMove, Reason, Report, Run, RunResult, Stamp, Status, step};

/// A compare-and-set of the status, for executors outside of Lockkeeper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The next status.
    pub to: Status,
    /// The status that the run must have; any that allows the move if none is given.
    pub expect: Option<Status>,
    /// The claim that must be the current one.
    pub claim: Option<u64>,
    /// The exit code to record.
    pub exit_code: Option<u8>,
    /// The executor.
    pub worker: WorkerId,
}

/// Moves a run because an executor outside of Lockkeeper says so.
pub fn mark(run: &Run, mark: &Mark, now: Stamp) -> Result<Transition, TransitionError> {
    check_claim(run, mark.claim)?;
    if let Some(expected) = mark.expect.filter(|expected| *expected != run.status()) {
        return Err(TransitionError::Expected { expected, found: run.status() });
    }
    step(run.status(), mark.to)?;
    let result = match mark.to {
        Status::Succeeded => RunResult::Succeeded,
        Status::Failed => RunResult::Failed(Reason::Marked),
        Status::TimedOut => RunResult::TimedOut(Reason::Marked),
        Status::Canceled if run.status() == Status::Queued => RunResult::Canceled(Reason::UserCanceled),
        Status::Canceled => RunResult::Canceled(Reason::Marked),
        Status::Running => {
            let claimant = Claimant { worker: mark.worker.clone(), holder: None, lease: None };
            return claim(run, claimant, now).map(|claimed| with_exit_code(claimed, mark, run));
        }
        Status::Cancelling => {
            return cancel(run, now, None).map(|canceled| with_exit_code(canceled, mark, run));
        }
        Status::Queued | Status::Rejected => {
            return Err(NoSuchMove { from: run.status(), to: mark.to }.into());
        }
    };
    Ok(with_exit_code(end(run, result, None, now)?, mark, run))
}

/// The transitions of a run whose work another program has done: it is claimed, and has succeeded without a command.
pub fn succeed_elsewhere(
    run: &Run,
    worker: WorkerId,
    why: String,
    now: Stamp,
) -> Result<[Transition; 2], TransitionError> {
    let claimed = claim(run, Claimant { worker, holder: None, lease: None }, now)?;
    let ended = end(&claimed.run, RunResult::Succeeded, Some(why), now)?;
    Ok([claimed, ended])
}

/// Adds the exit code that an executor reports, or the one that was known before.
fn with_exit_code(transition: Transition, mark: &Mark, before: &Run) -> Transition {
    let ending = mark.exit_code.map(Ending::Exited).or(before.ending());
    let report = transition.run.report().cloned().unwrap_or_default();
    let state = with_report(&transition.run, Report { ending, ..report });
    Transition { run: Run { state, ..transition.run }, ..transition }
}
