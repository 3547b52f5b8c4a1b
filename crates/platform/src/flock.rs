//! Whole-file locks (`flock(2)`), with a time limit and without polling.
//!
//! The lock belongs to an open file description: every process that shares the descriptor shares the lock, and it lasts until
//! one of them unlocks it or the last of them is gone. The kernel wakes a waiter itself, so the call that blocks runs
//! in a thread of its own. When the time is up or a signal came, [`wait`] interrupts that call and joins the thread
//! before it returns. So a description that other processes share never gets the lock afterwards.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::thread::JoinHandleExt;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};

use super::liveness_lock::first_inherited;
use super::{poll, signal};

/// The signal is lost if the call of the thread has not begun yet. So it is sent again after this time.
const TELL_AGAIN: Duration = Duration::from_millis(5);

/// The outcome of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// The lock is ours.
    Locked,
    /// The time was up first.
    TimedOut,
    /// One of the descriptors that may cut the wait short can be read.
    Interrupted,
}

/// Whether others may have the lock at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// No.
    #[default]
    Exclusive,
    /// Yes, those that share it.
    Shared,
}

impl Sharing {
    const fn blocking(self) -> FlockOperation {
        match self {
            Self::Exclusive => FlockOperation::LockExclusive,
            Self::Shared => FlockOperation::LockShared,
        }
    }

    const fn nonblocking(self) -> FlockOperation {
        match self {
            Self::Exclusive => FlockOperation::NonBlockingLockExclusive,
            Self::Shared => FlockOperation::NonBlockingLockShared,
        }
    }
}

