//! Request and queue locks of aiflow: one JSON file each under `ROOT/.aiflow/locks`.
//!
//! A request lock keeps one request from being run twice at a time, the queue lock keeps the queue from being worked
//! through twice. A holder extends `expires_at` while its run goes on. A lock is stale once that has passed *and* its
//! process is dead or unknown; a live process keeps an expired lock.

mod record;
mod recovery;

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lockkeeper_core::time::Ttl;
use thiserror::Error;

pub use record::{AiflowRecord, Subject};
pub use recovery::{Listed, Pass, Recovered, Recovery};

use super::Verdict;
use super::guard::{Beat, Folder, GuardError, Held, LockFile, Removal, Take};
use super::hostile::{FileName, NameError, Sighting};
use super::json::{self, Unread};
use lockkeeper_platform::wall_clock::WallTime;

/// How long a lock lives unless it is extended.
pub const DEFAULT_TTL: Duration = Duration::from_secs(30 * 60);

const LOCKS: [&str; 2] = [".aiflow", "locks"];
const REQUEST_PREFIX: &str = "request.";
const SUFFIX: &str = ".lock.json";
const FILE_MODE: u32 = 0o600;
/// The folder ignores itself, so that no file of the user has to be changed.
const GITIGNORE: &str = "# Locks belong to one machine and one moment.\n*\n";

