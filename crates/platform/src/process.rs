//! Who a process is, and whether it still lives.
//!
//! A number alone proves nothing, since it is given again: a process is its number and its start time. Only the
//! kernel's "no such process", or an end that it reports, is death; whatever cannot be read stays unknown. Linux
//! answers through pidfds, which cannot be fooled by a number that is given again in between. Elsewhere, and where
//! a sandbox forbids them, the process table is read; on Unixes other than Linux and macOS start times are unknown
//! and all zero, so that a reused number goes unnoticed there.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockkeeper_core::liveness::{ProcessRef, ProcessState};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use thiserror::Error;

use super::facts::{self, Facts, State};
use super::pidfd::{self, Opened};

/// The largest number that Linux gives to a process.
pub const MAX_PID: u32 = 1 << 22;

/// How often, a millisecond apart, a process is asked for its end that has ended and not yet said how.
const STATUS_LOOKS: u32 = 100;

/// Why a number does not name a process.
#[derive(Debug, Error)]
pub enum IdentifyError {
    /// No process has such a number, on any machine.
    #[error("{0} is not the number of a process")]
    OutOfRange(u32),
    /// There is none now, or it has ended.
    #[error("no process {0} is running")]
    NotRunning(u32),
    /// It is one thread of a process: it can end while the process goes on.
    #[error("{0} is a thread, not a process")]
    Thread(u32),
    /// The system does not show it.
    #[error("cannot look at process {pid}")]
    Unreadable {
        /// Its number.
        pid: u32,
        /// What the system said.
        source: io::Error,
    },
}

/// How the end of a process can be waited for.
#[derive(Debug)]
pub enum Watch {
    /// Becomes readable when the process ends; it can refer to no other process.
    Exit(Arc<OwnedFd>),
    /// It has ended already.
    Gone,
    /// Not here: look again now and then.
    Unavailable,
}

/// Tells who this process is.
pub fn current() -> io::Result<ProcessRef> {
    facts::own().map(|facts| reference(&facts))
}

/// Finds out which process has this number now.
pub fn identify(pid: u32) -> Result<ProcessRef, IdentifyError> {
    let number = checked(pid).ok_or(IdentifyError::OutOfRange(pid))?;
    let unreadable = |source| IdentifyError::Unreadable { pid, source };
    let handle = match pidfd::open(number) {
        Opened::Handle(handle) => Some(handle),
        Opened::Gone => return Err(IdentifyError::NotRunning(pid)),
        Opened::Thread => return Err(IdentifyError::Thread(pid)),
        Opened::Unsupported if facts::is_thread(pid) => return Err(IdentifyError::Thread(pid)),
        Opened::Unsupported => None,
    };
    facts::own().map_err(unreadable)?;
    let facts = match facts::of(pid) {
        Ok(facts) => facts,
        Err(error) if error.kind() == io::ErrorKind::NotFound && !exists(number) => {
            return Err(IdentifyError::NotRunning(pid));
        }
        Err(error) => return Err(unreadable(error)),
    };
    let ended = match handle {
        Some(handle) => pidfd::has_ended(handle).map_err(unreadable)?,
        None => facts.state == State::Zombie,
    };
    if ended { Err(IdentifyError::NotRunning(pid)) } else { Ok(reference(&facts)) }
}

