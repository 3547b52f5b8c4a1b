//! Doorbells: a waiter sleeps on one, and whoever has news for it rings.
//!
//! A bell is a FIFO in the store's `wake/` folder. The waiter keeps it open in both directions, so that it never
//! reads an end of file; a ring is one byte, and any number of rings before the next look are one. A waiter that
//! was killed leaves its FIFO behind, which nobody has open: [`remove`] cleans up where a record still names it,
//! and [`sweep`] finds the others. A bell is put up under a shared lock on the folder and swept under an exclusive
//! one, so that none is swept between its making and its opening.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use lockkeeper_core::id::BellId;
use rustix::fs::{FileType, FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;

use super::random;

/// A waiter's own bell. Dropping it takes it down.
#[derive(Debug)]
pub struct Bell {
    id: BellId,
    path: PathBuf,
    descriptor: OwnedFd,
}

impl Bell {
    /// Puts up a new bell in the store at `dir`.
    pub fn create(dir: &Path) -> io::Result<Self> {
        // One bit is left out so that a store can keep the number as a signed integer.
        Self::create_with_id(dir, BellId(random::number()? >> 1))
    }

    /// Puts up the bell with this number, which is not up yet.
    pub fn create_with_id(dir: &Path, id: BellId) -> io::Result<Self> {
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

    /// The number to ring it by.
    pub fn id(&self) -> BellId {
        self.id
    }

    /// Forgets all rings so far; returns whether there were any.
    pub fn drain(&self) -> io::Result<bool> {
        let mut rung = false;
        let mut buffer = [0; 256];
        loop {
            match rustix::io::read(&self.descriptor, &mut buffer) {
                Ok(0) | Err(Errno::AGAIN) => return Ok(rung),
                Ok(_) => rung = true,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Readable once it was rung.
impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        // What stays is found to be nobody's at the next ring.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Rings a bell. Returns false when there is none, or nobody to hear it.
pub fn ring(dir: &Path, bell: BellId) -> io::Result<bool> {
    // Without NONBLOCK this would wait for a reader.
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let path = path(dir, bell);
    let descriptor = match rustix::io::retry_on_intr(|| rustix::fs::open(&path, flags, Mode::empty())) {
        Ok(descriptor) => descriptor,
        Err(Errno::NXIO | Errno::NOENT) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    if FileType::from_raw_mode(rustix::fs::fstat(&descriptor)?.st_mode) != FileType::Fifo {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} is not a FIFO", path.display())));
    }
    match rustix::io::retry_on_intr(|| rustix::io::write(&descriptor, b"!")) {
        // A full one was rung before and not yet heard.
        Ok(_) | Err(Errno::AGAIN) => Ok(true),
        // The waiter went between the two calls. Rust programs ignore the signal that comes with it.
        Err(Errno::PIPE) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Takes down the bell that a dead waiter left; it is no error when it is gone.
pub fn remove(dir: &Path, bell: BellId) -> io::Result<()> {
    unless_gone(std::fs::remove_file(path(dir, bell)))
}

fn unless_gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Takes down every bell that nobody has open: their waiters were killed before or after a record named them.
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

fn path(dir: &Path, bell: BellId) -> PathBuf {
    dir.join("wake").join(bell.to_string())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::poll;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::Duration;

    #[test]
    fn a_ring_is_heard_once_however_often_it_rang() {
        let dir = tempfile::tempdir().unwrap();
        let bell = Bell::create(dir.path()).unwrap();
        assert!(!bell.drain().unwrap());
        for _ in 0..3 {
            assert!(ring(dir.path(), bell.id()).unwrap());
        }
        assert!(poll::wait(&[bell.as_fd()], None).unwrap().any());
        assert!(bell.drain().unwrap());
        assert!(!poll::wait(&[bell.as_fd()], Some(Duration::ZERO)).unwrap().any());
    }

    #[test]
    fn a_sleeper_is_woken_by_another_process() {
        let dir = tempfile::tempdir().unwrap();
        let bell = Bell::create(dir.path()).unwrap();
        let script = format!("printf x > '{}'", path(dir.path(), bell.id()).display());
        let mut ringer = std::process::Command::new("sh").args(["-c", &script]).spawn().unwrap();
        assert!(poll::wait(&[bell.as_fd()], None).unwrap().contains(0));
        ringer.wait().unwrap();
    }

    #[test]
    fn a_full_bell_counts_as_rung() {
        let dir = tempfile::tempdir().unwrap();
        let bell = Bell::create(dir.path()).unwrap();
        while rustix::io::write(&bell, &[0; 4096]).is_ok() {}
        assert!(ring(dir.path(), bell.id()).unwrap());
        assert!(bell.drain().unwrap());
    }

    #[test]
    fn nobody_hears_a_bell_that_is_gone_or_was_left_behind() {
        let dir = tempfile::tempdir().unwrap();
        let bell = Bell::create(dir.path()).unwrap();
        let (id, path) = (bell.id(), bell.path.clone());
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        drop(bell);
        assert!(!path.exists());
        assert!(!ring(dir.path(), id).unwrap());
        make_fifo(&path).unwrap();
        assert!(!ring(dir.path(), id).unwrap());
        remove(dir.path(), id).unwrap();
        assert!(!path.exists());
        remove(dir.path(), id).unwrap();
    }

    #[test]
    fn a_sweep_takes_down_what_nobody_has_open_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        sweep(dir.path()).unwrap();
        let bell = Bell::create(dir.path()).unwrap();
        let (left, file) = (path(dir.path(), BellId(1)), path(dir.path(), BellId(2)));
        make_fifo(&left).unwrap();
        std::fs::write(&file, "keep").unwrap();
        sweep(dir.path()).unwrap();
        assert!(!left.exists() && file.exists());
        assert!(ring(dir.path(), bell.id()).unwrap());
        assert!(bell.drain().unwrap());
    }

    #[test]
    fn no_bell_is_swept_while_it_is_put_up() {
        let dir = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            let putting_up = scope.spawn(|| {
                for _ in 0..300 {
                    let bell = Bell::create(dir.path()).unwrap();
                    assert!(ring(dir.path(), bell.id()).unwrap());
                }
            });
            while !putting_up.is_finished() {
                sweep(dir.path()).unwrap();
            }
        });
    }

    #[test]
    fn nothing_but_a_fifo_is_written_to() {
        let dir = tempfile::tempdir().unwrap();
        make_folder(dir.path()).unwrap();
        let (file, link) = (BellId(1), BellId(2));
        std::fs::write(path(dir.path(), file), "keep").unwrap();
        symlink(path(dir.path(), file), path(dir.path(), link)).unwrap();
        assert!(ring(dir.path(), file).is_err());
        assert!(ring(dir.path(), link).is_err());
        assert_eq!(std::fs::read_to_string(path(dir.path(), file)).unwrap(), "keep");
    }
}
