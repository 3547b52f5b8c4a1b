//! Errors of the status log.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::line::LineError;

/// Why the status log cannot be written or read.
#[derive(Debug, Error)]
pub enum StatusError {
    /// The line is not valid.
    #[error(transparent)]
    Line(#[from] LineError),
    /// Something else is where the log should be.
    #[error("{} is {what}, not a log", path.display())]
    NotALog {
        /// The path.
        path: PathBuf,
        /// What is there.
        what: &'static str,
    },
    /// The folder is a symbolic link that any user could have created.
    #[error("{} is a symbolic link in a folder that everybody may write to", path.display())]
    PlantedFolder {
        /// The path.
        path: PathBuf,
    },
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
    /// Other programs damaged the line at every attempt.
    #[error("other programs keep tearing the lines of {}", path.display())]
    Torn {
        /// The log.
        path: PathBuf,
    },
}

impl StatusError {
    pub(super) fn io<'p>(action: &'static str, path: &'p Path) -> impl Fn(io::Error) -> Self + 'p {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Line(error) => error.hint().to_owned(),
            Self::NotALog { path, .. } => format!("move {} away, or set AI_SWARM_DIR", path.display()),
            Self::PlantedFolder { .. } => "set AI_SWARM_DIR to the folder that is meant".to_owned(),
            Self::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                "the disk is full; what was written of the line does not harm the next one".to_owned()
            }
            Self::Io { .. } => "set AI_SWARM_DIR to a folder that you may write to".to_owned(),
            Self::Torn { .. } => "find the program that writes a line with more than one write".to_owned(),
        }
    }
}
