//! Aiflow request and queue locks: one JSON file for each under `ROOT/.aiflow/locks`.
//!
//! A request lock lets only one run of a request execute at a time. The queue lock lets only one process work through the
//! queue. A holder extends `expires_at` while its run goes on. A lock is stale after that time if its process is dead or
//! unknown. A live process keeps an expired lock.
//!
//! The program of the format itself uses a second file for a request, `ID.lock`, with nothing but the id of its run in
//! it. We take both: first the record, then the plain file. A release removes the plain file first. So a plain file of ours
//! never outlives its record, and the process that takes over a stale record takes over its plain file, too.

mod plain;
mod record;
mod recovery;

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lockkeeper_core::time::Ttl;
use lockkeeper_platform::wall_clock::WallTime;
use thiserror::Error;

use super::guard::{Folder, GuardError, Heartbeat, Held, LockFile, Removal, Take};
use super::json_record::{self, RecordError};
use super::safe_open::{FileName, NameError, Snapshot};
use super::{HeldReason, StaleReason, Verdict};

pub use record::{AiflowRecord, Subject};
pub use recovery::{Listed, Pass, Recovered, Recovery};

/// How long a lock is valid unless it is extended.
pub const DEFAULT_TTL: Duration = Duration::from_secs(30 * 60);

const LOCKS: [&str; 2] = [".aiflow", "locks"];
const REQUEST_PREFIX: &str = "request.";
const SUFFIX: &str = ".lock.json";
const FILE_MODE: u32 = 0o600;
/// A `.gitignore` in the folder itself, so that no file of the user has to change.
const GITIGNORE: &str = "# Locks belong to one machine and one moment.\n*\n";

/// Why an operation on a request or queue lock failed.
#[derive(Debug, Error)]
pub enum AiflowError {
    /// The id of the request cannot become a file name.
    #[error("the request cannot be locked")]
    Request(#[from] NameError),
    /// The operation on the file or its folder failed.
    #[error(transparent)]
    Guard(#[from] GuardError),
    /// The folder cannot be listed.
    #[error("cannot list the lock folder {}", path.display())]
    List {
        /// The folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The record has another format or version, so nobody knows whether it is held.
    #[error("cannot understand the lock file {}", path.display())]
    NotUnderstood {
        /// The lock file.
        path: PathBuf,
        /// What is wrong with it.
        source: RecordError,
    },
}

impl AiflowError {
    /// What the user can do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Request(error) => error.hint(),
            Self::Guard(error) => error.hint(),
            Self::List { .. } => "check the folder's permissions",
            Self::NotUnderstood { .. } => {
                "it counts as held: look at it, and remove it if no run is under way"
            }
        }
    }
}

/// The state of a lock file.
#[derive(Debug)]
pub struct LockState {
    /// The record; `None` while it is incomplete, and if there is only a plain file.
    pub record: Option<AiflowRecord>,
    /// The run in a plain file of another program; empty if it names none.
    pub plain_run: Option<String>,
    /// Whether it is held or stale.
    pub verdict: Verdict,
}

impl LockState {
    /// The run that holds the lock, if the files name one.
    pub fn run_id(&self) -> Option<&str> {
        let of_record = || self.record.as_ref().and_then(|record| record.run_id.as_deref());
        self.plain_run.as_deref().filter(|run| !run.is_empty()).or_else(of_record)
    }
}

/// The result of taking a lock.
#[derive(Debug)]
pub enum Attempt {
    /// We have the lock.
    Locked {
        /// The lock. It is released when dropped.
        lock: AiflowLock,
        /// The stale lock that it replaced, for the report.
        recovered: Option<Recovered>,
    },
    /// Another process has the lock. The record names its run.
    Busy(LockState),
}

/// The run and the process that take a lock, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'t> {
    /// The run that needs the lock.
    pub run_id: Option<&'t str>,
    /// The process that holds the lock.
    pub pid: u32,
    /// How long the lock is valid unless it is extended.
    pub ttl: Ttl,
}

/// The locks of one project.
#[derive(Clone, Debug)]
pub struct Aiflow {
    root: PathBuf,
}

impl Aiflow {
    /// Remembers the project. Does not touch it yet.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Returns the root of the project.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the path of a lock file.
    pub fn path(&self, subject: &Subject) -> Result<PathBuf, AiflowError> {
        Ok(self.locks().join(file_name(subject)?.as_str()))
    }

