//! Takeover protocol: creates, replaces, renews and removes lock files that hold one record.
//!
//! Every process of ours that reads, judges and replaces a record does so under the **guard**: `flock(2)` on the folder
//! of the file. The kernel queues the waiting processes, and frees the guard when its holder ends. Nothing is left
//! behind, and nobody can unlink it. Under the guard a process reads and judges the record *again*. Then:
//!
//! - No file: it writes the new record to a file with a random name, reads it back, and gives it the lock's name if that
//!   is free (`RENAME_NOREPLACE`, else `link`). The name never shows half a record. A program that creates the file with
//!   `O_EXCL` and we exclude each other exactly.
//! - A stale record: it exchanges the new record with the old one (`RENAME_EXCHANGE`). Then it compares what came out
//!   with what it judged: the same file, which it kept open, and the same content. If they differ, a program that does
//!   not use the guard was faster: it exchanges them back, and the lock is busy.
//! - A heartbeat: the same exchange, and our own record has to come out. [`Held`] writes the new record to a spare file
//!   that already has disk blocks, so that a full disk does not end a healthy lock.
//! - A release: it renames the record to a random name, compares it, and then unlinks it. If the record is not ours, it
//!   is put back.
//!
//! A process that is killed in between leaves at most one file `.lockkeeper-*.tmp`. The next process that takes a lock
//! removes it under the guard, unless a live holder has it locked as its spare. Nothing is synced to disk: after a power
//! cut every holder is dead, and an incomplete record is judged as such.
//!
//! Where two names cannot be exchanged, a stale record is renamed first, and the new one published after that. This is just
//! as exact between our own processes, and against programs that create the file with `O_EXCL`. [`Folder::probe`] says which
//! of the two ways a folder allows.

mod held;
mod takeover;
mod temporary;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lockkeeper_platform::{folder, fs, rename_exchange};
use thiserror::Error;

use super::safe_open::UnsafeFile;
use temporary::Temporary;

pub use held::{Heartbeat, Held};
pub use takeover::{LockFile, Removal, Renewal, Take};

/// How long to wait for the guard. Our processes hold it for microseconds, so a longer wait means a stopped process or a
/// foreign program.
const GUARD_LIMIT: Duration = Duration::from_secs(10);

/// Why an operation on a lock file failed. No lock is taken or released then.
#[derive(Debug, Error)]
pub enum GuardError {
    /// The folder cannot be created or opened.
    #[error("cannot open the lock folder {}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The folder is on a network file system, where locks do not work reliably.
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
        /// The error of the system.
        source: io::Error,
    },
    /// Another process has kept the folder locked for too long.
    #[error("the lock folder {} has been locked by another process for {GUARD_LIMIT:?}", path.display())]
    Stuck {
        /// The folder.
        path: PathBuf,
    },
    /// The file is not accepted as a record.
    #[error("{} is not a lock file that can be used", path.display())]
    UnsafeFile {
        /// The lock file.
        path: PathBuf,
        /// Why not.
        source: UnsafeFile,
    },
    /// The new record cannot be written.
    #[error("cannot write the lock file {}", path.display())]
    Write {
        /// The lock file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The new record does not read back as it was written.
    #[error("the record written for {} cannot be read back", path.display())]
    ReadBack {
        /// The lock file.
        path: PathBuf,
    },
    /// The record cannot be renamed.
    #[error("cannot rename the lock file {}", path.display())]
    Rename {
        /// The lock file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

impl GuardError {
    /// What the user can do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Folder { .. } => "check that the folder exists and that you may write to it",
            Self::Network { .. } => "use a folder on a local file system",
            Self::Unlockable { .. } => "use a folder on a file system with flock(2)",
            Self::Stuck { .. } => {
                "is a lock program stopped (state T)? `fuser -v FOLDER` shows who has it open"
            }
            Self::UnsafeFile { source, .. } => source.hint(),
            Self::Write { .. } | Self::Rename { .. } => {
                "check the disk's free space and the folder's permissions"
            }
            Self::ReadBack { .. } => "the disk may be failing: check the system's log",
        }
    }
}

/// How a stale record is replaced in a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplaceMethod {
    /// In one step (`RENAME_EXCHANGE`).
    Exchange,
    /// In two steps. A foreign program that removes stale locks itself could act between them.
    TwoRenames,
}

/// A folder with lock files. It is opened once, and every name is relative to it.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    descriptor: OwnedFd,
}

impl Folder {
    /// Opens an existing folder. Refuses network file systems.
    pub fn open(path: &Path) -> Result<Self, GuardError> {
        let opened = folder::open_folder(path);
        let descriptor = opened.map_err(|source| GuardError::Folder { path: path.to_owned(), source })?;
        Self::checked(path.to_owned(), descriptor)
    }

    /// Opens a folder below `base`, one component after the other, and follows no symbolic link. Returns `None` when a
    /// component is missing.
    pub fn open_below(base: &Path, parts: &[&str]) -> Result<Option<Self>, GuardError> {
        Self::walk(base, parts, &|_, _| Ok(()))
    }

    /// Like [`Folder::open_below`], but creates missing components with mode 0700.
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

    /// Returns the user id of its owner.
    pub fn owner(&self) -> io::Result<u32> {
        Ok(rustix::fs::fstat(&self.descriptor)?.st_uid)
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Tests whether the file system can exchange two names. Leaves no file behind.
    pub fn probe(&self) -> Result<ReplaceMethod, GuardError> {
        let guard = self.guard()?;
        let failed = |source| GuardError::Write { path: self.path.clone(), source };
        let one = Temporary::create(&guard, 0o600).map_err(failed)?;
        let other = Temporary::create(&guard, 0o600).map_err(failed)?;
        match rename_exchange::exchange(self.as_fd(), one.name(), other.name()) {
            Ok(()) => Ok(ReplaceMethod::Exchange),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(ReplaceMethod::TwoRenames),
            Err(source) => Err(failed(source)),
        }
    }

    /// Lists temporary files that killed processes left behind.
    pub fn leftovers(&self) -> Result<Vec<String>, GuardError> {
        let guard = self.guard()?;
        temporary::orphans(&guard).map_err(|source| GuardError::Folder { path: self.path.clone(), source })
    }

    /// Removes these files, and returns their names.
    pub fn clear_leftovers(&self) -> Result<Vec<String>, GuardError> {
        let guard = self.guard()?;
        let failed = |source| GuardError::Folder { path: self.path.clone(), source };
        let found = temporary::orphans(&guard).map_err(failed)?;
        temporary::sweep(&guard).map_err(failed)?;
        let left = temporary::orphans(&guard).map_err(failed)?;
        Ok(found.into_iter().filter(|name| !left.contains(name)).collect())
    }

    /// Waits for the guard of the folder.
    pub(super) fn guard(&self) -> Result<Guard<'_>, GuardError> {
        let opened = folder::open_existing(self.as_fd(), ".");
        let own = opened.map_err(|source| GuardError::Folder { path: self.path.clone(), source })?;
        match folder::lock_within(own, GUARD_LIMIT) {
            Ok(Some(lock)) => Ok(Guard { folder: self, lock }),
            Ok(None) => Err(GuardError::Stuck { path: self.path.clone() }),
            Err(source) => Err(GuardError::Unlockable { path: self.path.clone(), source }),
        }
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// The exclusive lock on a folder, until it is dropped.
#[derive(Debug)]
#[must_use = "the folder is unlocked when this is dropped"]
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
