//! Replacing a file that others may be appending to at the same moment.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::CWD;
use rustix::path::Arg;

/// Exchanges two files in one step. False where the system or the file system cannot: nothing was done then.
#[cfg(any(target_os = "linux", target_vendor = "apple"))]
pub fn exchange(one: impl Arg, other: impl Arg) -> io::Result<bool> {
    use rustix::fs::{RenameFlags, renameat_with};
    use rustix::io::Errno;

    match renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(true),
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Exchanges two files in one step. False where the system cannot: nothing was done then.
#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
pub fn exchange(one: impl Arg, other: impl Arg) -> io::Result<bool> {
    let _ = (CWD, one, other);
    Ok(false)
}

/// Missing in the libc crate; the same number on every architecture.
#[cfg(target_os = "linux")]
const F_SETSIG: libc::c_int = 10;

/// Whether some other process has this file open for writing; `None` when the system does not tell.
///
/// Linux tells by a lease, which it gives only while nobody writes. The file must be open for reading only.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "rustix has no leases")]
pub fn has_writers(descriptor: impl AsFd) -> Option<bool> {
    let number = descriptor.as_fd().as_raw_fd();
    // An opener at that moment would have us signalled with SIGIO, which kills; SIGURG does nothing by default.
    // SAFETY: the descriptor is open, and the commands take integers.
    unsafe { libc::fcntl(number, F_SETSIG, libc::SIGURG) };
    // SAFETY: as above.
    let outcome = unsafe { libc::fcntl(number, libc::F_SETLEASE, libc::F_RDLCK) };
    if outcome == -1 {
        return (io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN)).then_some(true);
    }
    // SAFETY: as above; giving back a lease that was just taken cannot fail.
    unsafe { libc::fcntl(number, libc::F_SETLEASE, libc::F_UNLCK) };
    Some(false)
}

/// Whether some other process has this file open for writing; only Linux tells.
#[cfg(not(target_os = "linux"))]
pub fn has_writers(descriptor: impl AsFd) -> Option<bool> {
    let _ = descriptor.as_fd().as_raw_fd();
    None
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
        assert!(exchange(&one, &other).unwrap());
        assert_eq!(std::fs::read_to_string(&one).unwrap(), "2");
        std::fs::remove_file(&other).unwrap();
        assert!(exchange(&one, &other).is_err());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_writer_is_noticed_until_it_closes_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let writer = std::fs::File::create(&path).unwrap();
        let reader = std::fs::File::open(&path).unwrap();
        assert_eq!(has_writers(&reader), Some(true));
        drop(writer);
        assert_eq!(has_writers(&reader), Some(false));
    }
}
