//! Lock files in foreign formats that a run holds besides its lease: aiflow's for requests, a swarm's for tasks.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lockkeeper_core::id::WorkerId;
use lockkeeper_core::request::Request;
use lockkeeper_core::run::{Run, Status};
use lockkeeper_core::time::{Moment, Ttl};

use lockkeeper_formats::aiflow::{self, Aiflow, AiflowLock, Recovered, Subject};
use lockkeeper_formats::swarm::{self, Assignment, Executor, Swarm, TaskEnd, TaskLock, TaskQueue};
use lockkeeper_platform::clock;
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_store::runs::Worker as WorkerRecord;

use super::locked;
use crate::request_locks::{queue_of, taken_without_lock};
use crate::runs::{EndedElsewhere, RunFolder};

/// How often files are renewed. In every format a file is valid many times longer.
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
    /// The stale locks that they replaced, for the report.
    recovered: Vec<String>,
}

#[derive(Debug)]
enum LockFile {
    Request(AiflowLock),
    Task { lock: Box<TaskLock>, queue: Option<TaskQueue>, run: String },
}

/// Why the files of a run were not locked.
#[derive(Debug)]
pub(super) enum NotLocked {
    /// Another program holds one of them, or it cannot be locked. Has the reason in words.
    Held(String),
    /// Another program has ended the work of the run.
    Ended(EndedElsewhere),
}

impl From<String> for NotLocked {
    fn from(why: String) -> Self {
        Self::Held(why)
    }
}

impl LockFormats {
    /// Whether a request is locked by a file.
    pub(super) fn apply_to(&self, request: &Request) -> bool {
        self.aiflow.is_some() || self.task_of(request).is_some()
    }

    /// Locks the files of a run.
    pub(super) fn lock(
        &self,
        request: &Request,
        run: &Run,
        worker: &WorkerRecord,
        folder: &RunFolder,
    ) -> Result<LockFiles, NotLocked> {
        let mut files = LockFiles::default();
        let now = WallTime::now();
        if let Some(aiflow) = &self.aiflow {
            folder.write_aiflow_root(aiflow.root()).map_err(|error| error.to_string())?;
            let ttl = Ttl::new(aiflow::DEFAULT_TTL).expect("half an hour is a TTL");
            let terms = aiflow::Terms { run_id: Some(run.id.as_str()), pid: worker.process.pid, ttl };
            let subject = Subject::Request(request.id.to_string());
            match aiflow.lock(&subject, terms, now).map_err(|error| error.to_string())? {
                aiflow::Attempt::Locked { lock, recovered } => {
                    files.held.push(LockFile::Request(lock));
                    let old = recovered.map(|old| old.state.run_id().unwrap_or("another program").to_owned());
                    files.recovered.extend(old.map(|who| format!("the lock of {who} on {}", request.id)));
                }
                aiflow::Attempt::Busy(standing) => {
                    let who = standing.run_id().unwrap_or("another program");
                    return Err(NotLocked::Held(format!("its lock file is held by {who}")));
                }
            }
        }
        if let Some((swarm, task)) = self.task_of(request) {
            let taken = swarm.lock(task, worker.id.as_str(), None, now);
            match taken.map_err(|error| error.to_string())? {
                swarm::Attempt::Locked { lock, replaced } => {
                    let old = replaced.as_ref().map(|old| {
                        let who = old.record.as_ref().map(|record| record.worker_id.as_str());
                        format!("the lock of {} on task {task}", who.unwrap_or("another worker"))
                    });
                    files.recovered.extend(old);
                    let (queue, run) = (queue_of(request), run.id.to_string());
                    let by = Executor { worker: worker.id.as_str(), run: &run };
                    let assigned =
                        queue.as_ref().map(|queue| queue.assign(task, by, replaced.is_some(), now));
                    let why = match assigned.transpose() {
                        Ok(assigned) => assigned.and_then(|found| not_assigned(task, found, queue.as_ref())),
                        Err(error) => {
                            // Only this lock still shows that the worker of the task is gone: the lock is kept, and expires.
                            if replaced.is_none() {
                                lock.unlock().map_err(|error| error.to_string())?;
                            }
                            files.release()?;
                            return Err(NotLocked::Held(error.to_string()));
                        }
                    };
                    files.held.push(LockFile::Task { lock, queue, run });
                    if let Some(why) = why {
                        files.release()?;
                        return Err(why);
                    }
                }
                swarm::Attempt::Busy(standing) => {
                    let who = standing.record.map(|record| record.worker_id);
                    let who = who.unwrap_or_else(|| "another worker".to_owned());
                    files.release()?;
                    return Err(NotLocked::Held(format!("task {task} is locked by {who}")));
                }
            }
        }
        Ok(files)
    }

