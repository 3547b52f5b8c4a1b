//! Process identity and liveness.
//!
//! The kernel reuses pids, so a process is identified by its pid and its start time. A process is dead only if the
//! kernel says "no such process" or reports its end. Whatever cannot be read is unknown. Linux answers through pidfds,
//! which stay valid when a pid is reused. Other systems, and sandboxes without pidfds, use the process table. On Unixes
//! other than Linux and macOS all start times are 0, so a reused pid is not noticed there.

mod orphans;

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_core::liveness::{ProcessRef, ProcessState};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use thiserror::Error;

pub use self::orphans::{ChildGuard, reap_orphans};
use super::pidfd::{self, Opened};
use super::process_table::{self, ProcessInfo, TaskState};

/// The largest pid of Linux.
pub const MAX_PID: u32 = 1 << 22;

/// How many times, one millisecond apart, the exit status of an ended process is read before giving up.
const STATUS_LOOKS: u32 = 100;

/// Why a number does not identify a process.
#[derive(Debug, Error)]
pub enum IdentifyError {
    /// The number is outside the range of pids.
    #[error("{0} is not the number of a process")]
    OutOfRange(u32),
    /// No process has this pid, or it has ended.
    #[error("no process {0} is running")]
    NotRunning(u32),
    /// The number belongs to a thread, which can end while its process goes on.
    #[error("{0} is a thread, not a process")]
    Thread(u32),
    /// The system does not show the process.
    #[error("cannot look at process {pid}")]
    Unreadable {
        /// Its pid.
        pid: u32,
        /// The error of the system.
        source: io::Error,
    },
}

/// How to wait for the end of a process.
#[derive(Debug)]
pub enum Watch {
    /// A descriptor that is readable when the process ends.
    Exit(Arc<OwnedFd>),
    /// The process has ended already.
    Gone,
    /// There is no descriptor here: the caller polls.
    Unavailable,
}

/// Returns the identity of this process.
pub fn current() -> io::Result<ProcessRef> {
    process_table::own_info().map(|info| reference(&info))
}

/// Returns the effective user of this process.
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns the identities of this process and of all its ancestors that the system shows.
pub fn with_ancestors() -> io::Result<Vec<ProcessRef>> {
    let mut info = process_table::own_info()?;
    let mut found = vec![reference(&info)];
    while info.parent != 0 && found.iter().all(|known| known.pid != info.parent) {
        let Ok(parent) = process_table::info(info.parent) else { break };
        info = parent;
        found.push(reference(&info));
    }
    Ok(found)
}

/// Returns the identity of the process that has this pid now.
pub fn identify(pid: u32) -> Result<ProcessRef, IdentifyError> {
    let number = checked(pid).ok_or(IdentifyError::OutOfRange(pid))?;
    let unreadable = |source| IdentifyError::Unreadable { pid, source };
    let handle = match pidfd::open(number) {
        Opened::Handle(handle) => Some(handle),
        Opened::Gone => return Err(IdentifyError::NotRunning(pid)),
        Opened::Thread => return Err(IdentifyError::Thread(pid)),
        Opened::Unsupported if process_table::is_thread(pid) => return Err(IdentifyError::Thread(pid)),
        Opened::Unsupported => None,
    };
    process_table::own_info().map_err(unreadable)?;
    let info = match process_table::info(pid) {
        Ok(info) => info,
        Err(error) if error.kind() == io::ErrorKind::NotFound && !exists(number) => {
            return Err(IdentifyError::NotRunning(pid));
        }
        Err(error) => return Err(unreadable(error)),
    };
    let ended = match handle {
        Some(handle) => pidfd::has_ended(handle).map_err(unreadable)?,
        None => info.state == TaskState::Zombie,
    };
    if ended { Err(IdentifyError::NotRunning(pid)) } else { Ok(reference(&info)) }
}

