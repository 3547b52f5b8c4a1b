//! Folder operations on descriptors: `openat(2)`, `mkdirat(2)`, and `flock(2)` on a folder or a file in it.
//!
//! Callers open a folder once and name everything relative to it, so that nobody can put another folder in its place.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, RawMode, flock, mkdirat, openat};
use rustix::io::Errno;

/// Opens a folder, to lock it and to name files in it.
pub fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Opens a folder inside another folder. Does not follow a symbolic link.
pub fn open_subfolder(folder: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(folder, name, flags, Mode::empty())?)
}

/// Creates a folder inside another folder with mode 0700. Does nothing when the name exists already.
pub fn make_subfolder(folder: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    match mkdirat(folder, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Creates a new file for reading and writing. Fails when the name exists already.
pub fn create_new(folder: BorrowedFd<'_>, name: &str, mode: u32) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(folder, name, flags, Mode::from_raw_mode(mode as RawMode))?)
}

/// Opens an existing file for reading. Does not block on a FIFO and does not follow a symbolic link.
pub fn open_existing(folder: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(openat(folder, name, flags, Mode::empty())?)
}

/// Reserves disk blocks for a file, so that later writes work on a full disk (`fallocate(2)`). Does nothing where
/// the file system cannot.
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

/// Locks an open file or folder if nobody else has it locked. The lock ends when the descriptor is closed.
pub fn try_lock(descriptor: impl AsFd) -> io::Result<bool> {
    match rustix::io::retry_on_intr(|| flock(&descriptor, FlockOperation::NonBlockingLockExclusive)) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Locks an open file in shared mode if nobody has it locked exclusively. The lock ends when the descriptor is closed.
pub fn try_lock_shared(descriptor: impl AsFd) -> io::Result<bool> {
    match rustix::io::retry_on_intr(|| flock(&descriptor, FlockOperation::NonBlockingLockShared)) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Unlocks at once, also when a child that has not called exec yet still shares the descriptor.
pub fn unlock(descriptor: impl AsFd) {
    // Unlocking an open file cannot fail. If it did, closing the descriptor would do the same.
    let _ = flock(descriptor, FlockOperation::Unlock);
}

/// Waits for the lock for at most `limit`. Returns `None` when the time is up.
pub fn lock_within(descriptor: OwnedFd, limit: Duration) -> io::Result<Option<OwnedFd>> {
    if try_lock(&descriptor)? {
        return Ok(Some(descriptor));
    }
    // flock(2) has no timeout, so a thread waits for us in the kernel's queue. When it gets the lock too late, nobody
    // receives the descriptor, and closing it unlocks.
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