    /// Takes over the files that a dead worker held for a run that continues.
    pub(super) fn adopt(
        &self,
        request: &Request,
        run: &Run,
        gone: Option<&WorkerId>,
        worker: &WorkerRecord,
        folder: &RunFolder,
    ) -> Result<LockFiles, String> {
        let (mut held, now) = (Vec::new(), WallTime::now());
        // This worker may lock requests in another format, or in another work tree.
        let root = folder.read_aiflow_root().map_err(|error| error.to_string())?;
        if let Some(aiflow) = root.map(Aiflow::new).or_else(|| self.aiflow.clone()) {
            let ttl = Ttl::new(aiflow::DEFAULT_TTL).expect("half an hour is a TTL");
            let terms = aiflow::Terms { run_id: Some(run.id.as_str()), pid: worker.process.pid, ttl };
            let adopted =
                aiflow.adopt(&Subject::Request(request.id.to_string()), run.id.as_str(), terms, now);
            held.extend(adopted.map_err(|error| error.to_string())?.map(LockFile::Request));
        }
        if let Some(((swarm, task), gone)) = self.task_of(request).zip(gone) {
            let adopted = swarm.adopt(task, gone.as_str(), worker.id.as_str(), now);
            if let Some(lock) = adopted.map_err(|error| error.to_string())? {
                let (queue, run) = (queue_of(request), run.id.to_string());
                held.push(LockFile::Task { lock, queue, run });
            }
        }
        Ok(LockFiles { held, ..LockFiles::default() })
    }

    /// The swarm's task that a request is for.
    fn task_of<'r>(&'r self, request: &'r Request) -> Option<(&'r Swarm, &'r str)> {
        self.swarm.as_ref().zip(request.task())
    }
}

/// Removes the lock files of a run that has ended without its worker.
#[cfg(feature = "stages")]
pub(crate) fn remove_of_ended(run: &Run, folder: &RunFolder) -> Result<(), String> {
    let Some(root) = folder.read_aiflow_root().map_err(|error| error.to_string())? else { return Ok(()) };
    let ttl = Ttl::new(aiflow::DEFAULT_TTL).expect("half an hour is a TTL");
    let terms = aiflow::Terms { run_id: Some(run.id.as_str()), pid: std::process::id(), ttl };
    let subject = Subject::Request(run.request.to_string());
    let adopted = Aiflow::new(root).adopt(&subject, run.id.as_str(), terms, WallTime::now());
    match adopted.map_err(|error| error.to_string())? {
        Some(lock) => lock.release().map(|_| ()).map_err(|error| error.to_string()),
        None => Ok(()),
    }
}

impl LockFiles {
    /// Whether the run holds no files.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Which stale locks were taken over with these files, for the report; none if none was.
    pub(super) fn recovered(&self) -> Option<String> {
        let list = self.recovered.join(" and ");
        (!list.is_empty()).then(|| format!("{}: took over {list}, which had expired", Recovered::REASON_CODE))
    }

    /// Renews the files if it is time to; false when one of them is not ours any more.
    pub(super) fn renew(&mut self, now: Moment) -> bool {
        if self.held.is_empty() || self.renewed_at.is_some_and(|at| now.since(at) < RENEW_EVERY) {
            return true;
        }
        self.renewed_at = Some(now);
        let wall = WallTime::now();
        self.held.iter_mut().all(|file| match file {
            // If a renewal fails, the next one comes in time.
            LockFile::Request(lock) => lock.heartbeat(wall).unwrap_or(true),
            LockFile::Task { lock, queue, run } => {
                if let Some(queue) = queue {
                    let by = Executor { worker: &lock.record().worker_id, run };
                    // The next renewal tries it again.
                    let _ = queue.keep(&lock.record().task_id, by, wall);
                }
                lock.heartbeat(wall).unwrap_or(true)
            }
        })
    }

