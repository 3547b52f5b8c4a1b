//! Why a run is in its state, and how its command ended.

use std::fmt;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// By itself, with this exit code.
    Exited(u8),
    /// By a signal.
    Signaled(u8),
}

impl Ending {
    /// The exit code that a shell reports: the code of the command, or 128 plus the signal.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Exited(code) => code,
            Self::Signaled(signal) => signal.saturating_add(128),
        }
    }
}

/// Reason code: why a run is in its state. Programs read these codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The exit code of the command means failure.
    ExitCode,
    /// A signal ended the command.
    Signal,
    /// The program does not exist, or the system cannot execute it.
    CommandNotStarted,
    /// The command asks for help, by its exit code or by a HELP status line.
    NeedsInput,
    /// No worker claimed it in time.
    QueueTimeout,
    /// The command took too long.
    ExecutionTimeout,
    /// A user canceled it.
    UserCanceled,
    /// Its worker died, and it is not known how the command ended.
    Lost,
    /// Its worker sent no heartbeat for too long and was replaced.
    WorkerSilent,
    /// It lost its lease while it ran.
    LeaseLost,
    /// It was rejected because the queue is full.
    QueueFull,
    /// It was rejected because a request with its id exists.
    Duplicate,
    /// It was rejected because a conflict rule forbids it.
    ConflictAbort,
    /// An executor outside of Lockkeeper reported it.
    Marked,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::ExitCode,
        Self::Signal,
        Self::CommandNotStarted,
        Self::NeedsInput,
        Self::QueueTimeout,
        Self::ExecutionTimeout,
        Self::UserCanceled,
        Self::Lost,
        Self::WorkerSilent,
        Self::LeaseLost,
        Self::QueueFull,
        Self::Duplicate,
        Self::ConflictAbort,
        Self::Marked,
    ];

    /// The code. It never changes.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ExitCode => "EXIT_CODE",
            Self::Signal => "SIGNAL",
            Self::CommandNotStarted => "COMMAND_NOT_STARTED",
            Self::NeedsInput => "NEEDS_INPUT",
            Self::QueueTimeout => "QUEUE_TIMEOUT",
            Self::ExecutionTimeout => "EXECUTION_TIMEOUT",
            Self::UserCanceled => "USER_CANCELED",
            Self::Lost => "LOST",
            Self::WorkerSilent => "WORKER_SILENT",
            Self::LeaseLost => "LEASE_LOST",
            Self::QueueFull => "QUEUE_FULL",
            Self::Duplicate => "DUPLICATE",
            Self::ConflictAbort => "CONFLICT_ABORT",
            Self::Marked => "MARKED",
        }
    }

    /// Parses a code.
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == code)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_code_of_its_own_that_comes_back() {
        for reason in Reason::ALL {
            assert_eq!(Reason::from_code(reason.as_str()), Some(reason));
        }
        assert_eq!(Reason::from_code("exit_code"), None);
    }

    #[test]
    fn a_signal_is_reported_as_a_shell_does() {
        assert_eq!(Ending::Exited(3).exit_code(), 3);
        assert_eq!(Ending::Signaled(9).exit_code(), 137);
    }
}
