//! File change notification: a descriptor that becomes readable when files in a folder change (inotify).
//!
//! Only Linux has it here. Elsewhere there is no descriptor, and callers poll.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

/// A watch on one folder.
#[derive(Debug)]
pub struct Changes {
    descriptor: Option<OwnedFd>,
}

impl Changes {
    /// Watches a folder. There is no descriptor when the folder does not exist yet, or the user has no inotify
    /// instance or watch left.
    pub fn watch(folder: &Path) -> io::Result<Self> {
        Ok(Self { descriptor: watch(folder)? })
    }

    /// Checks that this user may watch one more folder. The error says which limit is reached.
    pub fn probe(folder: &Path) -> io::Result<()> {
        probe(folder)
    }

    /// Returns a watch without a descriptor, as on systems that have no notification.
    pub const fn disabled() -> Self {
        Self { descriptor: None }
    }

    /// Returns the descriptor, which is readable after a change; `None` where there is no notification.
    pub fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.descriptor.as_ref().map(std::os::fd::AsFd::as_fd)
    }

    /// Discards the changes so far.
    pub fn drain(&self) {
        self.take();
    }

    /// Discards the changes so far, and says whether there were any.
    pub fn take(&self) -> bool {
        let (mut buffer, mut any) = ([0; 4096], false);
        if let Some(descriptor) = &self.descriptor {
            while matches!(rustix::io::read(descriptor, &mut buffer), Ok(read) if read > 0) {
                any = true;
            }
        }
        any
    }
}

#[cfg(target_os = "linux")]
fn watch(folder: &Path) -> io::Result<Option<OwnedFd>> {
    use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};

    let events = WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVED_TO;
    let Ok(descriptor) = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK) else {
        // The user has no inotify instance left: the caller polls.
        return Ok(None);
    };
    match add_watch(&descriptor, folder, events) {
        Ok(_) => Ok(Some(descriptor)),
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOSPC) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(target_os = "linux")]
fn probe(folder: &Path) -> io::Result<()> {
    use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};

    let descriptor = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    Ok(add_watch(&descriptor, folder, WatchFlags::MODIFY).map(|_| ())?)
}

/// Without notification there is no limit to reach.
#[cfg(not(target_os = "linux"))]
fn probe(_folder: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn watch(_folder: &Path) -> io::Result<Option<OwnedFd>> {
    Ok(None)
}
