//! Lock probe: tests with a real child process whether `flock(2)` on a folder excludes it.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::{folder, poll};

/// How long the child may take. It normally needs a millisecond.
const CHILD_LIMIT: Duration = Duration::from_secs(10);

/// How many times in a row a free lock may be refused before the result counts.
const ROUNDS: usize = 50;

/// The result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    /// The child was refused while the folder was locked, and got the lock afterwards.
    Works,
    /// The child got the lock although this process held it.
    LetsBothIn,
    /// The child was refused although nobody held the lock.
    LetsNobodyIn,
    /// Another process has the folder locked now. That proves as well that locks work.
    InUse,
}

/// Locks a folder and lets a child process try to lock it too. Writes nothing.
pub fn probe(folder: &Path) -> io::Result<ProbeResult> {
    let own = folder::open_folder(folder)?;
    if !folder::try_lock(&own)? {
        return Ok(ProbeResult::InUse);
    }
    let held = child_can_lock(folder);
    folder::unlock(&own);
    if held? {
        return Ok(ProbeResult::LetsBothIn);
    }
    // Other probes may hold the lock for a moment.
    for _ in 0..ROUNDS {
        if child_can_lock(folder)? {
            return Ok(ProbeResult::Works);
        }
    }
    Ok(if folder::try_lock(&own)? { ProbeResult::LetsNobodyIn } else { ProbeResult::InUse })
}

/// What the child writes into the pipe.
const LOCKED: u8 = b'y';
const REFUSED: u8 = b'n';

fn child_can_lock(folder: &Path) -> io::Result<bool> {
    let path = CString::new(folder.as_os_str().as_bytes())?;
    let (reader, writer) = io::pipe()?;
    let child = fork_and_try(&path, &writer)?;
    drop(writer);
    let said = if poll::wait(&[reader.as_fd()], Some(CHILD_LIMIT))?.any() {
        let mut answer = [0; 1];
        rustix::io::read(&reader, &mut answer).map(|count| (count == 1).then_some(answer[0]))
    } else {
        // The child hangs because its file system does not answer.
        let _ = kill_process(child, Signal::KILL);
        Ok(None)
    };
    // Code that reaps all children of this process may have been faster.
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
    // SAFETY: the child makes only async-signal-safe calls, allocates nothing, and leaves by `_exit`, so the state of
    // other threads does not matter. The path ends with a NUL and outlives the calls.
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
        assert_eq!(probe(dir.path()).unwrap(), ProbeResult::Works);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let held = folder::open_folder(dir.path()).unwrap();
        assert!(folder::try_lock(&held).unwrap());
        assert_eq!(probe(dir.path()).unwrap(), ProbeResult::InUse);
        assert!(!child_can_lock(dir.path()).unwrap());
    }

    #[test]
    fn probes_at_the_same_time_do_not_mislead_each_other() {
        let dir = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            let trials: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| (0..20).map(|_| probe(dir.path()).unwrap()).collect::<Vec<_>>()))
                .collect();
            for seen in trials.into_iter().flat_map(|trial| trial.join().unwrap()) {
                assert!(matches!(seen, ProbeResult::Works | ProbeResult::InUse), "{seen:?}");
            }
        });
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(probe(&dir.path().join("missing")).is_err());
        assert!(child_can_lock(&dir.path().join("missing")).is_err());
    }
}
