//! Command specification: what to execute, and why it may not start.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use lockkeeper_core::secret::shown_command;
use thiserror::Error;

use super::guardian;

/// What to execute.
#[derive(Debug, Default)]
pub struct Spec {
    /// A path, or a name to be searched in `PATH`.
    pub program: OsString,
    /// The arguments.
    pub args: Vec<OsString>,
    /// Variables that are added to the environment of this process.
    pub env: Vec<(OsString, OsString)>,
    /// Whether the environment consists of `env` alone.
    pub only_env: bool,
    /// The folder to run in; the current one if there is none.
    pub dir: Option<PathBuf>,
    /// The file that the command appends standard output and error to; its standard input is then empty. Without it
    /// the command has the standard streams of this process. The command opens the file itself: no other process ever
    /// has it open for writing.
    pub log: Option<PathBuf>,
    /// A descriptor that the command inherits besides the liveness lock, such as the lock file of a group.
    pub inherit: Option<OwnedFd>,
    /// What this process is to the command.
    pub mode: Mode,
}

/// What this process is to the command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// It runs only this command: it passes signals and the terminal on, and adopts orphaned descendants.
    #[default]
    Wrapper,
    /// It runs many commands, and handles signals and orphans itself. Commands inherit only the liveness lock, and [`Spec::inherit`].
    Worker,
}

/// Why a command did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// There is no such program.
    #[error("cannot find the program `{}`", shown(program))]
    NotFound {
        /// The program.
        program: OsString,
        /// The error of the system.
        source: io::Error,
    },
    /// The program exists but cannot be executed.
    #[error("cannot execute `{}`", shown(program))]
    CannotExecute {
        /// The program.
        program: OsString,
        /// The error of the system.
        source: io::Error,
    },
    /// The process that should start it was killed meanwhile. Nobody knows whether the command has begun.
    #[error("cannot tell whether `{}` has begun", shown(program))]
    Lost {
        /// The program.
        program: OsString,
        /// What happened.
        source: io::Error,
    },
    /// Any other error, such as a limit on processes.
    #[error("cannot start `{}`", shown(program))]
    Other {
        /// The program.
        program: OsString,
        /// The error of the system.
        source: io::Error,
    },
}

/// The program as it is shown: somebody who forgets the shell writes `API_TOKEN=… make`.
fn shown(program: &OsStr) -> String {
    shown_command(&[program.to_string_lossy()]).concat()
}

impl StartError {
    pub(super) fn new(program: OsString, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::NotFound => Self::NotFound { program, source },
            io::ErrorKind::PermissionDenied | io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory => {
                Self::CannotExecute { program, source }
            }
            guardian::LOST => Self::Lost { program, source },
            _ if source.raw_os_error() == Some(libc::ENOEXEC) => Self::CannotExecute { program, source },
            _ => Self::Other { program, source },
        }
    }

    /// Returns the exit code that shells use: 127 when the program is not found, 126 when it cannot be executed.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound { .. } => 127,
            Self::CannotExecute { .. } | Self::Lost { .. } | Self::Other { .. } => 126,
        }
    }
}