    /// Locks a request or the queue if it is free or its lock is stale. Never waits.
    pub fn lock(&self, subject: &Subject, terms: Terms<'_>, now: WallTime) -> Result<Attempt, AiflowError> {
        let name = file_name(subject)?;
        let file = LockFile::new(self.make_folder()?, name, FILE_MODE, json_record::is_object);
        let path = file.path();
        let record = AiflowRecord::new(subject, terms.run_id, terms.pid, terms.ttl.get(), now);
        match file.take(&record.content(), &mut |snapshot| verdict(subject, snapshot, now))? {
            Take::Taken { held, replaced } => {
                // Dropping it releases the record again.
                let mut lock = AiflowLock { held: Some(Box::new(held)), plain: None, record, ttl: terms.ttl };
                let replaced = replaced.map(|snapshot| state(subject, &path, &snapshot, now)).transpose()?;
                let before = replaced.as_ref().and_then(LockState::run_id);
                match self.take_plain(subject, terms.run_id, before)? {
                    Ok(plain) => lock.plain = plain,
                    Err(run) => {
                        lock.release()?;
                        return Ok(Attempt::Busy(LockState::plain(run)));
                    }
                }
                let recovered = replaced.map(|state| Recovered { subject: subject.clone(), state });
                Ok(Attempt::Locked { lock, recovered })
            }
            Take::Busy { snapshot: Some(snapshot), verdict } => {
                let state = state(subject, &path, &snapshot, now)?;
                Ok(Attempt::Busy(LockState { verdict, ..state }))
            }
            Take::Busy { snapshot: None, verdict } => {
                Ok(Attempt::Busy(LockState { record: None, plain_run: None, verdict }))
            }
        }
    }

    /// Returns the state of a lock; `None` when it is free. Changes nothing.
    pub fn show(&self, subject: &Subject, now: WallTime) -> Result<Option<LockState>, AiflowError> {
        let Some(file) = self.existing(subject)? else { return Ok(None) };
        let snapshot = file.read()?;
        let state = snapshot.map(|snapshot| state(subject, &file.path(), &snapshot, now)).transpose()?;
        let foreign = self.foreign_run(subject, state.as_ref().and_then(|state| state.record.as_ref()))?;
        Ok(match (state, foreign) {
            (Some(state), Some(run)) => Some(LockState { record: state.record, ..LockState::plain(run) }),
            (None, Some(run)) => Some(LockState::plain(run)),
            (state, None) => state,
        })
    }

    /// Takes over the lock of a run whose process is gone, for the process that looks after the run now. Returns `None`
    /// when the lock is not that of the run.
    pub fn adopt(
        &self,
        subject: &Subject,
        run_id: &str,
        terms: Terms<'_>,
        now: WallTime,
    ) -> Result<Option<AiflowLock>, AiflowError> {
        let Some(file) = self.existing(subject)? else { return Ok(None) };
        if file.read()?.is_none() {
            return Ok(None);
        }
        let is_of_run = |snapshot: &Snapshot| {
            AiflowRecord::read(subject, snapshot).is_ok_and(|record| record.run_id.as_deref() == Some(run_id))
        };
        let record = AiflowRecord::new(subject, terms.run_id, terms.pid, terms.ttl.get(), now);
        let taken = file.take(&record.content(), &mut |snapshot| match is_of_run(snapshot) {
            true => Verdict::Stale(StaleReason::ProcessGone),
            false => Verdict::Held(HeldReason::Changed),
        })?;
        let Take::Taken { held, .. } = taken else { return Ok(None) };
        let plain = self.take_plain(subject, terms.run_id, Some(run_id))?.unwrap_or(None);
        Ok(Some(AiflowLock { held: Some(Box::new(held)), plain, record, ttl: terms.ttl }))
    }

    /// Opens the folder of the locks; `None` when it is missing.
    pub fn folder(&self) -> Result<Option<Folder>, AiflowError> {
        Ok(Folder::open_below(&self.root, &LOCKS)?)
    }

    fn locks(&self) -> PathBuf {
        self.root.join(LOCKS[0]).join(LOCKS[1])
    }

    /// Returns the lock file; `None` when its folder is missing. Reading does not create the folder.
    fn existing(&self, subject: &Subject) -> Result<Option<LockFile>, AiflowError> {
        let name = file_name(subject)?;
        Ok(self.folder()?.map(|folder| LockFile::new(folder, name, FILE_MODE, json_record::is_object)))
    }

