//! Group locks: `flock(2)` on `$LOCK_DIR/GROUP.lock`, with a registry file beside them.
//!
//! Only the kernel's lock counts, so `flock(1)` on the same file and we exclude each other. A lock file is never
//! unlinked: a process that waits on the old file and a process that opens a new one would both get the lock. Other
//! programs create these files, so we lock only a regular file of our own, and follow no link.

mod folder;
mod id;
mod lock;
mod monitor;
mod survey;

pub use folder::{FallbackReason, Folders, Opened};
pub use id::{GroupId, GroupIdError};
pub use lock::{GroupLock, WaitOptions};
pub use monitor::{MONITOR, MonitorLock, is_monitor};
pub use survey::{Cleanup, Cycle, Finding, Group, Liveness, Survey, check, clean_up, force, liveness_of};

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::registry::RegistryError;

/// Why something cannot be done with a group lock.
#[derive(Debug, Error)]
pub enum GroupError {
    /// The system refused an operation.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// The operation.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A symbolic link is where the file or folder should be.
    #[error("{} is a symbolic link", path.display())]
    Link {
        /// The path.
        path: PathBuf,
    },
    /// A folder, FIFO, socket or device is where the lock file should be, or a file where the folder should be.
    #[error("{} is not {wanted}", path.display())]
    WrongKind {
        /// The path.
        path: PathBuf,
        /// What should be there.
        wanted: &'static str,
    },
    /// The file belongs to another user.
    #[error("{} belongs to user {owner}, not to us", path.display())]
    ForeignOwner {
        /// The path.
        path: PathBuf,
        /// The user id of its owner.
        owner: u32,
    },
    /// The lock file exists, so others may hold it, but we cannot open it.
    #[error("cannot open {}, which others may have locked", path.display())]
    Inaccessible {
        /// The path.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Neither the folder nor the fallback folder can be used.
    #[error("no lock folder can be used: {first}; and {second}")]
    NoFolder {
        /// What is wrong with the folder.
        first: Box<Self>,
        /// What is wrong with the fallback folder.
        second: Box<Self>,
    },
    /// The caller's descriptor is not open.
    #[error("descriptor {number} is not open")]
    NotOpen {
        /// Its number.
        number: i32,
    },
    /// The caller's descriptor is another file.
    #[error("descriptor {number} is not {}", path.display())]
    OtherFile {
        /// Its number.
        number: i32,
        /// The lock file.
        path: PathBuf,
    },
    /// Another program removed or replaced the lock file during the wait.
    #[error("{} was replaced while it was waited for", path.display())]
    Replaced {
        /// The lock file.
        path: PathBuf,
    },
    /// The registry failed.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

impl GroupError {
    /// What the user can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Inaccessible { .. } => {
                "another folder would make two locks of one: give this user access to the file".to_owned()
            }
            Self::Io { .. } => "check the folder's permissions, or set LOCK_DIR to another folder".to_owned(),
            Self::Link { .. } | Self::ForeignOwner { .. } => {
                "somebody else may have put it there: look at it, then remove it or set LOCK_DIR to a folder of your own"
                    .to_owned()
            }
            Self::WrongKind { .. } => "look at it, then move it away or set LOCK_DIR to another folder".to_owned(),
            Self::NoFolder { .. } => "set LOCK_DIR to a folder that can be written".to_owned(),
            Self::NotOpen { number } | Self::OtherFile { number, .. } => format!(
                "open it in the shell first: exec {number}<>\"$(lockkeeper group path GROUP)\""
            ),
            Self::Replaced { .. } => "lock files must never be removed; open it again and try once more".to_owned(),
            Self::Registry(error) => error.hint().to_owned(),
        }
    }

    /// Says whether the caller made a mistake, so that nothing was changed.
    pub const fn is_usage(&self) -> bool {
        match self {
            Self::NotOpen { .. } | Self::OtherFile { .. } => true,
            Self::Io { .. }
            | Self::Link { .. }
            | Self::WrongKind { .. }
            | Self::ForeignOwner { .. }
            | Self::Inaccessible { .. }
            | Self::NoFolder { .. }
            | Self::Replaced { .. }
            | Self::Registry(_) => false,
        }
    }
}

fn failed(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(rustix::io::Errno) -> GroupError {
    let path = path.into();
    move |error| GroupError::Io { action, path, source: error.into() }
}
