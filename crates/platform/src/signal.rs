//! Signals: received through a self-pipe, raised with their default action, and blocked for a moment.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::{Errno, ioctl_fionbio};
pub use rustix::process::Signal;
use rustix::process::kill_current_process_group;
use signal_hook::SigId;

/// A descriptor that becomes readable when one of the signals arrives (self-pipe).
///
/// Commands that are started meanwhile get the default actions, because exec removes handlers. After the drop the
/// signals are ignored, and do not end the process: a wrapper is about to end at that time.
#[derive(Debug)]
pub struct Signals {
    arrived: OwnedFd,
    registrations: Vec<SigId>,
}

impl Signals {
    /// Starts to receive these signals.
    ///
    /// A signal that this process ignores from its start on, as under `nohup`, stays ignored, here and in commands.
    /// SIGCHLD is received in any case: while it is ignored, the kernel discards the exit status of children.
    pub fn receive(signals: &[Signal]) -> io::Result<Self> {
        let (arrived, announce) = io::pipe()?;
        ioctl_fionbio(&arrived, true)?;
        ioctl_fionbio(&announce, true)?;
        let announce = Arc::new(announce);
        let mut received = Self { arrived: arrived.into(), registrations: Vec::with_capacity(signals.len()) };
        for signal in signals {
            if *signal == Signal::CHILD || !is_ignored(*signal)? {
                received.registrations.push(announce_on(*signal, Arc::clone(&announce))?);
            }
        }
        Ok(received)
    }

