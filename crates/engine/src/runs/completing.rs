//! Results of attempts, written by the worker that made them, or by the rescuer that adopted them: many results and the next
//! claims in one transaction.
//!
//! | type | what it is |
//! |---|---|
//! | [`lockkeeper_core::run::Ending`] | the exit status of a command: an exit code or a signal |
//! | [`AttemptOutcome`] | what the worker observed: the command ended, was stopped, timed out, vanished, … |
//! | [`Outcome`] | that, or why nothing has to be written |
//! | [`AttemptResult`] | the outcome with its run, its request and its time |
//! | [`Completed`] | the runs after their results were written, and the runs that were claimed with them |

use lockkeeper_core::liveness::ProcessRef;
use lockkeeper_core::request::Request;
use lockkeeper_core::run::transition::{self, AttemptOutcome, Transition, TransitionError};
use lockkeeper_core::run::{Run, Stamp, Status};

use super::claiming::with_request;
use super::moves::policy;
use super::{RunError, Runs};
use lockkeeper_store::StoreError;
use lockkeeper_store::runs::{Claims, Moved};

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The worker observed this, and the end is not written yet.
    Observed(AttemptOutcome),
    /// The end was written before the command was stopped: a user ended the run with `run mark`.
    Recorded,
    /// Another worker has the run by now.
    Superseded,
}

/// The result of an attempt.
#[derive(Debug)]
pub(crate) struct AttemptResult {
    /// The run as it was claimed.
    pub(crate) run: Run,
    /// Its request.
    pub(crate) request: Request,
    /// How it ended.
    pub(crate) outcome: Outcome,
    /// When it ended.
    pub(crate) ended_at: Stamp,
}

/// What [`Runs::complete`] did.
pub(crate) struct Completed {
    /// The runs after their ends, in the order of the ends. None where another worker has the run.
    pub(crate) ended: Vec<Option<Run>>,
    /// Runs that were claimed in the same transaction.
    pub(crate) claimed: Vec<(Run, Request)>,
}

/// What has to be written for the end of an attempt.
enum Step {
    /// Nothing. None if another worker has the run.
    Nothing(Option<Run>),
    /// The end is there already, and no process of the run lives.
    ClearProcesses(Run),
    /// These transitions.
    Move(Vec<Transition>),
}

