//! What is to be run, and the start of it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError, RwLock};

use lockkeeper_core::id::HolderId;
use rustix::process::Pid;
use thiserror::Error;

use super::find::{Finder, find_program};
use super::job::Job;
use super::running::Running;
use crate::liveness_lock::LivenessLock;
use crate::process::Own;
use crate::spawn::{self, Start};
use crate::tree;

/// Until its program begins, a new process has everything open that this one has: the life locks of all commands. Who
/// hands one on by leaving it open to all that is started meanwhile starts alone.
static STARTING: RwLock<()> = RwLock::new(());

/// Whose life locks the commands share that were started here and have not ended.
static COMMANDS: Mutex<BTreeMap<u32, HolderId>> = Mutex::new(BTreeMap::new());

/// Whether a process is a command that was started here with another life lock than this. It may have this one too,
/// but only until its program begins.
pub fn is_command_of_another(pid: u32, holder: HolderId) -> bool {
    let commands = COMMANDS.lock().unwrap_or_else(PoisonError::into_inner);
    commands.get(&pid).is_some_and(|own| *own != holder)
}

/// A command that is known to have been started here, until its end was seen.
#[derive(Debug)]
pub(super) struct Known {
    pid: Option<u32>,
}

impl Known {
    fn new(pid: Pid, life: Option<&LivenessLock>) -> Self {
        let number = pid.as_raw_nonzero().get().cast_unsigned();
        let pid = life.map(|life| {
            COMMANDS.lock().unwrap_or_else(PoisonError::into_inner).insert(number, life.holder());
            number
        });
        Self { pid }
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        if let Some(pid) = self.pid {
            COMMANDS.lock().unwrap_or_else(PoisonError::into_inner).remove(&pid);
        }
    }
}

/// Looks at something while no command is about to begin: what has a life lock then is what shares it for good.
pub fn between_starts<T>(look: impl FnOnce() -> T) -> T {
    let _nobody_starts = STARTING.write().unwrap_or_else(PoisonError::into_inner);
    look()
}

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
    /// The file that both standard output and error are appended to, with nothing to read on standard input; this
    /// process's own three if there is none. The command opens it by itself: nobody else ever has it open for writing.
    pub log: Option<PathBuf>,
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
pub fn start(spec: &Spec, life: Option<&LivenessLock>) -> Result<Running, StartError> {
    start_at(spec, life, find_program(spec))
}

/// The same, for one of many commands: its program may be where it was a moment ago.
pub fn start_found(
    spec: &Spec,
    life: Option<&LivenessLock>,
    programs: &mut Finder,
) -> Result<Running, StartError> {
    let started = programs.found(spec).map(|file| start_at(spec, life, Ok(file.into())));
    match started {
        Some(Err(StartError::NotFound { .. })) | None => {
            let file = find_program(spec);
            programs.keep(spec, file.as_deref().ok());
            start_at(spec, life, file)
        }
        Some(started) => started,
    }
}

