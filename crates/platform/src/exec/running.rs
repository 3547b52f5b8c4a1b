//! Supervision of a running command: an event loop that sleeps until something happens.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_core::liveness::ProcessRef;
use lockkeeper_core::time::Moment;
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group};

use super::ending::Ending;
use super::guardian::{Answer, GuardianLine};
use super::job::Job;
use super::start::CommandEntry;
use crate::process::ChildGuard;
use crate::tree::{Root, Stop, stop_tree};
use crate::{clock, poll, process};

/// How often a worker polls its command on systems without pidfds.
const POLL_EVERY: Duration = Duration::from_millis(50);

/// Something that the caller may react to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The command has started.
    Started,
    /// The caller's descriptor at this index is readable. The event repeats until the caller has read from it.
    Ready(usize),
    /// The deadline of the last [`Next::WaitUntil`] has passed.
    Deadline,
}

/// What the loop does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Sleep until something happens.
    Wait,
    /// Sleep until something happens, or until this moment.
    WaitUntil(Moment),
    /// Stop the command with its process tree: SIGTERM, this grace, SIGKILL.
    Stop(Duration),
}

/// A change of a command's state.
enum Change {
    /// It has ended.
    Ended(Ending),
    /// It is stopped, by this signal if it has a name.
    Stopped(Option<Signal>),
}

/// A command that was started. Dropping it neither stops the command nor waits for it.
#[derive(Debug)]
pub struct Running {
    pid: Pid,
    exit: Option<OwnedFd>,
    /// The guardian that is its parent; none for a child of this process.
    line: Option<Arc<GuardianLine>>,
    /// Only a wrapper has one.
    job: Option<Job>,
    ending: Option<Ending>,
    /// Keeps other code from reaping the command, until its end was seen.
    guard: Option<ChildGuard>,
    entry: Option<CommandEntry>,
}

impl Running {
    pub(super) fn new(
        pid: Pid,
        guard: ChildGuard,
        entry: CommandEntry,
        line: Option<Arc<GuardianLine>>,
        job: Option<Job>,
    ) -> Self {
        if let Some(job) = &job {
            job.started(pid);
        }
        // A guardian reports the end, so its commands need no pidfd.
        let exit = if line.is_some() { None } else { process::watch_child(pid) };
        Self { pid, exit, line, job, ending: None, guard: Some(guard), entry: Some(entry) }
    }

