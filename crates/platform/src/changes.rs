//! Hearing that a folder's files were written to, so that a live view need not look all the time.
//!
//! Linux tells through inotify. Elsewhere nobody tells, and viewers look again now and then.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

/// A folder that is listened to.
#[derive(Debug)]
pub struct Changes {
    descriptor: Option<OwnedFd>,
}

impl Changes {
    /// Listens to a folder; one that does not exist yet is not heard.
    pub fn watch(folder: &Path) -> io::Result<Self> {
        Ok(Self { descriptor: listen(folder)? })
    }

    /// Whether this user may listen to one more folder; an error tells which limit is reached.
    pub fn try_out(folder: &Path) -> io::Result<()> {
        try_to_listen(folder)
    }

    /// Listens to nothing, as where nobody tells.
    pub const fn deaf() -> Self {
        Self { descriptor: None }
    }

    /// Readable after a change; none where nobody tells.
    pub fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.descriptor.as_ref().map(std::os::fd::AsFd::as_fd)
    }

    /// Forgets the changes so far.
    pub fn drain(&self) {
        self.take();
    }

    /// Forgets the changes so far; says whether there were any.
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
fn listen(folder: &Path) -> io::Result<Option<OwnedFd>> {
    use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
    let told_of = WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVED_TO;
    let Ok(descriptor) = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK) else {
        // Only so many instances a user may have: without one, viewers look now and then.
        return Ok(None);
    };
    match add_watch(&descriptor, folder, told_of) {
        Ok(_) => Ok(Some(descriptor)),
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOSPC) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(target_os = "linux")]
fn try_to_listen(folder: &Path) -> io::Result<()> {
    use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
    let descriptor = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    Ok(add_watch(&descriptor, folder, WatchFlags::MODIFY).map(|_| ())?)
}

/// There is no limit where nobody listens.
#[cfg(not(target_os = "linux"))]
fn try_to_listen(_folder: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn listen(_folder: &Path) -> io::Result<Option<OwnedFd>> {
    Ok(None)
}