fn start_at(
    spec: &Spec,
    life: Option<&LivenessLock>,
    file: io::Result<Cow<'_, Path>>,
) -> Result<Running, StartError> {
    let other = |source| StartError::Other { program: spec.program.clone(), source };
    let job = match spec.mode {
        Mode::Wrapper => {
            tree::become_subreaper().map_err(other)?;
            // Before the command is there, so that no signal falls in between.
            Some(Job::prepare().map_err(other)?)
        }
        Mode::Worker => None,
    };
    let started = file.and_then(|file| spawn(spec, &file, life, job.as_ref()));
    let (pid, own, known) = started.map_err(|source| {
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
    Ok(Running::new(pid, own, known, job))
}

fn spawn(
    spec: &Spec,
    file: &Path,
    life: Option<&LivenessLock>,
    job: Option<&Job>,
) -> io::Result<(Pid, Own, Known)> {
    let one = |interpreter: Option<&str>| {
        let bare = match spec.mode {
            Mode::Worker if spec.only_env => spawn_bare(spec, file, interpreter, life)?,
            Mode::Worker | Mode::Wrapper => None,
        };
        bare.map_or_else(|| spawn_with_std(spec, file, interpreter, life, job), Ok)
    };
    match one(None) {
        // A script without `#!`: shells and execvp(3) run it with sh.
        Err(error) if error.raw_os_error() == Some(libc::ENOEXEC) => one(Some("/bin/sh")),
        outcome => outcome,
    }
}

/// Starts are many and at the same time: they cost little, and none waits for another. None where only std can.
fn spawn_bare(
    spec: &Spec,
    file: &Path,
    interpreter: Option<&str>,
    life: Option<&LivenessLock>,
) -> io::Result<Option<(Pid, Own, Known)>> {
    let mut words = match interpreter {
        Some(interpreter) => vec![OsStr::new(interpreter), file.as_os_str()],
        None => vec![spec.program.as_os_str()],
    };
    words.extend(spec.args.iter().map(OsString::as_os_str));
    let start = Start {
        file: interpreter.map_or(file, Path::new),
        words,
        env: &spec.env,
        dir: spec.dir.as_deref(),
        log: spec.log.as_deref(),
        descriptors: life.map(LivenessLock::for_child).into_iter().collect(),
    };
    let _starting = STARTING.read().unwrap_or_else(PoisonError::into_inner);
    let number = |pid: &Option<Pid>| pid.map_or(0, |pid| pid.as_raw_nonzero().get().cast_unsigned());
    let (pid, own) = Own::start(|| spawn::start(&start), number)?;
    // Noted while nobody looks.
    Ok(pid.map(|pid| (pid, own, Known::new(pid, life))))
}

fn spawn_with_std(
    spec: &Spec,
    file: &Path,
    interpreter: Option<&str>,
    life: Option<&LivenessLock>,
    job: Option<&Job>,
) -> io::Result<(Pid, Own, Known)> {
    let _alone = STARTING.write().unwrap_or_else(PoisonError::into_inner);
    let _shared = life.map(LivenessLock::share_with_children).transpose()?;
    let mut command = command(spec, file, interpreter)?;
    job.map_or(Ok(()), |job| job.equip(&mut command))?;
    let (child, own) = Own::start(|| command.spawn(), Child::id)?;
    let pid = Pid::from_child(&child);
    Ok((pid, own, Known::new(pid, life)))
}

/// Nothing here may need code between fork and exec: std then uses posix_spawn, whose cost does not grow with this
/// process. Only a command that gets the terminal is started with fork: people do not see the difference.
fn command(spec: &Spec, file: &Path, interpreter: Option<&str>) -> io::Result<Command> {
    let mut command = match interpreter {
        Some(interpreter) => {
            let mut command = Command::new(interpreter);
            command.arg(file);
            command
        }
        None => {
            let mut command = Command::new(file);
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
    if let Some(log) = &spec.log {
        let log = File::options().append(true).open(log)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    }
    Ok(command)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use lockkeeper_core::liveness::LockState;

    use super::*;
    use crate::exec::Next;
    use crate::liveness_lock::LivenessFile;
    use crate::random;

    /// Whatever is started at the same moment has a copy of it until its program begins.
    #[test]
    fn a_life_lock_that_was_given_up_is_held_by_nobody_who_is_about_to_begin() {
        let dir = tempfile::tempdir().unwrap();
        let life = LivenessFile::open(dir.path()).unwrap();
        let spec = Spec {
            program: "/bin/true".into(),
            only_env: true,
            dir: Some("/".into()),
            mode: Mode::Worker,
            ..Spec::default()
        };
        let over = AtomicBool::new(false);
        let start_many = || {
            while !over.load(Ordering::Relaxed) {
                let lock = life.hold(random::holder_id().unwrap()).unwrap();
                let running = start(&spec, Some(&lock)).unwrap();
                assert_eq!(running.supervise(&[], &mut |_| Next::Wait).unwrap().exit_code(), 0);
            }
        };
        thread::scope(|scope| {
            (0..4).for_each(|_| drop(scope.spawn(start_many)));
            for round in 0..500 {
                let holder = random::holder_id().unwrap();
                drop(life.hold(holder).unwrap());
                let seen = between_starts(|| life.look(holder));
                over.store(seen != LockState::Free || round == 499, Ordering::Relaxed);
                assert_eq!(seen, LockState::Free, "in round {round}");
            }
        });
    }
}