impl Runs {
    /// Writes the results of attempts and claims the next runs, in one transaction. Results of runs that have changed since their
    /// claim take another one. An end that is recorded already clears the processes in a transaction of its own.
    ///
    /// A power cut may lose the transaction before [`Runs::sync`] has returned. `retried` says that the same call
    /// failed before: its transaction may still have been committed, and nothing is done twice.
    pub(crate) fn complete<'e>(
        &self,
        ends: impl Iterator<Item = &'e AttemptResult>,
        claims: &Claims<'_>,
        retried: bool,
    ) -> Result<Completed, StoreError> {
        let ends: Vec<&AttemptResult> = ends.collect();
        let mut ended: Vec<Option<Run>> = vec![None; ends.len()];
        let mut claimed = if retried { self.claimed_before(claims)? } else { Vec::new() };
        let mut claims = Some(claims).filter(|claims| claimed.is_empty() && !claims.locks.is_empty());
        let mut open = self.current_records(&ends, retried)?;
        while !open.is_empty() || claims.is_some() {
            let mut transitions = Vec::new();
            let mut moves = Vec::new();
            for (place, run) in open.drain(..) {
                match decide(ends[place], &run) {
                    Step::Nothing(run) => ended[place] = run,
                    Step::ClearProcesses(run) => {
                        self.store.clear_processes(&run)?;
                        ended[place] = Some(transition::clear_processes(&run));
                    }
                    Step::Move(steps) => {
                        moves.push((place, transitions.len()));
                        ended[place] = steps.last().map(|last| last.run.clone());
                        transitions.extend(steps);
                    }
                }
            }
            if transitions.is_empty() && claims.is_none() {
                break;
            }
            let done = self.store.move_and_claim(&transitions, claims.take())?;
            claimed.extend(done.claimed);
            for (place, first) in moves {
                // If the first transition of a run conflicts, so do the others.
                if let Moved::Conflict(current) = &done.moved[first] {
                    ended[place] = None;
                    let current = current.as_deref().cloned();
                    open.extend(self.or_again(current, ends[place])?.map(|current| (place, current)));
                }
            }
        }
        Ok(Completed { ended, claimed })
    }

    /// Waits until everything that was committed is on the disk.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        self.store.sync()
    }

    /// Records the process of the command of a run. A power cut may lose it: the process is gone then, too.
    pub(crate) fn record_process(&self, run: &Run, process: ProcessRef) -> Result<Run, RunError> {
        self.change_unsynced(&run.id, |found, now| {
            transition::record_process(found, run.claim(), process, now)
        })
    }

    /// The runs that the same call has claimed before.
    fn claimed_before(&self, claims: &Claims<'_>) -> Result<Vec<(Run, Request)>, StoreError> {
        let records = self.store.snapshot()?;
        let mut claimed = Vec::new();
        for lock in claims.locks {
            claimed.extend(with_request(&*records, records.run_with_lock(*lock)?)?);
        }
        Ok(claimed)
    }

    /// The runs of these ends, each with its place in the list.
    ///
    /// A short command's run has not changed since its claim, so the record of the claim is used for commands that ended by
    /// themselves. For a longer one the process was recorded: the first write conflicts, and a second transaction follows. A
    /// call that failed may have reached a server that was restored since, where the run may be that of another worker.
    fn current_records(
        &self,
        ends: &[&AttemptResult],
        retried: bool,
    ) -> Result<Vec<(usize, Run)>, StoreError> {
        let is_simple = |end: &AttemptResult| {
            !retried && matches!(end.outcome, Outcome::Observed(AttemptOutcome::Ended(_)))
        };
        let records = if ends.iter().all(|end| is_simple(end)) { None } else { Some(self.store.snapshot()?) };
        let mut current = Vec::new();
        for (place, end) in ends.iter().enumerate() {
            let run = match &records {
                Some(records) if !is_simple(end) => self.or_again(records.run(&end.run.id)?, end)?,
                Some(_) | None => Some(end.run.clone()),
            };
            current.extend(run.map(|run| (place, run)));
        }
        Ok(current)
    }

    /// A run that was found. If the store has lost it just now, it is queued again.
    fn or_again(&self, found: Option<Run>, end: &AttemptResult) -> Result<Option<Run>, StoreError> {
        match found {
            None if self.is_silent() => self.submit_again(&end.run, &end.request),
            found => Ok(found),
        }
    }
}

/// Decides what to write for the end of an attempt at a run with this record.
fn decide(end: &AttemptResult, run: &Run) -> Step {
    let (claim, at) = (end.run.claim(), end.ended_at);
    // If the store has lost the claim, it is written again together with the end.
    let again = match transition::write_again(run, &end.run, at) {
        Ok(again) => again,
        // It is over, or waits for its next attempt.
        Err(_) if run.claim() == claim && run.worker().is_none() => None,
        Err(_) => return Step::Nothing(None),
    };
    let run = again.as_ref().map_or(run, |again| &again.run);
    let outcome = match &end.outcome {
        Outcome::Superseded => return Step::Nothing(None),
        Outcome::Recorded if again.is_some() => return Step::Nothing(None),
        Outcome::Recorded => return Step::ClearProcesses(run.clone()),
        // The same call was committed before.
        Outcome::Observed(_) if run.waits_for_retry() => return Step::Nothing(Some(run.clone())),
        Outcome::Observed(outcome) => outcome,
    };
    let is_stopped = matches!(outcome, AttemptOutcome::Stopped(_)) && run.status() == Status::Running;
    // A worker that has to stop ends its commands although the runs were not canceled.
    let cancel = || transition::cancel(run, at, Some("the worker was stopped".to_owned())).ok();
    let canceled = if is_stopped { cancel() } else { None };
    let latest = canceled.as_ref().map_or(run, |canceled| &canceled.run);
    match transition::finish(latest, claim, outcome.clone(), policy(&end.request), at) {
        Ok(finished) => Step::Move(again.into_iter().chain(canceled).chain([finished]).collect()),
        // The end is written already: a user ended the run with `run mark`, or the same call was committed before.
        Err(TransitionError::Status(_)) => Step::ClearProcesses(run.clone()),
        Err(
            TransitionError::Claim { .. }
            | TransitionError::Expected { .. }
            | TransitionError::NotDue
            | TransitionError::NotExecuted
            | TransitionError::Silent,
        ) => Step::Nothing(None),
    }
}
