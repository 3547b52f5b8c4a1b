//! The workers that are registered, and what each executes.

use std::collections::HashMap;

use lockkeeper_core::id::WorkerId;
use lockkeeper_core::liveness::LockState;
use lockkeeper_platform::liveness_lock::LivenessFile;
use lockkeeper_store::runs::Worker;

use super::{RunError, Runs};

/// A worker, and what it executes.
#[derive(Clone, Debug)]
pub struct WorkerEntry {
    /// The worker.
    pub worker: Worker,
    /// Whether its kernel lock is held, as far as this process can see.
    pub is_alive: bool,
    /// How many runs it executes.
    pub running: usize,
}

impl Runs {
    /// All workers that are registered, the oldest first.
    pub fn workers(&self) -> Result<Vec<WorkerEntry>, RunError> {
        let records = self.store.snapshot()?;
        let workers = records.workers()?;
        let mut running: HashMap<WorkerId, usize> = HashMap::new();
        for run in records.active_runs()?.iter().filter(|run| !run.status().is_terminal()) {
            if let Some(worker) = run.worker() {
                *running.entry(worker.clone()).or_default() += 1;
            }
        }
        // Opening it would create it.
        let exists = self.folder.join("life").is_file();
        let life = exists.then(|| LivenessFile::open(&self.folder).ok()).flatten();
        let is_alive =
            |worker: &Worker| life.as_ref().is_some_and(|life| life.look(worker.holder) != LockState::Free);
        let entry = |worker: Worker| WorkerEntry {
            is_alive: is_alive(&worker),
            running: running.get(&worker.id).copied().unwrap_or(0),
            worker,
        };
        Ok(workers.into_iter().map(entry).collect())
    }
}
