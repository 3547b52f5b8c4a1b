//! Write lock: a lock file that one process at a time holds while it writes to a database.
//!
//! The kernel queues those who wait, so it is fairer than the busy timeout of SQLite, and nobody polls. Holders keep it for
//! microseconds, unless one is stopped meanwhile (SIGSTOP, Ctrl-Z, a frozen container). So a wait ends with an error that names the
//! holder: after ten seconds if the holder is stopped, otherwise after thirty.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use thiserror::Error;

use super::fs::{open_private, open_to_read};
use super::lock_holders::{self, FileId, LockProcess};
use super::thread_timer::ThreadTimer;

/// How often a held lock is tried before the process goes to sleep.
const TRIES: u32 = 40;
/// How many spin rounds are between two tries.
const PAUSE: u32 = 50;

/// How long to wait.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// How often the wait is interrupted to look at the time.
    tick: Duration,
    /// For a holder that is stopped.
    stopped: Duration,
    /// For any other holder.
    any: Duration,
}

const PATIENCE: Patience =
    Patience { tick: Duration::from_secs(1), stopped: Duration::from_secs(10), any: Duration::from_secs(30) };

/// Why the lock could not be taken.
#[derive(Debug, Error)]
pub enum WriteLockError {
    /// The system failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Another process keeps it for so long that it is not worth waiting.
    #[error("another process keeps it")]
    Kept {
        /// Which one, if the system shows it.
        holder: Option<LockProcess>,
        /// How long this process has waited.
        waited: Duration,
    },
}

/// A lock file. The kernel queues those who wait, and frees the lock when its holder dies.
#[derive(Debug)]
pub struct WriteLock {
    file: File,
    /// The kernel lock belongs to the open file. It does not exclude two threads that share the file.
    threads: Mutex<()>,
    /// Whether the last wait failed because the holder is stopped. Then the next wait fails at once, as long as the holder is
    /// stopped.
    is_kept: AtomicBool,
}

impl WriteLock {
    /// Opens the lock file. Creates it with access for its owner only. Refuses anything but a regular file.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self::of(open_private(path)?.into()))
    }

    /// Opens an existing lock file that may not be written.
    pub fn open_to_read(path: &Path) -> io::Result<Self> {
        Ok(Self::of(open_to_read(path)?.into()))
    }

    fn of(file: File) -> Self {
        Self { file, threads: Mutex::new(()), is_kept: AtomicBool::new(false) }
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
    pub fn lock(&self) -> Result<WriteLockGuard<'_>, WriteLockError> {
        self.lock_within(PATIENCE)
    }

    /// The process that has the lock, if it is stopped: nobody else can write until it is continued or ends.
    pub fn stopped_holder(&self) -> Option<LockProcess> {
        self.holder().filter(|holder| holder.is_stopped)
    }

    fn lock_within(&self, patience: Patience) -> Result<WriteLockGuard<'_>, WriteLockError> {
        let entered = Instant::now();
        // The mutex guards nothing that a panic could leave half done.
        let thread = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let is_free = self.try_lock()? || self.spin()?;
        let taken = if is_free { Ok(()) } else { self.wait(entered, patience) };
        let is_kept = matches!(&taken, Err(WriteLockError::Kept { holder: Some(one), .. }) if one.is_stopped);
        if is_kept != self.is_kept.load(Ordering::Relaxed) {
            self.is_kept.store(is_kept, Ordering::Relaxed);
        }
        taken?;
        Ok(WriteLockGuard { file: &self.file, _thread: thread })
    }

    /// Tries again for a moment. Holders keep it for some microseconds: to sleep and to be woken would take longer.
    fn spin(&self) -> io::Result<bool> {
        if has_several_cores() {
            for _ in 0..TRIES {
                if self.try_lock()? {
                    return Ok(true);
                }
                pause();
            }
        }
        Ok(false)
    }

    /// Sleeps until the lock is free. `entered` is when the caller began to wait, perhaps for other threads.
    fn wait(&self, entered: Instant, patience: Patience) -> Result<(), WriteLockError> {
        // Without a timer, which a sandbox may forbid, it waits for as long as it takes.
        let _timer = ThreadTimer::every(patience.tick);
        let mut waited = entered.elapsed();
        if self.is_kept.load(Ordering::Relaxed) {
            waited = waited.max(patience.stopped);
        }
        loop {
            if waited >= patience.stopped {
                let holder = self.holder();
                if waited >= patience.any || holder.as_ref().is_some_and(|holder| holder.is_stopped) {
                    return Err(WriteLockError::Kept { holder, waited });
                }
            }
            let asleep = Instant::now();
            match self.file.lock() {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
            // If this process was stopped itself, perhaps together with the holder, it has not waited in that time.
            waited += asleep.elapsed().min(2 * patience.tick);
        }
    }

    fn holder(&self) -> Option<LockProcess> {
        let stat = rustix::fs::fstat(&self.file).ok()?;
        lock_holders::holder(FileId::of(&stat))
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

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests;
