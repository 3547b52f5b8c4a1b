//! Swarm task locks: one JSON file for each task, renewed by heartbeats, free for takeover after its TTL.
//!
//! The file is `FOLDER/locks/TASK.lock`. Nobody waits: a worker gets the lock at once, or another worker has it. The
//! contract is *lease*: another worker may take over an expired lock while the old worker still runs. The old worker
//! learns that at its next heartbeat.

mod error;
mod record;
mod recovery;
mod task_queue;

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lockkeeper_core::id::IdError;
use lockkeeper_core::time::Ttl;
use lockkeeper_platform::wall_clock::WallTime;

use super::guard::{Folder, GuardError, Heartbeat, Held, LockFile, Removal, Renewal, ReplaceMethod, Take};
use super::json_record::{self, RecordError};
use super::safe_open::{FileName, NameError, Snapshot};
use super::{HeldReason, Verdict};

pub use error::SwarmError;
pub use record::TaskRecord;
pub use recovery::{Listed, Recovered, Recovery};
pub use task_queue::{Assignment, Executor, QueueError, TaskEnd, TaskQueue, VARIABLE as TASKS_VARIABLE};

/// The folder of the swarm, unless `AI_SWARM_DIR` is set.
pub const DEFAULT_DIR: &str = "/tmp/ai_swarm";
/// How long a lock is valid without a heartbeat, unless `AI_SWARM_LOCK_TTL` is set.
pub const DEFAULT_TTL: Duration = Duration::from_secs(300);
/// The time between two heartbeats of a worker.
pub const HEARTBEAT_EVERY: Duration = Duration::from_secs(10);

const LOCKS: &str = "locks";
const FILE_MODE: u32 = 0o600;
const MAX_WORKER: usize = 255;

/// The state of a task's lock file.
#[derive(Debug)]
pub struct LockState {
    /// The record; `None` while it is incomplete.
    pub record: Option<TaskRecord>,
    /// Whether it is held or stale.
    pub verdict: Verdict,
}

/// The result of locking a task.
#[derive(Debug)]
pub enum Attempt {
    /// We have the lock.
    Locked {
        /// The lock.
        lock: Box<TaskLock>,
        /// The expired lock that it replaced.
        replaced: Option<LockState>,
    },
    /// Another worker has the lock.
    Busy(LockState),
}

/// The result of a heartbeat or an unlock.
#[derive(Debug)]
pub enum UpdateOutcome {
    /// The lock belongs to the worker, and the change is made.
    Done(TaskRecord),
    /// There is no lock.
    Absent,
    /// Another worker has the lock.
    Lost(LockState),
}

/// The folder of a swarm.
#[derive(Clone, Debug)]
pub struct Swarm {
    dir: PathBuf,
    /// The TTL of an incomplete record.
    default_ttl: Ttl,
}

impl Swarm {
    /// Remembers the folder. Does not touch it yet.
    pub fn new(dir: impl Into<PathBuf>, default_ttl: Ttl) -> Self {
        Self { dir: dir.into(), default_ttl }
    }

    /// Returns the path of a task's lock file.
    pub fn path(&self, task: &str) -> Result<PathBuf, SwarmError> {
        Ok(self.locks().join(file_name(task)?.as_str()))
    }

    /// Locks a task if it is free or its lock has expired. Never waits.
    pub fn lock(
        &self,
        task: &str,
        worker: &str,
        ttl: Option<Ttl>,
        now: WallTime,
    ) -> Result<Attempt, SwarmError> {
        let name = file_name(task)?;
        check_worker(worker)?;
        let file = LockFile::new(self.make_folder()?, name, FILE_MODE, json_record::is_object);
        let path = file.path();
        let record = TaskRecord {
            worker_id: worker.to_owned(),
            task_id: task.to_owned(),
            acquired_at: now,
            heartbeat_at: now,
            ttl: ttl.unwrap_or(self.default_ttl).get(),
        };
        match file.take(&record.content(), &mut |snapshot| self.verdict(task, snapshot, now))? {
            Take::Taken { held, replaced } => {
                let replaced = replaced.map(|snapshot| self.state(task, &path, &snapshot, now));
                let lock = Box::new(TaskLock { held, record });
                Ok(Attempt::Locked { lock, replaced: replaced.transpose()? })
            }
            Take::Busy { snapshot: Some(snapshot), verdict } => {
                let state = self.state(task, &path, &snapshot, now)?;
                Ok(Attempt::Busy(LockState { verdict, ..state }))
            }
            Take::Busy { snapshot: None, verdict } => Ok(Attempt::Busy(LockState { record: None, verdict })),
        }
    }

