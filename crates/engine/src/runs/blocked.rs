//! Why a run has not started: dependencies, its position in the queue, or no worker for it.

use std::collections::HashMap;

use lockkeeper_core::id::{Name, RequestId, RunId, WorkerId};
use lockkeeper_core::liveness::{LockState, Observation, ProcessState};
use lockkeeper_core::request::Request;
use lockkeeper_core::run::{Process, Run, RunState};
use lockkeeper_core::time::Moment;
use lockkeeper_platform::liveness_lock::LivenessFile;
use lockkeeper_platform::process;
use lockkeeper_store::StoreError;
use lockkeeper_store::runs::{RunRecords, StoredRequest, Worker};

use super::Runs;
use super::dependencies::FailedBefore;
use super::workers::{is_gone, session_ends_at};
use crate::work::has_ended;

/// Lists compute positions in the queue only up to this one.
const COUNTED: usize = 200;
/// How many requests before others a list reads.
const MOST_BEFORE: usize = 2_000;
/// How many times a list reads the process table.
const MOST_LOOKS: u32 = 8;

/// Why a run has not started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// Other requests have to be done first.
    Dependencies {
        /// Those that it names and that are not done.
        unmet: Vec<RequestId>,
        /// All before it that ended without success. While there is one, it never starts.
        failed: Vec<RequestId>,
    },
    /// The next attempt is due at this moment.
    Retry(Moment),
    /// This many runs are before it in the queue.
    Position(u64),
    /// At least this many runs are before it. Lists do not count further.
    Behind(u64),
    /// No pool worker is registered.
    NoWorker,
    /// Workers are running, and none of them has these labels.
    NoWorkerWith(Vec<Name>),
    /// Its worker is dead. The next process that starts or waits for a run rescues it.
    Unattended,
    /// Its worker is dead, and its processes live where this process can neither see nor end them: in another pid namespace, or
    /// those of this user.
    OutOfReach(Option<u32>),
    /// Its time is up, and its processes are being ended.
    TimeIsUp,
}

/// Facts about the queue and the workers at one moment. Each is read once, and used for many runs.
pub(super) struct QueueFacts<'r> {
    records: &'r dyn RunRecords,
    runs: &'r Runs,
    many: bool,
    workers: Option<Vec<Worker>>,
    /// The liveness locks of workers and runs; none in a folder that never had any.
    life: Option<Option<LivenessFile>>,
    positions: Option<HashMap<RunId, u64>>,
    /// How many times it has read the process table.
    looks: u32,
    failed: FailedBefore,
}

impl<'r> QueueFacts<'r> {
    /// For one run: its position is counted exactly.
    pub(super) fn for_one(records: &'r dyn RunRecords, runs: &'r Runs) -> Self {
        Self {
            records,
            runs,
            many: false,
            workers: None,
            life: None,
            positions: None,
            looks: 0,
            failed: FailedBefore::default(),
        }
    }

    /// For a list: positions are looked up among the first [`COUNTED`].
    pub(super) fn for_many(records: &'r dyn RunRecords, runs: &'r Runs) -> Self {
        Self { many: true, failed: FailedBefore::at_most(MOST_BEFORE), ..Self::for_one(records, runs) }
    }

    /// Why no worker executes a run; none if one does, or if the run has ended.
    pub(super) fn blocked(
        &mut self,
        run: &Run,
        request: &StoredRequest,
    ) -> Result<Option<Blocked>, StoreError> {
        Ok(match &run.state {
            RunState::Queued { .. } if request.unmet > 0 => {
                let unmet = self.records.unmet(&run.request)?;
                Some(Blocked::Dependencies { unmet, failed: self.failed.of(self.records, &run.request)? })
            }
            RunState::Queued { .. } => match self.no_worker_for(&request.request)? {
                Some(no_worker) => Some(no_worker),
                None => Some(self.position(&run.id)?),
            },
            RunState::WaitingForRetry { .. }
                if run.was_returned() && self.no_worker_for(&request.request)?.is_some() =>
            {
                self.no_worker_for(&request.request)?
            }
            // A returned run (its command never began) is first of its priority.
            RunState::WaitingForRetry { .. } if run.was_returned() => Some(Blocked::Position(0)),
            RunState::WaitingForRetry { retry_at, .. } => Some(Blocked::Retry(*retry_at)),
            RunState::Running(execution) | RunState::Cancelling(execution) => {
                let overdue = run.times_out_at().is_some_and(|at| at <= self.records.now().moment);
                match execution.process {
                    Some(process) => self
                        .unattended(&execution.worker, &process)?
                        .or_else(|| overdue.then_some(Blocked::TimeIsUp)),
                    // An executor outside of Lockkeeper: only that executor knows whether it is alive.
                    None => None,
                }
            }
            RunState::CancellingRetry(_) | RunState::Ended(_) | RunState::Rejected { .. } => None,
        })
    }

