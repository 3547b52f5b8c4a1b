//! Needs flock(1), and a system that shows who has a lock.

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

/// A shell that has the lock, and stops itself.
struct Stopped(std::process::Child);

impl Stopped {
    fn with_lock(path: &Path) -> Self {
        let script = "exec 9<>\"$1\"; flock 9; kill -STOP $$";
        let child = Command::new("sh").args(["-c", script, "sh"]).arg(path).spawn().unwrap();
        let lock = WriteLock::open(path).unwrap();
        while lock.stopped_holder().is_none() {
            std::thread::yield_now();
        }
        Self(child)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn patience(stopped: u64, any: u64) -> Patience {
    let [tick, stopped, any] = [5, stopped, any].map(Duration::from_millis);
    Patience { tick, stopped, any }
}

#[test]
fn a_stopped_holder_is_named_and_everybody_goes_on_when_it_ends() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gate");
    let lock = WriteLock::open(&path).unwrap();
    let stopped = Stopped::with_lock(&path);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| match lock.lock_within(patience(50, 3_600_000)) {
                Err(WriteLockError::Kept { holder: Some(holder), .. }) => {
                    assert_eq!(holder.process.pid, stopped.0.id());
                    assert!(holder.is_stopped && holder.command.starts_with("sh -c"), "{holder:?}");
                }
                other => panic!("{other:?}"),
            });
        }
    });
    // The next wait fails at once.
    let again = lock.lock_within(patience(3_600_000, 3_600_000));
    assert!(matches!(again, Err(WriteLockError::Kept { holder: Some(_), .. })), "{again:?}");
    drop(again);
    drop(stopped);
    drop(lock.lock().unwrap());
}

#[test]
fn a_holder_that_is_not_stopped_gets_more_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gate");
    let (holder, waiter) = (WriteLock::open(&path).unwrap(), WriteLock::open(&path).unwrap());
    let guard = holder.lock().unwrap();
    assert!(waiter.stopped_holder().is_none());
    match waiter.lock_within(patience(10, 100)) {
        Err(WriteLockError::Kept { holder: Some(holder), waited }) => {
            assert_eq!(holder.process, crate::process::current().unwrap());
            assert!(!holder.is_stopped && waited >= Duration::from_millis(100));
        }
        other => panic!("{other:?}"),
    }
    drop(guard);
    drop(waiter.lock().unwrap());
}

#[test]
fn a_waiter_gets_the_lock_when_its_holder_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gate");
    let (holder, waiter) = (WriteLock::open(&path).unwrap(), WriteLock::open(&path).unwrap());
    let guard = holder.lock().unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| waiter.lock_within(patience(3_600_000, 3_600_000)).map(drop));
        // Wait until the kernel shows the waiter. There its timer interrupts it.
        let id = FileId::of(&rustix::fs::fstat(&holder.file).unwrap());
        while lock_holders::find(&[id])[0].waiters.is_empty() {
            std::thread::yield_now();
        }
        drop(guard);
        waiting.join().unwrap().unwrap();
    });
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
