//! Exit status of a command, and how the wrapper passes it to its own parent.

use std::fmt;
use std::io;

use rustix::process::{Signal, WaitStatus};

use crate::signal;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It exited with this code.
    Exited(u8),
    /// This signal killed it.
    Signaled(u8),
}

impl Ending {
    /// Returns the exit code that shells use: the command's own, or 128 plus the signal.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Exited(code) => code,
            Self::Signaled(signal) => signal.saturating_add(128),
        }
    }

    /// Ends this process by SIGINT if SIGINT killed the command, so that the shell of a script ends too.
    ///
    /// Returns in every other case. Call it last: no destructor runs.
    pub fn pass_on_interrupt(self) -> io::Result<()> {
        match self {
            Self::Signaled(number) if i32::from(number) == Signal::INT.as_raw() => {
                signal::raise_default(Signal::INT)
            }
            Self::Signaled(_) | Self::Exited(_) => Ok(()),
        }
    }

    /// Decodes the `wait(2)` status of a process that has ended.
    pub fn from_wait(status: i32) -> Self {
        if libc::WIFSIGNALED(status) {
            Self::Signaled(libc::WTERMSIG(status) as u8)
        } else {
            Self::Exited(libc::WEXITSTATUS(status) as u8)
        }
    }

    /// Returns `None` when the command is only stopped or continued.
    pub(super) fn from_status(status: WaitStatus) -> Option<Self> {
        // Codes have eight bits and signals seven.
        let exited = status.exit_status().map(|code| Self::Exited(code as u8));
        exited.or_else(|| status.terminating_signal().map(|signal| Self::Signaled(signal as u8)))
    }
}

impl From<Ending> for lockkeeper_core::run::Ending {
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::Exited(code) => Self::Exited(code),
            Ending::Signaled(signal) => Self::Signaled(signal),
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exited with code {code}"),
            Self::Signaled(number) => match signal_hook::low_level::signal_name(i32::from(*number)) {
                Some(name) => write!(f, "was ended by {name}"),
                None => write!(f, "was ended by signal {number}"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_count_from_128() {
        assert_eq!(Ending::Exited(3).exit_code(), 3);
        assert_eq!(Ending::Signaled(9).exit_code(), 137);
        assert_eq!(Ending::Signaled(2).to_string(), "was ended by SIGINT");
    }
}
