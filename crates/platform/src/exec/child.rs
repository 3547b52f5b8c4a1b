//! Child setup: what a new process does between fork and exec.
//!
//! std's `Command` does the rest: standard streams, folder, process group, signal mask, SIGPIPE, and it returns the
//! error of a failed exec.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::stdio::{dup2_stderr, dup2_stdout};

/// What the child sets up for itself.
#[derive(Debug, Default)]
pub(super) struct ChildSetup {
    /// The liveness lock that the command inherits: which descriptor, and the lowest number that it may get.
    lock: Option<(RawFd, RawFd)>,
    /// The file that the child opens as standard output and error.
    log: Option<CString>,
    /// Whether the command inherits no other descriptor above standard error.
    closes_others: bool,
}

impl ChildSetup {
    /// Hands the liveness lock to the command. `lock` has to stay open until the command is started.
    pub(super) fn inherit(&mut self, (descriptor, lowest): (BorrowedFd<'_>, i32)) {
        self.lock = Some((descriptor.as_raw_fd(), lowest));
    }

    /// Appends output and errors to a file. The child opens it: if this process did, every other child that is forked at
    /// the same moment would have a copy, and would look like a writer.
    pub(super) fn append_to(&mut self, log: &Path) -> io::Result<()> {
        // The child changes its folder before it opens the file.
        self.log = Some(CString::new(std::path::absolute(log)?.into_os_string().into_vec())?);
        Ok(())
    }

    /// Does not pass on the descriptors that this process inherited itself.
    pub(super) fn close_others(&mut self) {
        self.closes_others = true;
    }

    /// Adds the setup to a command.
    #[expect(unsafe_code, reason = "code between fork and exec has to be async-signal-safe")]
    pub(super) fn add_to(self, command: &mut Command) {
        if self.lock.is_some() || self.log.is_some() || self.closes_others {
            // SAFETY: `run` only makes system calls that are async-signal-safe; it does not allocate, lock or panic.
            unsafe { command.pre_exec(move || self.run()) };
        }
    }

    fn run(&self) -> io::Result<()> {
        if self.closes_others {
            set_close_on_exec();
        }
        let lock =
            self.lock.map(|(descriptor, lowest)| duplicate_for_command(descriptor, lowest)).transpose()?;
        if self.closes_others {
            // Without `/proc` exec closes them, a moment later.
            let _ = close_files_except(lock);
        }
        if let Some(log) = &self.log {
            let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let log = rustix::fs::open(log.as_c_str(), flags, Mode::empty())?;
            dup2_stdout(&log)?;
            dup2_stderr(&log)?;
        }
        Ok(())
    }
}

/// Marks every descriptor above standard error close-on-exec. std's own pipe stays open until then: it reports a failed
/// exec. Before Linux 5.11 this fails, and the command inherits what this process has inherited.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "neither std nor rustix has close_range")]
fn set_close_on_exec() {
    // SAFETY: the call takes integers, and only sets a flag.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

/// Closes all regular files but one, so that the child gives up the liveness locks of other commands now. At exec the
/// kernel closes them too, but only after std's pipe has told this process that exec has succeeded.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "the numbers of descriptors come from /proc")]
fn close_files_except(kept: Option<RawFd>) -> io::Result<()> {
    use std::mem::MaybeUninit;

    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(c"/proc/self/fd", flags, Mode::empty())?;
    let mut buffer = [MaybeUninit::uninit(); 1024];
    let mut entries = rustix::fs::RawDir::new(&folder, &mut buffer);
    while let Some(entry) = entries.next() {
        let number = str::from_utf8(entry?.file_name().to_bytes()).ok().and_then(|name| name.parse().ok());
        let Some(number) = number.filter(|number: &RawFd| *number > 2 && Some(*number) != kept) else {
            continue;
        };
        // SAFETY: the descriptor is open, and nothing in this child uses it before exec.
        unsafe {
            let stat = rustix::fs::fstat(BorrowedFd::borrow_raw(number))?;
            if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
                rustix::io::close(number);
            }
        }
    }
    Ok(())
}

/// Other systems have no single call for it.
#[cfg(not(target_os = "linux"))]
fn set_close_on_exec() {}

/// Other systems do not list the descriptors of a process.
#[cfg(not(target_os = "linux"))]
fn close_files_except(_kept: Option<RawFd>) -> io::Result<()> {
    Ok(())
}

/// Duplicates a descriptor to a free number that exec leaves open.
#[expect(unsafe_code, reason = "rustix duplicates to a free number only with close-on-exec")]
fn duplicate_for_command(descriptor: RawFd, lowest: RawFd) -> io::Result<RawFd> {
    // SAFETY: the call takes integers. A descriptor that is not open is an error.
    let duplicate = unsafe { libc::fcntl(descriptor, libc::F_DUPFD, lowest) };
    if duplicate < 0 { Err(io::Error::last_os_error()) } else { Ok(duplicate) }
}
