//! Errors of task locks.

use std::io;
use std::path::PathBuf;

use lockkeeper_core::id::IdError;
use thiserror::Error;

use crate::guard::GuardError;
use crate::json_record::RecordError;
use crate::safe_open::NameError;

/// Why an operation on a task lock failed.
#[derive(Debug, Error)]
pub enum SwarmError {
    /// The id of the task cannot become a file name.
    #[error("the task cannot be locked")]
    Task(#[from] NameError),
    /// The id of the worker is not valid.
    #[error(transparent)]
    Worker(#[from] IdError),
    /// The operation on the file or its folder failed.
    #[error(transparent)]
    Guard(#[from] GuardError),
    /// The folder belongs to another user, who could replace every lock in it.
    #[error("the swarm's folder {} belongs to user {owner}, not to us", path.display())]
    ForeignFolder {
        /// The folder.
        path: PathBuf,
        /// The user id of its owner.
        owner: u32,
    },
    /// The folder cannot be listed.
    #[error("cannot list the lock folder {}", path.display())]
    List {
        /// The folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The record cannot be parsed, so nobody knows whether it is held.
    #[error("cannot understand the lock file {}", path.display())]
    NotUnderstood {
        /// The lock file.
        path: PathBuf,
        /// What is wrong with it.
        source: RecordError,
    },
    /// The record locks another task: the file system ignores case, so both tasks have the same file.
    #[error("the lock file {} is of the task `{}`", path.display(), task.escape_debug())]
    AnotherTask {
        /// The lock file.
        path: PathBuf,
        /// The task that it locks.
        task: String,
    },
}

impl SwarmError {
    /// What the user can do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Task(error) => error.hint(),
            Self::Worker(error) => error.hint(),
            Self::Guard(error) => error.hint(),
            Self::List { .. } => "check the folder's permissions",
            Self::ForeignFolder { .. } => "set AI_SWARM_DIR to a folder of your own",
            Self::NotUnderstood { .. } => {
                "it counts as held: look at it, and remove it if no worker is at that task"
            }
            Self::AnotherTask { .. } => "give the task an id that differs in more than its case",
        }
    }
}