    /// Writes how a run ended where other workers of its swarm read it, while its task is still locked.
    pub(super) fn record_end(&self, ended: Option<&Run>, output: &str) -> Result<(), String> {
        let Some(end) = ended.and_then(|run| task_end(run, output)) else { return Ok(()) };
        let tasks = self.held.iter().filter_map(|file| match file {
            LockFile::Task { lock, queue, run } => queue.as_ref().map(|queue| (lock.record(), queue, run)),
            LockFile::Request(_) => None,
        });
        for (record, queue, run) in tasks {
            let by = Executor { worker: &record.worker_id, run };
            let written = queue.end(&record.task_id, by, &end, WallTime::now());
            written.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Releases all files, also after a failure. Returns the first failure.
    pub(super) fn release(self) -> Result<(), String> {
        let mut outcome = Ok(());
        for file in self.held {
            let released = match file {
                LockFile::Request(lock) => lock.release().map_err(|error| error.to_string()),
                LockFile::Task { lock, .. } => lock.unlock().map_err(|error| error.to_string()),
            };
            outcome = outcome.and(released.map(|_| ()));
        }
        outcome
    }
}

/// Lock files of an adopted run. A thread renews these files while the run continues.
pub(super) struct RenewedFiles {
    stop: Sender<()>,
    renewing: Option<JoinHandle<LockFiles>>,
    /// The files themselves where no thread is needed or could be started.
    idle: LockFiles,
}

impl RenewedFiles {
    pub(super) fn begin(files: LockFiles) -> Self {
        let (stop, stopped) = channel();
        if files.is_empty() {
            return Self { stop, renewing: None, idle: files };
        }
        let shared = Arc::new(Mutex::new(Some(files)));
        let theirs = Arc::clone(&shared);
        let take = |shared: &Mutex<Option<LockFiles>>| locked(shared).take().unwrap_or_default();
        let renewing = thread::Builder::new().name("lock-files".to_owned()).spawn(move || {
            let mut files = take(&theirs);
            while files.renew(clock::now())
                && stopped.recv_timeout(RENEW_EVERY) == Err(RecvTimeoutError::Timeout)
            {}
            files
        });
        match renewing {
            Ok(renewing) => Self { stop, renewing: Some(renewing), idle: LockFiles::default() },
            Err(_) => Self { stop, renewing: None, idle: take(&shared) },
        }
    }

    /// Stops the renewal, and returns the files.
    pub(super) fn end(self) -> LockFiles {
        drop(self.stop);
        match self.renewing.map(JoinHandle::join) {
            Some(Ok(files)) => files,
            // A thread that panicked leaves files that expire.
            Some(Err(_)) | None => self.idle,
        }
    }
}

/// Why a task was not assigned; none if it was.
fn not_assigned(task: &str, found: Assignment, queue: Option<&TaskQueue>) -> Option<NotLocked> {
    let is = |status: &str| format!("task {task} is {status}");
    match found {
        Assignment::Assigned | Assignment::Absent => None,
        Assignment::Taken(status) => Some(NotLocked::Held(taken_without_lock(task, &status, queue?.path()))),
        Assignment::Completed(status) => Some(NotLocked::Ended(EndedElsewhere::Done(is(&status)))),
        Assignment::Skipped(status) => Some(NotLocked::Ended(EndedElsewhere::Skipped(is(&status)))),
    }
}

/// How the task of a run ended; none while another attempt follows.
fn task_end(run: &Run, output: &str) -> Option<TaskEnd> {
    if run.waits_for_retry() {
        return None;
    }
    match run.status() {
        Status::Queued | Status::Running | Status::Cancelling => None,
        Status::Succeeded => Some(TaskEnd::Completed(output.to_owned())),
        Status::Canceled => Some(TaskEnd::Returned),
        Status::Failed | Status::TimedOut | Status::Rejected => {
            let reason = run.message().map(str::to_owned);
            let code = run.reason().map(|reason| reason.to_string());
            Some(TaskEnd::Failed(reason.or(code).unwrap_or_else(|| run.status().to_string())))
        }
    }
}
