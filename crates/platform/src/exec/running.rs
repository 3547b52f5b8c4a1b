//! A command that runs, and the loop that sleeps until something happens to it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use lockkeeper_core::liveness::ProcessRef;
use lockkeeper_core::time::Moment;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process_group};

use super::ending::Ending;
use super::job::Job;
use super::spec::Known;
use crate::process::Own;
use crate::tree::{Root, Stop, stop_tree};
use crate::{clock, poll, process};

/// How often a worker looks at its command where nothing tells of its end: on systems without pidfds.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Something that the supervising caller may act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The command runs; nothing else happened yet.
    Started,
    /// The caller's descriptor at this place can be read. It is told again until it was.
    Ready(usize),
    /// The deadline of the last [`Next::WaitUntil`] has come.
    Deadline,
}

/// What the caller wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Sleep until something happens.
    Wait,
    /// The same, but not longer than this.
    WaitUntil(Moment),
    /// End the command with its whole tree: TERM, this grace, KILL.
    Stop(Duration),
}

/// A command that was started. Dropping it neither ends nor awaits the command.
#[derive(Debug)]
pub struct Running {
    pid: Pid,
    exit: Option<OwnedFd>,
    /// Only wrappers have one.
    job: Option<Job>,
    ending: Option<Ending>,
    /// Until its end was seen nobody else waits for it.
    own: Option<Own>,
    known: Option<Known>,
}

impl Running {
    pub(super) fn new(pid: Pid, own: Own, known: Known, job: Option<Job>) -> Self {
        if let Some(job) = &job {
            job.started(pid);
        }
        Self { pid, exit: process::watch_child(pid), job, ending: None, own: Some(own), known: Some(known) }
    }

    /// The number of the command's process, which is that of its process group too.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().cast_unsigned()
    }

    /// Tells who the command's process is; not after its end was seen.
    pub fn process(&self) -> io::Result<ProcessRef> {
        match self.ending {
            None => process::of_child(self.pid),
            Some(_) => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Becomes readable when the command has ended, for callers with a loop of their own. Only Linux has it.
    pub fn exit(&self) -> Option<BorrowedFd<'_>> {
        self.exit.as_ref().map(AsFd::as_fd)
    }

    /// Sends a signal to the command's process group; nothing happens after its end was seen.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        match self.ending {
            None => Ok(kill_process_group(self.pid, signal)?),
            Some(_) => Ok(()),
        }
    }

    /// Returns how the command ended, if it has. A stopped command is dealt with on the way, as job control asks.
    pub fn try_wait(&mut self) -> io::Result<Option<Ending>> {
        while self.ending.is_none()
            && let Some(status) = self.next_status()?
        {
            match (Ending::from_status(status), status.stopping_signal().and_then(Signal::from_named_raw)) {
                (Some(ending), _) => self.end(ending),
                (None, Some(reason)) => {
                    if let Some(job) = &mut self.job {
                        job.stopped(reason, self.pid)?;
                    }
                }
                (None, None) => {}
            }
        }
        Ok(self.ending)
    }

    /// Sleeps until the command ends, and tells the caller what happens meanwhile.
    ///
    /// The callback is asked at [`Event::Started`] and after every event; its last answer holds until the next. What
    /// the command leaves running, even with its output open, does not keep this from returning.
    pub fn supervise(
        self,
        extra: &[BorrowedFd<'_>],
        on_event: &mut dyn FnMut(Event) -> Next,
    ) -> io::Result<Ending> {
        self.supervise_marked(extra, None, on_event)
    }

    /// As [`Running::supervise`], for a worker: whatever carries `mark` is stopped with the command.
    pub fn supervise_marked(
        mut self,
        extra: &[BorrowedFd<'_>],
        mark: Option<&str>,
        on_event: &mut dyn FnMut(Event) -> Next,
    ) -> io::Result<Ending> {
        let mut next = on_event(Event::Started);
        loop {
            let until = match next {
                Next::Stop(grace) => return self.stop(grace, mark),
                Next::Wait => None,
                Next::WaitUntil(moment) => Some(moment),
            };
            let (own, ready) = self.sleep(extra, until)?;
            if let Some(ending) = self.attend()? {
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

    /// Sleeps until the command ends, or `until` has come; None means that it still runs.
    pub fn supervise_until(&mut self, until: Moment) -> io::Result<Option<Ending>> {
        while clock::now() < until {
            self.sleep(&[], Some(until))?;
            if let Some(ending) = self.attend()? {
                return Ok(Some(ending));
            }
        }
        Ok(None)
    }

    /// Ends the command with its whole tree: TERM, grace, KILL. A wrapper also ends what was left behind; a worker
    /// finds that by `mark`, a `NAME=value` that the command was started with.
    ///
    /// Fails when something could not be ended: then the work may still go on.
    pub fn stop(mut self, grace: Duration, mark: Option<&str>) -> io::Result<Ending> {
        let root = match (&self.job, self.ending) {
            (Some(_), _) => Root::OwnDescendants,
            (None, Some(_)) => Root::Marked,
            (None, None) => Root::Process(self.process()?),
        };
        let survivors = stop_tree(&Stop { root, grace, mark })?;
        while self.ending.is_none()
            && let Some(status) = self.next_status()?
        {
            if let Some(ending) = Ending::from_status(status) {
                self.end(ending);
            }
        }
        let numbers: Vec<String> = survivors.iter().map(|process| process.pid.to_string()).collect();
        match self.ending {
            Some(ending) if numbers.is_empty() => Ok(ending),
            Some(_) | None => Err(io::Error::other(format!("cannot end process {}", numbers.join(", ")))),
        }
    }

    /// Returns how many of the descriptors that were waited for are our own, and which are ready.
    fn sleep(&self, extra: &[BorrowedFd<'_>], until: Option<Moment>) -> io::Result<(usize, poll::Ready)> {
        let signals = self.job.as_ref().map(|job| job.signals.as_fd());
        let mut descriptors: Vec<BorrowedFd<'_>> = self.exit().into_iter().chain(signals).collect();
        let own = descriptors.len();
        descriptors.extend_from_slice(extra);
        let timeout = until.map(|until| until.since(clock::now()));
        let timeout = if own == 0 { timeout.min(Some(LOOK_EVERY)).or(Some(LOOK_EVERY)) } else { timeout };
        Ok((own, poll::wait(&descriptors, timeout)?))
    }

    /// Sees to the command and to the signals that arrived.
    fn attend(&mut self) -> io::Result<Option<Ending>> {
        if self.try_wait()?.is_some() {
            return Ok(self.ending);
        }
        let Some(job) = &mut self.job else { return Ok(None) };
        let arrived = job.signals.take()?;
        for signal in &arrived {
            job.pass_on(*signal, self.pid);
        }
        // What it tells of may have happened after the look above.
        if arrived.contains(&Signal::CHILD) { self.try_wait() } else { Ok(None) }
    }

    /// What next became of the command. A wrapper also awaits whatever it took in.
    fn next_status(&self) -> io::Result<Option<WaitStatus>> {
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
        loop {
            let answer = match &self.job {
                Some(_) => rustix::process::wait(options)?,
                None => rustix::process::waitpid(Some(self.pid), options)?,
            };
            match answer {
                Some((pid, status)) if pid == self.pid => return Ok(Some(status)),
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }

    fn end(&mut self, ending: Ending) {
        self.ending = Some(ending);
        self.own = None;
        self.known = None;
        if let Some(job) = &self.job {
            job.ended(ending, self.pid);
        }
    }
}
