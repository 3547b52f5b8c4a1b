//! Write lock: a lock file that one process at a time holds while it writes to a database.
//!
//! The kernel queues those who wait, so it is fairer than the busy timeout of SQLite, and nobody polls.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::fs::{open_private, open_to_read};

/// How often a held lock is tried before the process goes to sleep.
const TRIES: u32 = 40;
/// How many spin rounds are between two tries.
const PAUSE: u32 = 50;

/// A lock file. The kernel queues those who wait, and frees the lock when its holder dies.
#[derive(Debug)]
pub struct WriteLock {
    file: File,
    /// The kernel lock belongs to the open file. It does not exclude two threads that share the file.
    threads: Mutex<()>,
}

impl WriteLock {
    /// Opens the lock file. Creates it with access for its owner only. Refuses anything but a regular file.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { file: open_private(path)?.into(), threads: Mutex::new(()) })
    }

    /// Opens an existing lock file that may not be written.
    pub fn open_to_read(path: &Path) -> io::Result<Self> {
        Ok(Self { file: open_to_read(path)?.into(), threads: Mutex::new(()) })
    }

    /// The two numbers in the lock file; zero if there are none. The caller holds the lock. Version 0.1.0 writes only the first.
    pub fn noted(&self) -> io::Result<(u64, u64)> {
        let mut bytes = [0; 41];
        let length = self.file.read_at(&mut bytes, 0)?;
        let text = std::str::from_utf8(&bytes[..length]).unwrap_or_default();
        let (first, second) = text.split_once(' ').unwrap_or((text, ""));
        Ok((first.parse().unwrap_or(0), second.parse().unwrap_or(0)))
    }

    /// Writes two numbers into the lock file. The caller holds the lock.
    pub fn note(&self, first: u64, second: u64) -> io::Result<()> {
        self.file.write_all_at(format!("{first:020} {second:020}").as_bytes(), 0)
    }

    /// Waits until nobody else holds the lock, and takes it.
    pub fn lock(&self) -> io::Result<WriteLockGuard<'_>> {
        // The mutex guards nothing that a panic could leave half done.
        let thread = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if self.try_lock()? {
            return Ok(WriteLockGuard { file: &self.file, _thread: thread });
        }
        if has_several_cores() {
            // Holders keep it for some microseconds. To sleep and to be woken would take longer than to try again.
            for _ in 0..TRIES {
                if self.try_lock()? {
                    return Ok(WriteLockGuard { file: &self.file, _thread: thread });
                }
                pause();
            }
        }
        loop {
            match self.file.lock() {
                Ok(()) => return Ok(WriteLockGuard { file: &self.file, _thread: thread }),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes the lock if nobody holds it now.
    fn try_lock(&self) -> io::Result<bool> {
        match self.file.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// Whether there are several cores, so that the holder can run while this process spins.
fn has_several_cores() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(several_cores)
}

#[cfg(target_os = "linux")]
fn several_cores() -> bool {
    rustix::thread::sched_getaffinity(None).is_ok_and(|cores| cores.count() > 1)
}

#[cfg(not(target_os = "linux"))]
fn several_cores() -> bool {
    std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1)
}

/// Spins for a moment without giving up the core.
fn pause() {
    for _ in 0..PAUSE {
        std::hint::spin_loop();
    }
}

/// The lock is held until this is dropped.
#[derive(Debug)]
#[must_use = "the lock is free again when this is dropped"]
pub struct WriteLockGuard<'l> {
    file: &'l File,
    _thread: MutexGuard<'l, ()>,
}

impl Drop for WriteLockGuard<'_> {
    fn drop(&mut self) {
        // Unlocking an open file cannot fail. If it did, closing the file would unlock it.
        let _ = self.file.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::process::Command;

    fn another_process_can_lock(path: &Path) -> bool {
        Command::new("flock").arg("-n").arg(path).arg("true").status().unwrap().success()
    }

    #[test]
    fn another_process_waits_until_the_guard_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gate");
        let lock = WriteLock::open(&path).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let guard = lock.lock().unwrap();
        assert!(!another_process_can_lock(&path));
        drop(guard);
        assert!(another_process_can_lock(&path));
    }

    #[test]
    fn threads_that_share_a_lock_hold_it_one_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let lock = WriteLock::open(&dir.path().join("gate")).unwrap();
        let inside = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let _guard = lock.lock().unwrap();
                        assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                        inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    }
                });
            }
        });
    }

    #[test]
    fn two_numbers_can_be_kept_in_the_lock_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gate");
        let lock = WriteLock::open(&path).unwrap();
        assert_eq!(lock.noted().unwrap(), (0, 0));
        std::fs::write(&path, format!("{:020}", 7)).unwrap();
        assert_eq!(lock.noted().unwrap(), (7, 0), "as version 0.1.0 writes it");
        for numbers in [(4097, 1), (u64::MAX, u64::MAX), (12, 0)] {
            lock.note(numbers.0, numbers.1).unwrap();
            assert_eq!(WriteLock::open(&path).unwrap().noted().unwrap(), numbers);
        }
    }

    #[test]
    fn only_a_regular_file_is_a_lock_file() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        symlink(dir.path().join("elsewhere"), &link).unwrap();
        assert!(WriteLock::open(&link).is_err());
        assert!(!dir.path().join("elsewhere").exists());
        assert!(WriteLock::open(dir.path()).is_err());
        assert!(WriteLock::open(Path::new("/dev/null")).is_err());
        let fifo = dir.path().join("fifo");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        assert!(WriteLock::open(&fifo).is_err());
    }
}
