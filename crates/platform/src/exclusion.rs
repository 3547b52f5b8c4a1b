//! Whether `flock(2)` on a folder keeps another process out: tried with a real one.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::{poll, swap};

/// A child that only locks a folder is done in a millisecond.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often in a row a lock that nobody has may be refused before it counts.
const ROUNDS: usize = 50;

/// What became of the trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exclusion {
    /// The other process was kept out while the folder was locked, and let in afterwards.
    Works,
    /// The other process got the lock although it was held.
    LetsBothIn,
    /// The other process was kept out although nobody held the lock.
    LetsNobodyIn,
    /// Somebody else had the folder locked just then, which is as good as a proof.
    InUse,
}

/// Locks a folder and lets a child process try the same. Nothing is written.
pub fn try_out(folder: &Path) -> io::Result<Exclusion> {
    let own = swap::open_folder(folder)?;
    if !swap::try_lock(&own)? {
        return Ok(Exclusion::InUse);
    }
    let held = child_can_lock(folder);
    swap::unlock(&own);
    if held? {
        return Ok(Exclusion::LetsBothIn);
    }
    // Others who try the same may come in between, each for a moment.
    for _ in 0..ROUNDS {
        if child_can_lock(folder)? {
            return Ok(Exclusion::Works);
        }
    }
    Ok(if swap::try_lock(&own)? { Exclusion::LetsNobodyIn } else { Exclusion::InUse })
}

/// What the child says.
const LOCKED: u8 = b'y';
const REFUSED: u8 = b'n';

fn child_can_lock(folder: &Path) -> io::Result<bool> {
    let path = CString::new(folder.as_os_str().as_bytes())?;
    let (reader, writer) = io::pipe()?;
    let child = fork_and_try(&path, &writer)?;
    drop(writer);
    let said = if poll::wait(&[reader.as_fd()], Some(PATIENCE))?.any() {
        let mut answer = [0; 1];
        rustix::io::read(&reader, &mut answer).map(|count| (count == 1).then_some(answer[0]))
    } else {
        // It cannot end by itself any more: its file system does not answer.
        let _ = kill_process(child, Signal::KILL);
        Ok(None)
    };
    // Somebody who collects all children of this process may have been faster.
    let _ = rustix::io::retry_on_intr(|| waitpid(Some(child), WaitOptions::empty()));
    match said? {
        Some(LOCKED) => Ok(true),
        Some(REFUSED) => Ok(false),
        Some(_) | None => Err(io::Error::other("a child process could not try to lock the folder")),
    }
}

#[expect(unsafe_code, reason = "only a child that runs no other program needs no program to be installed")]
fn fork_and_try(path: &CString, writer: &io::PipeWriter) -> io::Result<Pid> {
    let writer = writer.as_raw_fd();
    // SAFETY: the child makes only calls that are async-signal-safe, allocates nothing, and leaves by `_exit`, so that
    // it does not matter what other threads were doing. The path ends with a NUL and outlives the calls.
    let child = unsafe { libc::fork() };
    match child {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: as above.
            unsafe {
                let folder = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC);
                let locked = libc::flock(folder, libc::LOCK_EX | libc::LOCK_NB) == 0;
                let refused = io::Error::last_os_error().raw_os_error() == Some(libc::EWOULDBLOCK);
                let answer = if locked { [LOCKED] } else { [if refused { REFUSED } else { b'?' }] };
                libc::write(writer, answer.as_ptr().cast(), 1);
                libc::_exit(0)
            }
        }
        child => Pid::from_raw(child).ok_or_else(|| io::Error::other("a child without a number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_is_kept_out_and_let_in_afterwards() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(try_out(dir.path()).unwrap(), Exclusion::Works);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let held = swap::open_folder(dir.path()).unwrap();
        assert!(swap::try_lock(&held).unwrap());
        assert_eq!(try_out(dir.path()).unwrap(), Exclusion::InUse);
        assert!(!child_can_lock(dir.path()).unwrap());
    }

    #[test]
    fn those_who_try_at_the_same_time_do_not_mislead_each_other() {
        let dir = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            let trials: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| (0..20).map(|_| try_out(dir.path()).unwrap()).collect::<Vec<_>>()))
                .collect();
            for seen in trials.into_iter().flat_map(|trial| trial.join().unwrap()) {
                assert!(matches!(seen, Exclusion::Works | Exclusion::InUse), "{seen:?}");
            }
        });
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(try_out(&dir.path().join("missing")).is_err());
        assert!(child_can_lock(&dir.path().join("missing")).is_err());
    }
}