    /// Why no live worker executes a run, if so. `worker` executes or executed it.
    fn unattended(&mut self, worker: &WorkerId, run: &Process) -> Result<Option<Blocked>, StoreError> {
        let (runs, now) = (self.runs, self.records.now().moment);
        let worker = self.workers()?.iter().find(|known| known.id == *worker).cloned();
        let life = self.life.get_or_insert_with(|| runs.liveness_file());
        if let Some(worker) = &worker {
            let observation = runs.observe(worker, life.as_ref());
            let is_gone = is_gone(worker, observation, now);
            if observation == Observation::OtherHost || !is_gone {
                return Ok(is_gone.then_some(Blocked::Unattended));
            }
        }
        let lock = life.as_ref().map_or(LockState::Unreadable, |life| life.look(run.holder));
        if let Some(user) = run.command.filter(|_| lock != LockState::Free).and_then(process::foreign_user) {
            return Ok(Some(Blocked::OutOfReach(Some(user))));
        }
        // Reading the process table takes time, so lists do it for the first few runs only.
        let may_look = !self.many || self.looks < MOST_LOOKS;
        self.looks += u32::from(lock != LockState::Free && may_look);
        let is_hidden = may_look
            && match (lock, life) {
                (LockState::Held, Some(life)) => life.processes(run.holder).is_empty(),
                (LockState::Free, _) => false,
                // The file of liveness locks was removed or replaced.
                (LockState::Held | LockState::Unreadable, _) => {
                    let lives = run.command.is_some_and(|it| process::look(it) == ProcessState::Running);
                    !lives && !has_ended(runs.folder(), run.holder)
                }
            };
        Ok(Some(if is_hidden { Blocked::OutOfReach(None) } else { Blocked::Unattended }))
    }

    fn workers(&mut self) -> Result<&[Worker], StoreError> {
        match self.workers {
            Some(ref workers) => Ok(workers),
            None => Ok(self.workers.insert(self.records.workers()?)),
        }
    }

    /// Which worker is missing for a request; none if there is one.
    fn no_worker_for(&mut self, request: &Request) -> Result<Option<Blocked>, StoreError> {
        // Others execute single runs only.
        let now = self.records.now().moment;
        let is_silent = |worker: &Worker| session_ends_at(worker).is_some_and(|end| end < now);
        let workers = self.workers()?.iter().filter(|worker| worker.jobs > 0 && !is_silent(worker));
        let missing = workers.map(|worker| request.missing_labels(&worker.labels)).min_by_key(Vec::len);
        Ok(match missing {
            None => Some(Blocked::NoWorker),
            Some(labels) if labels.is_empty() => None,
            Some(_) => Some(Blocked::NoWorkerWith(request.needs.clone())),
        })
    }

    fn position(&mut self, run: &RunId) -> Result<Blocked, StoreError> {
        if !self.many {
            return self.records.queue_position(run).map(Blocked::Position);
        }
        let positions = match &mut self.positions {
            Some(positions) => positions,
            None => self.positions.insert(self.records.queue_head(COUNTED)?.into_iter().zip(0..).collect()),
        };
        Ok(match positions.get(run) {
            Some(position) => Blocked::Position(*position),
            None if positions.len() == COUNTED => Blocked::Behind(COUNTED as u64),
            // A run of a stage is claimed by the worker of the stage and is not in the queue.
            None => Blocked::Position(0),
        })
    }
}
