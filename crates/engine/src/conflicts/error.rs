//! Why a log of conflicts, or the list of paths, cannot be had.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why a log of conflicts, or the list of paths, cannot be had.
#[derive(Debug, Error)]
pub enum ConflictsError {
    /// The system refused.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is no git to ask.
    #[error("cannot start git")]
    NoGit(#[source] io::Error),
    /// Git has no list of paths for this folder.
    #[error("git cannot list the paths of {}: {said}", folder.display())]
    Git {
        /// Which folder.
        folder: PathBuf,
        /// What it said.
        said: String,
    },
}

impl ConflictsError {
    pub(super) fn io<'p>(action: &'static str, path: &'p Path) -> impl Fn(io::Error) -> Self + 'p {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }

    /// Says whether another input would help.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Git { .. } => true,
            Self::Io { .. } | Self::NoGit(_) => false,
        }
    }

    /// The way out.
    pub fn hint(&self) -> String {
        match self {
            Self::Io { path, .. } => format!("is `{}` a file that you may read and write?", path.display()),
            Self::NoGit(_) | Self::Git { .. } => {
                "name the paths yourself with --paths FILE, or --paths - for stdin".to_owned()
            }
        }
    }
}
