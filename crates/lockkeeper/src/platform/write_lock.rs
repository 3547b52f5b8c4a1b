//! A gate that lets one process through at a time, in front of whatever handles crowds badly.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::fs::open_private;

/// How often a gate that is closed is tried before falling asleep.
const TRIES: u32 = 40;
/// How many idle rounds lie between two tries.
const PAUSE: u32 = 50;

/// A lock file. The kernel queues those who wait, and opens the gate when the one inside dies.
#[derive(Debug)]
pub struct WriteLock {
    file: File,
    /// The kernel's lock belongs to the open file: it would let two threads that share it through at once.
    threads: Mutex<()>,
}

impl WriteLock {
    /// Opens the gate file, created with access for its owner only. Anything but a regular file is refused.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { file: open_private(path)?.into(), threads: Mutex::new(()) })
    }

    /// The number that was last noted on the gate; zero when none was. Ask from inside.
    pub fn noted(&self) -> io::Result<u64> {
        let mut bytes = [0; 20];
        let length = self.file.read_at(&mut bytes, 0)?;
        let text = std::str::from_utf8(&bytes[..length]).unwrap_or_default();
        Ok(text.parse().unwrap_or(0))
    }

    /// Notes a number on the gate, from inside.
    pub fn note(&self, number: u64) -> io::Result<()> {
        self.file.write_all_at(format!("{number:020}").as_bytes(), 0)
    }

    /// Waits until nobody else is inside, and goes in.
    pub fn lock(&self) -> io::Result<WriteLockGuard<'_>> {
        // The mutex guards nothing that a panic could leave half done.
        let thread = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_entered()? {
            return Ok(WriteLockGuard { file: &self.file, _thread: thread });
        }
        if has_company() {
            // Those inside stay for some microseconds: to sleep and be woken would take longer than to try again.
            for _ in 0..TRIES {
                if self.is_entered()? {
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

    /// Goes in if nobody is inside now.
    fn is_entered(&self) -> io::Result<bool> {
        match self.file.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// Whether somebody else can run while this process does. Not knowing, nobody waits without sleeping.
pub(super) fn has_company() -> bool {
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

/// Lets a moment pass without giving up the core.
pub(super) fn pause() {
    for _ in 0..PAUSE {
        std::hint::spin_loop();
    }
}

/// Being inside the gate, until dropped.
#[derive(Debug)]
#[must_use = "the gate opens again when this is dropped"]
pub struct WriteLockGuard<'gate> {
    file: &'gate File,
    _thread: MutexGuard<'gate, ()>,
}

impl Drop for WriteLockGuard<'_> {
    fn drop(&mut self) {
        // Unlocking an open file cannot fail; if it did, closing the gate would do it.
        let _ = self.file.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::process::Command;

    fn another_process_can_enter(path: &Path) -> bool {
        Command::new("flock").arg("-n").arg(path).arg("true").status().unwrap().success()
    }

    #[test]
    fn another_process_stays_out_until_the_guard_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gate");
        let gate = WriteLock::open(&path).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let guard = gate.lock().unwrap();
        assert!(!another_process_can_enter(&path));
        drop(guard);
        assert!(another_process_can_enter(&path));
    }

    #[test]
    fn threads_that_share_a_gate_enter_one_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let gate = WriteLock::open(&dir.path().join("gate")).unwrap();
        let inside = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let _guard = gate.lock().unwrap();
                        assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                        inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    }
                });
            }
        });
    }

    #[test]
    fn a_number_can_be_noted_on_the_gate() {
        let dir = tempfile::tempdir().unwrap();
        let gate = WriteLock::open(&dir.path().join("gate")).unwrap();
        assert_eq!(gate.noted().unwrap(), 0);
        for number in [4097, u64::MAX, 12] {
            gate.note(number).unwrap();
            assert_eq!(WriteLock::open(&dir.path().join("gate")).unwrap().noted().unwrap(), number);
        }
    }

    #[test]
    fn only_a_regular_file_is_a_gate() {
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
