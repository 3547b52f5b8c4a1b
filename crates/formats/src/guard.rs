//! The takeover protocol for lock files that hold one record.
//!
//! Every read-judge-replace of ours happens under the **guard**: `flock(2)` on the folder that holds the file. The
//! kernel queues those who want it and frees it with the process; nothing is left behind, and nobody can unlink it.
//! Under the guard a record is looked at and judged *again*, then:
//!
//! - nothing there: the new record is written whole to a file of its own under a random name, read back, and given
//!   the lock's name only if nothing has it (`RENAME_NOREPLACE`, else `link`). The name never shows half a record,
//!   and a plain `O_EXCL` creator and we exclude each other exactly.
//! - a stale record: the new one is exchanged with it (`RENAME_EXCHANGE`), then what came out is compared with what was
//!   judged: the same file, which was kept open all along, and the same content. If it is another one, a program
//!   that does not know the guard was faster: it is exchanged back, and the lock is busy.
//! - a heartbeat: the same exchange, with our own record as the one that has to come out. [`Held`] writes it to a spare
//!   file that already has its blocks, so that a full disk does not end a healthy holder.
//! - a release: the record is moved aside, compared, and only then unlinked; if it is not ours, it is put back.
//!
//! A process that is killed anywhere in between leaves at most one file called `.lockkeeper-*.tmp`. The next taker
//! removes it under the guard, unless a living holder has it locked as its spare. Nothing is synced to disk: after a
//! power cut every holder is dead, and a record that comes back torn is judged as such.
//!
//! Where two names cannot be exchanged, a stale record is moved aside first and the new one published after it. That is
//! as exact among us and towards `O_EXCL` creators; [`Folder::probe`] tells which of the two a folder has.

mod held;
mod takeover;
mod temporary;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

pub use held::{Beat, Held};
pub use takeover::{LockFile, Removal, Renewal, Take};

use super::hostile::HostileError;
use lockkeeper_platform::{folder, fs, rename_exchange};
use temporary::Temporary;

/// The guard is held for microseconds; who waits longer than this waits for a stopped process or a stranger.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a lock file could not be worked on. None of them frees or takes a lock.
#[derive(Debug, Error)]
pub enum GuardError {
    /// The folder cannot be made or opened.
    #[error("cannot open the lock folder {}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Locks on network file systems are lost, or exclude nobody.
    #[error("the lock folder {} lies on {system}", path.display())]
    Network {
        /// The folder.
        path: PathBuf,
        /// The name of the file system.
        system: &'static str,
    },
    /// The file system cannot lock folders.
    #[error("the lock folder {} cannot be locked", path.display())]
    Unlockable {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody has had the folder locked for long.
    #[error("the lock folder {} has been locked by another process for {PATIENCE:?}", path.display())]
    Stuck {
        /// The folder.
        path: PathBuf,
    },
    /// What lies at the path is no record.
    #[error("{} is not a lock file that can be used", path.display())]
    Hostile {
        /// The lock file.
        path: PathBuf,
        /// What it is.
        source: HostileError,
    },
    /// The new record cannot be written.
    #[error("cannot write the lock file {}", path.display())]
    Write {
        /// The lock file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The new record did not come back as it was written.
    #[error("the record written for {} cannot be read back", path.display())]
    ReadBack {
        /// The lock file.
        path: PathBuf,
    },
    /// The record cannot be put in its place, or removed from it.
    #[error("cannot rename the lock file {}", path.display())]
    Rename {
        /// The lock file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl GuardError {
    /// The way out.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Folder { .. } => "check that the folder exists and that you may write to it",
            Self::Network { .. } => "use a folder on a local file system",
            Self::Unlockable { .. } => "use a folder on a file system with flock(2)",
            Self::Stuck { .. } => {
                "is a lock program stopped (state T)? `fuser -v FOLDER` shows who has it open"
            }
            Self::Hostile { source, .. } => source.hint(),
            Self::Write { .. } | Self::Rename { .. } => {
                "check the disk's free space and the folder's permissions"
            }
            Self::ReadBack { .. } => "the disk may be failing: check the system's log",
        }
    }
}

/// Whether a folder gives the whole protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strength {
    /// A stale record is replaced in one step.
    Exchange,
    /// In two: a foreign program that breaks stale locks by itself could get in between.
    MoveAside,
}

/// A folder that holds lock files, opened once: every name is relative to it.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    descriptor: OwnedFd,
}

