//! The guardian: a small process that starts the commands of a worker and outlives it, so that the exit code of a command
//! is known when the worker is killed.
//!
//! ```text
//!  worker ── one line for each job slot ──► guardian ──► command
//!    │        what to start, its lock          │
//!    │        ◄── pid, then how it ended       └──► `begun`, `ended`: what began, and how it ended
//!    └── subreaper: parent of the commands if the guardian is killed
//! ```
//!
//! Only its parent learns how a process ended. So the guardian is the parent of the commands, and writes each end into a
//! file before it tells the worker. If the worker dies, the guardian waits for the commands that still run, writes how they
//! ended, and ends itself. If the guardian dies, the kernel makes the worker the parent of its commands.
//!
//! The guardian is this program, started again through `/proc/self/exe`. It holds no lease and no lock of a run: those are
//! handed through to the commands.

mod line;
mod message;
mod process;
mod record;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

pub use self::line::GuardianLine;
pub(super) use self::line::{Answer, LOST, StartedBy};
pub use self::record::{EndRecord, Note};
use super::start::starting;
use crate::process::ChildGuard;

/// The argument that makes this program a guardian.
const ARGUMENT: &str = "guardian";
/// How long the worker waits for the end of a guardian that it no longer needs.
const ENDS_WITHIN: Duration = Duration::from_millis(200);

/// Whether this program can be started as a guardian.
static IS_POSSIBLE: AtomicBool = AtomicBool::new(false);

/// If this process was started as a guardian, does its work, and returns its exit code when that is done. Otherwise
/// workers in this process can have a guardian from now on. A program calls it first in `main`.
pub fn run_guardian_if_asked() -> Option<u8> {
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|arg| arg == ARGUMENT) && args.next().is_none() {
        return Some(process::run());
    }
    IS_POSSIBLE.store(true, Ordering::Relaxed);
    None
}

/// The guardian of a worker. It ends when this is dropped and its commands have ended.
#[derive(Debug)]
pub struct Guardian {
    control: UnixStream,
    pid: Pid,
    /// The file in which the guardian notes each command before it starts it.
    begun: File,
    /// Keeps other code of this process from reaping the guardian, until its end was seen.
    guard: Mutex<Option<ChildGuard>>,
}

impl Guardian {
    /// Starts a guardian, which writes into these two files. This process reads the first one, too. Fails if this program cannot
    /// be started as a guardian.
    pub fn start(begun: &File, ended: &File) -> io::Result<Arc<Self>> {
        if !IS_POSSIBLE.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let (control, theirs) = UnixStream::pair()?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("lockkeeper").arg(ARGUMENT).env_clear().process_group(0);
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
        let child = starting(|| command.spawn())?;
        let pid = Pid::from_child(&child);
        let guard = Mutex::new(Some(ChildGuard::of(child.id())));
        let guardian = Self { control, pid, begun: begun.try_clone()?, guard };
        message::send_descriptors(&guardian.control, &[begun.as_fd(), ended.as_fd()])?;
        Ok(Arc::new(guardian))
    }

    /// Opens a line, over which commands are started one after the other.
    pub fn connect(self: &Arc<Self>) -> io::Result<GuardianLine> {
        let (ours, theirs) = UnixStream::pair()?;
        message::send_descriptors(&self.control, &[theirs.as_fd()])?;
        GuardianLine::new(ours, Arc::clone(self))
    }

    /// Kills it, if it has not ended yet. When this returns, its commands are children of this process.
    fn end(&self) {
        let mut guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner);
        if guard.is_some() {
            let _ = kill_process(self.pid, Signal::KILL);
            while let Err(rustix::io::Errno::INTR) = waitpid(Some(self.pid), WaitOptions::empty()) {}
            *guard = None;
        }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Whether its end was seen.
    pub fn has_ended(&self) -> bool {
        self.guard.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        // The guardian ends by itself once nobody can ask it to start a command.
        let _ = self.control.shutdown(std::net::Shutdown::Both);
        let until = Instant::now() + ENDS_WITHIN;
        while !self.has_ended() && Instant::now() < until {
            if !matches!(waitpid(Some(self.pid), WaitOptions::NOHANG), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
