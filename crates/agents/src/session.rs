//! Records of agents' sessions: one small JSON file for each owner below `<state>/agents/`.
//!
//! A record is for people and messages: which agent works here, since when, its note, the files that it was denied. Locks are
//! in the lease store alone. A writer locks the folder, reads, and renames a new file into place. So a killed writer leaves
//! the old record and perhaps a temporary file, and calls of one agent that come together lose nothing. There is no fsync:
//! after a power cut all agents are gone.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lockkeeper_core::id::Owner;
use lockkeeper_core::liveness::{Origin, ProcessRef, ProcessState, Proof, Voucher};
use lockkeeper_platform::{folder, process, random, wall_clock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::hook_log::HookLog;
use crate::open_calls::{OpenCall, Wrote};

/// How long a call waits for others that write a record.
const PATIENCE: Duration = Duration::from_secs(2);
/// A record without a process is removed when its agent was not seen for this many seconds.
const FORGET_AFTER: i64 = 24 * 60 * 60;
/// The largest record, in bytes.
const MAX_BYTES: u64 = 256 * 1024;
/// The most entries of a list in a record.
const MAX_ENTRIES: usize = 100;
/// The longest name of a file, in bytes, below what file systems accept.
const MAX_NAME: usize = 200;

/// What an agent does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Activity {
    /// Its turn runs.
    #[default]
    Works,
    /// Its turn has ended.
    Rests,
    /// It waits for a file that it was denied.
    Waits,
}

/// One agent in one repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Session {
    /// The owner's text.
    pub owner: String,
    /// The program that runs the agent.
    pub harness: String,
    /// Host, boot and pid namespace of the process.
    pub host: String,
    /// See `host`.
    pub boot: String,
    /// See `host`.
    pub pid_namespace: u64,
    /// The process of the harness.
    pub pid: Option<u32>,
    /// When that process started, in the kernel's ticks.
    pub started: u64,
    /// The folder in which the agent works.
    pub cwd: String,
    /// What the agent says that it does.
    pub note: Option<String>,
    /// What it does.
    pub state: Activity,
    /// When it was first seen, in seconds since 1970.
    pub since: i64,
    /// When it was last seen, in seconds since 1970.
    pub seen_at: i64,
    /// How often it was denied a file since it last got that file.
    pub denied: BTreeMap<String, u64>,
    /// What it has to be told at its next call.
    pub news: Vec<String>,
    /// State folders of other repositories in which it has claims.
    pub elsewhere: Vec<PathBuf>,
    /// Calls that have begun and not ended.
    pub calls: Vec<OpenCall>,
    /// The files that it wrote last, by absolute path.
    pub wrote: BTreeMap<String, Wrote>,
}

impl Session {
    /// The proof of life that claims of this agent have.
    pub fn proof(&self) -> Proof {
        let origin = Origin {
            host: self.host.clone(),
            boot: self.boot.clone(),
            pid_namespace: self.pid_namespace,
            session: None,
        };
        let voucher = match self.pid {
            Some(pid) => Voucher::Process(ProcessRef { pid, started: self.started }),
            None => Voucher::Time,
        };
        Proof { origin, voucher }
    }

    /// Sets the proof of life.
    pub fn set_proof(&mut self, proof: &Proof) {
        let Origin { host, boot, pid_namespace, session: _ } = proof.origin.clone();
        (self.host, self.boot, self.pid_namespace) = (host, boot, pid_namespace);
        let process = proof.process();
        self.pid = process.map(|process| process.pid);
        self.started = process.map_or(0, |process| process.started);
    }

    /// Adds something that the agent has to be told. The oldest news are dropped if there are too many.
    pub fn add_news(&mut self, text: String) {
        if !self.news.contains(&text) {
            self.news.push(text);
        }
        let excess = self.news.len().saturating_sub(MAX_ENTRIES);
        self.news.drain(..excess);
    }

    /// Counts a denied file.
    pub fn count_denied(&mut self, path: &str) {
        if self.denied.len() < MAX_ENTRIES || self.denied.contains_key(path) {
            *self.denied.entry(path.to_owned()).or_default() += 1;
        }
    }

    /// Whether the agent is gone for certain, as seen from `here`.
    pub(crate) fn is_gone(&self, here: &Origin) -> bool {
        let same_boot = self.boot == here.boot;
        match self.pid {
            _ if !same_boot && self.host == here.host => true,
            Some(pid) if same_boot && self.pid_namespace == here.pid_namespace => {
                let found = process::look(ProcessRef { pid, started: self.started });
                matches!(found, ProcessState::Gone | ProcessState::Reused)
            }
            Some(_) | None => wall_clock::epoch_seconds() - self.seen_at > FORGET_AFTER,
        }
    }
}

/// The part of a record that says which files an agent wrote last. The rest may be long.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Written {
    pub(crate) owner: String,
    pub(crate) wrote: BTreeMap<String, Wrote>,
}

