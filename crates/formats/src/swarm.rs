//! Task locks of the swarm: one JSON file a task, kept alive by heartbeats, taken over once its TTL has run out.
//!
//! The file is `FOLDER/locks/TASK.lock`. Nobody waits for it: a lock is taken at once, or it is somebody else's. The
//! contract is *lease*: an expired lock may be taken over while its old worker still runs, and that worker learns it at
//! its next heartbeat.

mod record;
mod recovery;

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lockkeeper_core::id::IdError;
use lockkeeper_core::time::Ttl;
use thiserror::Error;

pub use record::TaskRecord;
pub use recovery::{Listed, Recovered, Recovery};

use super::guard::{Beat, Folder, GuardError, Held, LockFile, Removal, Renewal, Strength, Take};
use super::hostile::{FileName, NameError, Sighting};
use super::json::{self, Unread};
use super::{HeldReason, Verdict};
use lockkeeper_platform::wall_clock::WallTime;

/// Where the swarm keeps its files unless `AI_SWARM_DIR` says otherwise.
pub const DEFAULT_DIR: &str = "/tmp/ai_swarm";
/// How long a lock lives without a heartbeat unless `AI_SWARM_LOCK_TTL` says otherwise.
pub const DEFAULT_TTL: Duration = Duration::from_secs(300);
/// How often a worker says that it is still there.
pub const HEARTBEAT_EVERY: Duration = Duration::from_secs(10);

const LOCKS: &str = "locks";
const FILE_MODE: u32 = 0o600;
const MAX_WORKER: usize = 255;