/// Says whether a signal has stopped the process (SIGSTOP, Ctrl-Z): it does nothing until it is continued.
pub fn is_stopped(process: ProcessRef) -> bool {
    process_table::info(process.pid)
        .is_ok_and(|info| info.state == TaskState::Stopped && reference(&info) == process)
}

/// The user of a live process that this process may not signal. None if it may, or if the process is gone. Only Linux shows it.
pub fn foreign_user(process: ProcessRef) -> Option<u32> {
    let number = checked(process.pid)?;
    let user = process_table::user(process.pid)?;
    (test_kill_process(number) == Err(Errno::PERM) && is_same(process).unwrap_or(false)).then_some(user)
}

/// Whether a process executes the same program file as this one. False if that cannot be seen. Only Linux shows it.
pub fn has_own_program(process: ProcessRef) -> bool {
    let program =
        |of: &str| std::fs::metadata(format!("/proc/{of}/exe")).map(|file| (file.dev(), file.ino()));
    matches!((program("self"), program(&process.pid.to_string())), (Ok(own), Ok(other)) if own == other)
}

/// Checks whether the process still lives. Sends no signal.
pub fn look(process: ProcessRef) -> ProcessState {
    let Some(number) = checked(process.pid) else { return ProcessState::Unreadable };
    match pidfd::open(number) {
        Opened::Handle(handle) => match pidfd::has_ended(&handle) {
            Ok(true) => ProcessState::Gone,
            Ok(false) => match is_same(process) {
                Ok(true) => ProcessState::Running,
                Ok(false) => ProcessState::Reused,
                // The process may have ended meanwhile. If not, the process table is hidden.
                Err(_) if pidfd::has_ended(&handle).unwrap_or(false) => ProcessState::Gone,
                Err(_) => ProcessState::Unreadable,
            },
            Err(_) => ProcessState::Unreadable,
        },
        Opened::Gone => ProcessState::Gone,
        Opened::Thread => ProcessState::Reused,
        Opened::Unsupported => look_in_table(process, number),
    }
}

/// Says whether any process has this pid now, for formats that record only a pid. A reused pid is not noticed. Sends no
/// signal. A zombie and a thread do not count.
pub fn is_running(pid: u32) -> io::Result<bool> {
    let Some(number) = checked(pid) else { return Ok(false) };
    match pidfd::open(number) {
        Opened::Handle(handle) => pidfd::has_ended(handle).map(|ended| !ended),
        Opened::Gone | Opened::Thread => Ok(false),
        Opened::Unsupported => match process_table::info(pid) {
            Ok(info) => Ok(info.state != TaskState::Zombie && !process_table::is_thread(pid)),
            Err(_) => Ok(exists(number)),
        },
    }
}

/// Returns how long ago the process started; `None` when the system does not say.
pub fn age(process: ProcessRef) -> Option<Duration> {
    #[cfg(target_os = "linux")]
    {
        let ticks = rustix::param::clock_ticks_per_second();
        let started = Duration::from_millis(process.started.checked_mul(1_000)?.checked_div(ticks)?);
        // Start times and this clock both count from the boot.
        let now = Duration::from_micros(u64::try_from(super::clock::now().as_micros()).ok()?);
        now.checked_sub(started)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = process;
        None
    }
}

/// Opens a descriptor to wait for the end of the process, and verifies that it refers to this process.
pub fn watch(process: ProcessRef) -> Watch {
    let Some(number) = checked(process.pid) else { return Watch::Unavailable };
    match pidfd::open(number) {
        // A zombie has ended, although its pid is not free yet.
        Opened::Handle(handle) if pidfd::has_ended(&handle).unwrap_or(false) => Watch::Gone,
        Opened::Handle(handle) => match is_same(process) {
            Ok(true) => Watch::Exit(Arc::new(handle)),
            Ok(false) => Watch::Gone,
            Err(_) if pidfd::has_ended(&handle).unwrap_or(false) => Watch::Gone,
            Err(_) => Watch::Unavailable,
        },
        Opened::Gone | Opened::Thread => Watch::Gone,
        Opened::Unsupported => match look_in_table(process, number) {
            ProcessState::Gone | ProcessState::Reused => Watch::Gone,
            ProcessState::Running | ProcessState::Unreadable => Watch::Unavailable,
        },
    }
}

