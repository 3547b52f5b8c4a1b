//! The workers that are registered, what each executes, and whether it still lives.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use lockkeeper_core::id::WorkerId;
use lockkeeper_core::liveness::{self, Contract, Dates, LockState, Observation};
use lockkeeper_core::time::{Moment, Ttl};
use lockkeeper_platform::liveness_lock::LivenessFile;
use lockkeeper_platform::{origin, process};
use lockkeeper_store::runs::Worker;

use super::{RunError, Runs};
use crate::work::worker_folder;

/// A worker, and what it executes.
#[derive(Clone, Debug)]
pub struct WorkerEntry {
    /// The worker.
    pub worker: Worker,
    /// Whether it lives, as far as this process can see.
    pub is_alive: bool,
    /// How many runs it executes.
    pub running: usize,
}

/// A machine with workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// The boot of its kernel: two machines may have one name.
    pub boot: String,
    /// How many of its workers live, as far as this process can see.
    pub workers: usize,
    /// How many queued runs they execute at the same time.
    pub jobs: u64,
    /// How many runs its workers execute.
    pub running: usize,
    /// The time since the last heartbeat of any of its workers. None if workers have no sessions.
    pub silent_for: Option<Duration>,
}

impl Runs {
    /// The machines that have workers, in the order of their names.
    pub fn hosts(&self) -> Result<Vec<Host>, RunError> {
        let entries = self.workers()?;
        let now = self.now().moment;
        let mut hosts: BTreeMap<(String, String), Host> = BTreeMap::new();
        for WorkerEntry { worker, is_alive, running } in entries {
            let (name, boot) = (worker.origin.host, worker.origin.boot);
            let host = hosts.entry((name.clone(), boot.clone())).or_insert_with(|| Host {
                name,
                boot,
                workers: 0,
                jobs: 0,
                running: 0,
                silent_for: None,
            });
            host.workers += usize::from(is_alive);
            host.jobs += if is_alive { u64::from(worker.jobs) } else { 0 };
            host.running += running;
            let silent_for = worker.heartbeat_at.map(|at| now.since(at));
            host.silent_for = [host.silent_for, silent_for].into_iter().flatten().min();
        }
        Ok(hosts.into_values().collect())
    }

    /// All workers that are registered, the oldest first.
    pub fn workers(&self) -> Result<Vec<WorkerEntry>, RunError> {
        let records = self.store.snapshot()?;
        let (workers, now) = (records.workers()?, records.now().moment);
        let mut running: HashMap<WorkerId, usize> = HashMap::new();
        for run in records.active_runs()?.iter().filter(|run| !run.status().is_terminal()) {
            if let Some(worker) = run.worker() {
                *running.entry(worker.clone()).or_default() += 1;
            }
        }
        let life = self.liveness_file();
        let is_alive = |worker: &Worker| !is_gone(worker, self.observe(worker, life.as_ref()), now);
        let entry = |worker: Worker| WorkerEntry {
            is_alive: is_alive(&worker),
            running: running.get(&worker.id).copied().unwrap_or(0),
            worker,
        };
        Ok(workers.into_iter().map(entry).collect())
    }

    /// The liveness locks of workers and runs; none where there never were any. A command that only reads does not make the file.
    pub(crate) fn liveness_file(&self) -> Option<LivenessFile> {
        let exists = self.liveness.join("life").is_file();
        exists.then(|| LivenessFile::open(&self.liveness).ok()).flatten()
    }

    /// Observes the liveness lock of a worker, or its process if the file of liveness locks was removed or replaced.
    pub(crate) fn observe(&self, worker: &Worker, life: Option<&LivenessFile>) -> Observation {
        let here = match origin::origin() {
            Ok(here) if here.boot == worker.origin.boot && self.has_files_of(worker) => here,
            Ok(_) | Err(_) => return Observation::OtherHost,
        };
        match life.map_or(LockState::Unreadable, |life| life.look(worker.holder)) {
            // It is another clone on this machine.
            LockState::Unreadable if worker.heartbeat_at.is_some() => Observation::OtherHost,
            LockState::Unreadable if here.pid_namespace == worker.origin.pid_namespace => {
                Observation::Process(process::look(worker.process))
            }
            state => Observation::Lock(state),
        }
    }

    /// Whether the files of a worker are in this state folder. A worker of another machine, or of another clone on this one, cannot
    /// be judged from here: the records of how its commands ended are elsewhere.
    pub(crate) fn has_files_of(&self, worker: &Worker) -> bool {
        match worker.heartbeat_at {
            // It is one of the machine that serves its folder, or of the only machine.
            None => self.liveness == self.folder || !self.is_shared(),
            Some(_) => worker_folder(&self.folder, &worker.id).is_dir(),
        }
    }

    /// How long a worker of another machine lives after its last heartbeat.
    pub(crate) fn session(&self) -> Option<Duration> {
        self.store.session().map(Ttl::get)
    }
}

/// Whether a worker is gone: the kernel shows that it has ended, or nothing of it can be observed and its session was silent for
/// too long.
pub(crate) fn is_gone(worker: &Worker, observation: Observation, now: Moment) -> bool {
    let heartbeat_at = worker.heartbeat_at.unwrap_or(now);
    let session = worker.origin.session;
    let dates = Dates { heartbeat_at, ttl: None, pickup_by: None, session, remembered_since: None };
    liveness::judge(Contract::Strict, &dates, observation, now).is_free()
}

/// When the session of a worker ends unless it renews it; none if it has no session.
pub(crate) fn session_ends_at(worker: &Worker) -> Option<Moment> {
    Some(worker.heartbeat_at?.after(worker.origin.session?.get()))
}

#[cfg(test)]
mod tests {
    use lockkeeper_core::id::HolderId;
    use lockkeeper_core::liveness::{Origin, ProcessRef};

    use super::*;

    const HEARD_AT: Moment = Moment::from_micros(1_000_000_000);

    fn worker(session: Option<u64>) -> Worker {
        let session = session.map(|seconds| Ttl::new(Duration::from_secs(seconds)).unwrap());
        Worker {
            id: "W-1".parse().unwrap(),
            holder: HolderId(1),
            origin: Origin { host: "h".to_owned(), boot: "b".to_owned(), pid_namespace: 1, session },
            process: ProcessRef { pid: 2, started: 3 },
            jobs: 1,
            labels: Vec::new(),
            started_at: 0,
            heartbeat_at: session.map(|_| HEARD_AT),
        }
    }

    /// Invariants 3, 4 and 5.
    #[test]
    fn only_the_kernel_of_its_machine_or_an_ended_session_proves_that_a_worker_is_gone() {
        let (one, shared) = (worker(None), worker(Some(30)));
        let after = |seconds| HEARD_AT.after(Duration::from_secs(seconds));
        let other = [Observation::OtherHost, Observation::Lock(LockState::Unreadable)];
        for worker in [&one, &shared] {
            assert!(is_gone(worker, Observation::Lock(LockState::Free), after(0)));
            assert!(!is_gone(worker, Observation::Lock(LockState::Held), after(3_000)));
        }
        for observation in other {
            assert!(!is_gone(&one, observation, after(3_000)), "a worker without a session stays unknown");
            assert!(!is_gone(&shared, observation, after(30)) && is_gone(&shared, observation, after(31)));
        }
        assert_eq!((session_ends_at(&one), session_ends_at(&shared)), (None, Some(after(30))));
    }
}
