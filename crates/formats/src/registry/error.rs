//! Why a registry cannot be read or changed, and the way out.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::MAX_BYTES;

/// Why a registry cannot be read or changed.
#[derive(Debug, Error)]
pub enum RegistryError {
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
    /// A link, a folder or a device in its place.
    #[error("{} is not a regular file", path.display())]
    NotRegular {
        /// The file.
        path: PathBuf,
    },
    /// Larger than anything that was ever written there.
    #[error("{} is larger than {MAX_BYTES} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// Other programs replaced it each time.
    #[error("{} is replaced by another program all the time", path.display())]
    Restless {
        /// The file.
        path: PathBuf,
    },
}

impl RegistryError {
    /// The way out.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Io { .. } => "the locks themselves work without the registry; see to space and permissions",
            Self::NotRegular { .. } => "somebody put it there: look at it, then move it away",
            Self::TooLarge { .. } => "move it away: a new one is begun",
            Self::Restless { .. } => "try again in a moment",
        }
    }

    /// Whether there was no space left.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Io { source, .. }
            if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
    }
}
