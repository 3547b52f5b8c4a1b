//! What is to be run, and the start of it.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use thiserror::Error;

use super::job::Job;
use super::running::Running;
use crate::platform::life::LifeLock;
use crate::platform::process::Own;
use crate::platform::tree;

/// A command's share of a life lock is open to whatever this process starts at the same time: one start at a time.
static STARTING: Mutex<()> = Mutex::new(());

/// What is to be run.
#[derive(Debug, Default)]
pub struct Spec {
    /// A path, or a name to be found in `PATH`.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// What is added to this process's environment.
    pub env: Vec<(OsString, OsString)>,
    /// Whether nothing else is in the environment.
    pub only_env: bool,
    /// The folder to run in, if not the present one.
    pub dir: Option<PathBuf>,
    /// Standard input, if not this process's own.
    pub stdin: Option<OwnedFd>,
    /// Standard output, if not this process's own.
    pub stdout: Option<OwnedFd>,
    /// Standard error, if not this process's own.
    pub stderr: Option<OwnedFd>,
    /// What this process is to the command.
    pub mode: Mode,
}

/// What a process is to the command that it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// It is there for this command alone: it passes signals and the terminal on, and takes in what is left behind.
    #[default]
    Wrapper,
    /// It runs many commands and deals with signals and orphans by itself.
    Worker,
}

/// Why a command did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// There is no such program.
    #[error("cannot find the program `{}`", program.display())]
    NotFound {
        /// What was to be run.
        program: OsString,
        /// What the system said.
        source: io::Error,
    },
    /// It is there but cannot be run.
    #[error("cannot execute `{}`", program.display())]
    CannotExecute {
        /// What was to be run.
        program: OsString,
        /// What the system said.
        source: io::Error,
    },
    /// Anything else, such as a limit on processes.
    #[error("cannot start `{}`", program.display())]
    Other {
        /// What was to be run.
        program: OsString,
        /// What the system said.
        source: io::Error,
    },
}

impl StartError {
    /// The exit code that shells give for it: 127 for what is not found, 126 for what does not run.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound { .. } => 127,
            Self::CannotExecute { .. } | Self::Other { .. } => 126,
        }
    }
}

/// Starts a command in a process group of its own. With `life`, the command and its tree share that lock.
pub fn start(spec: &Spec, life: Option<&LifeLock>) -> Result<Running, StartError> {
    let other = |source| StartError::Other { program: spec.program.clone(), source };
    let job = match spec.mode {
        Mode::Wrapper => {
            tree::become_subreaper().map_err(other)?;
            // Before the command is there, so that no signal falls in between.
            Some(Job::prepare().map_err(other)?)
        }
        Mode::Worker => None,
    };
    let (child, own) = spawn_sharing(spec, life, job.as_ref()).map_err(|source| {
        if let Some(job) = &job {
            job.not_started();
        }
        let program = spec.program.clone();
        match source.kind() {
            io::ErrorKind::NotFound => StartError::NotFound { program, source },
            io::ErrorKind::PermissionDenied | io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory => {
                StartError::CannotExecute { program, source }
            }
            _ if source.raw_os_error() == Some(libc::ENOEXEC) => {
                StartError::CannotExecute { program, source }
            }
            _ => StartError::Other { program, source },
        }
    })?;
    Ok(Running::new(&child, own, job))
}

fn spawn_sharing(spec: &Spec, life: Option<&LifeLock>, job: Option<&Job>) -> io::Result<(Child, Own)> {
    let _one_at_a_time = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    let _shared = life.map(LifeLock::share_with_children).transpose()?;
    let spawn = |interpreter| {
        let mut command = command(spec, interpreter)?;
        job.map_or(Ok(()), |job| job.equip(&mut command))?;
        Own::start(|| command.spawn(), Child::id)
    };
    match spawn(None) {
        // A script without `#!`: shells and execvp(3) run it with sh.
        Err(error) if error.raw_os_error() == Some(libc::ENOEXEC) => spawn(Some("/bin/sh")),
        outcome => outcome,
    }
}

/// Nothing here may need code between fork and exec: std then uses posix_spawn, whose cost does not grow with this
/// process. Only a command that gets the terminal is started with fork: people do not see the difference.
fn command(spec: &Spec, interpreter: Option<&str>) -> io::Result<Command> {
    let mut command = match interpreter {
        Some(interpreter) => {
            let mut command = Command::new(interpreter);
            command.arg(&spec.program);
            command
        }
        None => Command::new(&spec.program),
    };
    if spec.only_env {
        command.env_clear();
    }
    command.args(&spec.args).envs(spec.env.iter().map(|(name, value)| (name, value))).process_group(0);
    if let Some(dir) = &spec.dir {
        command.current_dir(dir);
    }
    let stream = |descriptor: &Option<OwnedFd>| match descriptor {
        Some(descriptor) => descriptor.try_clone().map(Stdio::from),
        None => Ok(Stdio::inherit()),
    };
    command.stdin(stream(&spec.stdin)?).stdout(stream(&spec.stdout)?).stderr(stream(&spec.stderr)?);
    Ok(command)
}