/// Makes this process the leader of a new session (`setsid(2)`), so that closing a terminal does not end it.
pub fn start_session() -> io::Result<()> {
    rustix::process::setsid()?;
    Ok(())
}

/// Returns the identity of a child. The caller has not reaped it yet, so its pid cannot have been reused.
pub fn of_child(pid: Pid) -> io::Result<ProcessRef> {
    process_table::info(pid.as_raw_nonzero().get().cast_unsigned()).map(|info| reference(&info))
}

/// Opens a descriptor that is readable when such a child ends, where the system has such descriptors.
pub fn watch_child(pid: Pid) -> Option<OwnedFd> {
    match pidfd::open(pid) {
        Opened::Handle(handle) => Some(handle),
        Opened::Gone | Opened::Thread | Opened::Unsupported => None,
    }
}

/// Says whether the process behind this descriptor has ended.
pub(super) fn has_ended(watched: &OwnedFd) -> bool {
    pidfd::has_ended(watched).unwrap_or(false)
}

/// Returns the `wait(2)` status of the process behind this descriptor, where the system shows it to other processes
/// than the parent. Returns `None` while the process lives.
pub fn exit_status(watched: &OwnedFd, process: ProcessRef) -> Option<i32> {
    if !pidfd::has_ended(watched).ok()? {
        return None;
    }
    for _ in 0..STATUS_LOOKS {
        // The status of a zombie is in /proc for its own user. After the parent has reaped it, the pidfd has it.
        let status = pidfd::exit_status(watched).or_else(|| process_table::zombie_status(process));
        if status.is_some() || !is_same(process).unwrap_or(false) {
            return status.or_else(|| pidfd::exit_status(watched));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    None
}

/// Says whether a process looks like a child of this one before its exec: it has the same command line. Until exec such
/// a child has all descriptors of this process.
pub fn is_before_exec(pid: u32) -> bool {
    let command_line =
        |who: &str| std::fs::read(format!("/proc/{who}/cmdline")).ok().filter(|text| !text.is_empty());
    command_line(&pid.to_string()).is_some_and(|text| command_line("self").as_ref() == Some(&text))
}

pub(super) fn reference(info: &ProcessInfo) -> ProcessRef {
    ProcessRef { pid: info.pid, started: info.started }
}

/// Returns the pid if it is that of a single process: 0 and negative numbers mean groups in `kill(2)`.
pub(super) fn checked(pid: u32) -> Option<Pid> {
    if pid > MAX_PID { None } else { Pid::from_raw(i32::try_from(pid).ok()?) }
}

fn look_in_table(process: ProcessRef, number: Pid) -> ProcessState {
    match process_table::info(process.pid) {
        Ok(info) if info.started != process.started && table_is_ours() => ProcessState::Reused,
        Ok(info) if info.started != process.started => ProcessState::Unreadable,
        Ok(info) if info.state == TaskState::Zombie => ProcessState::Gone,
        Ok(_) => ProcessState::Running,
        // A hidden process is not in the table either, but it exists.
        Err(_) if exists(number) => ProcessState::Unreadable,
        Err(_) => ProcessState::Gone,
    }
}

fn is_same(process: ProcessRef) -> io::Result<bool> {
    let same = process_table::info(process.pid)?.started == process.started;
    if same || table_is_ours() { Ok(same) } else { Err(io::ErrorKind::Unsupported.into()) }
}

/// Says whether the process table shows our own pid namespace: `/proc` may belong to another one.
fn table_is_ours() -> bool {
    process_table::own_info().is_ok()
}

fn exists(number: Pid) -> bool {
    test_kill_process(number) != Err(Errno::SRCH)
}

#[cfg(test)]
mod tests;
