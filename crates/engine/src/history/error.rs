//! Why the history of a repository cannot be read.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why the history of a repository cannot be read.
#[derive(Debug, Error)]
pub enum HistoryError {
    /// git cannot be started.
    #[error("cannot start git")]
    NoGit(#[source] io::Error),
    /// The folder is in no repository.
    #[error("{} is not in a git repository", folder.display())]
    NotARepository {
        /// The folder.
        folder: PathBuf,
    },
    /// git failed.
    #[error("git cannot {action}: {said}")]
    Git {
        /// What git had to do.
        action: &'static str,
        /// The error message of git.
        said: String,
    },
    /// The output of git cannot be read.
    #[error("cannot read the output of git")]
    Read(#[source] io::Error),
    /// The output of git is not in the expected format.
    #[error("git's log has {found} where {expected} is expected")]
    Unexpected {
        /// What the output has.
        found: String,
        /// What is expected.
        expected: &'static str,
    },
}

impl HistoryError {
    /// What the user can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoGit(_) => "install git, and check that it is in PATH",
            Self::NotARepository { .. } => "run it inside of the repository",
            Self::Git { said, .. } if said.contains("dubious ownership") => {
                "the repository belongs to another user: git's own message says how to trust it"
            }
            Self::Git { .. } => "`git fsck` checks the repository",
            Self::Read(_) | Self::Unexpected { .. } => {
                "try `git log --name-status -z` yourself: a wrapper around git may change its output"
            }
        }
    }
}
