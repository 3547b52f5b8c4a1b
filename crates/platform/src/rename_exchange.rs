//! Atomic renames: `RENAME_EXCHANGE` swaps two names, `RENAME_NOREPLACE` gives a name only if it is free.
//!
//! Linux and macOS have both. Other systems, and some file systems, have neither: [`exchange`] then fails with
//! `Unsupported`, and the caller has to use two steps.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, linkat, unlinkat};
use rustix::path::Arg;

/// Renames a file if the new name is free. Fails with `AlreadyExists` if it is not.
pub fn publish(folder: BorrowedFd<'_>, from: &str, to: &str) -> io::Result<()> {
    match no_replace(folder, from, to) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            linkat(folder, from, folder, to, AtFlags::empty())?;
            Ok(unlinkat(folder, from, AtFlags::empty())?)
        }
        outcome => outcome,
    }
}

#[cfg(any(target_os = "linux", target_vendor = "apple"))]
mod system {
    use std::io;
    use std::os::fd::BorrowedFd;

    use rustix::fs::{RenameFlags, renameat_with};
    use rustix::io::Errno;
    use rustix::path::Arg;

    /// Exchanges two names in one step. Fails with `Unsupported` where the system or the file system cannot do it.
    pub fn exchange(folder: BorrowedFd<'_>, one: impl Arg, other: impl Arg) -> io::Result<()> {
        renameat_with(folder, one, folder, other, RenameFlags::EXCHANGE).map_err(unsupported)
    }

    pub(super) fn no_replace(folder: BorrowedFd<'_>, from: impl Arg, to: impl Arg) -> io::Result<()> {
        renameat_with(folder, from, folder, to, RenameFlags::NOREPLACE).map_err(unsupported)
    }

    /// File systems report a missing feature with one of three error numbers.
    fn unsupported(errno: Errno) -> io::Error {
        match errno {
            Errno::INVAL | Errno::NOSYS | Errno::NOTSUP => io::ErrorKind::Unsupported.into(),
            other => other.into(),
        }
    }
}

#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
mod system {
    use std::io;
    use std::os::fd::BorrowedFd;

    use rustix::path::Arg;

    /// Exchanges two names in one step. Always fails with `Unsupported` on this system.
    pub fn exchange(_folder: BorrowedFd<'_>, _one: impl Arg, _other: impl Arg) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn no_replace(_folder: BorrowedFd<'_>, _from: impl Arg, _to: impl Arg) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

pub use system::exchange;
use system::no_replace;

/// Exchanges the files at two paths in one step. Returns false, and changes nothing, where that is not supported.
pub fn exchange_paths(one: impl Arg, other: impl Arg) -> io::Result<bool> {
    match exchange(rustix::fs::CWD, one, other) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(any(target_os = "linux", target_vendor = "apple"))]
    #[test]
    fn two_files_change_places() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (dir.path().join("one"), dir.path().join("other"));
        std::fs::write(&one, "1").unwrap();
        std::fs::write(&other, "2").unwrap();
        assert!(exchange_paths(&one, &other).unwrap());
        assert_eq!(std::fs::read_to_string(&one).unwrap(), "2");
        std::fs::remove_file(&other).unwrap();
        assert!(exchange_paths(&one, &other).is_err());
    }
}
