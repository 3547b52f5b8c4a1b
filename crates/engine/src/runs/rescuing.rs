//! Workers and the runs that they execute: registration, and what happens to runs whose worker is dead or silent.

use lockkeeper_core::id::WorkerId;
use lockkeeper_core::liveness::ProcessRef;
use lockkeeper_core::request::Request;
use lockkeeper_core::run::transition::{self, AttemptOutcome};
use lockkeeper_core::run::{Run, Status};
use lockkeeper_core::time::Moment;

use super::moves::{NotMoved, policy};
use super::{RunError, Runs};
use lockkeeper_platform::process;
use lockkeeper_store::StoreError;
use lockkeeper_store::runs::{Renewal, RunFilter, Worker};

/// How many runs are looked at for those that wait for an attempt.
const MOST_RUNNING: usize = 10_000;

/// All workers, and the runs that they execute.
pub(crate) struct WorkersAndRuns {
    /// All registered workers, whether they live or not.
    pub(crate) workers: Vec<Worker>,
    /// Runs that a worker executes, and ended runs whose processes may live.
    pub(crate) runs: Vec<Run>,
    /// When that was, on the store's clock.
    pub(crate) now: Moment,
}

impl Runs {
    /// Registers a worker. A power cut may lose the record: the worker is dead then, too.
    pub(crate) fn register_worker(&self, worker: &Worker) -> Result<(), StoreError> {
        self.store.register_worker(worker)
    }

    /// Renews the session of a worker.
    pub(crate) fn renew_worker(
        &self,
        id: &WorkerId,
        expected: &[i64],
        beat: i64,
    ) -> Result<Renewal, StoreError> {
        self.store.renew_worker(id, expected, beat)
    }

    /// Removes a worker.
    pub(crate) fn remove_worker(&self, id: &WorkerId) -> Result<(), StoreError> {
        self.store.remove_worker(id)
    }

    /// All workers and the runs that they execute, at one moment.
    pub(crate) fn workers_and_runs(&self) -> Result<WorkersAndRuns, StoreError> {
        let records = self.store.snapshot()?;
        let now = records.now().moment;
        Ok(WorkersAndRuns { workers: records.workers()?, runs: records.active_runs()?, now })
    }

    /// Runs that wait for their next attempt, whether it is due or not. Those of stages are left out: only the executor of
    /// a stage makes their attempts.
    pub(crate) fn waiting_attempts(&self) -> Result<Vec<Run>, StoreError> {
        let waiting = self.all_waiting_attempts()?.into_iter();
        Ok(waiting.filter(|(_, conductor)| conductor.is_none()).map(|(run, _)| run).collect())
    }

    /// Runs of stages that wait for their first or next attempt, each with the owner of its group.
    pub(crate) fn waiting_stage_attempts(&self) -> Result<Vec<(Run, String)>, StoreError> {
        let waiting = self.all_waiting_attempts()?.into_iter();
        let mut found: Vec<_> = waiting.filter_map(|(run, conductor)| Some((run, conductor?))).collect();
        let records = self.store.snapshot()?;
        for run in records.queued_in_stages()? {
            let stored = records.request(&run.request)?;
            let conductor = stored.and_then(|stored| stored.request.conductor().map(ToOwned::to_owned));
            found.extend(conductor.map(|conductor| (run, conductor)));
        }
        Ok(found)
    }

    fn all_waiting_attempts(&self) -> Result<Vec<(Run, Option<String>)>, StoreError> {
        let records = self.store.snapshot()?;
        let filter =
            RunFilter { statuses: vec![Status::Running], limit: MOST_RUNNING, ..RunFilter::default() };
        let mut waiting = records.runs(&filter)?;
        waiting.retain(Run::waits_for_retry);
        let mut found = Vec::new();
        for run in waiting {
            if let Some(stored) = records.request(&run.request)? {
                found.push((run, stored.request.conductor().map(ToOwned::to_owned)));
            }
        }
        Ok(found)
    }

    /// Ends a run whose next attempt will never be made. None if it has changed meanwhile.
    pub(crate) fn abandon_retry(&self, run: &Run, why: &str) -> Result<Option<Run>, RunError> {
        let Some((found, _)) = self.run_with_request(&run.id)? else { return Ok(None) };
        let version = run.version;
        let ended = self.try_move(found, |run, now| {
            if run.version != version {
                return Err(());
            }
            transition::give_up_attempt(run, why.to_owned(), now).map_err(|_| ())
        })?;
        let Ok(ended) = ended else { return Ok(None) };
        self.store.sync()?;
        Ok(Some(ended))
    }

    /// The processes of all registered workers that use this state folder.
    pub(crate) fn worker_processes(&self) -> Result<Vec<ProcessRef>, StoreError> {
        let workers = self.store.snapshot()?.workers()?.into_iter();
        Ok(workers.filter(|worker| self.has_files_of(worker)).map(|worker| worker.process).collect())
    }

    /// The process of the worker of a run, if a signal has stopped it.
    pub fn stopped_worker(&self, run: &Run) -> Result<Option<ProcessRef>, RunError> {
        let Some(id) = run.worker() else { return Ok(None) };
        let workers = self.store.snapshot()?.workers()?;
        let worker = workers.into_iter().find(|worker| worker.id == *id && self.has_files_of(worker));
        Ok(worker.map(|worker| worker.process).filter(|process| process::is_stopped(*process)))
    }

    /// Records that no process of an ended run lives.
    pub(crate) fn clear_processes(&self, run: &Run) -> Result<(), StoreError> {
        self.store.clear_processes(run)
    }

    /// Gives a run to another worker. A run that has ended keeps its end: only its processes have to be ended. None if another
    /// worker was first.
    pub(crate) fn adopt(&self, run: &Run, worker: &WorkerId) -> Result<Option<(Run, Request)>, StoreError> {
        let Some((found, request)) = self.run_with_request(&run.id)? else { return Ok(None) };
        let claim = run.claim();
        let adopted = self.try_move(found, |run, now| transition::adopt(run, claim, worker.clone(), now))?;
        let run = match adopted {
            Ok(run) => {
                self.store.sync()?;
                Some(run)
            }
            Err(NotMoved::Refused(_, run)) => Some(*run)
                .filter(|run| run.claim() == claim && run.end().is_some() && run.process().is_some()),
            Err(NotMoved::Removed) => None,
        };
        Ok(run.map(|run| (run, request)))
    }

    /// Ends the attempt of an unattended run that has no live process, as a worker that adopts it would: the run ends, or waits
    /// for its next attempt. If the command has not begun, the run is returned. None if another worker was first.
    ///
    /// The caller has seen that no process of the run lives and that its worker is dead. `outcome` is what it knows about
    /// the end of the command.
    pub(crate) fn end_unattended(
        &self,
        run: &Run,
        outcome: &AttemptOutcome,
    ) -> Result<Option<Run>, RunError> {
        let Some((found, request)) = self.run_with_request(&run.id)? else { return Ok(None) };
        let (claim, policy) = (run.claim(), policy(&request));
        let ended = self.try_move(found, |run, now| {
            // Without a liveness lock it cannot be seen that the processes of a run have ended.
            if run.process().is_none() {
                return Err(());
            }
            transition::finish(run, claim, outcome.clone(), policy, now).map_err(|_| ())
        })?;
        let Ok(ended) = ended else { return Ok(None) };
        self.store.sync()?;
        Ok(Some(ended))
    }
}
