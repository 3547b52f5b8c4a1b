//! The terminal that a person sits at, and which process group it listens to.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{Pid, getpgrp, test_kill_process_group};
use rustix::stdio::{stdin, stdout};
use rustix::termios::{tcgetpgrp, tcgetwinsize, tcsetpgrp};

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

    /// Has a command take the terminal itself, between fork and exec, for the process group that it begins.
    ///
    /// Taken later, the command could have been stopped for reading it; a Ctrl-Z of that time is thrown away when
    /// the command is continued.
    pub fn give_at_start(&self, command: &mut Command) -> io::Result<()> {
        let descriptor = fcntl_dupfd_cloexec(&self.descriptor, 0)?;
        take_at_start(command, descriptor);
        Ok(())
    }

    /// Makes it listen to this process's group again after a command took it and then could not be run.
    pub fn take_back_from_the_dead(&self) -> io::Result<()> {
        let foreground = tcgetpgrp(&self.descriptor)?;
        if test_kill_process_group(foreground) == Err(Errno::SRCH) {
            self.set(self.own_group)
        } else {
            Ok(())
        }
    }

    /// Makes it listen to this process's group again, unless somebody else than `group` has it by now.
    pub fn take_back_from(&self, group: Pid) -> io::Result<()> {
        if self.listens_to(group) { self.set(self.own_group) } else { Ok(()) }
    }

    fn set(&self, group: Pid) -> io::Result<()> {
        Ok(signal::without_ttou(|| tcsetpgrp(self.descriptor.as_fd(), group))?)
    }
}

#[expect(unsafe_code, reason = "what runs between fork and exec has to be async-signal-safe")]
fn take_at_start(command: &mut Command, descriptor: OwnedFd) {
    let take = move || {
        // Without the terminal it can still run, and asks for it when it needs it.
        let _ = signal::without_ttou(|| tcsetpgrp(&descriptor, getpgrp()));
        Ok(())
    };
    // SAFETY: changing the signal mask, getpgrp and tcsetpgrp are async-signal-safe; nothing is allocated or locked.
    unsafe { command.pre_exec(take) };
}

/// How much a terminal shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Characters in a line.
    pub columns: usize,
    /// Lines.
    pub rows: usize,
}

impl Size {
    /// The size of the terminal behind a descriptor; None when it is no terminal or does not tell.
    pub fn of(descriptor: impl AsFd) -> Option<Self> {
        let size = tcgetwinsize(descriptor).ok()?;
        let size = Self { columns: size.ws_col.into(), rows: size.ws_row.into() };
        (size.columns > 0 && size.rows > 0).then_some(size)
    }
}

/// Whether standard output feeds another program, as in `… | less`, which may need the terminal itself.
pub fn stdout_is_piped() -> bool {
    let mode = rustix::fs::fstat(stdout()).map(|facts| FileType::from_raw_mode(facts.st_mode));
    matches!(mode, Ok(FileType::Fifo | FileType::Socket))
}
