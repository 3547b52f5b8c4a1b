//! Doorbells: a waiter sleeps on one, and whoever has news for it wakes.
//!
//! A waker is a FIFO in the store's `wake/` folder. The waiter keeps it open in both directions, so that it never
//! reads an end of file; a wake is one byte, and any number of wakes before the next look are one. A wake may bring
//! a word along, which is lost when the FIFO is full: whoever hears no word has to look for itself. A waiter that
//! was killed leaves its FIFO behind, which nobody has open: [`WakeSender::remove`] cleans up where a record still names it,
//! and [`sweep`] finds the others. A waker is put up under a shared lock on the folder and swept under an exclusive
//! one, so that none is swept between its making and its opening.

#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use lockkeeper_core::id::WakerId;
use rustix::fs::{FileType, FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;

use super::random;
use super::write_lock::{has_company, pause};

/// What a wake may bring along.
pub type Word = [u8; 24];

/// A wake without a word, one that says that a word is about to come, and what begins one with a word. Each is written
/// at once, and so is read whole.
const RING: u8 = b'!';
const SOON: u8 = b'?';
const SAID: u8 = b'=';

/// How long a word is looked out for that is about to come: to fall asleep again and be woken takes as long.
const LOOK_OUT: Duration = Duration::from_micros(150);

/// How many wakers stay open for the next wake: whoever hands on in turn wakes the same ones again and again.
const MOST_OPEN: usize = 64;

/// A waiter's own waker. Dropping it takes it down.
#[derive(Debug)]
pub struct Waker {
    id: WakerId,
    path: PathBuf,
    descriptor: OwnedFd,
}

impl Waker {
    /// Puts up a new waker in the store at `dir`.
    pub fn create(dir: &Path) -> io::Result<Self> {
        // One bit is left out so that a store can keep the number as a signed integer.
        Self::create_with_id(dir, WakerId(random::number()? >> 1))
    }

    /// Puts up the waker with this number, which is not up yet.
    pub fn create_with_id(dir: &Path, id: WakerId) -> io::Result<Self> {
        let path = path(dir, id);
        let folder = match open_folder(dir)? {
            Some(folder) => folder,
            None => {
                make_folder(dir)?;
                open_folder(dir)?.ok_or(io::ErrorKind::NotFound)?
            }
        };
        rustix::io::retry_on_intr(|| flock(&folder, FlockOperation::LockShared))?;
        make_fifo(&path)?;
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let descriptor = rustix::fs::open(&path, flags, Mode::empty())?;
        Ok(Self { id, path, descriptor })
    }

    /// The number to wake it by.
    pub fn id(&self) -> WakerId {
        self.id
    }

    /// Forgets all wakes so far; returns whether there were any, and the last word that came with one. When a word is
    /// about to come, it is looked out for.
    pub fn hear(&self) -> io::Result<(bool, Option<Word>)> {
        let (woken, mut word, soon) = self.drain()?;
        if soon && word.is_none() {
            let until = Instant::now() + LOOK_OUT;
            while word.is_none() && Instant::now() < until {
                pause();
                word = self.drain()?.1;
            }
        }
        Ok((woken, word))
    }

    /// Forgets all wakes so far; returns whether there were any, the last word that came with one, and whether one is
    /// about to come.
    fn drain(&self) -> io::Result<(bool, Option<Word>, bool)> {
        let (mut woken, mut word, mut soon) = (false, None, false);
        let mut buffer = [0; 256];
        // The beginning of a word whose end did not fit in.
        let mut kept = 0;
        loop {
            let read = match rustix::io::read(&self.descriptor, &mut buffer[kept..]) {
                Ok(0) | Err(Errno::AGAIN) => return Ok((woken, word, soon)),
                Ok(read) => read,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            woken = true;
            let filled = kept + read;
            let rest = last_word(&buffer[..filled], &mut word, &mut soon);
            // Less than there was room for: it is empty now, and what comes from here on is the next wake.
            if filled < buffer.len() {
                return Ok((woken, word, soon));
            }
            buffer.copy_within(filled - rest..filled, 0);
            kept = rest;
        }
    }
}

/// Readable once it was woken.
impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for Waker {
    fn drop(&mut self) {
        // What stays is found to be nobody's at the next wake.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Finds the last word among what was read, and whether one is about to come; returns how many bytes at the end are the
/// beginning of another one.
fn last_word(mut bytes: &[u8], word: &mut Option<Word>, soon: &mut bool) -> usize {
    while let Some((&first, rest)) = bytes.split_first() {
        if first != SAID {
            *soon |= first == SOON;
            bytes = rest;
            continue;
        }
        let Some((said, rest)) = rest.split_first_chunk() else { return bytes.len() };
        *word = Some(*said);
        bytes = rest;
    }
    0
}

/// Rings the wakers of one store.
#[derive(Debug)]
pub struct WakeSender {
    dir: PathBuf,
    /// Those that were woken last. To have one open for writing keeps nobody from taking it down.
    open: Mutex<Vec<(WakerId, OwnedFd)>>,
}

impl WakeSender {
    /// Rings wakers of the store at `dir`.
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), open: Mutex::new(Vec::new()) }
    }

    /// Rings a waker. Returns false when there is none, or nobody to hear it.
    pub fn wake(&self, waker: WakerId, word: Option<&Word>) -> io::Result<bool> {
        self.through(waker, |descriptor| write(descriptor, word))
    }

    /// Wakes a sleeper to whom a word is about to be brought, so that it is awake by then. It is a favour: only wakers
    /// that were woken before and are open, and only where it has a core to be awake on.
    pub fn alert(&self, waker: WakerId) {
        if !has_company() {
            return;
        }
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, descriptor)) = open.iter().find(|(known, _)| *known == waker) {
            let _ = leave(descriptor, &[SOON]);
        }
    }

    /// Writes to a waker, which is opened for it unless it is open. Whoever cannot be written to is forgotten.
    fn through(&self, waker: WakerId, write: impl Fn(&OwnedFd) -> io::Result<bool>) -> io::Result<bool> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = open.iter().position(|(known, _)| *known == waker) {
            if write(&open[place].1)? {
                return Ok(true);
            }
            // Its sleeper is gone, or has put up another one.
            open.remove(place);
        }
        let Some(descriptor) = open_to_ring(&self.dir, waker)? else { return Ok(false) };
        let heard = write(&descriptor)?;
        if heard {
            open.truncate(MOST_OPEN - 1);
            open.insert(0, (waker, descriptor));
        }
        Ok(heard)
    }

    /// Takes down the waker that a dead waiter left; it is no error when it is gone.
    pub fn remove(&self, waker: WakerId) -> io::Result<()> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).retain(|(known, _)| *known != waker);
        unless_gone(std::fs::remove_file(path(&self.dir, waker)))
    }
}

