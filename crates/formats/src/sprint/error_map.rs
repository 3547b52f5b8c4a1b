//! Error mapping: turns an error of the takeover protocol into a problem of the format.

use std::io;

use super::problem::Problem;
use super::status::Mode;
use crate::guard::GuardError;

/// Maps an error of opening the folder.
pub(super) fn on_open(error: GuardError) -> Problem {
    Problem::RootNotAccessible(Some(cause(error)))
}

/// Maps an error of reading the lock. A timeout of the guard counts as a failed write.
pub(super) fn on_look(error: GuardError, mode: Mode) -> Problem {
    match (&error, mode) {
        (GuardError::Stuck { .. }, Mode::Acquire) => Problem::WriteFailed(cause(error)),
        (_, Mode::Acquire | Mode::Release | Mode::Check) => Problem::CannotRead(cause(error)),
    }
}

/// Maps an error of writing the lock.
pub(super) fn on_write(error: GuardError) -> Problem {
    match error {
        GuardError::UnsafeFile { .. } => Problem::CannotRead(cause(error)),
        GuardError::Rename { source, .. } => Problem::RenameFailed(source),
        GuardError::Write { source, .. } => Problem::WriteFailed(source),
        GuardError::Folder { .. }
        | GuardError::Network { .. }
        | GuardError::Unlockable { .. }
        | GuardError::Stuck { .. }
        | GuardError::ReadBack { .. } => Problem::WriteFailed(cause(error)),
    }
}

/// Maps an error of removing the lock.
pub(super) fn on_delete(error: GuardError) -> Problem {
    match error {
        GuardError::UnsafeFile { .. } => on_look(error, Mode::Release),
        GuardError::Rename { source, .. } | GuardError::Write { source, .. }
            if source.kind() == io::ErrorKind::PermissionDenied =>
        {
            Problem::DeleteDenied(source)
        }
        GuardError::Rename { source, .. } | GuardError::Write { source, .. } => Problem::DeleteFailed(source),
        GuardError::Folder { .. }
        | GuardError::Network { .. }
        | GuardError::Unlockable { .. }
        | GuardError::Stuck { .. }
        | GuardError::ReadBack { .. } => Problem::DeleteFailed(cause(error)),
    }
}

/// Wraps an error, so that it can be the cause of another error.
pub(super) fn cause(error: GuardError) -> io::Error {
    match error {
        GuardError::Stuck { .. } => io::Error::new(io::ErrorKind::TimedOut, error),
        _ => io::Error::other(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::safe_open::UnsafeFile;

    /// Requirements 19, 37, 38, 45.
    #[test]
    fn errors_of_the_system_have_the_sentences_of_the_format() {
        let path = || std::path::PathBuf::from(".sprint-running");
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        let sentence = |problem: Problem| problem.to_string();
        let rename = |source| GuardError::Rename { path: path(), source };
        let write = |source| GuardError::Write { path: path(), source };
        let unsafe_file = || GuardError::UnsafeFile { path: path(), source: UnsafeFile::Kind("FIFO") };
        assert_eq!(sentence(on_write(rename(denied()))), "Atomic rename failed");
        assert_eq!(sentence(on_write(write(full()))), "Failed to write lock file");
        assert_eq!(sentence(on_write(GuardError::Stuck { path: path() })), "Failed to write lock file");
        assert_eq!(on_write(GuardError::Stuck { path: path() }).hint_key(), "stuck");
        assert_eq!(sentence(on_delete(rename(denied()))), "Cannot delete lock file: permission denied");
        assert_eq!(sentence(on_delete(rename(full()))), "Cannot delete lock file");
        assert_eq!(sentence(on_look(unsafe_file(), Mode::Acquire)), "Cannot read lock file");
    }
}
