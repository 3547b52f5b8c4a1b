//! Lock files in foreign formats that a run holds besides its lease: aiflow's for requests, a swarm's for tasks.

use std::time::Duration;

use lockkeeper_core::request::Request;
use lockkeeper_core::run::Run;
use lockkeeper_core::time::{Moment, Ttl};

use lockkeeper_formats::aiflow::{self, Aiflow, AiflowLock, Subject};
use lockkeeper_formats::swarm::{self, Swarm, TaskLock};
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_store::runs::Worker as WorkerRecord;

/// How often files are renewed; every format waits many times longer.
const RENEW_EVERY: Duration = Duration::from_secs(10);

/// The formats in which runs are locked.
#[derive(Clone, Debug)]
pub(super) struct LockFormats {
    /// Locks requests.
    pub(super) aiflow: Option<Aiflow>,
    /// Locks tasks of a swarm.
    pub(super) swarm: Option<Swarm>,
}

/// The lock files that one run holds.
#[derive(Debug, Default)]
pub(super) struct LockFiles {
    held: Vec<LockFile>,
    renewed_at: Option<Moment>,
}

#[derive(Debug)]
enum LockFile {
    Request(AiflowLock),
    Task(Box<TaskLock>),
}

impl LockFormats {
    /// Whether a request is locked by a file.
    pub(super) fn apply_to(&self, request: &Request) -> bool {
        self.aiflow.is_some() || self.task_of(request).is_some()
    }

    /// Locks the files of a run; says who holds one of them when that is not possible.
    pub(super) fn lock(
        &self,
        request: &Request,
        run: &Run,
        worker: &WorkerRecord,
    ) -> Result<LockFiles, String> {
        let mut held = Vec::new();
        let now = WallTime::now();
        if let Some(aiflow) = &self.aiflow {
            let ttl = Ttl::new(aiflow::DEFAULT_TTL).expect("half an hour is a TTL");
            let terms = aiflow::Terms { run_id: Some(run.id.as_str()), pid: worker.process.pid, ttl };
            let subject = Subject::Request(request.id.to_string());
            match aiflow.lock(&subject, terms, now).map_err(|error| error.to_string())? {
                aiflow::Attempt::Locked { lock, .. } => held.push(LockFile::Request(lock)),
                aiflow::Attempt::Busy(standing) => {
                    let who = standing.record.and_then(|record| record.run_id);
                    return Err(format!(
                        "its lock file is held by {}",
                        who.as_deref().unwrap_or("another program")
                    ));
                }
            }
        }
        if let Some((swarm, task)) = self.task_of(request) {
            let taken = swarm.lock(task, worker.id.as_str(), None, now);
            match taken.map_err(|error| error.to_string())? {
                swarm::Attempt::Locked { lock, .. } => held.push(LockFile::Task(lock)),
                swarm::Attempt::Busy(standing) => {
                    let who = standing.record.map(|record| record.worker_id);
                    let who = who.unwrap_or_else(|| "another worker".to_owned());
                    LockFiles { held, renewed_at: None }.release()?;
                    return Err(format!("task {task} is locked by {who}"));
                }
            }
        }
        Ok(LockFiles { held, renewed_at: None })
    }

    /// The swarm's task that a request is for.
    fn task_of<'r>(&'r self, request: &'r Request) -> Option<(&'r Swarm, &'r str)> {
        self.swarm.as_ref().zip(request.task())
    }
}

impl LockFiles {
    /// Whether the run holds no files.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Renews the files if it is time to; false when one of them is not ours any more.
    pub(super) fn renew(&mut self, now: Moment) -> bool {
        if self.held.is_empty() || self.renewed_at.is_some_and(|at| now.since(at) < RENEW_EVERY) {
            return true;
        }
        self.renewed_at = Some(now);
        let wall = WallTime::now();
        self.held.iter_mut().all(|file| match file {
            // One failure is made up for by the next renewal.
            LockFile::Request(lock) => lock.heartbeat(wall).unwrap_or(true),
            LockFile::Task(lock) => lock.heartbeat(wall).unwrap_or(true),
        })
    }

    /// Releases all files; the first failure is returned, the others are released all the same.
    pub(super) fn release(self) -> Result<(), String> {
        let mut outcome = Ok(());
        for file in self.held {
            let released = match file {
                LockFile::Request(lock) => lock.release().map_err(|error| error.to_string()),
                LockFile::Task(lock) => lock.unlock().map_err(|error| error.to_string()),
            };
            outcome = outcome.and(released.map(|_| ()));
        }
        outcome
    }
}
