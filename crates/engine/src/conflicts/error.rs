//! Why the conflict log or the list of paths cannot be read or written.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why the conflict log or the list of paths cannot be read or written.
#[derive(Debug, Error)]
pub enum ConflictsError {
    /// A file operation failed.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// git cannot be started.
    #[error("cannot start git")]
    NoGit(#[source] io::Error),
    /// git cannot list the paths of this folder.
    #[error("git cannot list the paths of {}: {said}", folder.display())]
    Git {
        /// Which folder.
        folder: PathBuf,
        /// The error message of git.
        said: String,
    },
}

impl ConflictsError {
    pub(super) fn io<'p>(action: &'static str, path: &'p Path) -> impl Fn(io::Error) -> Self + 'p {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }

    /// Whether the input is wrong, and not the machine.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Git { .. } => true,
            Self::Io { .. } | Self::NoGit(_) => false,
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Io { path, .. } => format!("is `{}` a file that you may read and write?", path.display()),
            Self::NoGit(_) | Self::Git { .. } => {
                "name the paths yourself with --paths FILE, or --paths - for stdin".to_owned()
            }
        }
    }
}