/// Why a task lock could not be worked on.
#[derive(Debug, Error)]
pub enum SwarmError {
    /// The task's id cannot become a file name.
    #[error("the task cannot be locked")]
    Task(#[from] NameError),
    /// The worker's id is none.
    #[error(transparent)]
    Worker(#[from] IdError),
    /// The file or its folder.
    #[error(transparent)]
    Guard(#[from] GuardError),
    /// The folder belongs to somebody else, who could replace every lock in it.
    #[error("the swarm's folder {} belongs to user {owner}, not to us", path.display())]
    ForeignFolder {
        /// The folder.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
    },
    /// The folder cannot be listed.
    #[error("cannot list the lock folder {}", path.display())]
    List {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The record is not one of a task lock, so nobody knows whether it is held.
    #[error("cannot understand the lock file {}", path.display())]
    NotUnderstood {
        /// The lock file.
        path: PathBuf,
        /// What is wrong with it.
        source: Unread,
    },
    /// The record says that it locks another task: the file system does not tell the two names apart.
    #[error("the lock file {} is of the task `{}`", path.display(), task.escape_debug())]
    AnotherTask {
        /// The lock file.
        path: PathBuf,
        /// The task that it locks.
        task: String,
    },
}

impl SwarmError {
    /// The way out.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Task(error) => error.hint(),
            Self::Worker(error) => error.hint(),
            Self::Guard(error) => error.hint(),
            Self::List { .. } => "check the folder's permissions",
            Self::ForeignFolder { .. } => "set AI_SWARM_DIR to a folder of your own",
            Self::NotUnderstood { .. } => {
                "it counts as held: look at it, and remove it if no worker is at that task"
            }
            Self::AnotherTask { .. } => "give the task an id that differs in more than its case",
        }
    }
}

/// What was found at a task's lock file.
#[derive(Debug)]
pub struct Standing {
    /// The record; none while it is torn.
    pub record: Option<TaskRecord>,
    /// What is to be made of it.
    pub verdict: Verdict,
}

/// What came of locking a task.
#[derive(Debug)]
pub enum Attempt {
    /// The task is ours.
    Locked {
        /// The lock.
        lock: Box<TaskLock>,
        /// Whose expired lock it was before.
        replaced: Option<Standing>,
    },
    /// Somebody else has it.
    Busy(Standing),
}

/// What came of a heartbeat, or of an unlocking.
#[derive(Debug)]
pub enum Kept {
    /// It was ours, and the change is made.
    Done(TaskRecord),
    /// There is no lock.
    Absent,
    /// It is somebody else's.
    Lost(Standing),
}

/// The folder of a swarm.
#[derive(Clone, Debug)]
pub struct Swarm {
    dir: PathBuf,
    /// What a record that was never written to its end is given.
    default_ttl: Ttl,
}

impl Swarm {
    /// Names the folder; nothing is touched yet.
    pub fn new(dir: impl Into<PathBuf>, default_ttl: Ttl) -> Self {
        Self { dir: dir.into(), default_ttl }
    }

    /// Where a task's lock file is.
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
        let file = LockFile::new(self.make_folder()?, name, FILE_MODE, json::is_object);
        let path = file.path();
        let record = TaskRecord {
            worker_id: worker.to_owned(),
            task_id: task.to_owned(),
            acquired_at: now,
            heartbeat_at: now,
            ttl: ttl.unwrap_or(self.default_ttl).get(),
        };
        match file.take(&record.content(), &mut |sighting| self.verdict(task, sighting, now))? {
            Take::Taken { held, replaced } => {
                let replaced = replaced.map(|sighting| self.standing(task, &path, &sighting, now));
                let lock = Box::new(TaskLock { held, record });
                Ok(Attempt::Locked { lock, replaced: replaced.transpose()? })
            }
            Take::Busy { sighting: Some(sighting), verdict } => {
                let standing = self.standing(task, &path, &sighting, now)?;
                Ok(Attempt::Busy(Standing { verdict, ..standing }))
            }
            Take::Busy { sighting: None, verdict } => Ok(Attempt::Busy(Standing { record: None, verdict })),
        }
    }

    /// Renews a lock that an earlier command took for this worker.
    pub fn heartbeat(
        &self,
        task: &str,
        worker: &str,
        ttl: Option<Ttl>,
        now: WallTime,
    ) -> Result<Kept, SwarmError> {
        let Some(file) = self.existing(task)? else { return Ok(Kept::Absent) };
        check_worker(worker)?;
        let mut ours = None;
        let renewal = file.renew(&mut |sighting| {
            let record = own_record(task, worker, sighting)?;
            ours = Some(TaskRecord { heartbeat_at: now, ttl: ttl.map_or(record.ttl, Ttl::get), ..record });
            record::renewed(sighting, now, ttl).ok()
        })?;
        match (renewal, ours) {
            (Renewal::Renewed, Some(record)) => Ok(Kept::Done(record)),
            (Renewal::Lost(Some(sighting)), _) => {
                self.standing(task, &file.path(), &sighting, now).map(Kept::Lost)
            }
            (Renewal::Lost(None) | Renewal::Renewed, _) => Ok(Kept::Absent),
        }
    }

    /// Removes a lock that an earlier command took for this worker.
    pub fn unlock(&self, task: &str, worker: &str, now: WallTime) -> Result<Kept, SwarmError> {
        let Some(file) = self.existing(task)? else { return Ok(Kept::Absent) };
        check_worker(worker)?;
        let mut ours = None;
        let removal = file.remove(&mut |sighting| {
            ours = own_record(task, worker, sighting);
            ours.is_some()
        })?;
        match (removal, ours) {
            (Removal::Removed(_), Some(record)) => Ok(Kept::Done(record)),
            (Removal::Lost(sighting), _) => self.standing(task, &file.path(), &sighting, now).map(Kept::Lost),
            (Removal::Removed(_), None) | (Removal::Absent, _) => Ok(Kept::Absent),
        }
    }

    /// Tells who has a task; nothing when it is free. Changes nothing.
    pub fn show(&self, task: &str, now: WallTime) -> Result<Option<Standing>, SwarmError> {
        let Some(file) = self.existing(task)? else { return Ok(None) };
        let sighting = file.look()?;
        sighting.map(|sighting| self.standing(task, &file.path(), &sighting, now)).transpose()
    }

    /// The tasks that have a lock file, whatever is in it.
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

    /// The folder of the whole swarm.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The folder of the locks, unless it is missing.
    pub fn folder(&self) -> Result<Option<Folder>, SwarmError> {
        let Some(folder) = Folder::open_below(&self.dir, &[LOCKS])? else { return Ok(None) };
        self.check_owners(&folder)?;
        Ok(Some(folder))
    }

    fn locks(&self) -> PathBuf {
        self.dir.join(LOCKS)
    }

    /// The lock file, unless its folder is missing: who only looks makes none.
    fn existing(&self, task: &str) -> Result<Option<LockFile>, SwarmError> {
        let name = file_name(task)?;
        Ok(self.folder()?.map(|folder| LockFile::new(folder, name, FILE_MODE, json::is_object)))
    }

    fn make_folder(&self) -> Result<Folder, SwarmError> {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir);
        made.map_err(|source| GuardError::Folder { path: self.dir.clone(), source })?;
        let folder = Folder::create_below(&self.dir, &[LOCKS])?;
        self.check_owners(&folder)?;
        Ok(folder)
    }

