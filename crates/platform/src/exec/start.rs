//! Command start: spawns a command in a process group of its own.
//!
//! A wrapper starts its one command with std's `Command`. A worker starts many, with [`posix_spawn`](super::posix_spawn)
//! where glibc has what that needs. A new process has copies of all descriptors of this process at first, and so it
//! shares the liveness locks of all commands. [`between_starts`] excludes starts, so it sees only the processes that
//! share a lock for good.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use lockkeeper_core::id::HolderId;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::Pid;

use super::child::ChildSetup;
use super::guardian::{GuardianLine, Note};
use super::job::Job;
use super::program_lookup::{ProgramCache, find_program};
use super::running::Running;
use super::spec::{Mode, Spec, StartError};
use crate::liveness_lock::{LivenessLock, first_inherited};
use crate::process::ChildGuard;
use crate::tree;

/// Held for reading while a command is started, and for writing while somebody looks at liveness locks.
static STARTING: RwLock<()> = RwLock::new(());

/// The liveness lock of each command that was started here and whose end was not seen yet, by pid.
static COMMANDS: Mutex<BTreeMap<u32, HolderId>> = Mutex::new(BTreeMap::new());

/// Says whether a process is a command that was started here with another liveness lock than this one. Such a process
/// may share this lock too, but only until its exec.
pub fn is_command_of_another(pid: u32, holder: HolderId) -> bool {
    let commands = COMMANDS.lock().unwrap_or_else(PoisonError::into_inner);
    commands.get(&pid).is_some_and(|own| *own != holder)
}

/// Starts a process with a copy of all descriptors, so that [`between_starts`] waits for it.
pub(super) fn starting<T>(start: impl FnOnce() -> T) -> T {
    let _starting = STARTING.read().unwrap_or_else(PoisonError::into_inner);
    start()
}

/// Calls `look` while no command is being started: a process that shares a liveness lock then shares it for good.
pub fn between_starts<T>(look: impl FnOnce() -> T) -> T {
    let _no_starts = STARTING.write().unwrap_or_else(PoisonError::into_inner);
    look()
}

/// The entry of a command in [`COMMANDS`], until it is dropped.
#[derive(Debug)]
pub(super) struct CommandEntry {
    pid: Option<u32>,
}

impl CommandEntry {
    fn new(pid: Pid, life: Option<&LivenessLock>) -> Self {
        let number = pid.as_raw_nonzero().get().cast_unsigned();
        let pid = life.map(|life| {
            COMMANDS.lock().unwrap_or_else(PoisonError::into_inner).insert(number, life.holder());
            number
        });
        Self { pid }
    }
}

impl Drop for CommandEntry {
    fn drop(&mut self) {
        if let Some(pid) = self.pid {
            COMMANDS.lock().unwrap_or_else(PoisonError::into_inner).remove(&pid);
        }
    }
}

/// A guardian that starts a command, and what it writes about it.
pub type Via<'v> = (&'v Arc<GuardianLine>, &'v Note);

/// A command that was started.
struct Started {
    pid: Pid,
    guard: ChildGuard,
    entry: CommandEntry,
    /// The guardian that is its parent; none for a child of this process.
    line: Option<Arc<GuardianLine>>,
}

/// Starts a command in a process group of its own. With `life`, the command and its descendants share that lock.
pub fn start(spec: &Spec, life: Option<&LivenessLock>) -> Result<Running, StartError> {
    start_file(spec, life, find_program(spec), None)
}

/// Like [`start`], for one of many commands of a worker: looks for the program where it was found a moment ago, and lets
/// the guardian start it if there is one.
pub fn start_cached(
    spec: &Spec,
    life: Option<&LivenessLock>,
    programs: &mut ProgramCache,
    via: Option<Via<'_>>,
) -> Result<Running, StartError> {
    let started = programs.get(spec).map(|file| start_file(spec, life, Ok(file.into()), via));
    match started {
        Some(Err(StartError::NotFound { .. })) | None => {
            let file = find_program(spec);
            programs.set(spec, file.as_deref().ok());
            start_file(spec, life, file, via)
        }
        Some(started) => started,
    }
}

