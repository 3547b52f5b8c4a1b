//! Liveness locks: kernel locks that last exactly as long as the processes that share them.
//!
//! All holders lock one file, `life`. Each locks a single byte, at the offset that is its random [`HolderId`]. The lock belongs to
//! an open file description. So it needs no pid and no clock, it survives `exec`, and every process that inherits the descriptor
//! shares it. The kernel drops it when the last of these processes is gone, however it ended. The file stays empty and is never
//! unlinked, so there is no second file that a process could lock by mistake.
//!
//! A reader asks for a read lock, which only the write lock of a holder refuses. So readers, and those who wait for the end of
//! a holder, are never taken for holders. They use a file description of their own, because the kernel does not report the locks
//! of a description to itself.
//!
//! If somebody deletes `life` or puts a copy in its place, later processes open another file, in which no byte is locked. So a
//! holder id contains a tag of the file that was locked (its inode and the time of its creation). A byte of another file proves
//! nothing about that holder: [`LivenessFile::look`] returns [`LockState::Unreadable`].
//!
//! Linux and macOS have such locks. Elsewhere each holder has a file of its own under `life.d/` with `flock(2)` on it. It behaves
//! the same, but a killed holder leaves an empty file behind.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use lockkeeper_core::id::HolderId;
use lockkeeper_core::liveness::{LockState, ProcessRef};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::process::{Resource, getrlimit};

use super::lock_holders::{self, FileId};
use super::{fs, random};

#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
use flock_files as locks;
#[cfg(any(target_os = "linux", target_vendor = "apple"))]
use ofd_locks as locks;

/// Commands inherit the lock at a descriptor number that scripts do not use (`exec 3>…`, `9>&1`).
const FIRST_INHERITED: i32 = 100;

/// The lowest number for a descriptor that commands inherit: [`FIRST_INHERITED`], or less where `ulimit -n` is low.
pub(super) fn first_inherited() -> i32 {
    let limit = getrlimit(Resource::Nofile).current.and_then(|limit| i32::try_from(limit).ok());
    limit.map_or(FIRST_INHERITED, |limit| FIRST_INHERITED.min(limit / 4 * 3))
}

/// This bit says that the lowest bits of a holder id are the tag of a file. Ids of version 0.1.0 are below it.
const HAS_TAG: u64 = 1 << 62;
/// How many bits a tag has. The 40 bits between these two are random.
const TAG_BITS: u32 = 22;

/// The file that all holders of one store lock.
#[derive(Debug)]
pub struct LivenessFile {
    path: PathBuf,
    looking: OwnedFd,
    /// The tag of the file that is open for looking.
    tag: u64,
}

impl LivenessFile {
    /// Whether [`LivenessFile::processes`] finds the processes of this user here.
    pub const SHOWS_PROCESSES: bool = cfg!(target_os = "linux");

    /// Opens the file in `dir`, which exists, and creates it at first.
    pub fn open(dir: &Path) -> io::Result<Self> {
        let path = dir.join("life");
        let looking = locks::open(&path)?;
        let tag = tag_of(&looking)?;
        Ok(Self { path, looking, tag })
    }

    /// Opens an existing file that may not be written. It can be looked at, but no lock can be taken.
    pub fn open_to_read(dir: &Path) -> io::Result<Self> {
        let path = dir.join("life");
        let looking = super::fs::open_to_read(&path)?;
        let tag = tag_of(&looking)?;
        Ok(Self { path, looking, tag })
    }

