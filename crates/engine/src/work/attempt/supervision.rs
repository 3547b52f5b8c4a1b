//! Supervision of a command that runs: everything that may stop it before it ends by itself.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use lockkeeper_core::record::Lease;
use lockkeeper_core::run::transition::AttemptOutcome;
use lockkeeper_core::time::Moment;

use super::log::AttemptLog;
use crate::Engine;
use crate::runs::completing::Outcome;
use crate::work::control::{Control, Stop};
use crate::work::lock_files::LockFiles;
use lockkeeper_platform::clock;
use lockkeeper_platform::exec::{Ending, Event, Next};
use lockkeeper_store::Waker;

/// The first look at the log is this long after the start of the supervision.
const FIRST_LOOK: Duration = Duration::from_millis(20);
/// The next look at a log whose size cannot be read.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// A lease that must not be lost while the command runs.
pub(super) struct LeaseWatch<'a> {
    lease: &'a Lease,
    leases: &'a Engine,
    /// Woken when something happens to the lease.
    waker: Option<Box<dyn Waker>>,
}

impl<'a> LeaseWatch<'a> {
    pub(super) fn new(lease: &'a Lease, leases: &'a Engine) -> Self {
        let waker = lease.waker().and_then(|id| leases.store().waker_with_id(id).ok());
        Self { lease, leases, waker }
    }

    pub(super) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.waker.as_ref().map(|waker| waker.as_fd())
    }

    fn is_lost(&self) -> bool {
        if let Some(waker) = &self.waker {
            waker.receive();
        }
        // A store that cannot be read says nothing about the lease.
        self.leases.loss(self.lease.id, self.lease.token).is_ok_and(|loss| loss.is_some())
    }
}

/// Why the command was stopped.
enum Stopped {
    Asked(Stop),
    LeaseLost,
    TimedOut,
}

/// Reacts to what happens while a command runs.
pub(super) struct Supervision<'a> {
    files: &'a mut LockFiles,
    control: &'a Control,
    lease: Option<&'a LeaseWatch<'a>>,
    log: AttemptLog,
    grace: Duration,
    looked_at: Moment,
    look_at: Moment,
    /// When the time is up, on the clock of this machine.
    times_out_at: Option<Moment>,
    stopped: Option<Stopped>,
}

impl<'a> Supervision<'a> {
    pub(super) fn new(
        files: &'a mut LockFiles,
        control: &'a Control,
        lease: Option<&'a LeaseWatch<'a>>,
        log: AttemptLog,
        grace: Duration,
        times_out_at: Option<Moment>,
    ) -> Self {
        let (looked_at, look_at) = (clock::now(), clock::now().after(FIRST_LOOK));
        Self { files, control, lease, log, grace, looked_at, look_at, times_out_at, stopped: None }
    }

    /// Decides what to do about an event. The first event comes right after the start of the supervision.
    pub(super) fn on_event(&mut self, event: Event) -> Next {
        let now = clock::now();
        let stopped = match event {
            Event::Started | Event::Deadline => None,
            Event::Ready(0) => self.control.take().map(Stopped::Asked),
            Event::Ready(_) => self.lease.is_some_and(LeaseWatch::is_lost).then_some(Stopped::LeaseLost),
        };
        let stopped = stopped.or_else(|| (!self.files.renew(now)).then_some(Stopped::LeaseLost));
        let is_overdue = self.times_out_at.is_some_and(|at| at <= now);
        let stopped = stopped.or_else(|| is_overdue.then_some(Stopped::TimedOut));
        if stopped.is_some() {
            self.stopped = stopped;
            return Next::Stop(self.grace);
        }
        if self.look_at <= now {
            let pause = self.log.look(now.since(self.looked_at)).unwrap_or(LOOK_AGAIN);
            (self.looked_at, self.look_at) = (now, now.after(pause));
        }
        Next::WaitUntil(self.times_out_at.map_or(self.look_at, |at| at.min(self.look_at)))
    }

    /// What the end of the command means. Returns the log as well.
    pub(super) fn outcome(self, ending: Ending) -> (Outcome, AttemptLog) {
        let ending = ending.into();
        let outcome = match self.stopped {
            None => Outcome::Observed(AttemptOutcome::Ended(ending)),
            Some(Stopped::Asked(Stop::Canceled)) => Outcome::Observed(AttemptOutcome::Stopped(Some(ending))),
            Some(Stopped::LeaseLost) => Outcome::Observed(AttemptOutcome::LeaseLost(Some(ending))),
            Some(Stopped::TimedOut) => Outcome::Observed(AttemptOutcome::TimedOut(Some(ending))),
            Some(Stopped::Asked(Stop::Recorded)) => Outcome::Recorded,
            Some(Stopped::Asked(Stop::Superseded)) => Outcome::Superseded,
        };
        (outcome, self.log)
    }
}
