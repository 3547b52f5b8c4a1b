//! Changes of one run: a rule computes the next record, and compare-and-set writes it.

use lockkeeper_core::id::{RequestId, RunId, WorkerId};
use lockkeeper_core::record::Priority;
use lockkeeper_core::request::Request;
use lockkeeper_core::run::transition::{self, Claimant, FinishPolicy, Mark, Transition, TransitionError};
use lockkeeper_core::run::{Run, RunState, Stamp};

use super::{RunError, Runs, found};
use lockkeeper_platform::random;
use lockkeeper_store::StoreError;
use lockkeeper_store::runs::{AutoRunChange, Moved};

/// How many overdue runs end in one transaction.
const BATCH: usize = 500;

/// A run that was canceled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Canceled {
    /// The run: it has ended, or its worker has to stop it.
    pub run: Run,
}

/// How another program has ended the work of a run, with the reason in its words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EndedElsewhere {
    /// The work is done.
    Done(String),
    /// The work was skipped.
    Skipped(String),
}

/// Why a run was not moved.
pub(super) enum NotMoved<E> {
    /// The rule refused this record.
    Refused(E, Box<Run>),
    /// The run was removed.
    Removed,
}

impl Runs {
    /// Claims a run for an executor outside of Lockkeeper.
    pub fn claim(&self, id: &RunId, worker: WorkerId) -> Result<Run, RunError> {
        let claimant = Claimant { worker, holder: None, lease: None };
        self.change(id, |run, now| {
            if self.is_silent() {
                return Err(TransitionError::Silent);
            }
            transition::claim(run, claimant.clone(), now)
        })
    }

    /// Moves a run as an executor outside of Lockkeeper says.
    pub fn mark(&self, id: &RunId, mark: &Mark) -> Result<Run, RunError> {
        let run = self.change(id, |run, now| transition::mark(run, mark, now))?;
        // No worker executes it, so no worker would end it.
        if matches!(run.state, RunState::CancellingRetry(_)) {
            return self.cancel(id, None).map(|canceled| canceled.run);
        }
        Ok(run)
    }

    /// Cancels a run. If a worker executes it, the worker stops the command, and then the run ends.
    pub fn cancel(&self, id: &RunId, message: Option<&str>) -> Result<Canceled, RunError> {
        let records = self.store.snapshot()?;
        let (mut run, mut now) = (found(&*records, id)?, records.now());
        drop(records);
        loop {
            let steps = cancellation(&run, message, now).map_err(|error| refused(&run, error))?;
            let Some(last) = steps.last() else { return Ok(Canceled { run }) };
            // The second step applies if the first one does.
            match self.store.move_runs(&steps)?.swap_remove(0) {
                Moved::Applied => {
                    self.store.sync()?;
                    return Ok(Canceled { run: last.run.clone() });
                }
                Moved::Conflict(Some(current)) => (run, now) = (*current, self.store.now()),
                Moved::Conflict(None) => return Err(RunError::NoRun(id.to_string())),
            }
        }
    }

    /// Ends a run that waits, because another program has ended its work. None if another process has claimed or ended the run
    /// meanwhile.
    pub(crate) fn end_elsewhere(
        &self,
        run: &Run,
        worker: &WorkerId,
        ended: EndedElsewhere,
    ) -> Result<Option<Run>, RunError> {
        let now = self.store.now();
        let steps = match ended {
            EndedElsewhere::Done(why) => {
                transition::succeed_elsewhere(run, worker.clone(), why, now).map(Vec::from)
            }
            EndedElsewhere::Skipped(why) => cancellation(run, Some(&why), now),
        };
        let Ok(mut steps) = steps else { return Ok(None) };
        // The second step applies if the first one does.
        if steps.is_empty() || self.store.move_runs(&steps)?.swap_remove(0) != Moved::Applied {
            return Ok(None);
        }
        self.store.sync()?;
        Ok(steps.pop().map(|last| last.run))
    }

    /// Changes the priority of a request, and with it the place of its queued run.
    pub fn set_priority(&self, request: &RequestId, priority: Priority) -> Result<(), RunError> {
        if !self.store.set_priority(request, priority)? {
            return Err(RunError::NoRequest(request.clone()));
        }
        Ok(self.store.sync()?)
    }

    /// Records that the command of a run asks for help. A power cut may lose it.
    pub fn ask_for_help(&self, id: &RunId, message: Option<&str>) -> Result<(), RunError> {
        let run = found(&*self.store.snapshot()?, id)?;
        let rule = |run: &Run, now| match transition::ask_for_help(run, message.map(ToOwned::to_owned), now) {
            Ok(Some(transition)) => Ok(transition),
            Ok(None) => Err(None),
            Err(error) => Err(Some(error)),
        };
        match self.try_move(run, rule)? {
            // It is recorded already.
            Ok(_) | Err(NotMoved::Refused(None, _)) => Ok(()),
            Err(NotMoved::Refused(Some(error), run)) => Err(refused(&run, error)),
            Err(NotMoved::Removed) => Err(RunError::NoRun(id.to_string())),
        }
    }