    /// Returns the signals that arrived since the last call, in order.
    pub fn take(&self) -> io::Result<Vec<Signal>> {
        let mut taken = Vec::new();
        let mut buffer = [0; 64];
        loop {
            match rustix::io::read(&self.arrived, &mut buffer) {
                Ok(0) | Err(Errno::AGAIN) => return Ok(taken),
                Ok(count) => {
                    taken.extend(
                        buffer[..count].iter().filter_map(|raw| Signal::from_named_raw(i32::from(*raw))),
                    );
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.arrived.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for registration in &self.registrations {
            signal_hook::low_level::unregister(*registration);
        }
    }
}

/// Raises a signal in this process with its default action. Returns if the action does nothing, or the process was
/// stopped and continued.
pub fn raise_default(signal: Signal) -> io::Result<()> {
    // raise(3) delivers the signal to this thread before it returns. The actions of STOP and KILL cannot be changed.
    let changeable = !matches!(signal, Signal::STOP | Signal::KILL);
    let before = changeable.then(|| disposition(signal, Some(&with_handler(libc::SIG_DFL)))).transpose()?;
    let outcome = signal_hook::low_level::raise(signal.as_raw());
    if let Some(before) = before {
        disposition(signal, Some(&before))?;
    }
    outcome
}

/// Sends a signal to the whole process group, with its default action in this process.
pub fn raise_default_in_group(signal: Signal) -> io::Result<()> {
    // The kernel would deliver our own copy to any thread at any time. So it is ignored, and raised afterwards.
    let before = disposition(signal, Some(&with_handler(libc::SIG_IGN)))?;
    let outcome = kill_current_process_group(signal);
    disposition(signal, Some(&before))?;
    outcome?;
    raise_default(signal)
}

/// Runs `action` with SIGTTOU blocked, so that the kernel does not stop a background process that changes the terminal.
pub(super) fn without_ttou<T>(action: impl FnOnce() -> T) -> T {
    let before = change_mask(libc::SIG_BLOCK, &set_of(&[libc::SIGTTOU]));
    let outcome = action();
    change_mask(libc::SIG_SETMASK, &before);
    outcome
}

/// Blocks every signal that can be blocked, in this thread and in those that it starts.
#[expect(unsafe_code, reason = "rustix has no signal sets")]
pub(super) fn block_all() {
    // SAFETY: a set holds integers, and the call only writes to it.
    let all = unsafe {
        let mut set = std::mem::zeroed();
        libc::sigfillset(&raw mut set);
        set
    };
    change_mask(libc::SIG_SETMASK, &all);
}

/// Installs a handler that does nothing, so that the signal interrupts the system call of the thread it is sent to.
pub(super) fn make_interrupting(signal: Signal) -> io::Result<()> {
    extern "C" fn nothing(_signal: c_int) {}
    // Without SA_RESTART the system call returns EINTR.
    let interrupting = with_handler(nothing as extern "C" fn(c_int) as libc::sighandler_t);
    disposition(signal, Some(&interrupting)).map(drop)
}

fn is_ignored(signal: Signal) -> io::Result<bool> {
    Ok(disposition(signal, None)?.sa_sigaction == libc::SIG_IGN)
}

#[expect(unsafe_code, reason = "code in a signal handler has to be async-signal-safe")]
fn announce_on(signal: Signal, announce: Arc<io::PipeWriter>) -> io::Result<SigId> {
    // Signal numbers are below 65.
    let byte = [signal.as_raw() as u8];
    let action = move || {
        // A full pipe wakes the reader too. Only the 65,537th unread signal is lost.
        let _ = rustix::io::write(&*announce, &byte);
    };
    // SAFETY: the action is one write(2), which is async-signal-safe. It does not allocate, lock or panic, and
    // signal-hook saves errno.
    unsafe { signal_hook::low_level::register(signal.as_raw(), action) }
}

#[expect(unsafe_code, reason = "rustix has no safe sigaction")]
fn disposition(signal: Signal, new: Option<&libc::sigaction>) -> io::Result<libc::sigaction> {
    let mut before = with_handler(libc::SIG_DFL);
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: both are null or point to such structures. `new` is the default, an earlier action, or a handler that
    // does nothing.
    let outcome = unsafe { libc::sigaction(signal.as_raw(), new, &raw mut before) };
    if outcome == 0 { Ok(before) } else { Err(io::Error::last_os_error()) }
}

#[expect(unsafe_code, reason = "the structure has system-specific fields, so no literal can be written")]
fn with_handler(handler: libc::sighandler_t) -> libc::sigaction {
    // SAFETY: it holds integers and optional pointers, for which zero is valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action
}

#[expect(unsafe_code, reason = "rustix has no signal sets")]
pub(super) fn set_of(signals: &[c_int]) -> libc::sigset_t {
    // SAFETY: a set holds integers, both calls only write to it, and the signals exist.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
        set
    }
}

#[expect(unsafe_code, reason = "rustix has no signal masks")]
fn change_mask(how: c_int, set: &libc::sigset_t) -> libc::sigset_t {
    let mut before = *set;
    // SAFETY: both point to signal sets. The call cannot fail for these values of `how`.
    unsafe { libc::pthread_sigmask(how, set, &raw mut before) };
    before
}

#[cfg(test)]
mod tests {
    use rustix::process::{getpid, kill_process};

    use super::*;
    use crate::poll;

    #[test]
    fn signals_arrive_in_a_readable_descriptor() {
        let signals = Signals::receive(&[Signal::USR2, Signal::WINCH]).unwrap();
        kill_process(getpid(), Signal::USR2).unwrap();
        assert!(poll::wait(&[signals.as_fd()], None).unwrap().any());
        assert_eq!(signals.take().unwrap(), [Signal::USR2]);
        assert_eq!(signals.take().unwrap(), []);
    }

    #[test]
    fn the_signal_mask_is_restored() {
        let blocked = without_ttou(|| change_mask(libc::SIG_BLOCK, &set_of(&[libc::SIGTTOU])));
        let after = change_mask(libc::SIG_BLOCK, &set_of(&[libc::SIGTTOU]));
        change_mask(libc::SIG_SETMASK, &after);
        assert!(has(&blocked, libc::SIGTTOU));
        assert!(!has(&after, libc::SIGTTOU));
    }

    #[expect(unsafe_code, reason = "rustix has no signal sets")]
    fn has(set: &libc::sigset_t, signal: c_int) -> bool {
        // SAFETY: the set is initialised and only read.
        unsafe { libc::sigismember(set, signal) == 1 }
    }
}