/// A second descriptor for the description that this process inherited as `number`, or `None` when it is not open.
pub fn inherited(number: RawFd) -> io::Result<Option<OwnedFd>> {
    match duplicate(number) {
        Ok(descriptor) => Ok(Some(descriptor)),
        Err(error) if error.raw_os_error() == Some(libc::EBADF) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A descriptor of the same description that every command started from now on inherits, until it is dropped.
pub fn inheritable(descriptor: impl AsFd) -> io::Result<OwnedFd> {
    // The copy is close-on-exec at first. The call that clears this flag cannot fail.
    let shared = fcntl_dupfd_cloexec(descriptor, first_inherited())?;
    fcntl_setfd(&shared, FdFlags::empty())?;
    Ok(shared)
}

/// Takes the lock if nobody else has it.
pub fn try_lock(descriptor: impl AsFd) -> io::Result<bool> {
    try_lock_as(descriptor, Sharing::Exclusive)
}

/// Takes the lock if nobody has it in a way that excludes this one.
pub fn try_lock_as(descriptor: impl AsFd, sharing: Sharing) -> io::Result<bool> {
    match flock(descriptor, sharing.nonblocking()) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Says whether another description has the lock. The answer is of this moment only.
pub fn is_locked(descriptor: impl AsFd) -> io::Result<bool> {
    match flock(&descriptor, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(flock(&descriptor, FlockOperation::Unlock).map(|()| false)?),
        Err(Errno::WOULDBLOCK) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Waits for the lock in the calling thread, however long it takes. For locks that are held for moments only.
pub fn lock(descriptor: impl AsFd) -> io::Result<()> {
    Ok(rustix::io::retry_on_intr(|| flock(descriptor.as_fd(), FlockOperation::LockExclusive))?)
}

/// Gives the lock back, for everyone who shares the description.
pub fn unlock(descriptor: impl AsFd) -> io::Result<()> {
    Ok(flock(descriptor, FlockOperation::Unlock)?)
}

/// Waits for the lock until the time is up or one of `interrupts` can be read.
///
/// `after` is called once, when that much time has passed without an end.
pub fn wait(
    descriptor: impl AsFd,
    sharing: Sharing,
    until: Option<Instant>,
    interrupts: &[BorrowedFd<'_>],
    after: (Duration, &mut dyn FnMut()),
) -> io::Result<Waited> {
    if try_lock_as(&descriptor, sharing)? {
        return Ok(Waited::Locked);
    }
    signal::make_interrupting(INTERRUPT)?;
    let sleeper = Sleeper::start(descriptor.as_fd(), sharing)?;
    let (delay, tell) = after;
    let told_at = Instant::now().checked_add(delay);
    let mut told = false;
    let mut watched: Vec<BorrowedFd<'_>> = vec![sleeper.ended.as_fd()];
    watched.extend_from_slice(interrupts);
    let slept = loop {
        let next = if told { until } else { [until, told_at].into_iter().flatten().min() };
        let limit = next.map(|next| next.saturating_duration_since(Instant::now()));
        match poll::wait(&watched, limit) {
            Err(error) => break Err(error),
            Ok(ready) if ready.contains(0) => break Ok(None),
            Ok(ready) if ready.any() => break Ok(Some(Waited::Interrupted)),
            Ok(_) if until.is_some_and(|until| until <= Instant::now()) => break Ok(Some(Waited::TimedOut)),
            Ok(_) if !told => {
                told = true;
                tell();
            }
            Ok(_) => {}
        }
    };
    let outcome = match slept {
        Ok(None) => sleeper.join()?,
        Ok(Some(_)) | Err(_) => sleeper.give_up()?,
    };
    let cut_short = match slept {
        Ok(cut_short) => cut_short,
        Err(error) => {
            unlock(&descriptor)?;
            return Err(error);
        }
    };
    match (outcome, cut_short) {
        // The lock came at the last moment. A caller that was interrupted does not want it any more.
        (Ok(()), Some(Waited::Interrupted)) => unlock(&descriptor).map(|()| Waited::Interrupted),
        (Ok(()), None | Some(Waited::Locked | Waited::TimedOut)) => Ok(Waited::Locked),
        (Err(Errno::INTR), Some(cut_short)) => Ok(cut_short),
        (Err(error), _) => Err(error.into()),
    }
}

/// The signal that interrupts the call. Its default action is to do nothing, so it does no harm when it comes late.
const INTERRUPT: signal::Signal = signal::Signal::URG;

/// The thread that the kernel puts to sleep.
struct Sleeper {
    thread: JoinHandle<rustix::io::Result<()>>,
    /// Its other end is closed when the thread's call has returned.
    ended: io::PipeReader,
}

impl Sleeper {
    fn start(descriptor: BorrowedFd<'_>, sharing: Sharing) -> io::Result<Self> {
        let descriptor = fcntl_dupfd_cloexec(descriptor, 3)?;
        let (ended, ends) = io::pipe()?;
        let thread = std::thread::Builder::new().name("flock".to_owned()).spawn(move || {
            let _ends = ends;
            flock(&descriptor, sharing.blocking())
        })?;
        Ok(Self { thread, ended })
    }

    /// Interrupts the call, and returns its result: whether the lock was taken.
    fn give_up(self) -> io::Result<rustix::io::Result<()>> {
        loop {
            interrupt(&self.thread)?;
            // The signal is lost when the call had not begun yet.
            if poll::wait(&[self.ended.as_fd()], Some(TELL_AGAIN))?.any() {
                return self.join();
            }
        }
    }

    fn join(self) -> io::Result<rustix::io::Result<()>> {
        self.thread.join().map_err(|_| io::Error::other("the waiting thread panicked"))
    }
}

#[expect(unsafe_code, reason = "only a raw number tells which of the inherited descriptors is meant")]
fn duplicate(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the command takes two integers; a number that is not open is an error.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    if copy == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was opened just now, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

#[expect(unsafe_code, reason = "std cannot interrupt a thread's system call")]
fn interrupt(thread: &JoinHandle<rustix::io::Result<()>>) -> io::Result<()> {
    // SAFETY: the thread was not joined, so its handle is valid even when it has ended.
    match unsafe { libc::pthread_kill(thread.as_pthread_t(), INTERRUPT.as_raw()) } {
        0 | libc::ESRCH => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Whether two descriptors, or a descriptor and a file, are one and the same file.
pub fn same_file(one: &rustix::fs::Stat, other: &rustix::fs::Stat) -> bool {
    one.st_dev == other.st_dev && one.st_ino == other.st_ino
}

/// The number of a descriptor, for messages.
pub fn number(descriptor: impl AsFd) -> RawFd {
    descriptor.as_fd().as_raw_fd()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn nothing() -> (Duration, &'static mut dyn FnMut()) {
        (Duration::MAX, Box::leak(Box::new(|| {})))
    }

    fn two_descriptions() -> (tempfile::TempDir, File, File) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("g.lock");
        let one = File::create(&path).unwrap();
        let other = File::open(&path).unwrap();
        (dir, one, other)
    }

    #[test]
    fn a_wait_ends_when_the_lock_is_given_back() {
        let (_dir, holder, waiter) = two_descriptions();
        assert!(try_lock(&holder).unwrap() && !try_lock(&waiter).unwrap());
        let mut told = false;
        let mut release = || {
            told = true;
            unlock(&holder).unwrap();
        };
        assert_eq!(
            wait(&waiter, Sharing::Exclusive, None, &[], (Duration::ZERO, &mut release)).unwrap(),
            Waited::Locked
        );
        assert!(told && !try_lock(&holder).unwrap());
    }

    #[test]
    fn a_wait_that_timed_out_leaves_nothing_behind() {
        let (_dir, holder, waiter) = two_descriptions();
        assert!(try_lock(&holder).unwrap());
        for _ in 0..50 {
            assert_eq!(
                wait(&waiter, Sharing::Exclusive, Some(Instant::now()), &[], nothing()).unwrap(),
                Waited::TimedOut
            );
        }
        unlock(&holder).unwrap();
        assert!(try_lock(&holder).unwrap(), "a waiter that gave up took the lock");
    }

    #[test]
    fn an_interrupted_wait_does_not_hold() {
        let (_dir, holder, waiter) = two_descriptions();
        assert!(try_lock(&holder).unwrap());
        let (reader, writer) = io::pipe().unwrap();
        drop(writer);
        assert_eq!(
            wait(&waiter, Sharing::Exclusive, None, &[reader.as_fd()], nothing()).unwrap(),
            Waited::Interrupted
        );
        unlock(&holder).unwrap();
        assert!(try_lock(&holder).unwrap());
    }

    #[test]
    fn a_descriptor_that_is_not_open_is_none() {
        assert!(inherited(9_999).unwrap().is_none());
        let (_dir, one, other) = two_descriptions();
        let copy = inherited(number(&one)).unwrap().unwrap();
        assert!(try_lock(&copy).unwrap() && try_lock(&one).unwrap() && !try_lock(&other).unwrap());
    }
}
