//! Process handles (pidfds): they refer to one process, even after the kernel reuses its pid.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::process::{Pid, Signal};

use super::poll;

/// The result of opening a handle.
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "only Linux has handles"))]
pub(super) enum Opened {
    /// A handle that refers to this process and no other, as long as it is open.
    Handle(OwnedFd),
    /// There is no such process.
    Gone,
    /// The number belongs to a thread.
    Thread,
    /// This system has no handles, or a sandbox forbids them.
    Unsupported,
}

/// Opens a handle. Commands do not inherit it.
#[cfg(target_os = "linux")]
pub(super) fn open(pid: Pid) -> Opened {
    use rustix::io::Errno;
    use rustix::process::{PidfdFlags, pidfd_open};

    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(handle) => Opened::Handle(handle),
        Err(Errno::SRCH) => Opened::Gone,
        // Linux 6.9 and later return NOENT.
        Err(Errno::INVAL | Errno::NOENT) => Opened::Thread,
        Err(_) => Opened::Unsupported,
    }
}

/// Only Linux has them.
#[cfg(not(target_os = "linux"))]
pub(super) fn open(_pid: Pid) -> Opened {
    Opened::Unsupported
}

/// Says whether the process has ended; a zombie has.
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

/// Returns the `wait(2)` status of a process that another process has reaped. The handle must have been opened while
/// the process lived. Linux has this since 6.15; before that nobody but the parent can know.
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