/// Writes so few bytes that they are taken whole; false when there is no room, or nobody who could read them.
fn leave(descriptor: &OwnedFd, bytes: &[u8]) -> io::Result<bool> {
    match rustix::io::retry_on_intr(|| rustix::io::write(descriptor, bytes)) {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN | Errno::PIPE) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// None when there is no such waker, or nobody who could hear it.
fn open_to_ring(dir: &Path, waker: WakerId) -> io::Result<Option<OwnedFd>> {
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

fn unless_gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn write(descriptor: &OwnedFd, word: Option<&Word>) -> io::Result<bool> {
    let mut said = [SAID; size_of::<Word>() + 1];
    let bytes = match word {
        None => &[RING][..],
        Some(word) => {
            said[1..].copy_from_slice(word);
            &said
        }
    };
    match rustix::io::retry_on_intr(|| rustix::io::write(descriptor, bytes)) {
        // A full one was woken before and not yet heard.
        Ok(_) | Err(Errno::AGAIN) => Ok(true),
        // The waiter is gone. Rust programs ignore the signal that comes with it.
        Err(Errno::PIPE) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Takes down every waker that nobody has open: their waiters were killed before or after a record named them.
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
            // Its waiter may have taken it down while it was opened here.
            unless_gone(std::fs::remove_file(entry.path()))?;
        }
    }
    Ok(())
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

fn make_folder(dir: &Path) -> io::Result<()> {
    match rustix::fs::mkdir(dir.join("wake"), Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
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
