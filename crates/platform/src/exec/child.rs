//! Child setup: what a child of std's `Command` does between fork and exec.
//!
//! std does the rest: standard streams, folder, process group, signal mask, SIGPIPE, and the error of a failed exec.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::{Mode, OFlags};
use rustix::stdio::{dup2_stderr, dup2_stdout};

/// What the child sets up for itself.
#[derive(Debug, Default)]
pub(super) struct ChildSetup {
    /// What the command inherits: each descriptor, and the lowest number that it may get.
    inherited: Vec<(RawFd, RawFd)>,
    /// The file that the child opens as standard output and error.
    log: Option<CString>,
}

impl ChildSetup {
    /// Hands a descriptor to the command. It has to stay open until the command is started.
    pub(super) fn inherit(&mut self, (descriptor, lowest): (BorrowedFd<'_>, i32)) {
        self.inherited.push((descriptor.as_raw_fd(), lowest));
    }

    /// Appends output and errors to a file. The child opens it: if this process did, every child that starts at the same
    /// moment would have a copy until its exec, and would look like a writer.
    pub(super) fn append_to(&mut self, log: &Path) -> io::Result<()> {
        // The child changes its folder before it opens the file.
        self.log = Some(CString::new(std::path::absolute(log)?.into_os_string().into_vec())?);
        Ok(())
    }

    /// Adds the setup to a command.
    #[expect(unsafe_code, reason = "code between fork and exec has to be async-signal-safe")]
    pub(super) fn add_to(self, command: &mut Command) {
        if !self.inherited.is_empty() || self.log.is_some() {
            // SAFETY: `run` only makes system calls that are async-signal-safe. It does not allocate, lock or panic.
            unsafe { command.pre_exec(move || self.run()) };
        }
    }

    fn run(&self) -> io::Result<()> {
        for (descriptor, lowest) in &self.inherited {
            duplicate_for_command(*descriptor, *lowest)?;
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

/// Duplicates a descriptor to a free number that exec leaves open.
#[expect(unsafe_code, reason = "rustix duplicates to a free number only with close-on-exec")]
fn duplicate_for_command(descriptor: RawFd, lowest: RawFd) -> io::Result<()> {
    // SAFETY: the call takes integers. A descriptor that is not open is an error.
    let duplicate = unsafe { libc::fcntl(descriptor, libc::F_DUPFD, lowest) };
    if duplicate < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
