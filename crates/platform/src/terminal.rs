//! Controlling terminal: its foreground process group (job control) and its size.

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

/// The controlling terminal of this process.
#[derive(Debug)]
pub struct Terminal {
    descriptor: OwnedFd,
    own_group: Pid,
}

impl Terminal {
    /// Returns the terminal on standard input, if this process's group is its foreground group.
    pub fn on_stdin() -> Option<Self> {
        // Fails with one system call when stdin is not a terminal, or a terminal of another session.
        let foreground = tcgetpgrp(stdin()).ok()?;
        let own_group = getpgrp();
        if foreground != own_group {
            return None;
        }
        Some(Self { descriptor: fcntl_dupfd_cloexec(stdin(), 0).ok()?, own_group })
    }

    /// Returns the terminal of this session, whatever standard input is.
    pub fn of_session() -> Option<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOCTTY;
        let descriptor = rustix::fs::open("/dev/tty", flags, Mode::empty()).ok()?;
        Some(Self { descriptor, own_group: getpgrp() })
    }

    /// Says whether this process's group is in the foreground.
    pub fn is_ours(&self) -> bool {
        self.is_foreground(self.own_group)
    }

    /// Says whether `group` is in the foreground.
    pub fn is_foreground(&self, group: Pid) -> bool {
        tcgetpgrp(&self.descriptor) == Ok(group)
    }

    /// Puts `group` in the foreground.
    pub fn give_to(&self, group: Pid) -> io::Result<()> {
        self.set_foreground(group)
    }

    /// Makes a command put its own process group in the foreground between fork and exec.
    ///
    /// If this process did it later, the kernel could stop the command for reading from the background. A Ctrl-Z that
    /// is pressed at that time would be lost when the command is continued.
    pub fn give_at_start(&self, command: &mut Command) -> io::Result<()> {
        let descriptor = fcntl_dupfd_cloexec(&self.descriptor, 0)?;
        take_before_exec(command, descriptor);
        Ok(())
    }

    /// Puts this process's group in the foreground again if the foreground group has no processes: a command took the
    /// terminal and then could not be executed.
    pub fn take_back_from_empty_group(&self) -> io::Result<()> {
        let foreground = tcgetpgrp(&self.descriptor)?;
        if test_kill_process_group(foreground) == Err(Errno::SRCH) {
            self.set_foreground(self.own_group)
        } else {
            Ok(())
        }
    }

    /// Puts this process's group in the foreground again, if `group` is still there.
    pub fn take_back_from(&self, group: Pid) -> io::Result<()> {
        if self.is_foreground(group) { self.set_foreground(self.own_group) } else { Ok(()) }
    }

    fn set_foreground(&self, group: Pid) -> io::Result<()> {
        Ok(signal::without_ttou(|| tcsetpgrp(self.descriptor.as_fd(), group))?)
    }
}

#[expect(unsafe_code, reason = "code between fork and exec has to be async-signal-safe")]
fn take_before_exec(command: &mut Command, descriptor: OwnedFd) {
    let take = move || {
        // The command can also run without the terminal. It is stopped when it needs it, and gets it then.
        let _ = signal::without_ttou(|| tcsetpgrp(&descriptor, getpgrp()));
        Ok(())
    };
    // SAFETY: changing the signal mask, getpgrp and tcsetpgrp are async-signal-safe; nothing is allocated or locked.
    unsafe { command.pre_exec(take) };
}

/// The size of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Characters in a line.
    pub columns: usize,
    /// Lines.
    pub rows: usize,
}

impl Size {
    /// Returns the size of the terminal at a descriptor; `None` when it is not a terminal or reports no size.
    pub fn of(descriptor: impl AsFd) -> Option<Self> {
        let size = tcgetwinsize(descriptor).ok()?;
        let size = Self { columns: size.ws_col.into(), rows: size.ws_row.into() };
        (size.columns > 0 && size.rows > 0).then_some(size)
    }
}

/// Says whether standard output goes to another program, as in `… | less`, which may need the terminal itself.
pub fn stdout_is_piped() -> bool {
    let mode = rustix::fs::fstat(stdout()).map(|stat| FileType::from_raw_mode(stat.st_mode));
    matches!(mode, Ok(FileType::Fifo | FileType::Socket))
}
