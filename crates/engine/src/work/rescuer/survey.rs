//! A survey of all workers and the runs that they execute.

use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_core::id::WorkerId;
use lockkeeper_core::liveness::LockState;
use lockkeeper_core::run::Run;
use lockkeeper_core::time::Moment;

use super::Rescuer;
use crate::runs::RunError;
use crate::work::attempt::reusable_log;
use crate::work::heartbeat;
use lockkeeper_platform::process;
use lockkeeper_platform::process::Watch;
use lockkeeper_store::runs::Worker as WorkerRecord;

/// A worker that ends the processes of a run that is over takes the grace and this long at most.
const SETTLED_WITHIN: Duration = Duration::from_secs(5);

/// Who executes what, as it was at one moment.
#[derive(Default)]
pub(in crate::work) struct Survey {
    /// Other workers that live.
    pub(super) others: Vec<OtherWorker>,
    /// Runs that other live workers execute.
    pub(super) theirs: Vec<Run>,
    /// Runs that nobody looks after.
    pub(super) abandoned: Vec<Run>,
    /// Runs that are executed here.
    pub(in crate::work) ours: Vec<Run>,
    /// When a run may be abandoned that is not yet.
    pub(in crate::work) look_again: Option<Moment>,
}

/// Another worker that lives.
pub(super) struct OtherWorker {
    pub(super) id: WorkerId,
    /// Readable once it is gone.
    exit: Option<Arc<OwnedFd>>,
}

impl Survey {
    /// Descriptors that become readable when another worker is gone.
    pub(in crate::work) fn exits(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.others.iter().filter_map(|other| Some(other.exit.as_ref()?.as_fd()))
    }

    /// Whether other live workers execute anything.
    pub(in crate::work) fn others_are_busy(&self) -> bool {
        !self.theirs.is_empty()
    }
}

impl Rescuer {
    /// Finds out who executes what, and removes workers that are gone and left nothing.
    pub(in crate::work) fn survey(&self) -> Result<Survey, RunError> {
        let found = self.runs.workers_and_runs()?;
        let now = self.runs.now().moment;
        let mut survey = Survey::default();
        let mut dead: HashSet<WorkerId> = HashSet::new();
        let mut alive: HashSet<WorkerId> = HashSet::new();
        for worker in found.workers.into_iter().filter(|worker| worker.id != self.worker.id) {
            // Watched before the look: a worker that dies after the look is noticed.
            let exit = self.watch_worker(&worker);
            if self.is_gone(&worker) {
                dead.insert(worker.id);
                continue;
            }
            alive.insert(worker.id.clone());
            survey.others.push(OtherWorker { id: worker.id, exit });
        }
        for run in found.runs {
            match run.worker() {
                Some(worker) if *worker == self.worker.id => survey.ours.push(run),
                Some(worker) if alive.contains(worker) => survey.theirs.push(run),
                // An executor outside of Lockkeeper: only that one knows.
                Some(_) if run.process().is_none() => {}
                // It is over, and its processes are being ended here.
                None if self.active.contains(&run.id) => {}
                None if dead.is_empty() && !survey.others.is_empty() && self.may_be_settled(&run, now) => {
                    let until = self.settled_until(&run);
                    survey.look_again = [survey.look_again, until].into_iter().flatten().min();
                }
                Some(_) | None => survey.abandoned.push(run),
            }
        }
        let left: HashSet<&WorkerId> = survey.abandoned.iter().filter_map(|run| run.worker()).collect();
        for worker in dead.iter().filter(|worker| !left.contains(worker)) {
            self.runs.remove_worker(worker)?;
            heartbeat::remove(self.runs.folder(), worker);
            reusable_log::remove(self.runs.folder(), worker);
        }
        Ok(survey)
    }

    /// A run that is over, but not settled, may be with any other worker, which ends its processes.
    fn may_be_settled(&self, run: &Run, now: Moment) -> bool {
        self.settled_until(run).is_some_and(|until| now < until)
    }

    fn settled_until(&self, run: &Run) -> Option<Moment> {
        run.completed_at().map(|at| at.moment.after(self.grace + SETTLED_WITHIN))
    }

    /// A descriptor that becomes readable once another worker is gone.
    fn watch_worker(&self, worker: &WorkerRecord) -> Option<Arc<OwnedFd>> {
        let senses = self.leases.probe();
        if senses.shares_pids_with(&worker.origin)
            && let Watch::Exit(exit) = process::watch(worker.process)
        {
            return Some(exit);
        }
        // Process numbers of another pid namespace mean nothing here, but its kernel lock does.
        if worker.origin.boot == senses.origin().boot { senses.watch_lock(worker.holder) } else { None }
    }

    fn is_gone(&self, worker: &WorkerRecord) -> bool {
        let here = self.leases.probe().origin();
        worker.origin.boot == here.boot
            && self.leases.probe().liveness_file().look(worker.holder) == LockState::Free
    }
}