/// Looks whether the process still lives, without disturbing it.
pub fn look(process: ProcessRef) -> ProcessState {
    let Some(number) = checked(process.pid) else { return ProcessState::Unreadable };
    match pidfd::open(number) {
        Opened::Handle(handle) => match pidfd::has_ended(&handle) {
            Ok(true) => ProcessState::Gone,
            Ok(false) => match is_same(process) {
                Ok(true) => ProcessState::Running,
                Ok(false) => ProcessState::Reused,
                // It may have ended since; if not, the process table is hidden.
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

/// Whether any process has this number now, for formats that record nothing else. A number that was given again
/// goes unnoticed. No signal is sent; a zombie, a thread and a number of no process do not count.
pub fn is_running(pid: u32) -> io::Result<bool> {
    let Some(number) = checked(pid) else { return Ok(false) };
    match pidfd::open(number) {
        Opened::Handle(handle) => pidfd::has_ended(handle).map(|ended| !ended),
        Opened::Gone | Opened::Thread => Ok(false),
        Opened::Unsupported => match facts::of(pid) {
            Ok(facts) => Ok(facts.state != State::Zombie && !facts::is_thread(pid)),
            Err(_) => Ok(exists(number)),
        },
    }
}

/// How long ago the process started; `None` when the system does not tell.
pub fn age(process: ProcessRef) -> Option<Duration> {
    #[cfg(target_os = "linux")]
    {
        let ticks = rustix::param::clock_ticks_per_second();
        let started = Duration::from_millis(process.started.checked_mul(1_000)?.checked_div(ticks)?);
        // Start times count from boot, as this clock does.
        let now = Duration::from_micros(u64::try_from(super::clock::now().as_micros()).ok()?);
        now.checked_sub(started)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = process;
        None
    }
}

/// Gives a descriptor to wait for the end of the process with, verified after it was opened.
pub fn watch(process: ProcessRef) -> Watch {
    let Some(number) = checked(process.pid) else { return Watch::Unavailable };
    match pidfd::open(number) {
        // A zombie has ended, although its number is not free yet: to wait for it would be no wait.
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

/// Makes this process the leader of a new session, so that no terminal ends it any more.
pub fn leave_session() -> io::Result<()> {
    rustix::process::setsid()?;
    Ok(())
}

/// Tells who a child is that was not yet waited for, so that its number cannot have been given again.
pub fn of_child(pid: Pid) -> io::Result<ProcessRef> {
    facts::of(pid.as_raw_nonzero().get().cast_unsigned()).map(|facts| reference(&facts))
}

/// Gives a descriptor that becomes readable when such a child ends, where there are such descriptors.
pub fn watch_child(pid: Pid) -> Option<OwnedFd> {
    match pidfd::open(pid) {
        Opened::Handle(handle) => Some(handle),
        Opened::Gone | Opened::Thread | Opened::Unsupported => None,
    }
}

/// How a process ended that was watched through this descriptor, in the form of `wait(2)`, where the system tells it
/// to others than the parent. None while it lives.
pub fn exit_status(watched: &OwnedFd, process: ProcessRef) -> Option<i32> {
    if !pidfd::has_ended(watched).ok()? {
        return None;
    }
    for _ in 0..STATUS_LOOKS {
        // A zombie shows it to everybody of its user; once it was waited for, the handle does.
        let status = pidfd::exit_status(watched).or_else(|| facts::zombie_status(process));
        if status.is_some() || !is_same(process).unwrap_or(false) {
            return status.or_else(|| pidfd::exit_status(watched));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    None
}

/// Children whose end somebody waits for.
static OWN: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// Starts of children that [`reap_orphans`] must leave to whoever started them.
#[derive(Debug)]
pub struct Own {
    /// None for a child of another thread than the first one, which nobody takes for an orphan.
    pid: Option<u32>,
}

impl Own {
    /// Starts a child that is somebody's own. No orphan is reaped between its start and the note of it.
    ///
    /// On other threads than the first one nothing is noted: many start at once there, and none waits for another.
    pub fn start<C>(
        start: impl FnOnce() -> io::Result<C>,
        pid: impl FnOnce(&C) -> u32,
    ) -> io::Result<(C, Self)> {
        if !is_first_thread() {
            return start().map(|child| (child, Self { pid: None }));
        }
        let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
        let child = start()?;
        let pid = pid(&child);
        own.insert(pid);
        Ok((child, Self { pid: Some(pid) }))
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(pid) = self.pid {
            OWN.lock().unwrap_or_else(PoisonError::into_inner).remove(&pid);
        }
    }
}

/// Whether this is the thread whose children orphans become. Elsewhere than on Linux none are taken in.
fn is_first_thread() -> bool {
    #[cfg(target_os = "linux")]
    return rustix::thread::gettid() == rustix::process::getpid();
    #[cfg(not(target_os = "linux"))]
    false
}

/// Waits for those children that this process took in from others and that have ended, so that they do not stay as
/// zombies. Returns those that still live. [`Own`] children are not touched, nor any that were started on other threads
/// than the first one.
pub fn reap_orphans() -> Vec<u32> {
    let own = std::process::id();
    let path = format!("/proc/{own}/task/{own}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let numbers = text.split_ascii_whitespace().filter_map(|number| number.parse().ok());
    let mut alive = Vec::new();
    // After the look: whatever of our own is in the list was noted by now, or is about to be.
    let started = OWN.lock().unwrap_or_else(PoisonError::into_inner);
    for number in numbers.filter(|number| !started.contains(number)) {
        let Some(pid) = checked(number) else { continue };
        if let Ok(None) = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::NOHANG) {
            alive.push(number);
        }
    }
    alive
}

/// Whether a process was started here and its program has not begun yet: until then it is this program, with everything
/// open that this process had open.
pub fn is_about_to_begin(pid: u32) -> bool {
    let called =
        |who: &str| std::fs::read(format!("/proc/{who}/cmdline")).ok().filter(|text| !text.is_empty());
    called(&pid.to_string()).is_some_and(|text| called("self").as_ref() == Some(&text))
}

pub(super) fn reference(facts: &Facts) -> ProcessRef {
    ProcessRef { pid: facts.pid, started: facts.started }
}

/// Only numbers of single processes: zero and negative ones mean whole groups to `kill`.
pub(super) fn checked(pid: u32) -> Option<Pid> {
    if pid > MAX_PID { None } else { Pid::from_raw(i32::try_from(pid).ok()?) }
}

fn look_in_table(process: ProcessRef, number: Pid) -> ProcessState {
    match facts::of(process.pid) {
        Ok(facts) if facts.started != process.started && table_is_ours() => ProcessState::Reused,
        Ok(facts) if facts.started != process.started => ProcessState::Unreadable,
        Ok(facts) if facts.state == State::Zombie => ProcessState::Gone,
        Ok(_) => ProcessState::Running,
        // A hidden process is not in the table either.
        Err(_) if exists(number) => ProcessState::Unreadable,
        Err(_) => ProcessState::Gone,
    }
}

fn is_same(process: ProcessRef) -> io::Result<bool> {
    let same = facts::of(process.pid)?.started == process.started;
    if same || table_is_ours() { Ok(same) } else { Err(io::ErrorKind::Unsupported.into()) }
}

/// Whether the process table counts as we do: `/proc` may have been mounted in another pid namespace.
fn table_is_ours() -> bool {
    facts::own().is_ok()
}

fn exists(number: Pid) -> bool {
    test_kill_process(number) != Err(Errno::SRCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll;
    use std::os::fd::AsFd;
    use std::process::{Child, Command};

    fn sleeper() -> Child {
        Command::new("sleep").arg("600").spawn().unwrap()
    }

    #[test]
    fn this_process_runs_and_knows_itself() {
        let own = current().unwrap();
        assert_eq!(own.pid, std::process::id());
        assert_eq!(identify(own.pid).unwrap(), own);
        assert_eq!(look(own), ProcessState::Running);
    }

    #[test]
    fn numbers_of_no_process_are_refused() {
        for pid in [0, MAX_PID + 1, u32::MAX, (-1_i32) as u32] {
            assert!(matches!(identify(pid), Err(IdentifyError::OutOfRange(_))), "{pid}");
            assert_eq!(look(ProcessRef { pid, started: 1 }), ProcessState::Unreadable);
        }
    }

    /// Requirement 20.
    #[test]
    fn a_bare_number_is_looked_at_without_a_signal() {
        let mut child = sleeper();
        assert!(is_running(child.id()).unwrap() && is_running(1).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        for pid in [child.id(), 0, MAX_PID + 1, u32::MAX] {
            assert!(!is_running(pid).unwrap(), "{pid}");
        }
    }

    #[test]
    fn init_is_alive_although_it_cannot_be_signalled() {
        assert_eq!(look(identify(1).unwrap()), ProcessState::Running);
    }

    #[test]
    fn a_zombie_is_gone_and_so_is_a_reaped_process() {
        let mut child = sleeper();
        let process = identify(child.id()).unwrap();
        let Watch::Exit(end) = watch(process) else { panic!("no watch") };
        assert_eq!(look(process), ProcessState::Running);
        child.kill().unwrap();
        assert!(poll::wait(&[end.as_fd()], None).unwrap().any());
        assert_eq!(look(process), ProcessState::Gone);
        assert!(matches!(watch(process), Watch::Gone), "a zombie is nothing to wait for");
        assert!(matches!(identify(process.pid), Err(IdentifyError::NotRunning(_))));
        assert_eq!(look_in_table(process, checked(process.pid).unwrap()), ProcessState::Gone);
        child.wait().unwrap();
        assert_eq!(look(process), ProcessState::Gone);
        assert!(matches!(watch(process), Watch::Gone));
        assert_eq!(look_in_table(process, checked(process.pid).unwrap()), ProcessState::Gone);
    }

    #[test]
    fn a_stopped_process_is_alive() {
        let mut child = sleeper();
        let process = identify(child.id()).unwrap();
        let number = checked(process.pid).unwrap();
        rustix::process::kill_process(number, rustix::process::Signal::STOP).unwrap();
        rustix::process::waitpid(Some(number), rustix::process::WaitOptions::UNTRACED).unwrap();
        assert_eq!(look(process), ProcessState::Running);
        assert_eq!(look_in_table(process, number), ProcessState::Running);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn another_start_time_is_another_process() {
        let own = current().unwrap();
        let earlier = ProcessRef { started: own.started - 1, ..own };
        assert_eq!(look(earlier), ProcessState::Reused);
        assert_eq!(look_in_table(earlier, checked(own.pid).unwrap()), ProcessState::Reused);
        assert!(matches!(watch(earlier), Watch::Gone));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_thread_is_not_a_process() {
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let (thread_ids, thread_id) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            thread_ids.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            receiver.recv().unwrap();
        });
        let pid = u32::try_from(thread_id.recv().unwrap()).unwrap();
        assert!(matches!(identify(pid), Err(IdentifyError::Thread(_))));
        assert!(facts::is_thread(pid) && !facts::is_thread(std::process::id()));
        assert_eq!(look(ProcessRef { pid, started: 1 }), ProcessState::Reused);
        sender.send(()).unwrap();
        thread.join().unwrap();
    }
}
