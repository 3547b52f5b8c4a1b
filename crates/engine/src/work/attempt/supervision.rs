//! Supervision of a command that runs: everything that may stop it before it ends by itself.

use std::os::fd::BorrowedFd;
use std::sync::mpsc::Sender;
use std::time::Duration;

use lockkeeper_core::record::Lease;
use lockkeeper_core::run::Run;
use lockkeeper_core::run::transition::AttemptOutcome;
use lockkeeper_core::time::Moment;

use super::log::AttemptLog;
use crate::Engine;
use crate::runs::completing::Outcome;
use crate::work::control::{Control, Stop};
use crate::work::lock_files::LockFiles;
use crate::work::report::Report;
use lockkeeper_platform::clock;
use lockkeeper_platform::exec::{Ending, Event, Next};
use lockkeeper_store::Waker;

/// The first look at the log is this long after the start of the supervision.
const FIRST_LOOK: Duration = Duration::from_millis(20);
/// The next look at a log whose size cannot be read.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// A run whose time is up is reported again after this long: the store may have failed.
const REPORT_AGAIN: Duration = Duration::from_millis(500);

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
}

/// Reacts to what happens while a command runs.
pub(super) struct Supervision<'a> {
    run: &'a Run,
    files: &'a mut LockFiles,
    control: &'a Control,
    lease: Option<&'a LeaseWatch<'a>>,
    log: AttemptLog,
    reports: &'a Sender<Report>,
    grace: Duration,
    looked_at: Moment,
    look_at: Moment,
    /// When to report once more that the time is up.
    report_at: Option<Moment>,
    stopped: Option<Stopped>,
}

impl<'a> Supervision<'a> {
    pub(super) fn new(
        run: &'a Run,
        files: &'a mut LockFiles,
        control: &'a Control,
        lease: Option<&'a LeaseWatch<'a>>,
        log: AttemptLog,
        reports: &'a Sender<Report>,
        grace: Duration,
    ) -> Self {
        let (looked_at, look_at) = (clock::now(), clock::now().after(FIRST_LOOK));
        let (report_at, stopped) = (None, None);
        Self { run, files, control, lease, log, reports, grace, looked_at, look_at, report_at, stopped }
    }

    /// Reports that the time is up at this moment of the clock of this machine.
    pub(super) fn with_timeout(self, times_out_at: Option<Moment>) -> Self {
        Self { report_at: times_out_at, ..self }
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
        if stopped.is_some() {
            self.stopped = stopped;
            return Next::Stop(self.grace);
        }
        if self.look_at <= now {
            let pause = self.log.look(now.since(self.looked_at)).unwrap_or(LOOK_AGAIN);
            (self.looked_at, self.look_at) = (now, now.after(pause));
        }
        if self.report_at.is_some_and(|at| at <= now) {
            // The completer writes the end before it has the command stopped: the run can end in no other way then.
            let _ = self.reports.send(Report::Overdue(Box::new(self.run.clone())));
            self.report_at = Some(now.after(REPORT_AGAIN));
        }
        Next::WaitUntil(self.report_at.map_or(self.look_at, |at| at.min(self.look_at)))
    }

    /// What the end of the command means. Returns the log as well.
    pub(super) fn outcome(self, ending: Ending) -> (Outcome, AttemptLog) {
        let ending = ending.into();
        let outcome = match self.stopped {
            None => Outcome::Observed(AttemptOutcome::Ended(ending)),
            Some(Stopped::Asked(Stop::Canceled)) => Outcome::Observed(AttemptOutcome::Stopped(Some(ending))),
            Some(Stopped::LeaseLost) => Outcome::Observed(AttemptOutcome::LeaseLost(Some(ending))),
            Some(Stopped::Asked(Stop::Recorded)) => Outcome::Recorded,
            Some(Stopped::Asked(Stop::Superseded)) => Outcome::Superseded,
        };
        (outcome, self.log)
    }
}
