//! Supervision of a command that runs: everything that may stop it before it ends by itself.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use lockkeeper_core::record::Lease;
use lockkeeper_core::run::transition::AttemptOutcome;
use lockkeeper_core::time::Moment;

use super::log::AttemptLog;
use crate::runs::completing::Outcome;
use crate::work::control::{Control, Stop};
use crate::work::lock_files::LockFiles;
use crate::work::session::WorkerSession;
use crate::{Engine, LossListener};
use lockkeeper_platform::clock;
use lockkeeper_platform::exec::{Ending, Event, Next};

/// The size of the log is read for the first time this long after the start of the supervision.
const FIRST_LOG_POLL: Duration = Duration::from_millis(20);
/// How soon a log is looked at again whose size could not be read.
const LOG_POLL_INTERVAL: Duration = Duration::from_secs(5);

/// A lease that must not be lost while the command runs.
pub(super) struct LeaseWatch<'a> {
    lease: &'a Lease,
    leases: &'a Engine,
    listener: Option<LossListener>,
}

impl<'a> LeaseWatch<'a> {
    pub(super) fn new(lease: &'a Lease, leases: &'a Engine) -> Self {
        Self { lease, leases, listener: leases.loss_listener(lease) }
    }

    pub(super) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(LossListener::as_fd)
    }

    /// Whether the session of the lease is over, on a store that several machines share.
    fn has_lapsed(&self, grace: Duration) -> bool {
        self.leases.sessions.loss(self.lease.id, grace).is_some()
    }

    fn is_lost(&self) -> bool {
        if let Some(listener) = &self.listener {
            listener.clear();
        }
        // A store that cannot be read says nothing about the lease.
        self.leases.loss_to_obey(self.lease.id, self.lease.token).is_ok_and(|loss| loss.is_some())
    }
}

/// Why the command was stopped.
enum Stopped {
    Asked(Stop),
    LeaseLost,
    TimedOut,
    /// The session of the worker can end soon, and others may then start the run again.
    SessionLapsed,
}

/// Reacts to what happens while a command runs.
pub(super) struct Supervision<'a> {
    files: &'a mut LockFiles,
    control: &'a Control,
    lease: Option<&'a LeaseWatch<'a>>,
    session: Option<&'a WorkerSession>,
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
        session: Option<&'a WorkerSession>,
        log: AttemptLog,
        grace: Duration,
        times_out_at: Option<Moment>,
    ) -> Self {
        let (looked_at, look_at) = (clock::now(), clock::now().after(FIRST_LOG_POLL));
        Self { files, control, lease, session, log, grace, looked_at, look_at, times_out_at, stopped: None }
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
        let has_lapsed = self.lease.is_some_and(|lease| lease.has_lapsed(self.grace));
        let stopped = stopped.or_else(|| has_lapsed.then_some(Stopped::LeaseLost));
        let is_overdue = self.times_out_at.is_some_and(|at| at <= now);
        let stopped = stopped.or_else(|| is_overdue.then_some(Stopped::TimedOut));
        let has_session = self.session.is_none_or(WorkerSession::is_valid);
        let stopped = stopped.or_else(|| (!has_session).then_some(Stopped::SessionLapsed));
        if stopped.is_some() {
            self.stopped = stopped;
            return Next::Stop(self.grace);
        }
        if self.look_at <= now {
            let pause = self.log.look(now.since(self.looked_at)).unwrap_or(LOG_POLL_INTERVAL);
            (self.looked_at, self.look_at) = (now, now.after(pause));
        }
        let lease = self.lease.and_then(|lease| lease.leases.sessions.look_at(lease.lease.id, self.grace));
        let session = self.session.and_then(WorkerSession::look_at);
        let next = [Some(self.look_at), self.times_out_at, lease, session].into_iter().flatten().min();
        next.map_or(Next::Wait, Next::WaitUntil)
    }

    /// Whether something has stopped the command.
    pub(super) fn is_stopping(&self) -> bool {
        self.stopped.is_some()
    }

    /// What the end of the command means; none if nobody saw it. Returns the log as well.
    pub(super) fn outcome(self, ending: Option<Ending>) -> (Outcome, AttemptLog) {
        (outcome_of(self.stopped, self.control, ending), self.log)
    }
}

/// What the end of a command means that nothing has stopped yet.
pub(super) fn outcome_of_short(control: &Control, ending: Ending) -> Outcome {
    outcome_of(None, control, Some(ending))
}

fn outcome_of(stopped: Option<Stopped>, control: &Control, ending: Option<Ending>) -> Outcome {
    let ending: Option<lockkeeper_core::run::Ending> = ending.map(Into::into);
    // The command may be killed before this thread has read the stop request.
    let was_killed = matches!(ending, Some(lockkeeper_core::run::Ending::Signaled(_)));
    let asked = || was_killed.then(|| control.take()).flatten().map(Stopped::Asked);
    match stopped.or_else(asked) {
        None => Outcome::Observed(ending.map_or(AttemptOutcome::Vanished, AttemptOutcome::Ended)),
        Some(Stopped::Asked(Stop::Canceled)) => Outcome::Observed(AttemptOutcome::Stopped(ending)),
        Some(Stopped::LeaseLost) => Outcome::Observed(AttemptOutcome::LeaseLost(ending)),
        Some(Stopped::SessionLapsed) => Outcome::Observed(AttemptOutcome::Replaced),
        Some(Stopped::TimedOut) => Outcome::Observed(AttemptOutcome::TimedOut(ending)),
        Some(Stopped::Asked(Stop::Recorded)) => Outcome::Recorded,
        Some(Stopped::Asked(Stop::Superseded)) => Outcome::Superseded,
    }
}