    /// Ends the queued runs that timed out. Writes nothing if there are none, or if nothing can be written here.
    pub fn expire(&self) -> Result<Vec<Run>, RunError> {
        if self.store.is_read_only() {
            return Ok(Vec::new());
        }
        let records = self.store.snapshot()?;
        let now = records.now();
        let overdue = records.overdue(BATCH)?;
        drop(records);
        let ends: Vec<Transition> = overdue.iter().filter_map(|run| transition::time_out(run, now)).collect();
        if ends.is_empty() {
            return Ok(Vec::new());
        }
        let moved = self.store.move_runs(&ends)?;
        self.store.sync()?;
        // A run that conflicts was claimed, or ended by another process.
        let ended = ends.into_iter().zip(moved).filter(|(_, moved)| *moved == Moved::Applied);
        Ok(ended.map(|(end, _)| end.run).collect())
    }

    /// Removes requests that ended before this time on the wall clock, with their runs, events and folders.
    pub fn prune(&self, before_unix_micros: i64) -> Result<Vec<RequestId>, RunError> {
        let removed = self.store.prune(before_unix_micros)?;
        if !removed.is_empty() {
            self.store.sync()?;
        }
        for run in removed.iter().flat_map(|removed| &removed.runs) {
            // The records are gone in any case. The doctor finds a folder that is left.
            let _ = self.folder_of(run).remove();
        }
        Ok(removed.into_iter().map(|removed| removed.request).collect())
    }

    /// What [`Runs::prune`] would remove.
    pub fn prunable(&self, before_unix_micros: i64) -> Result<Vec<RequestId>, RunError> {
        Ok(self.store.snapshot()?.prunable(before_unix_micros)?)
    }

    /// Asks an auto-run to stop after its current run, if this worker executes it.
    pub fn stop_auto_run_of(&self, worker: &WorkerId) -> Result<(), RunError> {
        self.store.change_auto_run(&AutoRunChange::RequestStop { worker: Some(worker) })?;
        Ok(self.store.sync()?)
    }

    /// Moves one run by a rule. The change is on the disk when this returns.
    pub(crate) fn change(
        &self,
        id: &RunId,
        rule: impl Fn(&Run, Stamp) -> Result<Transition, TransitionError>,
    ) -> Result<Run, RunError> {
        let run = self.change_unsynced(id, rule)?;
        self.store.sync()?;
        Ok(run)
    }

    /// Moves one run by a rule. A power cut may lose the change.
    pub(super) fn change_unsynced(
        &self,
        id: &RunId,
        rule: impl Fn(&Run, Stamp) -> Result<Transition, TransitionError>,
    ) -> Result<Run, RunError> {
        let run = found(&*self.store.snapshot()?, id)?;
        match self.try_move(run, rule)? {
            Ok(run) => Ok(run),
            Err(NotMoved::Refused(error, run)) => Err(refused(&run, error)),
            Err(NotMoved::Removed) => Err(RunError::NoRun(id.to_string())),
        }
    }

    /// Moves a run by a rule. If the run has changed since it was read, the rule decides again about its current record.
    pub(super) fn try_move<E>(
        &self,
        mut run: Run,
        rule: impl Fn(&Run, Stamp) -> Result<Transition, E>,
    ) -> Result<Result<Run, NotMoved<E>>, StoreError> {
        loop {
            let transition = match rule(&run, self.store.now()) {
                Ok(transition) => transition,
                Err(error) => return Ok(Err(NotMoved::Refused(error, Box::new(run)))),
            };
            match self.store.move_runs(std::slice::from_ref(&transition))?.swap_remove(0) {
                Moved::Applied => return Ok(Ok(transition.run)),
                Moved::Conflict(Some(current)) => run = *current,
                Moved::Conflict(None) => return Ok(Err(NotMoved::Removed)),
            }
        }
    }
}

/// The transitions that cancel a run: two if it waits for its next attempt, none if its worker has to stop it already.
pub(super) fn cancellation(
    run: &Run,
    message: Option<&str>,
    now: Stamp,
) -> Result<Vec<Transition>, TransitionError> {
    if matches!(run.state, RunState::Cancelling(_)) {
        return Ok(Vec::new());
    }
    let message = || message.map(ToOwned::to_owned);
    let first = transition::cancel(run, now, message())?;
    if !matches!(first.run.state, RunState::CancellingRetry(_)) {
        return Ok(vec![first]);
    }
    let second = transition::cancel(&first.run, now, message())?;
    Ok(vec![first, second])
}

/// What decides about the end of an attempt at this request.
pub(crate) fn policy(request: &Request) -> FinishPolicy<'_> {
    // Only a request with retries needs a random number.
    let random = if request.retry.limit > 0 { random::number().unwrap_or(0) } else { 0 };
    FinishPolicy { success: &request.success, retry: &request.retry, random }
}

pub(super) fn refused(run: &Run, source: TransitionError) -> RunError {
    RunError::Refused { run: run.id.clone(), current: run.status(), source }
}
