//! Workers and the runs that they execute: who is there, and what becomes of runs whose worker is gone.

use lockkeeper_core::id::WorkerId;
use lockkeeper_core::liveness::ProcessRef;
use lockkeeper_core::request::Request;
use lockkeeper_core::run::Run;
use lockkeeper_core::run::life::{self, Seen};

use super::moves::{advance, terms};
use super::{RunError, Runs};
use lockkeeper_store::StoreError;
use lockkeeper_store::runs::Worker;

/// Everybody who executes runs, and the runs.
pub(crate) struct Living {
    /// All registered workers, whether they still live or not.
    pub(crate) workers: Vec<Worker>,
    /// Runs that somebody executes, or of which a process may be left.
    pub(crate) runs: Vec<Run>,
}

impl Runs {
    /// Registers a worker. A power cut may lose it: the worker is gone then, too.
    pub(crate) fn register_worker(&self, worker: &Worker) -> Result<(), StoreError> {
        self.store.note(|tables| tables.insert_worker(worker))?;
        self.store.remove_start_intents()
    }

    /// Removes a worker.
    pub(crate) fn remove_worker(&self, id: &WorkerId) -> Result<(), StoreError> {
        self.store.note(|tables| tables.remove_worker(id))
    }

    /// All workers and all runs that they may execute, as they were at one moment.
    pub(crate) fn living(&self) -> Result<Living, StoreError> {
        self.store.read(|tables| Ok(Living { workers: tables.workers()?, runs: tables.living()? }))
    }

    /// The processes of all registered workers.
    pub(crate) fn worker_processes(&self) -> Result<Vec<ProcessRef>, StoreError> {
        let workers = self.store.read(|tables| tables.workers())?;
        Ok(workers.into_iter().map(|worker| worker.process).collect())
    }

    /// Gives a run to another worker, if it is as it was found. One that has ended keeps its end: only its processes are
    /// left to be ended. None when somebody else was first.
    pub(crate) fn adopt(&self, run: &Run, worker: &WorkerId) -> Result<Option<(Run, Request)>, StoreError> {
        self.store.write(|tables| {
            let found = tables.run(&run.id)?.filter(|found| found.claim == run.claim);
            let Some((found, request)) = found.zip(tables.request(&run.request)?) else { return Ok(None) };
            if !found.status.is_active() {
                return Ok(found.process.map(|_| (found, request.request)));
            }
            match life::adopt(&found, run.claim, worker.clone()) {
                Ok(moved) => Ok(Some((advance(tables, &found, moved)?, request.request))),
                Err(_) => Ok(None),
            }
        })
    }

    /// Ends an attempt of which nothing lives, as a worker that adopts it would: as LOST, or with a wait for the next
    /// attempt where there may be one. None when somebody else was first.
    ///
    /// The caller has seen that no process of it lives and that its worker is gone.
    pub fn end_lost(&self, run: &Run) -> Result<Option<Run>, RunError> {
        Ok(self.store.write(|tables| {
            let found = tables.run(&run.id)?.filter(|found| found.claim == run.claim);
            let Some(found) = found.filter(|found| found.status.is_active() && found.process.is_some())
            else {
                return Ok(None);
            };
            let Some(request) = tables.request(&found.request)? else { return Ok(None) };
            match life::finish(&found, found.claim, Seen::Vanished, terms(&request.request), tables.now()) {
                Ok(moved) => advance(tables, &found, moved).map(Some),
                Err(_) => Ok(None),
            }
        })?)
    }
}