/// Why a request or queue lock could not be worked on.
#[derive(Debug, Error)]
pub enum AiflowError {
    /// The request's id cannot become a file name.
    #[error("the request cannot be locked")]
    Request(#[from] NameError),
    /// The file or its folder.
    #[error(transparent)]
    Guard(#[from] GuardError),
    /// The folder cannot be listed.
    #[error("cannot list the lock folder {}", path.display())]
    List {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The record is not one of this format and version, so nobody knows whether it is held.
    #[error("cannot understand the lock file {}", path.display())]
    NotUnderstood {
        /// The lock file.
        path: PathBuf,
        /// What is wrong with it.
        source: Unread,
    },
}

impl AiflowError {
    /// The way out.
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

/// What was found at a lock file.
#[derive(Debug)]
pub struct Standing {
    /// The record; none while it is torn.
    pub record: Option<AiflowRecord>,
    /// What is to be made of it.
    pub verdict: Verdict,
}

/// What came of locking.
#[derive(Debug)]
pub enum Attempt {
    /// It is ours.
    Locked {
        /// The lock, released when dropped.
        lock: AiflowLock,
        /// The stale lock that stood in its place, to be reported.
        recovered: Option<Recovered>,
    },
    /// Somebody else has it; the record names the run.
    Busy(Standing),
}

/// Who takes a lock, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'t> {
    /// The run that it is taken for.
    pub run_id: Option<&'t str>,
    /// The process that it stands and falls with.
    pub pid: u32,
    /// How long it lives unless it is extended.
    pub ttl: Ttl,
}

/// The locks of one project.
#[derive(Clone, Debug)]
pub struct Aiflow {
    root: PathBuf,
}

impl Aiflow {
    /// Names the project; nothing is touched yet.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Where a lock file is.
    pub fn path(&self, subject: &Subject) -> Result<PathBuf, AiflowError> {
        Ok(self.locks().join(file_name(subject)?.as_str()))
    }

    /// Locks a request or the queue if it is free or its lock is stale. Never waits.
    pub fn lock(&self, subject: &Subject, terms: Terms<'_>, now: WallTime) -> Result<Attempt, AiflowError> {
        let name = file_name(subject)?;
        let file = LockFile::new(self.make_folder()?, name, FILE_MODE, json::is_object);
        let path = file.path();
        let record = AiflowRecord::new(subject, terms.run_id, terms.pid, terms.ttl.get(), now);
        match file.take(&record.content(), &mut |sighting| verdict(subject, sighting, now))? {
            Take::Taken { held, replaced } => {
                let lock = AiflowLock { held: Some(Box::new(held)), record, ttl: terms.ttl };
                let replaced =
                    replaced.map(|sighting| standing(subject, &path, &sighting, now)).transpose()?;
                let recovered = replaced.map(|standing| Recovered { subject: subject.clone(), standing });
                Ok(Attempt::Locked { lock, recovered })
            }
            Take::Busy { sighting: Some(sighting), verdict } => {
                let standing = standing(subject, &path, &sighting, now)?;
                Ok(Attempt::Busy(Standing { verdict, ..standing }))
            }
            Take::Busy { sighting: None, verdict } => Ok(Attempt::Busy(Standing { record: None, verdict })),
        }
    }

    /// Tells who has a lock; nothing when it is free. Changes nothing.
    pub fn show(&self, subject: &Subject, now: WallTime) -> Result<Option<Standing>, AiflowError> {
        let Some(file) = self.existing(subject)? else { return Ok(None) };
        let sighting = file.look()?;
        sighting.map(|sighting| standing(subject, &file.path(), &sighting, now)).transpose()
    }

    /// The folder of the locks, unless it is missing.
    pub fn folder(&self) -> Result<Option<Folder>, AiflowError> {
        Ok(Folder::open_below(&self.root, &LOCKS)?)
    }

    fn locks(&self) -> PathBuf {
        self.root.join(LOCKS[0]).join(LOCKS[1])
    }

    /// The lock file, unless its folder is missing: who only looks makes none.
    fn existing(&self, subject: &Subject) -> Result<Option<LockFile>, AiflowError> {
        let name = file_name(subject)?;
        Ok(self.folder()?.map(|folder| LockFile::new(folder, name, FILE_MODE, json::is_object)))
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

/// A lock that is ours until it is dropped, also when that happens because of an error or a panic.
#[derive(Debug)]
pub struct AiflowLock {
    /// None once it was released.
    held: Option<Box<Held>>,
    record: AiflowRecord,
    ttl: Ttl,
}

impl AiflowLock {
    /// What stands in the file.
    pub fn record(&self) -> &AiflowRecord {
        &self.record
    }

    /// Sets space aside for heartbeats, so that a full disk does not end the lock.
    pub fn reserve(&mut self) -> Result<(), AiflowError> {
        match &mut self.held {
            Some(held) => Ok(held.reserve()?),
            None => Ok(()),
        }
    }

    /// Extends the lock, since the run goes on. False when it is not ours any more.
    pub fn beat(&mut self, now: WallTime) -> Result<bool, AiflowError> {
        self.rewrite(AiflowRecord { expires_at: now.after(self.ttl.get()), ..self.record.clone() })
    }

    /// Extends the queue's lock, and names the request and run that it has come to. False when it is not ours any more.
    pub fn move_on(&mut self, request_id: &str, run_id: &str, now: WallTime) -> Result<bool, AiflowError> {
        let request_id = match &self.record.subject {
            Subject::Queue => Some(request_id.to_owned()),
            Subject::Request(own) => Some(own.clone()),
        };
        let (run_id, expires_at) = (Some(run_id.to_owned()), now.after(self.ttl.get()));
        self.rewrite(AiflowRecord { request_id, run_id, expires_at, ..self.record.clone() })
    }

    /// Gives the lock back. False when it was not ours any more.
    pub fn release(mut self) -> Result<bool, AiflowError> {
        self.let_go()
    }

    fn rewrite(&mut self, record: AiflowRecord) -> Result<bool, AiflowError> {
        let Some(held) = &mut self.held else { return Ok(false) };
        match held.beat(&record.content())? {
            Beat::Kept => {
                self.record = record;
                Ok(true)
            }
            Beat::Lost(_) => Ok(false),
        }
    }

    fn let_go(&mut self) -> Result<bool, AiflowError> {
        match self.held.take().map(|held| held.release()).transpose()? {
            Some(Removal::Removed(_)) => Ok(true),
            Some(Removal::Absent | Removal::Lost(_)) | None => Ok(false),
        }
    }
}

impl Drop for AiflowLock {
    fn drop(&mut self) {
        // Nobody can be told any more; what stays is recovered once its time is up.
        let _ = self.let_go();
    }
}

fn file_name(subject: &Subject) -> Result<FileName, NameError> {
    match subject {
        Subject::Queue => FileName::around("", "queue", SUFFIX),
        Subject::Request(id) => FileName::around(REQUEST_PREFIX, id, SUFFIX),
    }
}

fn verdict(subject: &Subject, sighting: &Sighting, now: WallTime) -> Verdict {
    match AiflowRecord::read(subject, sighting) {
        Ok(record) => record.judge(now),
        Err(unread) => unread.verdict(sighting, DEFAULT_TTL, now),
    }
}

fn standing(
    subject: &Subject,
    path: &Path,
    sighting: &Sighting,
    now: WallTime,
) -> Result<Standing, AiflowError> {
    let verdict = verdict(subject, sighting, now);
    match AiflowRecord::read(subject, sighting) {
        Ok(record) => Ok(Standing { record: Some(record), verdict }),
        Err(Unread::Torn) => Ok(Standing { record: None, verdict }),
        Err(source @ Unread::NotUnderstood(_)) => {
            Err(AiflowError::NotUnderstood { path: path.to_owned(), source })
        }
    }
}
