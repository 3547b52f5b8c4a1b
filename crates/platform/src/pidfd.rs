//! Handles to processes that stay true when the number is given to another one.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::process::{Pid, Signal};

use super::poll;

/// What asking for a handle gave.
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "only Linux gives any out"))]
pub(super) enum Opened {
    /// Refers to this process and no other, for as long as it is open.
    Handle(OwnedFd),
    /// There is no such process.
    Gone,
    /// The number is that of a thread.
    Thread,
    /// This system has no handles, or does not give them out here.
    Unsupported,
}

/// Opens a handle; it is not inherited by commands.
#[cfg(target_os = "linux")]
pub(super) fn open(pid: Pid) -> Opened {
    use rustix::io::Errno;
    use rustix::process::{PidfdFlags, pidfd_open};

    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(handle) => Opened::Handle(handle),
        Err(Errno::SRCH) => Opened::Gone,
        // Linux 6.9 and later say NOENT.
        Err(Errno::INVAL | Errno::NOENT) => Opened::Thread,
        Err(_) => Opened::Unsupported,
    }
}

/// Only Linux has them.
#[cfg(not(target_os = "linux"))]
pub(super) fn open(_pid: Pid) -> Opened {
    Opened::Unsupported
}

/// Whether the process has ended, waited for or not.
pub(super) fn has_ended(handle: impl AsFd) -> io::Result<bool> {
    Ok(poll::wait(&[handle.as_fd()], Some(Duration::ZERO))?.any())
}

/// Sends a signal to exactly the process that the handle refers to.
#[cfg(target_os = "linux")]
pub(super) fn send(handle: impl AsFd, signal: Signal) -> io::Result<()> {
    Ok(rustix::process::pidfd_send_signal(handle, signal)?)
}

/// Only Linux has handles.
#[cfg(not(target_os = "linux"))]
pub(super) fn send(_handle: impl AsFd, _signal: Signal) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// How a process ended that somebody else has waited for, in the form of `wait(2)`. The handle has to have been opened
/// while it lived. Linux tells since 6.15; otherwise there is no way to know.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "rustix has no call for it")]
pub(super) fn exit_status(handle: impl AsFd) -> Option<i32> {
    use std::os::fd::AsRawFd;

    /// `PIDFD_INFO_EXIT`.
    const EXIT: u64 = 1 << 3;
    /// `PIDFD_GET_INFO` for the first form of the structure.
    const GET_INFO: libc::Ioctl = 0xc040_ff0b_u32 as libc::Ioctl;

    #[repr(C)]
    struct Info {
        mask: u64,
        cgroup: u64,
        ids: [u32; 11],
        exit_code: i32,
    }

    let mut info = Info { mask: EXIT, cgroup: 0, ids: [0; 11], exit_code: 0 };
    // SAFETY: the descriptor is open, and the number of the call says how large the structure is.
    let outcome = unsafe { libc::ioctl(handle.as_fd().as_raw_fd(), GET_INFO, std::ptr::from_mut(&mut info)) };
    (outcome == 0 && info.mask & EXIT != 0).then_some(info.exit_code)
}

/// Only Linux has handles.
#[cfg(not(target_os = "linux"))]
pub(super) fn exit_status(_handle: impl AsFd) -> Option<i32> {
    None
}