    /// Renews a lock that an earlier command took for this worker.
    pub fn heartbeat(
        &self,
        task: &str,
        worker: &str,
        ttl: Option<Ttl>,
        now: WallTime,
    ) -> Result<UpdateOutcome, SwarmError> {
        let Some(file) = self.existing(task)? else { return Ok(UpdateOutcome::Absent) };
        check_worker(worker)?;
        let mut ours = None;
        let renewal = file.renew(&mut |snapshot| {
            let record = own_record(task, worker, snapshot)?;
            ours = Some(TaskRecord { heartbeat_at: now, ttl: ttl.map_or(record.ttl, Ttl::get), ..record });
            record::renewed(snapshot, now, ttl).ok()
        })?;
        match (renewal, ours) {
            (Renewal::Renewed, Some(record)) => Ok(UpdateOutcome::Done(record)),
            (Renewal::Lost(Some(snapshot)), _) => {
                self.state(task, &file.path(), &snapshot, now).map(UpdateOutcome::Lost)
            }
            (Renewal::Lost(None) | Renewal::Renewed, _) => Ok(UpdateOutcome::Absent),
        }
    }

    /// Removes a lock that an earlier command took for this worker.
    pub fn unlock(&self, task: &str, worker: &str, now: WallTime) -> Result<UpdateOutcome, SwarmError> {
        let Some(file) = self.existing(task)? else { return Ok(UpdateOutcome::Absent) };
        check_worker(worker)?;
        let mut ours = None;
        let removal = file.remove(&mut |snapshot| {
            ours = own_record(task, worker, snapshot);
            ours.is_some()
        })?;
        match (removal, ours) {
            (Removal::Removed(_), Some(record)) => Ok(UpdateOutcome::Done(record)),
            (Removal::Lost(snapshot), _) => {
                self.state(task, &file.path(), &snapshot, now).map(UpdateOutcome::Lost)
            }
            (Removal::Removed(_), None) | (Removal::Absent, _) => Ok(UpdateOutcome::Absent),
        }
    }

    /// Returns the state of a task's lock; `None` when the task is free. Changes nothing.
    pub fn show(&self, task: &str, now: WallTime) -> Result<Option<LockState>, SwarmError> {
        let Some(file) = self.existing(task)? else { return Ok(None) };
        let snapshot = file.read()?;
        snapshot.map(|snapshot| self.state(task, &file.path(), &snapshot, now)).transpose()
    }

    /// Lists the tasks that have a lock file, whatever its content.
    pub fn tasks(&self) -> io::Result<Vec<String>> {
        let entries = match std::fs::read_dir(self.locks()) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut tasks = Vec::new();
        for entry in entries {
            if let Some(task) = entry?.file_name().to_str().and_then(|name| name.strip_suffix(".lock")) {
                tasks.push(task.to_owned());
            }
        }
        tasks.sort();
        Ok(tasks)
    }

    /// Returns the folder of the swarm.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Opens the folder of the locks; `None` when it is missing.
    pub fn folder(&self) -> Result<Option<Folder>, SwarmError> {
        let Some(folder) = Folder::open_below(&self.dir, &[LOCKS])? else { return Ok(None) };
        self.check_owners(&folder)?;
        Ok(Some(folder))
    }

    fn locks(&self) -> PathBuf {
        self.dir.join(LOCKS)
    }

    /// Returns the lock file; `None` when its folder is missing. Reading does not create the folder.
    fn existing(&self, task: &str) -> Result<Option<LockFile>, SwarmError> {
        let name = file_name(task)?;
        Ok(self.folder()?.map(|folder| LockFile::new(folder, name, FILE_MODE, json_record::is_object)))
    }