    fn make_folder(&self) -> Result<Folder, AiflowError> {
        let folder = Folder::create_below(&self.root, &LOCKS)?;
        let path = self.locks().join(".gitignore");
        let made = OpenOptions::new().write(true).create_new(true).open(&path);
        match made.and_then(|mut file| file.write_all(GITIGNORE.as_bytes())) {
            Ok(()) => Ok(folder),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(folder),
            Err(source) => Err(GuardError::Write { path, source }.into()),
        }
    }
}

/// A lock that this process holds until it is dropped, also after an error or a panic.
#[derive(Debug)]
pub struct AiflowLock {
    /// `None` after the release.
    held: Option<Box<Held>>,
    /// The plain file of a request.
    plain: Option<Box<Held>>,
    record: AiflowRecord,
    ttl: Ttl,
}

impl AiflowLock {
    /// Returns the record in the file.
    pub fn record(&self) -> &AiflowRecord {
        &self.record
    }

    /// Reserves disk space for heartbeats, so that a full disk does not end the lock.
    pub fn reserve(&mut self) -> Result<(), AiflowError> {
        match &mut self.held {
            Some(held) => Ok(held.reserve()?),
            None => Ok(()),
        }
    }

    /// Extends the lock. Returns false when another process has it now.
    pub fn heartbeat(&mut self, now: WallTime) -> Result<bool, AiflowError> {
        self.rewrite(AiflowRecord { expires_at: now.after(self.ttl.get()), ..self.record.clone() })
    }

    /// Extends the queue lock, and records the current request and run. Returns false when another process has it now.
    pub fn set_current(
        &mut self,
        request_id: &str,
        run_id: &str,
        now: WallTime,
    ) -> Result<bool, AiflowError> {
        let request_id = match &self.record.subject {
            Subject::Queue => Some(request_id.to_owned()),
            Subject::Request(own) => Some(own.clone()),
        };
        let (run_id, expires_at) = (Some(run_id.to_owned()), now.after(self.ttl.get()));
        self.rewrite(AiflowRecord { request_id, run_id, expires_at, ..self.record.clone() })
    }

    /// Releases the lock. Returns false when another process has it now.
    pub fn release(mut self) -> Result<bool, AiflowError> {
        self.release_once()
    }

    fn rewrite(&mut self, record: AiflowRecord) -> Result<bool, AiflowError> {
        let Some(held) = &mut self.held else { return Ok(false) };
        match held.heartbeat(&record.content())? {
            Heartbeat::Kept => {
                self.record = record;
                Ok(true)
            }
            Heartbeat::Lost(_) => Ok(false),
        }
    }

    fn release_once(&mut self) -> Result<bool, AiflowError> {
        // The plain file goes first: without its record nobody could tell whether it is stale.
        if let Some(plain) = self.plain.take() {
            plain.release()?;
        }
        match self.held.take().map(|held| held.release()).transpose()? {
            Some(Removal::Removed(_)) => Ok(true),
            Some(Removal::Absent | Removal::Lost(_)) | None => Ok(false),
        }
    }
}

impl Drop for AiflowLock {
    fn drop(&mut self) {
        // An error cannot be reported here. A lock that stays is recovered after it expires.
        let _ = self.release_once();
    }
}

fn file_name(subject: &Subject) -> Result<FileName, NameError> {
    match subject {
        Subject::Queue => FileName::around("", "queue", SUFFIX),
        Subject::Request(id) => FileName::around(REQUEST_PREFIX, id, SUFFIX),
    }
}

fn verdict(subject: &Subject, snapshot: &Snapshot, now: WallTime) -> Verdict {
    match AiflowRecord::read(subject, snapshot) {
        Ok(record) => record.judge(now),
        Err(error) => error.verdict(snapshot, DEFAULT_TTL, now),
    }
}

fn state(
    subject: &Subject,
    path: &Path,
    snapshot: &Snapshot,
    now: WallTime,
) -> Result<LockState, AiflowError> {
    let verdict = verdict(subject, snapshot, now);
    match AiflowRecord::read(subject, snapshot) {
        Ok(record) => Ok(LockState { record: Some(record), plain_run: None, verdict }),
        Err(RecordError::Torn) => Ok(LockState { record: None, plain_run: None, verdict }),
        Err(source @ RecordError::NotUnderstood(_)) => {
            Err(AiflowError::NotUnderstood { path: path.to_owned(), source })
        }
    }
}