/// The records of one repository.
#[derive(Clone, Debug)]
pub struct Sessions {
    folder: PathBuf,
}

impl Sessions {
    /// The records below a state folder.
    pub fn new(state: &Path) -> Self {
        Self { folder: state.join("agents") }
    }

    /// Reads one record.
    pub fn get(&self, owner: &Owner) -> Option<Session> {
        self.read(&self.folder.join(file_name(owner)))
    }

    /// Reads all records, the agent that was seen last first. Removes those of agents that are gone.
    pub fn all(&self, here: &Origin) -> io::Result<Vec<Session>> {
        let mut sessions = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "new") {
                remove_leftover(&path);
                continue;
            }
            let Some(session) = self.read::<Session>(&path) else { continue };
            if session.is_gone(here) {
                // Another process may have removed it, or the folder is read-only in a sandbox: both do no harm.
                let _ = fs::remove_file(&path);
            } else {
                sessions.push(session);
            }
        }
        sessions.sort_by(|one, other| (other.seen_at, &one.owner).cmp(&(one.seen_at, &other.owner)));
        Ok(sessions)
    }

    /// Reads the parts of all records that `T` has, in any order, also of agents that are gone.
    pub(crate) fn recorded<T: DeserializeOwned>(&self) -> io::Result<Vec<T>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            found.extend(self.read(&entry?.path()));
        }
        Ok(found)
    }

    /// Changes one record, or makes it. Returns the new record.
    pub fn update(&self, owner: &Owner, change: impl FnOnce(&mut Session)) -> io::Result<Session> {
        let _lock = self.lock()?;
        let path = self.folder.join(file_name(owner));
        let mut session: Session = self.read(&path).unwrap_or_default();
        if session.since == 0 {
            session.since = wall_clock::epoch_seconds();
        }
        session.owner = owner.to_string();
        change(&mut session);
        let text = serde_json::to_string(&session).map_err(io::Error::other)?;
        let new = self.folder.join(format!("{:016x}.new", random::number()?));
        fs::write(&new, text).and_then(|()| fs::rename(&new, &path)).inspect_err(|_| {
            let _ = fs::remove_file(&new);
        })?;
        Ok(session)
    }

    /// Reads a record. One that is damaged counts as missing, and the log of hooks says so: its agent is not on the board until its
    /// next call writes the record again.
    fn read<T: DeserializeOwned>(&self, path: &Path) -> Option<T> {
        if path.extension().is_none_or(|extension| extension != "json") {
            return None;
        }
        let meta = fs::symlink_metadata(path).ok()?;
        let text = if meta.is_file() && meta.len() <= MAX_BYTES { fs::read(path) } else { Ok(Vec::new()) };
        // Another process may have removed it just now.
        let record = serde_json::from_slice(&text.ok()?).ok();
        if let (None, Some(state), Some(name)) = (&record, self.folder.parent(), path.file_name()) {
            let message = format!(
                "the record agents/{} is damaged: its agent is not on the board until its next call",
                name.to_string_lossy()
            );
            HookLog::new(state).add_once("-", &message);
        }
        record
    }

    /// Locks the folder: one process at a time changes records.
    fn lock(&self) -> io::Result<OwnedFd> {
        let lock = folder::lock_within(folder::open_folder(&self.folder)?, PATIENCE)?;
        lock.ok_or_else(|| io::Error::new(io::ErrorKind::TimedOut, "others write records of agents"))
    }

    /// Removes the records of an owner and of its sub-agents.
    pub fn remove_family(&self, owner: &Owner) -> io::Result<()> {
        let _lock = self.lock()?;
        let mut gone = vec![self.folder.join(file_name(owner))];
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let below = self.read::<Session>(&path).and_then(|session| session.owner.parse::<Owner>().ok());
            if below.is_some_and(|below| owner.is_above(&below)) {
                gone.push(path);
            }
        }
        for path in gone {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }
}

/// Removes the temporary file of a writer that was killed. A writer that lives needs less than a minute.
fn remove_leftover(path: &Path) {
    let written = fs::metadata(path).and_then(|meta| meta.modified()).ok();
    let written = written.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    let written = written.and_then(|at| i64::try_from(at.as_secs()).ok());
    if written.is_some_and(|at| wall_clock::epoch_seconds() - at > 60) {
        let _ = fs::remove_file(path);
    }
}

/// The owner as a file name. Other characters than these are written as `%` and two digits for each byte.
fn file_name(owner: &Owner) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b':' | b'.');
    let escape = |byte: &u8| if plain(byte) { char::from(*byte).to_string() } else { format!("%{byte:02x}") };
    let name: String = owner.as_str().as_bytes().iter().map(escape).collect();
    if name.len() <= MAX_NAME {
        return format!("{name}.json");
    }
    // FNV-1a. If two long names with the same beginning had the same hash, they would share a record, which protects nothing.
    let sum = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{}-{sum:016x}.json", &name[..MAX_NAME - 20])
}