    fn make_folder(&self) -> Result<Folder, SwarmError> {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir);
        made.map_err(|source| GuardError::Folder { path: self.dir.clone(), source })?;
        let folder = Folder::create_below(&self.dir, &[LOCKS])?;
        self.check_owners(&folder)?;
        Ok(folder)
    }

    /// Refuses a folder that another user owns, or that a link of another user leads to: the owner of a folder can replace
    /// every lock in it. The default folder is in `/tmp`, where everybody may write.
    fn check_owners(&self, folder: &Folder) -> Result<(), SwarmError> {
        let us = rustix::process::geteuid().as_raw();
        let failed = |source| GuardError::Folder { path: self.dir.clone(), source };
        let link = std::fs::symlink_metadata(&self.dir).map_err(failed)?.uid();
        let target = std::fs::metadata(&self.dir).map_err(failed)?.uid();
        let owners = [link, target, folder.owner().map_err(failed)?];
        match owners.into_iter().find(|owner| *owner != 0 && *owner != us) {
            Some(owner) => Err(SwarmError::ForeignFolder { path: self.dir.clone(), owner }),
            None => Ok(()),
        }
    }

    fn verdict(&self, task: &str, snapshot: &Snapshot, now: WallTime) -> Verdict {
        match TaskRecord::read(snapshot) {
            Ok(record) if record.task_id == task => record.judge(now),
            Ok(_) => Verdict::Held(HeldReason::NotUnderstood),
            Err(error) => error.verdict(snapshot, self.default_ttl.get(), now),
        }
    }

    fn state(
        &self,
        task: &str,
        path: &Path,
        snapshot: &Snapshot,
        now: WallTime,
    ) -> Result<LockState, SwarmError> {
        let verdict = self.verdict(task, snapshot, now);
        match TaskRecord::read(snapshot) {
            Ok(record) if record.task_id == task => Ok(LockState { record: Some(record), verdict }),
            Ok(record) => Err(SwarmError::AnotherTask { path: path.to_owned(), task: record.task_id }),
            Err(RecordError::Torn) => Ok(LockState { record: None, verdict }),
            Err(source @ RecordError::NotUnderstood(_)) => {
                Err(SwarmError::NotUnderstood { path: path.to_owned(), source })
            }
        }
    }
}

/// A task lock that this process renews with heartbeats. Dropping it does not remove the lock; it expires.
#[derive(Debug)]
pub struct TaskLock {
    held: Held,
    record: TaskRecord,
}

impl TaskLock {
    /// Returns the record in the file.
    pub fn record(&self) -> &TaskRecord {
        &self.record
    }

    /// Reserves disk space for heartbeats, so that a full disk does not end the lock. For workers that keep running.
    pub fn reserve(&mut self) -> Result<(), SwarmError> {
        Ok(self.held.reserve()?)
    }

    /// Returns how the folder's file system replaces records.
    pub fn replace_method(&self) -> Result<ReplaceMethod, SwarmError> {
        Ok(self.held.lock().folder().probe()?)
    }

    /// Renews the lock. Returns false when another worker has it now.
    pub fn heartbeat(&mut self, now: WallTime) -> Result<bool, SwarmError> {
        let record = TaskRecord { heartbeat_at: now, ..self.record.clone() };
        match self.held.heartbeat(&record.content())? {
            Heartbeat::Kept => {
                self.record = record;
                Ok(true)
            }
            Heartbeat::Lost(_) => Ok(false),
        }
    }

    /// Removes the lock. Returns false when another worker has it now.
    pub fn unlock(self) -> Result<bool, SwarmError> {
        match self.held.release()? {
            Removal::Removed(_) => Ok(true),
            Removal::Absent | Removal::Lost(_) => Ok(false),
        }
    }
}

fn file_name(task: &str) -> Result<FileName, NameError> {
    if task == "." || task.starts_with('-') {
        return Err(NameError::Reserved(task.to_owned()));
    }
    FileName::around("", task, ".lock")
}

/// Checks the id of a task. What cannot be locked cannot be reported or submitted either.
pub fn check_task(task: &str) -> Result<(), NameError> {
    file_name(task).map(drop)
}

fn check_worker(worker: &str) -> Result<(), IdError> {
    const WHAT: &str = "the worker's id";
    if worker.is_empty() {
        return Err(IdError::Empty { what: WHAT });
    }
    if worker.len() > MAX_WORKER {
        return Err(IdError::TooLong { what: WHAT, length: worker.len() });
    }
    match worker.chars().find(|character| character.is_control()) {
        Some(character) => Err(IdError::Character { what: WHAT, text: worker.to_owned(), character }),
        None => Ok(()),
    }
}

/// Returns the record, if it is this worker's lock on this task.
fn own_record(task: &str, worker: &str, snapshot: &Snapshot) -> Option<TaskRecord> {
    let record = TaskRecord::read(snapshot).ok()?;
    (record.task_id == task && record.worker_id == worker).then_some(record)
}