impl Folder {
    /// Opens a folder that is there. Network file systems are refused.
    pub fn open(path: &Path) -> Result<Self, GuardError> {
        let opened = folder::open_folder(path);
        let descriptor = opened.map_err(|source| GuardError::Folder { path: path.to_owned(), source })?;
        Self::checked(path.to_owned(), descriptor)
    }

    /// Opens a folder below `base`, part by part and through no symbolic link. None when a part is missing.
    pub fn open_below(base: &Path, parts: &[&str]) -> Result<Option<Self>, GuardError> {
        Self::walk(base, parts, &|_, _| Ok(()))
    }

    /// The same, with parts that are missing made for their owner only.
    pub fn create_below(base: &Path, parts: &[&str]) -> Result<Self, GuardError> {
        let made = Self::walk(base, parts, &folder::make_subfolder)?;
        let gone = || GuardError::Folder { path: base.to_owned(), source: io::ErrorKind::NotFound.into() };
        made.ok_or_else(gone)
    }

    fn walk(
        base: &Path,
        parts: &[&str],
        prepare: &dyn Fn(BorrowedFd<'_>, &str) -> io::Result<()>,
    ) -> Result<Option<Self>, GuardError> {
        let is_missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        let mut path = base.to_owned();
        let mut folder = match folder::open_folder(base) {
            Ok(descriptor) => descriptor,
            Err(error) if is_missing(&error) => return Ok(None),
            Err(source) => return Err(GuardError::Folder { path, source }),
        };
        for part in parts {
            path.push(part);
            let opened =
                prepare(folder.as_fd(), part).and_then(|()| folder::open_subfolder(folder.as_fd(), part));
            folder = match opened {
                Ok(descriptor) => descriptor,
                Err(error) if is_missing(&error) => return Ok(None),
                Err(source) => return Err(GuardError::Folder { path, source }),
            };
        }
        Self::checked(path, folder).map(Some)
    }

    fn checked(path: PathBuf, descriptor: OwnedFd) -> Result<Self, GuardError> {
        match fs::network_file_system(&path) {
            Ok(None) => Ok(Self { path, descriptor }),
            Ok(Some(system)) => Err(GuardError::Network { path, system }),
            Err(source) => Err(GuardError::Folder { path, source }),
        }
    }

    /// Whose it is.
    pub fn owner(&self) -> io::Result<u32> {
        Ok(rustix::fs::fstat(&self.descriptor)?.st_uid)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Tries out what the file system can do. Leaves nothing behind.
    pub fn probe(&self) -> Result<Strength, GuardError> {
        let guard = self.guard()?;
        let failed = |source| GuardError::Write { path: self.path.clone(), source };
        let one = Temporary::create(&guard, 0o600).map_err(failed)?;
        let other = Temporary::create(&guard, 0o600).map_err(failed)?;
        match rename_exchange::exchange(self.as_fd(), one.name(), other.name()) {
            Ok(()) => Ok(Strength::Exchange),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(Strength::MoveAside),
            Err(source) => Err(failed(source)),
        }
    }

    /// The names of temporary files that killed processes left behind.
    pub fn leftovers(&self) -> Result<Vec<String>, GuardError> {
        let guard = self.guard()?;
        temporary::orphans(&guard).map_err(|source| GuardError::Folder { path: self.path.clone(), source })
    }

    /// Removes them, and tells their names.
    pub fn clear_leftovers(&self) -> Result<Vec<String>, GuardError> {
        let guard = self.guard()?;
        let failed = |source| GuardError::Folder { path: self.path.clone(), source };
        let found = temporary::orphans(&guard).map_err(failed)?;
        temporary::sweep(&guard).map_err(failed)?;
        let left = temporary::orphans(&guard).map_err(failed)?;
        Ok(found.into_iter().filter(|name| !left.contains(name)).collect())
    }

    /// Waits until nobody else of us is at work in the folder.
    pub(super) fn guard(&self) -> Result<Guard<'_>, GuardError> {
        let opened = folder::open_existing(self.as_fd(), ".");
        let own = opened.map_err(|source| GuardError::Folder { path: self.path.clone(), source })?;
        match folder::lock_within(own, PATIENCE) {
            Ok(Some(lock)) => Ok(Guard { folder: self, lock }),
            Ok(None) => Err(GuardError::Stuck { path: self.path.clone() }),
            Err(source) => Err(GuardError::Unlockable { path: self.path.clone(), source }),
        }
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Being the only one of us at work in a folder, until dropped.
#[derive(Debug)]
#[must_use = "the folder is open to others again when this is dropped"]
pub(super) struct Guard<'f> {
    folder: &'f Folder,
    lock: OwnedFd,
}

impl Guard<'_> {
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        folder::unlock(&self.lock);
    }
}
