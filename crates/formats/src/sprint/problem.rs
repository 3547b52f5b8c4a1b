//! Errors and warnings of the sprint lock, in the exact words of the format.

use std::io;

use lockkeeper_core::printable::printable;
use thiserror::Error;

/// How serious a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The operation ends with the status `failure`.
    Fatal,
    /// The operation goes on, and its answer carries the sentence.
    Warning,
}

/// An error or a warning. Its text is the sentence of the format, without a translation. The cause comes after it.
#[derive(Debug, Error)]
pub enum Problem {
    /// The mode is none of the three.
    #[error("Invalid mode")]
    InvalidMode,
    /// The project root is missing, not a folder, or not writable.
    #[error("Project root not accessible")]
    RootNotAccessible(#[source] Option<io::Error>),
    /// A session is required to acquire.
    #[error("session_id required for acquire mode")]
    SessionRequired,
    /// An epic is required to acquire.
    #[error("epic_spec required for acquire mode")]
    EpicRequired,
    /// The name of the lock file could lead out of the project root.
    #[error("Invalid lock_file_name")]
    BadFileName,
    /// A text is too long or has control characters.
    #[error("Invalid {0}")]
    BadText(&'static str),
    /// The named process cannot hold the lock.
    #[error("Invalid pid")]
    BadPid(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The lock file cannot be read.
    #[error("Cannot read lock file")]
    CannotRead(#[source] io::Error),
    /// The lock file has no valid record.
    #[error("Lock file exists but has invalid format")]
    InvalidFormat,
    /// This program does not know the version of the lock file.
    #[error("Lock file has an unknown lock_version ({0})")]
    UnknownVersion(String),
    /// The system does not say whether the process is alive.
    #[error("Cannot check PID {pid}, assumed dead")]
    CheckFailed {
        /// The process.
        pid: i64,
        /// The error of the system.
        source: io::Error,
    },
    /// The lock file belongs to this user, who is not us.
    #[error("Lock file belongs to another user (uid {0})")]
    OtherUser(u32),
    /// The new record could not be written.
    #[error("Failed to write lock file")]
    WriteFailed(#[source] io::Error),
    /// The new record could not be put in place.
    #[error("Atomic rename failed")]
    RenameFailed(#[source] io::Error),
    /// The lock file differs from what was written, or cannot be read back.
    #[error("Lock file verification failed")]
    VerifyFailed(#[source] Option<io::Error>),
    /// The lock belongs to another session.
    #[error("Lock session mismatch (expected: {expected}, actual: {actual})")]
    SessionMismatch {
        /// The session that was given.
        expected: String,
        /// The session in the file.
        actual: String,
    },
    /// The user may not remove the lock file.
    #[error("Cannot delete lock file: permission denied")]
    DeleteDenied(#[source] io::Error),
    /// The lock file could not be removed.
    #[error("Cannot delete lock file")]
    DeleteFailed(#[source] io::Error),
    /// The temporary file of an unfinished write could not be removed.
    #[error("Cannot delete temporary lock file")]
    LeftoverStays(#[source] io::Error),
}

impl Problem {
    /// Returns how serious it is.
    pub const fn severity(&self) -> Severity {
        match self {
            Self::InvalidMode
            | Self::RootNotAccessible(_)
            | Self::SessionRequired
            | Self::EpicRequired
            | Self::BadFileName
            | Self::BadText(_)
            | Self::BadPid(_)
            | Self::CannotRead(_)
            | Self::WriteFailed(_)
            | Self::RenameFailed(_)
            | Self::VerifyFailed(_)
            | Self::DeleteDenied(_)
            | Self::DeleteFailed(_) => Severity::Fatal,
            Self::InvalidFormat
            | Self::UnknownVersion(_)
            | Self::CheckFailed { .. }
            | Self::OtherUser(_)
            | Self::SessionMismatch { .. }
            | Self::LeftoverStays(_) => Severity::Warning,
        }
    }

    /// Says whether the input is wrong, so that nothing was touched.
    pub const fn is_bad_input(&self) -> bool {
        matches!(
            self,
            Self::InvalidMode
                | Self::RootNotAccessible(_)
                | Self::SessionRequired
                | Self::EpicRequired
                | Self::BadFileName
                | Self::BadText(_)
                | Self::BadPid(_)
        )
    }

    /// Returns the sentence and its causes.
    pub fn with_causes(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }

    /// Returns the sentence and its causes. A problem may quote text from the lock file, which another program wrote.
    pub fn printable(&self) -> String {
        printable(&self.with_causes()).into_owned()
    }

    /// Whether another process has kept the folder locked for too long.
    fn is_stuck(&self) -> bool {
        let (Self::CannotRead(cause) | Self::WriteFailed(cause) | Self::DeleteFailed(cause)) = self else {
            return false;
        };
        cause.kind() == io::ErrorKind::TimedOut
    }

    /// Names the hint in tables of translations.
    pub fn hint_key(&self) -> &'static str {
        match self {
            _ if self.is_stuck() => "stuck",
            Self::InvalidMode => "mode",
            Self::RootNotAccessible(_) => "root",
            Self::SessionRequired => "session",
            Self::EpicRequired => "epic",
            Self::BadFileName => "file_name",
            Self::BadText(_) => "text",
            Self::BadPid(_) => "pid",
            Self::CannotRead(_) => "read",
            Self::InvalidFormat => "format",
            Self::UnknownVersion(_) => "version",
            Self::CheckFailed { .. } => "check",
            Self::WriteFailed(_) | Self::RenameFailed(_) => "write",
            Self::VerifyFailed(_) => "verify",
            Self::SessionMismatch { .. } => "mismatch",
            Self::OtherUser(_) => "other_user",
            Self::DeleteDenied(_) => "delete_denied",
            Self::DeleteFailed(_) => "delete",
            Self::LeftoverStays(_) => "leftover",
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            _ if self.is_stuck() => {
                "another process keeps the project root locked, and is perhaps stopped: `fuser -v DIR` shows it"
            }
            Self::InvalidMode => "the modes are acquire, release and check",
            Self::RootNotAccessible(_) => "give a folder that you may write to: --project-root DIR",
            Self::SessionRequired => "name the session: --session-id sprint-2026-02-07-001",
            Self::EpicRequired => "say what the sprint works on: --epic-spec epic5",
            Self::BadFileName => {
                "give a bare name such as .sprint-running: no `/`, no `..`, at most 200 bytes"
            }
            Self::BadText(_) => "give one line of at most 1000 bytes without control characters",
            Self::BadPid(_) => "name a process that lives as long as the sprint, such as $$: --pid PID",
            Self::CannotRead(_) => {
                "a lock is a regular file that you may read: look at it with `ls -l`, then remove or chmod it"
            }
            Self::InvalidFormat => "if no sprint runs: acquire with --force, or release",
            Self::UnknownVersion(_) => "a newer program wrote it: use that one, or acquire with --force",
            Self::CheckFailed { .. } => "look for the process yourself with `ps -p PID`",
            Self::WriteFailed(_) | Self::RenameFailed(_) => {
                "nothing was left behind: check free space and permissions of the project root, then try again"
            }
            Self::VerifyFailed(_) => {
                "another program writes this lock without looking: find it, then try again"
            }
            Self::SessionMismatch { .. } => {
                "the lock of another session was removed: inform the person who runs it"
            }
            Self::OtherUser(_) => {
                "only that user or root releases it; root takes it over with acquire --force"
            }
            Self::DeleteDenied(_) => {
                "the lock is still there: release it as its user or root, with a project root that is writable"
            }
            Self::DeleteFailed(_) => {
                "the lock is still there: make the project root writable, then release again"
            }
            Self::LeftoverStays(_) => "remove it yourself; it does not hold the lock",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken() -> io::Error {
        io::Error::other("broken")
    }

    /// Requirements 1, 2, 3, 4, 18, 19, 37, 38, 40, 45.
    #[test]
    fn sentences_are_those_of_the_format() {
        let mismatch = Problem::SessionMismatch { expected: "a".to_owned(), actual: "b".to_owned() };
        let told = [
            (Problem::InvalidMode, "Invalid mode"),
            (Problem::RootNotAccessible(None), "Project root not accessible"),
            (Problem::SessionRequired, "session_id required for acquire mode"),
            (Problem::EpicRequired, "epic_spec required for acquire mode"),
            (Problem::InvalidFormat, "Lock file exists but has invalid format"),
            (Problem::CannotRead(broken()), "Cannot read lock file"),
            (Problem::WriteFailed(broken()), "Failed to write lock file"),
            (Problem::RenameFailed(broken()), "Atomic rename failed"),
            (mismatch, "Lock session mismatch (expected: a, actual: b)"),
            (Problem::DeleteDenied(broken()), "Cannot delete lock file: permission denied"),
        ];
        for (problem, sentence) in told {
            assert_eq!(problem.to_string(), sentence);
            assert!(!problem.hint().is_empty());
        }
        assert_eq!(Problem::CannotRead(broken()).with_causes(), "Cannot read lock file: broken");
    }

    /// Requirement 49.
    #[test]
    fn only_warnings_of_the_format_let_the_operation_go_on() {
        let mismatch = Problem::SessionMismatch { expected: String::new(), actual: String::new() };
        let check = Problem::CheckFailed { pid: 1, source: broken() };
        for warning in [Problem::InvalidFormat, check, mismatch] {
            assert_eq!(warning.severity(), Severity::Warning, "{warning}");
        }
        let fatal = [
            Problem::RootNotAccessible(None),
            Problem::WriteFailed(broken()),
            Problem::RenameFailed(broken()),
            Problem::VerifyFailed(None),
            Problem::DeleteDenied(broken()),
        ];
        for problem in fatal {
            assert_eq!(problem.severity(), Severity::Fatal, "{problem}");
        }
    }
}
