//! The terminal that a person sits at, and which process group it listens to.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Pid, getpgrp};
use rustix::stdio::{stdin, stdout};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

use super::signal;

/// This process's controlling terminal.
#[derive(Debug)]
pub struct Terminal {
    descriptor: OwnedFd,
    own_group: Pid,
}

impl Terminal {
    /// The terminal on standard input, if this process's group may read it now.
    pub fn on_stdin() -> Option<Self> {
        // Fails at once, with one system call, when it is no terminal or not this session's.
        let foreground = tcgetpgrp(stdin()).ok()?;
        let own_group = getpgrp();
        if foreground != own_group {
            return None;
        }
        Some(Self { descriptor: fcntl_dupfd_cloexec(stdin(), 0).ok()?, own_group })
    }

    /// The terminal of this session, whatever standard input is.
    pub fn of_session() -> Option<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOCTTY;
        let descriptor = rustix::fs::open("/dev/tty", flags, Mode::empty()).ok()?;
        Some(Self { descriptor, own_group: getpgrp() })
    }

    /// Whether it listens to this process's group.
    pub fn is_ours(&self) -> bool {
        self.listens_to(self.own_group)
    }

    /// Whether it listens to `group`.
    pub fn listens_to(&self, group: Pid) -> bool {
        tcgetpgrp(&self.descriptor) == Ok(group)
    }

    /// Makes it listen to `group`.
    pub fn give_to(&self, group: Pid) -> io::Result<()> {
        self.set(group)
    }

    /// Makes it listen to this process's group again, unless somebody else than `group` has it by now.
    pub fn take_back_from(&self, group: Pid) -> io::Result<()> {
        if self.listens_to(group) { self.set(self.own_group) } else { Ok(()) }
    }

    fn set(&self, group: Pid) -> io::Result<()> {
        Ok(signal::without_ttou(|| tcsetpgrp(self.descriptor.as_fd(), group))?)
    }
}

/// Whether standard output feeds another program, as in `… | less`, which may need the terminal itself.
pub fn stdout_is_piped() -> bool {
    let mode = rustix::fs::fstat(stdout()).map(|facts| FileType::from_raw_mode(facts.st_mode));
    matches!(mode, Ok(FileType::Fifo | FileType::Socket))
}
