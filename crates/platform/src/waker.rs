//! Wakers: a process sleeps on a FIFO, and another process wakes it with a write.
//!
//! A waker is a FIFO in the folder `wake/` of the store. The sleeper keeps it open for reading and writing, so it never reads an
//! end of file. A wake-up is one byte; any number of wake-ups before the next read count as one. A wake-up may carry a message,
//! which is lost if the FIFO is full: a sleeper that gets no message reads the store.
//!
//! A process that was killed leaves its FIFO behind, which nobody has open. [`WakeSender::remove`] removes it if a record still
//! names it, and [`sweep`] finds the others. A waker is created under a shared lock on the folder, and `sweep` takes an exclusive
//! one. So `sweep` never removes a FIFO between its creation and its opening.

#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use lockkeeper_core::id::WakerId;
use rustix::fs::{FileType, FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;

use super::{access, random};

/// What a wake-up may carry.
pub type Message = [u8; 24];

/// A wake-up without a message.
const PLAIN: u8 = b'!';
/// The first byte of a wake-up with a message. It is written at once with the message, and so is read whole.
const WITH_MESSAGE: u8 = b'=';

/// How many FIFOs stay open for the next wake-up: processes that take turns wake the same ones again and again.
const MOST_OPEN: usize = 64;

/// The waker of this process. Dropping it removes the FIFO.
#[derive(Debug)]
pub struct Waker {
    id: WakerId,
    path: PathBuf,
    descriptor: OwnedFd,
}

impl Waker {
    /// Creates a waker with a new id in the store at `dir`.
    pub fn create(dir: &Path) -> io::Result<Self> {
        // One bit is left out so that a store can keep the id as a signed integer.
        Self::create_with_id(dir, WakerId(random::number()? >> 1))
    }

    /// Creates the waker with this id. There is none with it yet.
    pub fn create_with_id(dir: &Path, id: WakerId) -> io::Result<Self> {
        let path = path(dir, id);
        let folder = match open_folder(dir)? {
            Some(folder) => folder,
            None => {
                access::make_folder(&dir.join("wake"))?;
                open_folder(dir)?.ok_or(io::ErrorKind::NotFound)?
            }
        };
        rustix::io::retry_on_intr(|| flock(&folder, FlockOperation::LockShared))?;
        make_fifo(&path)?;
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let descriptor = rustix::fs::open(&path, flags, Mode::empty())?;
        access::inherit(&descriptor, &dir.join("wake"))?;
        Ok(Self { id, path, descriptor })
    }

    /// The id by which others wake it.
    pub fn id(&self) -> WakerId {
        self.id
    }

    /// Forgets all wake-ups so far. Returns whether there were any, and the last message among them.
    pub fn receive(&self) -> io::Result<(bool, Option<Message>)> {
        let (mut woken, mut message) = (false, None);
        let mut buffer = [0; 256];
        // The beginning of a message whose end did not fit into the buffer.
        let mut kept = 0;
        loop {
            let read = match rustix::io::read(&self.descriptor, &mut buffer[kept..]) {
                Ok(0) | Err(Errno::AGAIN) => return Ok((woken, message)),
                Ok(read) => read,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            woken = true;
            let filled = kept + read;
            let rest = last_message(&buffer[..filled], &mut message);
            // There was room for more, so the FIFO is empty now. What comes from here on is the next wake-up.
            if filled < buffer.len() {
                return Ok((woken, message));
            }
            buffer.copy_within(filled - rest..filled, 0);
            kept = rest;
        }
    }
}

/// Readable after a wake-up.
impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for Waker {
    fn drop(&mut self) {
        // If the file stays, the next wake-up finds that nobody has it open.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Finds the last message in these bytes. Returns how many bytes at the end are the beginning of another message.
fn last_message(mut bytes: &[u8], message: &mut Option<Message>) -> usize {
    while let Some((&first, rest)) = bytes.split_first() {
        if first != WITH_MESSAGE {
            bytes = rest;
            continue;
        }
        let Some((found, rest)) = rest.split_first_chunk() else { return bytes.len() };
        *message = Some(*found);
        bytes = rest;
    }
    0
}

/// Wakes the sleepers of one store.
#[derive(Debug)]
pub struct WakeSender {
    dir: PathBuf,
    /// The FIFOs that were used last. An open writing end does not keep the sleeper from removing its FIFO.
    open: Mutex<Vec<(WakerId, OwnedFd)>>,
}

impl WakeSender {
    /// Wakes sleepers of the store at `dir`.
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), open: Mutex::new(Vec::new()) }
    }

    /// Wakes a sleeper. Returns false if there is none.
    pub fn wake(&self, waker: WakerId, message: Option<&Message>) -> io::Result<bool> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = open.iter().position(|(known, _)| *known == waker) {
            if write(&open[place].1, message)? {
                return Ok(true);
            }
            // The sleeper is gone, or has created the FIFO anew.
            open.remove(place);
        }
        let Some(descriptor) = open_to_wake(&self.dir, waker)? else { return Ok(false) };
        let is_read = write(&descriptor, message)?;
        if is_read {
            open.truncate(MOST_OPEN - 1);
            open.insert(0, (waker, descriptor));
        }
        Ok(is_read)
    }

    /// Removes the FIFO of a dead process. It is no error if it is gone.
    pub fn remove(&self, waker: WakerId) -> io::Result<()> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).retain(|(known, _)| *known != waker);
        unless_gone(std::fs::remove_file(path(&self.dir, waker)))
    }
}

