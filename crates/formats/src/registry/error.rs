//! Registry errors.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::MAX_BYTES;

/// Why a registry cannot be read or changed.
#[derive(Debug, Error)]
pub enum RegistryError {
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
    /// A link, a folder or a device is in its place.
    #[error("{} is not a regular file", path.display())]
    NotRegular {
        /// The file.
        path: PathBuf,
    },
    /// It is too large.
    #[error("{} is larger than {MAX_BYTES} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// Another program replaced it at every attempt.
    #[error("{} is replaced by another program all the time", path.display())]
    KeepsChanging {
        /// The file.
        path: PathBuf,
    },
}

impl RegistryError {
    /// What the user can do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Io { .. } => {
                "the locks themselves work without the registry; check the disk's free space and the permissions"
            }
            Self::NotRegular { .. } => "somebody put it there: look at it, then move it away",
            Self::TooLarge { .. } => "move it away: a new one is begun",
            Self::KeepsChanging { .. } => "try again in a moment",
        }
    }

    /// Says whether the disk is full.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Io { source, .. }
            if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
    }
}
