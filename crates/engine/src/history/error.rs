//! Why the history of a repository cannot be read.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why the history of a repository cannot be read.
#[derive(Debug, Error)]
pub enum HistoryError {
    /// There is no git to ask.
    #[error("cannot start git")]
    NoGit(#[source] io::Error),
    /// There is no repository to ask about.
    #[error("{} is not in a git repository", folder.display())]
    NotARepository {
        /// Where it was looked for.
        folder: PathBuf,
    },
    /// Git itself gave up.
    #[error("git cannot {action}: {said}")]
    Git {
        /// What it was asked for.
        action: &'static str,
        /// Its own words.
        said: String,
    },
    /// Git's answer broke off.
    #[error("cannot read what git answers")]
    Read(#[source] io::Error),
    /// Git answered something else than it was asked for.
    #[error("git's log has {found} where {expected} is expected")]
    Unexpected {
        /// What there is.
        found: String,
        /// What should be there.
        expected: &'static str,
    },
}

impl HistoryError {
    /// The way out.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoGit(_) => "install git, and see that it is on the PATH",
            Self::NotARepository { .. } => "go to the repository whose history is to be learned from",
            Self::Git { said, .. } if said.contains("dubious ownership") => {
                "the repository belongs to another user: git's own message says how to trust it"
            }
            Self::Git { .. } => "`git fsck` checks the repository",
            Self::Read(_) | Self::Unexpected { .. } => {
                "try `git log --name-status -z` by hand: a wrapper around git may change its output"
            }
        }
    }
}