    /// The default folder lies where everybody may write: one that a stranger made there, or leads to with a link, is not
    /// used, since whoever owns a folder can replace every lock in it.
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

    fn verdict(&self, task: &str, sighting: &Sighting, now: WallTime) -> Verdict {
        match TaskRecord::read(sighting) {
            Ok(record) if record.task_id == task => record.judge(now),
            Ok(_) => Verdict::Held(HeldReason::NotUnderstood),
            Err(unread) => unread.verdict(sighting, self.default_ttl.get(), now),
        }
    }

    fn standing(
        &self,
        task: &str,
        path: &Path,
        sighting: &Sighting,
        now: WallTime,
    ) -> Result<Standing, SwarmError> {
        let verdict = self.verdict(task, sighting, now);
        match TaskRecord::read(sighting) {
            Ok(record) if record.task_id == task => Ok(Standing { record: Some(record), verdict }),
            Ok(record) => Err(SwarmError::AnotherTask { path: path.to_owned(), task: record.task_id }),
            Err(Unread::Torn) => Ok(Standing { record: None, verdict }),
            Err(source @ Unread::NotUnderstood(_)) => {
                Err(SwarmError::NotUnderstood { path: path.to_owned(), source })
            }
        }
    }
}

/// A task that is locked by this process for as long as it beats. Dropping it leaves the lock to its TTL.
#[derive(Debug)]
pub struct TaskLock {
    held: Held,
    record: TaskRecord,
}

impl TaskLock {
    /// What stands in the file.
    pub fn record(&self) -> &TaskRecord {
        &self.record
    }

    /// Sets space aside for heartbeats, so that a full disk does not end the lock. For workers that stay.
    pub fn reserve(&mut self) -> Result<(), SwarmError> {
        Ok(self.held.reserve()?)
    }

    /// Tells how much the folder's file system gives.
    pub fn strength(&self) -> Result<Strength, SwarmError> {
        Ok(self.held.lock().folder().probe()?)
    }

    /// Says that the worker is still there. False when the lock is not ours any more.
    pub fn beat(&mut self, now: WallTime) -> Result<bool, SwarmError> {
        let record = TaskRecord { heartbeat_at: now, ..self.record.clone() };
        match self.held.beat(&record.content())? {
            Beat::Kept => {
                self.record = record;
                Ok(true)
            }
            Beat::Lost(_) => Ok(false),
        }
    }

    /// Gives the task back. False when the lock was not ours any more.
    pub fn unlock(self) -> Result<bool, SwarmError> {
        match self.held.release()? {
            Removal::Removed(_) => Ok(true),
            Removal::Absent | Removal::Lost(_) => Ok(false),
        }
    }
}

fn file_name(task: &str) -> Result<FileName, NameError> {
    FileName::around("", task, ".lock")
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

/// The record, if it is this worker's lock on this task.
fn own_record(task: &str, worker: &str, sighting: &Sighting) -> Option<TaskRecord> {
    let record = TaskRecord::read(sighting).ok()?;
    (record.task_id == task && record.worker_id == worker).then_some(record)
}
