//! Names in one folder that change hands in one step: publish, exchange, lock the folder itself.
//!
//! Linux and macOS can exchange two names. Elsewhere, and on file systems that cannot, [`exchange`] answers
//! `Unsupported`, and whoever asked has to do with two steps.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, RawMode, flock, linkat, mkdirat, openat, unlinkat};
use rustix::io::Errno;

/// Opens a folder, to be locked and to name files in.
pub fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Opens a folder inside of another. A symbolic link is not followed.
pub fn open_part(folder: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(folder, name, flags, Mode::empty())?)
}

/// Makes a folder inside of another, for its owner only, unless something has that name already.
pub fn make_folder(folder: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    match mkdirat(folder, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Creates a file that was not there before, for reading and writing.
pub fn create_new(folder: BorrowedFd<'_>, name: &str, mode: u32) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(folder, name, flags, Mode::from_raw_mode(mode as RawMode))?)
}

/// Opens what is there for reading, without waiting for anybody and without following a link.
pub fn open_existing(folder: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(openat(folder, name, flags, Mode::empty())?)
}

/// Gives a file its name, unless something has that name already.
pub fn publish(folder: BorrowedFd<'_>, from: &str, to: &str) -> io::Result<()> {
    match no_replace(folder, from, to) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            linkat(folder, from, folder, to, AtFlags::empty())?;
            Ok(unlinkat(folder, from, AtFlags::empty())?)
        }
        outcome => outcome,
    }
}

/// Exchanges two names in one step. `Unsupported` where the system or the file system cannot.
#[cfg(any(target_os = "linux", target_vendor = "apple"))]
pub fn exchange(folder: BorrowedFd<'_>, one: &str, other: &str) -> io::Result<()> {
    use rustix::fs::{RenameFlags, renameat_with};

    renameat_with(folder, one, folder, other, RenameFlags::EXCHANGE).map_err(unsupported)
}

/// Exchanges two names in one step. `Unsupported` where the system or the file system cannot.
#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
pub fn exchange(_folder: BorrowedFd<'_>, _one: &str, _other: &str) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(any(target_os = "linux", target_vendor = "apple"))]
fn no_replace(folder: BorrowedFd<'_>, from: &str, to: &str) -> io::Result<()> {
    use rustix::fs::{RenameFlags, renameat_with};

    renameat_with(folder, from, folder, to, RenameFlags::NOREPLACE).map_err(unsupported)
}

#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
fn no_replace(_folder: BorrowedFd<'_>, _from: &str, _to: &str) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// File systems say it in three ways.
#[cfg(any(target_os = "linux", target_vendor = "apple"))]
fn unsupported(errno: Errno) -> io::Error {
    match errno {
        Errno::INVAL | Errno::NOSYS | Errno::NOTSUP => io::ErrorKind::Unsupported.into(),
        other => other.into(),
    }
}

/// Makes sure that a file keeps its blocks on a full disk. Where that cannot be asked for, what was written counts.
pub fn reserve(file: impl AsFd, bytes: u64) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::KEEP_SIZE, 0, bytes) {
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(()),
        Err(error) => Err(error.into()),
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (file, bytes);
        Ok(())
    }
}

/// Locks an open file or folder if nobody else has it locked. The lock ends with the descriptor at the latest.
pub fn try_lock(descriptor: impl AsFd) -> io::Result<bool> {
    match rustix::io::retry_on_intr(|| flock(&descriptor, FlockOperation::NonBlockingLockExclusive)) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Gives such a lock back at once, also for a child that is just being started and still shares the descriptor.
pub fn unlock(descriptor: impl AsFd) {
    // Unlocking an open file cannot fail; if it did, closing it would do the same.
    let _ = flock(descriptor, FlockOperation::Unlock);
}

/// Waits for such a lock, but not longer than `limit`: then there is none.
pub fn lock_within(descriptor: OwnedFd, limit: Duration) -> io::Result<Option<OwnedFd>> {
    if try_lock(&descriptor)? {
        return Ok(Some(descriptor));
    }
    // The kernel queues those who wait, but knows no limit: a thread waits in our place. When it comes too late,
    // nobody takes the descriptor, and closing it unlocks.
    let (sender, receiver) = mpsc::sync_channel(0);
    let waiting = std::thread::Builder::new().name("folder-lock".to_owned()).spawn(move || {
        let locked = rustix::io::retry_on_intr(|| flock(&descriptor, FlockOperation::LockExclusive));
        let _ = sender.send(locked.map(|()| descriptor));
    });
    drop(waiting?);
    match receiver.recv_timeout(limit) {
        Ok(outcome) => Ok(Some(outcome?)),
        Err(mpsc::RecvTimeoutError::Timeout | mpsc::RecvTimeoutError::Disconnected) => Ok(None),
    }
}
