//! Receiving signals as readable events, and what a wrapper has to do to its own dispositions.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::{Errno, ioctl_fionbio};
pub use rustix::process::Signal;
use rustix::process::kill_current_process_group;
use signal_hook::SigId;

/// A descriptor that becomes readable when one of the signals arrives.
///
/// Commands that are started meanwhile get the default dispositions, since handlers do not survive `exec`. After the
/// drop the signals are swallowed instead of ending the process: by then a wrapper is about to end anyway.
#[derive(Debug)]
pub struct Signals {
    arrived: OwnedFd,
    registrations: Vec<SigId>,
}

impl Signals {
    /// Begins to receive these signals.
    ///
    /// Those that this process was started to ignore, as `nohup` does, stay ignored, here and in commands. Only
    /// SIGCHLD is received in any case: while it is ignored, the kernel throws away how children ended.
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

    /// Takes the signals that arrived since the last call, in order.
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

/// Sends a signal to this process with its default effect; returns when it had none or the process was continued.
pub fn suffer(signal: Signal) -> io::Result<()> {
    // Raised in this thread, it takes effect before the call returns. Nobody can change how STOP and KILL work.
    let changeable = !matches!(signal, Signal::STOP | Signal::KILL);
    let before = changeable.then(|| disposition(signal, Some(&with_handler(libc::SIG_DFL)))).transpose()?;
    let outcome = signal_hook::low_level::raise(signal.as_raw());
    if let Some(before) = before {
        disposition(signal, Some(&before))?;
    }
    outcome
}

/// Sends a signal to all of this process's group, with its default effect on this process.
pub fn suffer_with_group(signal: Signal) -> io::Result<()> {
    // The others first; ours would come at some time in some thread, so it is thrown away and raised afterwards.
    let before = disposition(signal, Some(&with_handler(libc::SIG_IGN)))?;
    let outcome = kill_current_process_group(signal);
    disposition(signal, Some(&before))?;
    outcome?;
    suffer(signal)
}

/// Does something while the calling thread cannot be stopped for changing a terminal from the background.
pub(super) fn without_ttou<T>(action: impl FnOnce() -> T) -> T {
    let before = change_mask(libc::SIG_BLOCK, &only(libc::SIGTTOU));
    let outcome = action();
    change_mask(libc::SIG_SETMASK, &before);
    outcome
}

/// Does something while no signal is delivered to the calling thread.
#[cfg(target_os = "linux")]
pub(super) fn undisturbed<T>(action: impl FnOnce() -> T) -> T {
    let before = change_mask(libc::SIG_SETMASK, &all());
    let outcome = action();
    change_mask(libc::SIG_SETMASK, &before);
    outcome
}

/// Makes signals what they are to a program that begins: none is blocked, none has a handler, and SIGPIPE ends it. What
/// is ignored stays so. For a new process that has its parent's memory: it only makes system calls.
#[cfg(target_os = "linux")]
pub(super) fn begin_anew() -> io::Result<()> {
    // A handler would run in the memory of the parent. These are all that anybody has one for; those for faults of the
    // program itself never run here.
    let handled = [
        Signal::HUP,
        Signal::INT,
        Signal::QUIT,
        Signal::TERM,
        Signal::CHILD,
        Signal::USR1,
        Signal::USR2,
        Signal::ALARM,
        Signal::CONT,
        Signal::TSTP,
        Signal::TTIN,
        Signal::TTOU,
        Signal::URG,
        Signal::WINCH,
    ];
    let default = with_handler(libc::SIG_DFL);
    for signal in handled {
        if !matches!(disposition(signal, None)?.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) {
            disposition(signal, Some(&default))?;
        }
    }
    disposition(Signal::PIPE, Some(&default))?;
    change_mask(libc::SIG_SETMASK, &none());
    Ok(())
}

/// Lets a signal interrupt the system call of the thread that it is sent to, and do nothing else.
pub(super) fn make_interrupting(signal: Signal) -> io::Result<()> {
    extern "C" fn nothing(_signal: c_int) {}
    // Without SA_RESTART, which is the point.
    let interrupting = with_handler(nothing as extern "C" fn(c_int) as libc::sighandler_t);
    disposition(signal, Some(&interrupting)).map(drop)
}

fn is_ignored(signal: Signal) -> io::Result<bool> {
    Ok(disposition(signal, None)?.sa_sigaction == libc::SIG_IGN)
}

#[expect(unsafe_code, reason = "what runs in a signal handler has to be async-signal-safe")]
fn announce_on(signal: Signal, announce: Arc<io::PipeWriter>) -> io::Result<SigId> {
    // Signals have numbers below 65.
    let byte = [signal.as_raw() as u8];
    let action = move || {
        // A full pipe wakes the reader just as well; only the 65,537th unread signal is lost.
        let _ = rustix::io::write(&*announce, &byte);
    };
    // SAFETY: the action is one write(2), which is async-signal-safe; it neither allocates, locks nor panics, and
    // errno is kept by the registry.
    unsafe { signal_hook::low_level::register(signal.as_raw(), action) }
}

#[expect(unsafe_code, reason = "rustix has no safe sigaction")]
fn disposition(signal: Signal, new: Option<&libc::sigaction>) -> io::Result<libc::sigaction> {
    let mut before = with_handler(libc::SIG_DFL);
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: both point to such structures or nowhere; `new` is the default, one that was in force before, or a
    // handler that does nothing.
    let outcome = unsafe { libc::sigaction(signal.as_raw(), new, &raw mut before) };
    if outcome == 0 { Ok(before) } else { Err(io::Error::last_os_error()) }
}

#[expect(unsafe_code, reason = "the structure has system-specific fields, so no literal can be written")]
fn with_handler(handler: libc::sighandler_t) -> libc::sigaction {
    // SAFETY: it holds integers and optional pointers, for which zero is a value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action
}

#[expect(unsafe_code, reason = "rustix has no signal sets")]
fn none() -> libc::sigset_t {
    // SAFETY: it holds integers; sigemptyset only writes to it.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        set
    }
}

#[expect(unsafe_code, reason = "as above")]
fn only(signal: c_int) -> libc::sigset_t {
    let mut set = none();
    // SAFETY: it is a set, and the signal exists.
    unsafe { libc::sigaddset(&raw mut set, signal) };
    set
}

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "as above")]
fn all() -> libc::sigset_t {
    let mut set = none();
    // SAFETY: it is a set.
    unsafe { libc::sigfillset(&raw mut set) };
    set
}

#[expect(unsafe_code, reason = "rustix has no signal masks")]
fn change_mask(how: c_int, set: &libc::sigset_t) -> libc::sigset_t {
    let mut before = *set;
    // SAFETY: both point to signal sets. It cannot fail for these values of `how`.
    unsafe { libc::pthread_sigmask(how, set, &raw mut before) };
    before
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll;
    use rustix::process::{getpid, kill_process};

    #[test]
    fn signals_arrive_in_a_readable_descriptor() {
        let signals = Signals::receive(&[Signal::USR2, Signal::WINCH]).unwrap();
        kill_process(getpid(), Signal::USR2).unwrap();
        assert!(poll::wait(&[signals.as_fd()], None).unwrap().any());
        assert_eq!(signals.take().unwrap(), [Signal::USR2]);
        assert_eq!(signals.take().unwrap(), []);
    }

    #[test]
    fn the_mask_is_as_before_afterwards() {
        let blocked = without_ttou(|| change_mask(libc::SIG_BLOCK, &only(libc::SIGTTOU)));
        let after = change_mask(libc::SIG_BLOCK, &only(libc::SIGTTOU));
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