    /// Takes a lock with a new id, which contains the tag of the locked file.
    pub fn hold_new(&self) -> io::Result<LivenessLock> {
        loop {
            let drawn = random::number()? >> (TAG_BITS + 2) << TAG_BITS;
            let file = locks::open(&self.path)?;
            let holder = HolderId(HAS_TAG | drawn | tag_of(&file)?);
            match locks::hold(&self.path, file, holder) {
                Ok(descriptor) => return Ok(LivenessLock { holder, descriptor }),
                // Another holder has drawn the same number.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes the lock of a chosen `holder`. From here on readers see it as held.
    pub fn hold(&self, holder: HolderId) -> io::Result<LivenessLock> {
        let file = locks::open(&self.path)?;
        Ok(LivenessLock { holder, descriptor: locks::hold(&self.path, file, holder)? })
    }

    /// Reads whether any process of the holder is left. It costs one system call and blocks nobody.
    ///
    /// A holder that locked another file is [`LockState::Unreadable`]: nothing can be said about it here.
    pub fn look(&self, holder: HolderId) -> LockState {
        let is_held = if is_of(holder, self.tag) {
            locks::is_held(&self.path, self.looking.as_fd(), holder)
        } else {
            // This process may have opened the file before it was replaced.
            self.newer_file(holder).and_then(|file| locks::is_held(&self.path, file.as_fd(), holder))
        };
        match is_held {
            Ok(true) => LockState::Held,
            Ok(false) => LockState::Free,
            Err(_) => LockState::Unreadable,
        }
    }

    /// Opens the file that has this name now, if it is the one that the holder locked.
    fn newer_file(&self, holder: HolderId) -> io::Result<OwnedFd> {
        let file = locks::open(&self.path)?;
        if is_of(holder, tag_of(&file)?) { Ok(file) } else { Err(io::Error::other("the file was replaced")) }
    }

    /// Whether any process holds a lock here. True if that cannot be read.
    pub fn has_holders(&self) -> bool {
        locks::has_holders(&self.path, self.looking.as_fd()).unwrap_or(true)
    }

    /// The other processes of a holder, where the system shows them. It reads every process of the machine.
    pub fn processes(&self, holder: HolderId) -> Vec<ProcessRef> {
        match rustix::fs::fstat(&self.looking) {
            Ok(facts) => lock_holders::sharing(FileId::of(&facts), holder.0),
            Err(_) => Vec::new(),
        }
    }

    /// Blocks the calling thread until no process of the holder is left.
    pub fn wait_free(&self, holder: HolderId) -> io::Result<()> {
        // A description of its own: closing it gives the read lock back.
        let file = self.newer_file(holder)?;
        locks::wait_free(&self.path, file.as_fd(), holder)
    }
}

/// Whether the holder locked the file with this tag. That is not known of ids without a tag, so the answer is yes.
fn is_of(holder: HolderId, tag: u64) -> bool {
    holder.0 & HAS_TAG == 0 || holder.0 & ((1 << TAG_BITS) - 1) == tag
}

/// The tag of an open file. The device is left out: it changes when a disk is mounted again, and its files do not.
fn tag_of(file: &OwnedFd) -> io::Result<u64> {
    let (inode, born) = fs::inode_and_birth(file)?;
    // A multiplication by an odd constant spreads every bit to the highest ones (Fibonacci hashing).
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mixed = (inode.wrapping_mul(SPREAD) ^ born).wrapping_mul(SPREAD);
    Ok(mixed >> (u64::BITS - TAG_BITS))
}

/// The lock of a holder. Dropping it closes the descriptor of this process only: commands that share the lock keep it.
#[derive(Debug)]
pub struct LivenessLock {
    holder: HolderId,
    descriptor: OwnedFd,
}

impl LivenessLock {
    /// The offset of the lock.
    pub fn holder(&self) -> HolderId {
        self.holder
    }

    /// The descriptor that a command inherits to share the lock, and its number there.
    pub fn for_child(&self) -> (BorrowedFd<'_>, i32) {
        (self.descriptor.as_fd(), first_inherited())
    }

    /// Lets every command inherit the lock that this process starts while the result exists, with its whole process tree.
    ///
    /// That includes commands that other threads start. A command that closes unknown descriptors (`sudo`, daemons) gives the
    /// lock up for itself and its children.
    pub fn share_with_children(&self) -> io::Result<SharedLivenessLock> {
        // The copy is close-on-exec at first. The call that clears this flag cannot fail.
        let descriptor = fcntl_dupfd_cloexec(&self.descriptor, first_inherited())?;
        fcntl_setfd(&descriptor, FdFlags::empty())?;
        Ok(SharedLivenessLock { descriptor })
    }

    /// Ends the lock for all processes that share it, also for commands that still run.
    pub fn release(self) -> io::Result<()> {
        locks::release(self.descriptor.as_fd(), self.holder)
    }
}

/// While this exists, started commands inherit the lock. Later ones do not.
#[derive(Debug)]
pub struct SharedLivenessLock {
    descriptor: OwnedFd,
}

impl SharedLivenessLock {
    /// The number of the descriptor in commands.
    pub fn number(&self) -> i32 {
        self.descriptor.as_raw_fd()
    }
}

#[cfg(any(target_os = "linux", target_vendor = "apple"))]
mod ofd_locks {
    use std::ffi::c_short;

    use super::{AsFd, AsRawFd, BorrowedFd, HolderId, OwnedFd, Path, io};
    use crate::fs::open_private;

    // Open-file-description locks always use 64-bit offsets.
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    use libc::flock as Range;
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    use libc::flock64 as Range;

    // Their type differs between systems.
    const READ: c_short = libc::F_RDLCK as c_short;
    const WRITE: c_short = libc::F_WRLCK as c_short;
    const NONE: c_short = libc::F_UNLCK as c_short;

    pub(super) fn open(path: &Path) -> io::Result<OwnedFd> {
        open_private(path)
    }

    pub(super) fn hold(_path: &Path, file: OwnedFd, holder: HolderId) -> io::Result<OwnedFd> {
        control(file.as_fd(), libc::F_OFD_SETLK, &mut byte(holder, WRITE)?)?;
        Ok(file)
    }

    pub(super) fn is_held(_path: &Path, looking: BorrowedFd<'_>, holder: HolderId) -> io::Result<bool> {
        let mut range = byte(holder, READ)?;
        control(looking, libc::F_OFD_GETLK, &mut range)?;
        Ok(range.l_type != NONE)
    }

    pub(super) fn has_holders(_path: &Path, looking: BorrowedFd<'_>) -> io::Result<bool> {
        let mut range = byte(HolderId(0), READ)?;
        // The whole file.
        range.l_len = 0;
        control(looking, libc::F_OFD_GETLK, &mut range)?;
        Ok(range.l_type != NONE)
    }

    pub(super) fn wait_free(_path: &Path, file: BorrowedFd<'_>, holder: HolderId) -> io::Result<()> {
        control(file, libc::F_OFD_SETLKW, &mut byte(holder, READ)?)
    }

    pub(super) fn release(descriptor: BorrowedFd<'_>, holder: HolderId) -> io::Result<()> {
        control(descriptor, libc::F_OFD_SETLK, &mut byte(holder, NONE)?)
    }

    fn byte(holder: HolderId, kind: c_short) -> io::Result<Range> {
        let offset = i64::try_from(holder.0).ok().filter(|offset| *offset < i64::MAX);
        let start =
            offset.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "holder id above 2^63"))?;
        let mut range = empty_range();
        range.l_type = kind;
        range.l_whence = libc::SEEK_SET as c_short;
        range.l_start = start;
        range.l_len = 1;
        Ok(range)
    }

    #[expect(
        unsafe_code,
        reason = "the structure has private padding on some systems, so no literal can be written"
    )]
    fn empty_range() -> Range {
        // SAFETY: the structure holds integers only, for which zero is a value. Its pid must be zero.
        unsafe { std::mem::zeroed() }
    }

    #[expect(unsafe_code, reason = "rustix has no open-file-description locks")]
    fn control(descriptor: BorrowedFd<'_>, command: i32, range: &mut Range) -> io::Result<()> {
        loop {
            // SAFETY: the descriptor is open, and these commands take a pointer to such a structure.
            let outcome = unsafe { libc::fcntl(descriptor.as_raw_fd(), command, std::ptr::from_mut(range)) };
            if outcome != -1 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
mod flock_files {
    use rustix::fs::{FlockOperation, Mode, OFlags, flock};
    use rustix::io::Errno;

    use super::{BorrowedFd, HolderId, OwnedFd, Path, PathBuf, io};
    use crate::fs::open_private;

    pub(super) fn open(path: &Path) -> io::Result<OwnedFd> {
        match rustix::fs::mkdir(path.with_extension("d"), Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => open_private(path),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn hold(path: &Path, _file: OwnedFd, holder: HolderId) -> io::Result<OwnedFd> {
        let descriptor = open_private(&own_path(path, holder))?;
        flock(&descriptor, FlockOperation::NonBlockingLockExclusive)?;
        Ok(descriptor)
    }

    pub(super) fn is_held(path: &Path, _looking: BorrowedFd<'_>, holder: HolderId) -> io::Result<bool> {
        let Some(descriptor) = open_existing(&own_path(path, holder))? else { return Ok(false) };
        match flock(&descriptor, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(false),
            Err(Errno::WOULDBLOCK) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn has_holders(path: &Path, _looking: BorrowedFd<'_>) -> io::Result<bool> {
        for entry in std::fs::read_dir(path.with_extension("d"))? {
            let Some(descriptor) = open_existing(&entry?.path())? else { continue };
            match flock(&descriptor, FlockOperation::NonBlockingLockShared) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(false)
    }

    pub(super) fn wait_free(path: &Path, _file: BorrowedFd<'_>, holder: HolderId) -> io::Result<()> {
        let own_path = own_path(path, holder);
        let Some(descriptor) = open_existing(&own_path)? else { return Ok(()) };
        rustix::io::retry_on_intr(|| flock(&descriptor, FlockOperation::LockShared))?;
        // Ids are never used again, so nobody can come to lock it.
        std::fs::remove_file(own_path).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })
    }

    pub(super) fn release(descriptor: BorrowedFd<'_>, _holder: HolderId) -> io::Result<()> {
        Ok(flock(descriptor, FlockOperation::Unlock)?)
    }

    fn own_path(path: &Path, holder: HolderId) -> PathBuf {
        path.with_extension("d").join(format!("{:016x}", holder.0))
    }

    fn open_existing(path: &Path) -> io::Result<Option<OwnedFd>> {
        match rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(descriptor) => Ok(Some(descriptor)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