    /// Returns the pid of the command, which is the id of its process group too.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().cast_unsigned()
    }

    /// Returns the identity of the command's process. Fails after its end was seen.
    pub fn process(&mut self) -> io::Result<ProcessRef> {
        if self.ending.is_some() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let found = process::of_child(self.pid)?;
        // A guardian reports the end before it reaps the command. Until it has reported, the pid is that of the command.
        match self.line.is_some() && self.try_wait()?.is_some() {
            true => Err(io::ErrorKind::NotFound.into()),
            false => Ok(found),
        }
    }

    /// Returns a descriptor that is readable when the command has ended, for callers with an event loop of their own.
    /// Only Linux has it.
    pub fn exit(&self) -> Option<BorrowedFd<'_>> {
        self.exit.as_ref().map(AsFd::as_fd)
    }

    /// Sends a signal to the command's process group. Does nothing after its end was seen.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        match self.ending {
            None => Ok(kill_process_group(self.pid, signal)?),
            Some(_) => Ok(()),
        }
    }

    /// Returns how the command ended, if it has. Handles stops of the command too, as job control requires.
    pub fn try_wait(&mut self) -> io::Result<Option<Ending>> {
        while self.ending.is_none()
            && let Some(change) = self.next_change()?
        {
            match change {
                Change::Ended(ending) => self.end(ending),
                Change::Stopped(Some(reason)) => {
                    if let Some(job) = &mut self.job {
                        job.stopped(reason, self.pid)?;
                    }
                }
                Change::Stopped(None) => {}
            }
        }
        Ok(self.ending)
    }

    /// Sleeps until the command ends, and calls back when something happens meanwhile.
    ///
    /// The callback runs at [`Event::Started`] and after every event. Its last answer is valid until the next event.
    /// This returns when the command ends, even if descendants still run with its output open.
    pub fn supervise(
        self,
        extra: &[BorrowedFd<'_>],
        on_event: &mut dyn FnMut(Event) -> Next,
    ) -> io::Result<Ending> {
        self.supervise_marked(extra, None, on_event)
    }

    /// Like [`Running::supervise`], for a worker: processes with `mark` are stopped together with the command.
    pub fn supervise_marked(
        mut self,
        extra: &[BorrowedFd<'_>],
        mark: Option<&str>,
        on_event: &mut dyn FnMut(Event) -> Next,
    ) -> io::Result<Ending> {
        if self.exit.is_none() {
            self.exit = process::watch_child(self.pid);
        }
        let mut next = on_event(Event::Started);
        loop {
            let until = match next {
                Next::Stop(grace) => return self.stop(grace, mark),
                Next::Wait => None,
                Next::WaitUntil(moment) => Some(moment),
            };
            let (own, ready) = self.sleep(extra, until)?;
            if let Some(ending) = self.handle_events()? {
                return Ok(ending);
            }
            for place in ready.places().filter(|place| *place >= own) {
                next = on_event(Event::Ready(place - own));
                if matches!(next, Next::Stop(_)) {
                    break;
                }
            }
            if !ready.any() && until.is_some_and(|until| until <= clock::now()) {
                next = on_event(Event::Deadline);
            }
        }
    }

    /// Sleeps until the command ends, or until the given moment. Returns `None` when the command still runs then.
    pub fn supervise_until(&mut self, until: Moment) -> io::Result<Option<Ending>> {
        while clock::now() < until {
            self.sleep(&[], Some(until))?;
            if let Some(ending) = self.handle_events()? {
                return Ok(Some(ending));
            }
        }
        Ok(None)
    }

    /// Stops the command with its process tree: SIGTERM, grace, SIGKILL. A wrapper also stops orphans of the command. A
    /// worker finds these by `mark`, a `NAME=value` that the command was started with.
    ///
    /// Fails when a process could not be stopped: then the work may still go on.
    pub fn stop(mut self, grace: Duration, mark: Option<&str>) -> io::Result<Ending> {
        self.try_wait()?;
        let root = match (&self.job, self.ending) {
            (Some(_), _) => Root::OwnDescendants,
            (None, Some(_)) => Root::Marked,
            (None, None) => self.process().map_or(Root::Marked, Root::Process),
        };
        let survivors = stop_tree(&Stop { root, grace, mark })?;
        if survivors.is_empty()
            && self.ending.is_none()
            && let Some(ending) = self.wait_for_guardian()
        {
            self.end(ending);
        }
        while self.ending.is_none()
            && let Some(change) = self.next_change()?
        {
            if let Change::Ended(ending) = change {
                self.end(ending);
            }
        }
        let numbers: Vec<String> = survivors.iter().map(|process| process.pid.to_string()).collect();
        match self.ending {
            Some(ending) if numbers.is_empty() => Ok(ending),
            Some(_) | None => Err(io::Error::other(format!("cannot end process {}", numbers.join(", ")))),
        }
    }

    /// Returns how many of the polled descriptors are our own, and which are ready.
    fn sleep(&self, extra: &[BorrowedFd<'_>], until: Option<Moment>) -> io::Result<(usize, poll::Ready)> {
        let signals = self.job.as_ref().map(|job| job.signals.as_fd());
        let line = self.line.as_ref().map(|line| line.as_fd());
        let mut descriptors: Vec<BorrowedFd<'_>> =
            self.exit().into_iter().chain(line).chain(signals).collect();
        let own = descriptors.len();
        descriptors.extend_from_slice(extra);
        let timeout = until.map(|until| until.since(clock::now()));
        let timeout = if own == 0 { timeout.min(Some(POLL_EVERY)).or(Some(POLL_EVERY)) } else { timeout };
        Ok((own, poll::wait(&descriptors, timeout)?))
    }

    /// Handles changes of the command's state, and the signals that arrived.
    fn handle_events(&mut self) -> io::Result<Option<Ending>> {
        if self.try_wait()?.is_some() {
            return Ok(self.ending);
        }
        let Some(job) = &mut self.job else { return Ok(None) };
        let arrived = job.signals.take()?;
        for signal in &arrived {
            job.pass_on(*signal, self.pid);
        }
        // The child may have changed after the first try_wait.
        if arrived.contains(&Signal::CHILD) { self.try_wait() } else { Ok(None) }
    }

    /// Returns the next change of the command's state. A wrapper also reaps the orphans that it adopted.
    fn next_change(&mut self) -> io::Result<Option<Change>> {
        match self.line.as_ref().map(|line| line.look()) {
            None => {}
            Some(Answer::Ended(status)) => return Ok(Some(Change::Ended(Ending::from_wait(status)))),
            Some(Answer::Gone) => self.become_parent(),
            Some(Answer::Nothing) if self.exit.as_ref().is_some_and(process::has_ended) => {
                if let Some(ending) = self.wait_for_guardian() {
                    return Ok(Some(Change::Ended(ending)));
                }
            }
            Some(Answer::Nothing) => return Ok(None),
        }
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
        loop {
            let answer = match &self.job {
                Some(_) => rustix::process::wait(options)?,
                None => rustix::process::waitpid(Some(self.pid), options)?,
            };
            match answer {
                Some((pid, status)) if pid == self.pid => {
                    let stopped =
                        || Change::Stopped(status.stopping_signal().and_then(Signal::from_named_raw));
                    return Ok(Some(Ending::from_status(status).map_or_else(stopped, Change::Ended)));
                }
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }

    /// Waits for the report of the guardian about a command that has ended. None if the guardian is gone, or there is none.
    fn wait_for_guardian(&mut self) -> Option<Ending> {
        match self.line.as_ref()?.wait() {
            Answer::Ended(status) => return Some(Ending::from_wait(status)),
            Answer::Nothing | Answer::Gone => self.become_parent(),
        }
        None
    }

    /// The guardian is gone: the kernel has made this process the parent of the command.
    fn become_parent(&mut self) {
        self.line = None;
        if self.exit.is_none() {
            self.exit = process::watch_child(self.pid);
        }
    }

    fn end(&mut self, ending: Ending) {
        self.ending = Some(ending);
        self.guard = None;
        self.entry = None;
        if let Some(job) = &self.job {
            job.ended(ending, self.pid);
        }
    }
}
