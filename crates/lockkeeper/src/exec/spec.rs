//! What is to be run, and the start of it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use rustix::fs::Access;
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
    let found = find_program(spec);
    let spawn = |interpreter| {
        let mut command = command(spec, found.as_deref(), interpreter)?;
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
fn command(spec: &Spec, found: Option<&Path>, interpreter: Option<&str>) -> io::Result<Command> {
    let program = found.map_or(spec.program.as_os_str(), Path::as_os_str);
    let mut command = match interpreter {
        Some(interpreter) => {
            let mut command = Command::new(interpreter);
            command.arg(program);
            command
        }
        None => {
            let mut command = Command::new(program);
            command.arg0(&spec.program);
            command
        }
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

/// Where a program is that is to be found in the `PATH` of an environment of its own. Left to itself, std would have to
/// fork for that, and the child would try one folder after the other. None when the system has to say what is wrong.
fn find_program(spec: &Spec) -> Option<PathBuf> {
    if !spec.only_env || spec.program.as_bytes().contains(&b'/') {
        return None;
    }
    let path = spec.env.iter().rfind(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
    std::env::split_paths(path.unwrap_or(OsStr::new("/bin:/usr/bin")))
        .map(|folder| match &spec.dir {
            Some(dir) => dir.join(folder).join(&spec.program),
            None => folder.join(&spec.program),
        })
        .filter(|file| file.is_absolute())
        .find(|file| file.is_file() && rustix::fs::access(file, Access::EXEC_OK).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_in_the_path_of_its_own_environment() {
        let folder = tempfile::tempdir().unwrap();
        let spec = |program: &str, path: Option<&str>| Spec {
            program: program.into(),
            env: path.map(|path| ("PATH".into(), path.into())).into_iter().collect(),
            only_env: true,
            dir: Some(folder.path().to_owned()),
            ..Spec::default()
        };
        std::fs::write(folder.path().join("plain"), "").unwrap();
        assert_eq!(find_program(&spec("sh", None)), Some("/bin/sh".into()));
        assert_eq!(find_program(&spec("sh", Some("/nowhere:/bin"))), Some("/bin/sh".into()));
        assert_eq!(find_program(&spec("sh", Some("/nowhere"))), None);
        assert_eq!(find_program(&spec("plain", Some("."))), None);
        assert_eq!(find_program(&spec("/bin/sh", Some("/bin"))), None);
    }
}
