//! Why the status log cannot be written or read.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::line::LineError;

/// Why the status log cannot be written or read.
#[derive(Debug, Error)]
pub enum StatusError {
    /// The line itself.
    #[error(transparent)]
    Line(#[from] LineError),
    /// Where the log should be lies something else.
    #[error("{} is {what}, not a log", path.display())]
    NotALog {
        /// Where.
        path: PathBuf,
        /// What lies there.
        what: &'static str,
    },
    /// The folder is a symbolic link that anybody could have put there.
    #[error("{} is a symbolic link in a folder that everybody may write to", path.display())]
    PlantedFolder {
        /// Where.
        path: PathBuf,
    },
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
    /// Others tore the log each time that the line was written.
    #[error("other programs keep tearing the lines of {}", path.display())]
    Torn {
        /// Which log.
        path: PathBuf,
    },
}

impl StatusError {
    pub(super) fn io<'p>(action: &'static str, path: &'p Path) -> impl Fn(io::Error) -> Self + 'p {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }

    /// The way out.
    pub fn hint(&self) -> String {
        match self {
            Self::Line(error) => error.hint().to_owned(),
            Self::NotALog { path, .. } => format!("move {} away, or set AI_SWARM_DIR", path.display()),
            Self::PlantedFolder { .. } => "set AI_SWARM_DIR to the folder that is meant".to_owned(),
            Self::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                "the disk is full; what was written of the line does not harm the next one".to_owned()
            }
            Self::Io { .. } => "set AI_SWARM_DIR to a folder that you may write to".to_owned(),
            Self::Torn { .. } => "see who writes to it with more than one write a line".to_owned(),
        }
    }
}
