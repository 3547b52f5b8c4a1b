//! Group locks: `flock(2)` on `$LOCK_DIR/GROUP.lock`, told of in a registry beside it.
//!
//! The kernel's lock is the truth, so `flock(1)` on the same file excludes us and we exclude it. A lock file is never
//! unlinked: whoever waits on the old file and whoever opens the new one would both hold. Files come from outside, so
//! nothing but a regular file of ours is ever locked, and no link is followed.

mod folder;
mod id;
mod lock;
mod monitor;
mod survey;

pub use folder::{Folders, Opened, Unusable};
pub use id::{GroupId, GroupIdError};
pub use lock::{GroupLock, Patience};
pub use monitor::MonitorLock;
pub use survey::{Circle, Finding, Group, Life, Survey, Swept, check, clean_up, force, life_of};

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::registry::RegistryError;

/// Why something cannot be done with a group lock.
#[derive(Debug, Error)]
pub enum GroupError {
    /// The system said no.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// A link stands where the file or folder should be.
    #[error("{} is a symbolic link", path.display())]
    Link {
        /// The path.
        path: PathBuf,
    },
    /// A folder, FIFO, socket or device stands where the lock file should be, or a file where the folder should be.
    #[error("{} is not {wanted}", path.display())]
    WrongKind {
        /// The path.
        path: PathBuf,
        /// What should be there.
        wanted: &'static str,
    },
    /// Somebody else put the file there.
    #[error("{} belongs to user {owner}, not to us", path.display())]
    Forged {
        /// The path.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
    },
    /// The lock file is there, so others may hold it, and we cannot open it.
    #[error("cannot open {}, which others may have locked", path.display())]
    Barred {
        /// The path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Neither the folder nor the one to fall back to can be used.
    #[error("no lock folder can be used: {first}; and {second}")]
    NoFolder {
        /// What is wrong with the first.
        first: Box<Self>,
        /// What is wrong with the other.
        second: Box<Self>,
    },
    /// The descriptor is not open.
    #[error("descriptor {number} is not open")]
    NotOpen {
        /// Its number.
        number: i32,
    },
    /// The descriptor is another file.
    #[error("descriptor {number} is not {}", path.display())]
    OtherFile {
        /// Its number.
        number: i32,
        /// The lock file.
        path: PathBuf,
    },
    /// Somebody removed or replaced the lock file while it was waited for.
    #[error("{} was replaced while it was waited for", path.display())]
    Replaced {
        /// The lock file.
        path: PathBuf,
    },
    /// The registry.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

impl GroupError {
    /// The way out.
    pub fn hint(&self) -> String {
        match self {
            Self::Barred { .. } => {
                "another folder would make two locks of one: give this user access to the file".to_owned()
            }
            Self::Io { .. } => "see to the folder's permissions, or set LOCK_DIR to another folder".to_owned(),
            Self::Link { .. } | Self::Forged { .. } => {
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

    /// Whether it is the caller's mistake and nothing was touched.
    pub const fn is_usage(&self) -> bool {
        match self {
            Self::NotOpen { .. } | Self::OtherFile { .. } => true,
            Self::Io { .. }
            | Self::Link { .. }
            | Self::WrongKind { .. }
            | Self::Forged { .. }
            | Self::Barred { .. }
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
