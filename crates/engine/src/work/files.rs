//! Lock files in foreign formats that a run holds besides its lease: aiflow's for requests, a swarm's for tasks.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lockkeeper_core::request::Request;
use lockkeeper_core::run::Run;
use lockkeeper_core::time::{Moment, Ttl};

use super::Executor;
use lockkeeper_formats::aiflow::{self, AiflowLock, Subject};
use lockkeeper_formats::swarm::{self, Swarm, TaskLock};
use lockkeeper_platform::wall_clock::WallTime;

/// How often files are renewed; every format waits many times longer.
const BEAT_EVERY: Duration = Duration::from_secs(10);

/// The files that one run holds.
#[derive(Debug, Default)]
pub(super) struct LockFiles {
    held: Mutex<Vec<LockFile>>,
    beaten_at: Mutex<Option<Moment>>,
}

#[derive(Debug)]
enum LockFile {
    Request(AiflowLock),
    Task(Box<TaskLock>),
}

impl LockFiles {
    /// Whether the run holds no files.
    pub(super) fn are_none(&self) -> bool {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Renews what is due; false when something is not ours any more.
    pub(super) fn beat(&self, now: Moment) -> bool {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let mut beaten_at = self.beaten_at.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_empty() || beaten_at.is_some_and(|at| now.since(at) < BEAT_EVERY) {
            return true;
        }
        *beaten_at = Some(now);
        let wall = WallTime::now();
        held.iter_mut().all(|file| match file {
            // A beat that fails for once is made up for by the next.
            LockFile::Request(lock) => lock.heartbeat(wall).unwrap_or(true),
            LockFile::Task(lock) => lock.heartbeat(wall).unwrap_or(true),
        })
    }

    /// Gives all of them back; the first failure is told, the others are released all the same.
    pub(super) fn release(self) -> Result<(), String> {
        let held = self.held.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut outcome = Ok(());
        for file in held {
            let released = match file {
                LockFile::Request(lock) => lock.release().map_err(|error| error.to_string()),
                LockFile::Task(lock) => lock.unlock().map_err(|error| error.to_string()),
            };
            outcome = outcome.and(released.map(|_| ()));
        }
        outcome
    }
}

impl Executor {
    /// Whether a request is locked by a file, too.
    pub(super) fn needs_files(&self, request: &Request) -> bool {
        self.settings.aiflow.is_some() || self.task_of(request).is_some()
    }

    /// Takes the files; says who is in the way when that cannot be.
    pub(super) fn lock_files(&self, request: &Request, run: &Run) -> Result<LockFiles, String> {
        let mut held = Vec::new();
        let now = WallTime::now();
        if let Some(aiflow) = &self.settings.aiflow {
            let ttl = Ttl::new(aiflow::DEFAULT_TTL).expect("half an hour is a TTL");
            let terms = aiflow::Terms { run_id: Some(run.id.as_str()), pid: self.worker.process.pid, ttl };
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
            let taken = swarm.lock(task, self.worker.id.as_str(), None, now);
            match taken.map_err(|error| error.to_string())? {
                swarm::Attempt::Locked { lock, .. } => held.push(LockFile::Task(lock)),
                swarm::Attempt::Busy(standing) => {
                    let who = standing.record.map(|record| record.worker_id);
                    let who = who.unwrap_or_else(|| "another worker".to_owned());
                    let files = LockFiles { held: Mutex::new(held), ..LockFiles::default() };
                    files.release()?;
                    return Err(format!("task {task} is locked by {who}"));
                }
            }
        }
        Ok(LockFiles { held: Mutex::new(held), beaten_at: Mutex::new(None) })
    }

    /// The swarm's task that a request is for.
    fn task_of<'r>(&'r self, request: &'r Request) -> Option<(&'r Swarm, &'r str)> {
        self.settings.swarm.as_ref().zip(request.task())
    }
}