fn start_file(
    spec: &Spec,
    life: Option<&LivenessLock>,
    file: io::Result<Cow<'_, Path>>,
    via: Option<Via<'_>>,
) -> Result<Running, StartError> {
    let failed = |source| StartError::new(spec.program.clone(), source);
    let job = match spec.mode {
        Mode::Wrapper => {
            let other = |source| StartError::Other { program: spec.program.clone(), source };
            tree::become_subreaper().map_err(other)?;
            // Signals are received before the command exists, so that none is lost in between.
            Some(Job::prepare().map_err(other)?)
        }
        Mode::Worker => None,
    };
    let started = file.and_then(|file| match spawn(spec, &file, None, life, job.as_ref(), via) {
        // A script without `#!`: like a shell and execvp(3), run it with sh.
        Err(error) if error.raw_os_error() == Some(libc::ENOEXEC) => {
            spawn(spec, &file, Some("/bin/sh"), life, job.as_ref(), via)
        }
        outcome => outcome,
    });
    match started {
        Ok(Started { pid, guard, entry, line }) => Ok(Running::new(pid, guard, entry, line, job)),
        Err(source) => {
            if let Some(job) = &job {
                job.not_started();
            }
            Err(failed(source))
        }
    }
}

fn spawn(
    spec: &Spec,
    file: &Path,
    interpreter: Option<&str>,
    life: Option<&LivenessLock>,
    job: Option<&Job>,
    via: Option<Via<'_>>,
) -> io::Result<Started> {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    if spec.mode == Mode::Worker && spec.only_env {
        return spawn_without_fork(spec, file, interpreter, life, via);
    }
    // Only `spawn_without_fork` can use a guardian.
    let _ = via;
    let mut command = command(spec, file, interpreter);
    let mut setup = ChildSetup::default();
    inherited(spec, life).into_iter().for_each(|descriptor| setup.inherit(descriptor));
    if let Some(log) = &spec.log {
        command.stdin(Stdio::null());
        setup.append_to(log)?;
    }
    setup.add_to(&mut command);
    job.map_or(Ok(()), |job| job.prepare_command(&mut command))?;
    let _starting = STARTING.read().unwrap_or_else(PoisonError::into_inner);
    let (child, guard) = ChildGuard::start(|| command.spawn(), Child::id)?;
    let pid = Pid::from_child(&child);
    Ok(Started { pid, guard, entry: CommandEntry::new(pid, life), line: None })
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn spawn_without_fork(
    spec: &Spec,
    file: &Path,
    interpreter: Option<&str>,
    life: Option<&LivenessLock>,
    via: Option<Via<'_>>,
) -> io::Result<Started> {
    use std::ffi::{OsStr, OsString};

    use super::guardian::StartedBy;
    use super::posix_spawn::{self, Image};

    let mut args = match interpreter {
        Some(interpreter) => vec![OsStr::new(interpreter), file.as_os_str()],
        None => vec![spec.program.as_os_str()],
    };
    args.extend(spec.args.iter().map(OsString::as_os_str));
    let (dir, log) = (spec.dir.as_deref(), spec.log.as_deref());
    let image = Image::new(interpreter.map_or(file, Path::new), &args, &spec.env, dir, log)?;
    let number = |pid: &Pid| pid.as_raw_nonzero().get().cast_unsigned();
    let mut inherited = inherited(spec, life);
    let _starting = STARTING.read().unwrap_or_else(PoisonError::into_inner);
    // Without these a command would have the folder and the standard input of the guardian.
    if let Some((line, note)) = via.filter(|_| dir.is_some() && log.is_some()) {
        let descriptors: Vec<_> = inherited.iter().map(|(descriptor, _)| *descriptor).collect();
        let (pid, line) = match line.start(&image, note, &descriptors)? {
            StartedBy::Guardian(pid) => (Some(pid), Some(Arc::clone(line))),
            StartedBy::GoneGuardian(pid) => (Some(pid), None),
            StartedBy::Nobody => (None, None),
        };
        if let Some(pid) = pid {
            let guard = ChildGuard::of(number(&pid));
            return Ok(Started { pid, guard, entry: CommandEntry::new(pid, life), line });
        }
    }
    // It must not have a number to which `posix_spawn` moves the liveness lock.
    let moved =
        spec.inherit.as_ref().map(|other| fcntl_dupfd_cloexec(other, posix_spawn::LOWEST)).transpose()?;
    if let (Some(moved), Some(last)) = (&moved, inherited.last_mut()) {
        last.0 = moved.as_fd();
    }
    let (pid, guard) = ChildGuard::start(|| posix_spawn::spawn(&image, &inherited), number)?;
    Ok(Started { pid, guard, entry: CommandEntry::new(pid, life), line: None })
}

/// What a command inherits, and with which numbers: the liveness lock, then the descriptor of the specification.
fn inherited<'d>(spec: &'d Spec, life: Option<&'d LivenessLock>) -> Vec<(BorrowedFd<'d>, i32)> {
    let life = life.map(|life| life.for_child().0);
    life.into_iter().chain(spec.inherit.as_ref().map(AsFd::as_fd)).zip(first_inherited()..).collect()
}

fn command(spec: &Spec, file: &Path, interpreter: Option<&str>) -> Command {
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
    command
}

#[cfg(test)]
mod tests;