/// Opens a FIFO for writing. None if there is no such FIFO, or no reader.
fn open_to_wake(dir: &Path, waker: WakerId) -> io::Result<Option<OwnedFd>> {
    // Without NONBLOCK this would wait for a reader.
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let path = path(dir, waker);
    let descriptor = match rustix::io::retry_on_intr(|| rustix::fs::open(&path, flags, Mode::empty())) {
        Ok(descriptor) => descriptor,
        Err(Errno::NXIO | Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if FileType::from_raw_mode(rustix::fs::fstat(&descriptor)?.st_mode) == FileType::Fifo {
        Ok(Some(descriptor))
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} is not a FIFO", path.display())))
    }
}

/// Writes a wake-up. Returns false if nobody reads the FIFO.
fn write(descriptor: &OwnedFd, message: Option<&Message>) -> io::Result<bool> {
    let mut with_message = [WITH_MESSAGE; size_of::<Message>() + 1];
    let bytes = match message {
        None => &[PLAIN][..],
        Some(message) => {
            with_message[1..].copy_from_slice(message);
            &with_message
        }
    };
    match rustix::io::retry_on_intr(|| rustix::io::write(descriptor, bytes)) {
        // A full FIFO wakes its reader, too.
        Ok(_) | Err(Errno::AGAIN) => Ok(true),
        // The reader is gone. Rust programs ignore the signal that comes with it.
        Err(Errno::PIPE) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn unless_gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Removes every FIFO that nobody has open. Its process was killed, and no record names it.
pub fn sweep(dir: &Path) -> io::Result<()> {
    let Some(folder) = open_folder(dir)? else { return Ok(()) };
    rustix::io::retry_on_intr(|| flock(&folder, FlockOperation::LockExclusive))?;
    for entry in std::fs::read_dir(dir.join("wake"))? {
        let entry = entry?;
        // Without a reader, opening a FIFO in this way is refused.
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if entry.file_type().is_ok_and(|kind| kind.is_fifo())
            && rustix::fs::open(entry.path(), flags, Mode::empty()).err() == Some(Errno::NXIO)
        {
            // Its process may have removed it meanwhile.
            unless_gone(std::fs::remove_file(entry.path()))?;
        }
    }
    Ok(())
}

/// Whether the process that slept on a waker is gone: its FIFO is there, and nobody reads it. False if that cannot be seen.
pub fn is_abandoned(dir: &Path, waker: WakerId) -> bool {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let has_no_reader =
        || rustix::fs::open(path(dir, waker), flags, Mode::empty()).err() == Some(Errno::NXIO);
    // A process that creates its FIFO holds a lock on the folder until it has opened the FIFO. It may be stopped meanwhile, so
    // this function does not wait for the lock.
    has_no_reader()
        && open_folder(dir)
            .ok()
            .flatten()
            .is_some_and(|folder| flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok())
        && has_no_reader()
}

fn open_folder(dir: &Path) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::open(dir.join("wake"), flags, Mode::empty()) {
        Ok(folder) => Ok(Some(folder)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn path(dir: &Path, waker: WakerId) -> PathBuf {
    dir.join("wake").join(waker.to_string())
}

#[cfg(not(target_vendor = "apple"))]
fn make_fifo(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::mkfifoat(rustix::fs::CWD, path, Mode::RUSR | Mode::WUSR)?)
}

#[cfg(target_vendor = "apple")]
#[expect(unsafe_code, reason = "rustix does not make FIFOs on macOS")]
fn make_fifo(path: &Path) -> io::Result<()> {
    use std::os::unix::ffi::OsStrExt;

    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the path ends with a NUL and is only read.
    if unsafe { libc::mkfifo(path.as_ptr(), 0o600) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
