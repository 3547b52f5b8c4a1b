//! A line to the guardian: the connection of one job slot, on the worker's side.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::net::{RecvFlags, recv};
use rustix::process::Pid;

use super::Guardian;
use super::message::{Reply, send_request};
use super::record::Note;
use crate::exec::posix_spawn::Image;
use crate::{poll, tree};

/// A guardian that does not answer for this long is killed: it was stopped, or it hangs.
const PATIENCE: Duration = Duration::from_secs(5);
/// The error of a start of which nobody knows whether the command has begun.
pub(in crate::exec) const LOST: io::ErrorKind = io::ErrorKind::ConnectionAborted;
/// How many times, [`BETWEEN_LOOKS`] apart, the worker looks for the command of a guardian that died.
const LOOKS: u32 = 20;
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// A connection to the guardian, over which commands are started one after the other.
#[derive(Debug)]
pub struct GuardianLine {
    stream: UnixStream,
    guardian: Arc<Guardian>,
    /// Whether a command was started whose end the guardian has not reported yet.
    is_busy: AtomicBool,
}

/// The process that started a command.
#[derive(Debug)]
pub(in crate::exec) enum StartedBy {
    /// The guardian, which is its parent.
    Guardian(Pid),
    /// A guardian that is gone: now it is a child of this process.
    GoneGuardian(Pid),
    /// Nobody: the guardian is gone, and the command has not begun. The caller has to start it. It is in `begun` already.
    Nobody,
}

/// What the guardian has reported about a command.
pub(in crate::exec) enum Answer {
    /// It runs.
    Nothing,
    /// It ended with this `wait(2)` status.
    Ended(i32),
    /// The guardian is gone, and the command is a child of this process.
    Gone,
}

impl GuardianLine {
    pub(super) fn new(stream: UnixStream, guardian: Arc<Guardian>) -> io::Result<Self> {
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream, guardian, is_busy: AtomicBool::new(false) })
    }

    /// Whether another command can be started over it.
    pub fn is_free(&self) -> bool {
        !self.is_busy.load(Ordering::Relaxed) && !self.guardian.has_ended()
    }

    /// Lets the guardian start a command.
    pub(in crate::exec) fn start(
        &self,
        image: &Image,
        note: &Note,
        inherited: &[BorrowedFd<'_>],
    ) -> io::Result<StartedBy> {
        self.is_busy.store(true, Ordering::Relaxed);
        let reply = send_request(&self.stream, image, note, inherited).and_then(|()| self.receive());
        match reply {
            Ok(Reply::Started(pid)) => {
                let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidData)?;
                Ok(StartedBy::Guardian(pid))
            }
            Ok(Reply::Failed(error)) => {
                self.is_busy.store(false, Ordering::Relaxed);
                Err(io::Error::from_raw_os_error(error))
            }
            Ok(Reply::Ended(_)) | Err(_) => {
                self.guardian.end();
                if note.is_in(&self.guardian.begun)? {
                    return find_command(&note.mark).map(StartedBy::GoneGuardian);
                }
                note.write(&self.guardian.begun)?;
                Ok(StartedBy::Nobody)
            }
        }
    }

    fn receive(&self) -> io::Result<Reply> {
        let mut bytes = [0; Reply::LENGTH];
        (&self.stream).read_exact(&mut bytes)?;
        Reply::decode(bytes)
    }

    /// Reads whether the guardian has reported the end of the command.
    pub(in crate::exec) fn look(&self) -> Answer {
        let mut bytes = [0; Reply::LENGTH];
        loop {
            match recv(&self.stream, &mut bytes, RecvFlags::DONTWAIT | RecvFlags::PEEK) {
                Err(rustix::io::Errno::AGAIN) => return Answer::Nothing,
                Err(rustix::io::Errno::INTR) => {}
                Ok((_, Reply::LENGTH)) => break,
                Ok((_, 1..)) => return Answer::Nothing,
                Ok((_, 0)) | Err(_) => return self.give_up(),
            }
        }
        match self.receive() {
            Ok(Reply::Ended(status)) => {
                self.is_busy.store(false, Ordering::Relaxed);
                Answer::Ended(status)
            }
            Ok(Reply::Started(_) | Reply::Failed(_)) | Err(_) => self.give_up(),
        }
    }

    /// Waits for the report of the guardian about a command that has ended. A guardian that does not report it is killed.
    pub(in crate::exec) fn wait(&self) -> Answer {
        if poll::wait(&[self.stream.as_fd()], Some(PATIENCE)).is_ok_and(|ready| ready.any()) {
            return self.look();
        }
        self.give_up()
    }

    fn give_up(&self) -> Answer {
        self.guardian.end();
        Answer::Gone
    }
}

impl AsFd for GuardianLine {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Finds the command of a guardian that died while it started the command.
fn find_command(mark: &str) -> io::Result<Pid> {
    for _ in 0..LOOKS {
        // A command that was forked just now has its environment a moment later.
        if let Some(process) = tree::marked_leader(mark) {
            return crate::process::checked(process.pid).ok_or(io::ErrorKind::InvalidData.into());
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
    Err(io::Error::new(LOST, "the process that started it was killed"))
}
