//! Sleeping in line: a waiter sleeps until it is granted the lease, a process that it watches dies, or a time is up.
//!
//! The order is always: create the waker, read the store, then sleep. The process that grants the lease wakes the waiter. The
//! kernel reports deaths, each to the one waiter that watches that process. A slow timer covers the case that the process that
//! should send the wake-up was stopped after its commit.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use lockkeeper_core::lease::{Grant, Outcome, WaitTerms, Waiting, is_acknowledged};
use lockkeeper_core::liveness::{Contract, Verdict, Voucher};
use lockkeeper_core::record::{Lease, Ticket};
use lockkeeper_core::time::Moment;
use lockkeeper_core::waiting::{Blocker, Watched, watch_list};

use super::Engine;
use lockkeeper_platform::process::Watch;
use lockkeeper_platform::tree::{Root, Stop, stop_tree};
use lockkeeper_platform::{clock, poll, process};
use lockkeeper_store::{Granted, StoreError, Waker};

/// How often a waiter reads the store although nothing happened: see the last sentence of the module's description.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How often a waiter reads the store if it cannot watch a holder.
const LOOK_AT_UNWATCHED_EVERY: Duration = Duration::from_millis(100);

/// How long to wait, and what may end the wait.
pub struct WaitOptions<'o> {
    /// When to stop, if ever.
    pub until: Option<Instant>,
    /// Descriptors that end the wait when they are readable, for example that of a signal.
    pub interrupts: &'o [BorrowedFd<'o>],
    /// How long an overdue holder gets to stop by itself.
    pub grace: Duration,
    /// How often to report progress although nothing happened, for a clock on a terminal.
    pub tick: Option<Duration>,
}

impl WaitOptions<'_> {
    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }
}

/// Called whenever the waiter has read the store again.
pub type Progress<'p> = &'p mut dyn FnMut(&Waiting);

/// How a sleep ended.
pub(super) enum Slept {
    /// The lease is held.
    Granted(Grant),
    /// The time is up.
    TimedOut(Waiting),
    /// One of the interrupts came.
    Interrupted(Waiting),
    /// Another process has removed the ticket.
    Gone,
}

impl Engine {
    /// Sleeps until the ticket is granted. In all other cases it leaves the ticket in line.
    pub(super) fn sleep_until_granted(
        &self,
        mut waiting: Waiting,
        waker: &dyn Waker,
        options: &WaitOptions<'_>,
        progress: Progress<'_>,
    ) -> Result<Slept, StoreError> {
        let ticket = waiting.ticket.clone();
        let mut is_interrupted = false;
        loop {
            if !self.stop_overdue(&waiting.blockers, options.grace)? {
                let asleep_since = clock::now();
                is_interrupted = self.sleep(&[&waiting], waker, options, &mut || progress(&waiting))?;
                if let Some(grant) = waker.receive().and_then(|granted| grant_of(&ticket, granted)) {
                    self.sessions.keep(&grant.lease, asleep_since);
                    return Ok(Slept::Granted(grant));
                }
            }
            match self.through_outage(|| self.check_again(&ticket, waker))? {
                Outcome::Granted(grant) => return Ok(Slept::Granted(grant)),
                Outcome::Waiting(still) => waiting = still,
                Outcome::Gone | Outcome::Held(_) | Outcome::Deadlock(_) => return Ok(Slept::Gone),
            }
            if is_interrupted {
                return Ok(Slept::Interrupted(waiting));
            }
            if options.is_over() {
                return Ok(Slept::TimedOut(waiting));
            }
        }
    }

    /// Sleeps until one of several tickets is granted, which all have this waker. The other tickets stay in line.
    ///
    /// Returns none if the time is up or an interrupt came. With `look_first` it reads the store before it sleeps: the wake-up
    /// of an earlier grant may have been for several tickets.
    pub(crate) fn wait_any(
        &self,
        line: &mut Vec<Waiting>,
        waker: &dyn Waker,
        options: &WaitOptions<'_>,
        look_first: bool,
    ) -> Result<Option<Grant>, StoreError> {
        let mut sleeps = !look_first;
        loop {
            for waiting in line.iter() {
                self.stop_overdue(&waiting.blockers, options.grace)?;
            }
            let all: Vec<&Waiting> = line.iter().collect();
            let is_interrupted = sleeps && self.sleep(&all, waker, options, &mut || {})?;
            sleeps = true;
            waker.receive();
            let mut place = 0;
            while place < line.len() {
                match self.through_outage(|| self.check_again(&line[place].ticket, waker))? {
                    Outcome::Granted(grant) => {
                        line.remove(place);
                        return Ok(Some(grant));
                    }
                    Outcome::Waiting(still) => {
                        line[place] = still;
                        place += 1;
                    }
                    Outcome::Gone | Outcome::Held(_) | Outcome::Deadlock(_) => {
                        line.remove(place);
                    }
                }
            }
            if is_interrupted || options.is_over() {
                return Ok(None);
            }
        }
    }

    /// Calls the store again while it cannot be reached, until the outage time is over. A server that is restarted answers again
    /// within seconds, and a ticket stays in line for longer than that.
    fn through_outage<T>(&self, mut call: impl FnMut() -> Result<T, StoreError>) -> Result<T, StoreError> {
        let until = clock::now().after(self.outage);
        loop {
            match call() {
                Err(StoreError::Unreachable { .. } | StoreError::InDoubt { .. }) if clock::now() < until => {
                    thread::sleep(LOOK_AT_UNWATCHED_EVERY);
                }
                called => return called,
            }
        }
    }

    /// Checks a ticket. The ticket of an upgrade is gone once it is granted: then the lease itself is checked.
    fn check_again(&self, ticket: &Ticket, waker: &dyn Waker) -> Result<Outcome, StoreError> {
        let terms = Some(WaitTerms { waker: Some(waker.id()), stays: ticket.stays });
        let Some(lease) = ticket.upgrades else {
            return Ok(match self.check_own_ticket(ticket, terms)? {
                // Another process has continued with the ticket, and the lease is tied to that one.
                Outcome::Granted(grant) if grant.lease.claim.proof != ticket.claim.proof => Outcome::Gone,
                outcome => outcome,
            });
        };
        Ok(match self.check_upgrade(ticket.id, lease, terms)? {
            // Another process has removed the ticket, and the lease is still shared.
            Outcome::Granted(grant) if !grant.lease.claim.satisfies(&ticket.claim.resources) => Outcome::Gone,
            outcome => outcome,
        })
    }

    /// Sleeps until there is a reason to read the store again. Returns whether that is an interrupt.
    fn sleep(
        &self,
        line: &[&Waiting],
        waker: &dyn Waker,
        options: &WaitOptions<'_>,
        progress: &mut dyn FnMut(),
    ) -> Result<bool, StoreError> {
        let mut watches = Watches::default();
        for waiting in line {
            self.watch_blockers(waiting, &mut watches);
        }
        let refresh = line.iter().map(|waiting| refresh_within(&waiting.ticket)).min();
        let look_at = [refresh, watches.timer].into_iter().flatten().min();
        let look_at = look_at.and_then(|span| Instant::now().checked_add(span));
        let look_at = [look_at, options.until].into_iter().flatten().min();
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![waker.as_fd()];
        descriptors.extend_from_slice(options.interrupts);
        descriptors.extend(watches.descriptors.iter().map(|descriptor| descriptor.as_fd()));
        loop {
            progress();
            if watches.is_over {
                return Ok(false);
            }
            let left = look_at.map(|at| at.saturating_duration_since(Instant::now()));
            let sleep = [left, options.tick].into_iter().flatten().min();
            let ready = poll::wait(&descriptors, sleep)
                .map_err(|source| StoreError::io("wait for", Path::new("the store"), source))?;
            if ready.any() || left.is_some_and(|left| left.is_zero()) {
                return Ok(ready.places().any(|place| (1..=options.interrupts.len()).contains(&place)));
            }
        }
    }

    /// Waits until a revoked lease is not held any more. Returns false if it still is after `grace`, and its holder has not
    /// confirmed that it stops its work.
    pub(super) fn wait_until_gone(&self, lease: &Lease, grace: Duration) -> Result<bool, StoreError> {
        let until = Instant::now() + grace;
        let mut pause = Duration::from_millis(1);
        // The end of a lease wakes no third process, so this reads the store now and then.
        loop {
            let found = self.look(|overlay| {
                let found = overlay.lease(lease.id)?;
                Ok(found.filter(|found| !overlay.judge_lease(found).is_free()))
            })?;
            let Some(found) = found else { return Ok(true) };
            let left = until.saturating_duration_since(Instant::now());
            let is_stopping = is_acknowledged(lease, &found);
            if left.is_zero() && !is_stopping {
                return Ok(false);
            }
            thread::sleep(if is_stopping { pause } else { pause.min(left) });
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }

    /// Stops the holders among the blockers whose time is up and whose contract is `kill`. Returns whether there were any.
    pub(super) fn stop_overdue(&self, blockers: &[Blocker], grace: Duration) -> Result<bool, StoreError> {
        let mut stopped = false;
        for lease in blockers.iter().flat_map(|blocker| &blocker.leases).map(|found| &found.record) {
            stopped |= self.stop_if_overdue(lease, grace)?;
        }
        Ok(stopped)
    }

    /// Stops the processes of a holder whose time is up, if it holds under the contract `kill`. Returns whether it did.
    pub fn stop_if_overdue(&self, lease: &Lease, grace: Duration) -> Result<bool, StoreError> {
        let Some(process) = lease.claim.proof.process() else { return Ok(false) };
        // A holder that this process may not signal cannot be stopped from here.
        let may_be_stopped = lease.claim.contract == Contract::Kill
            && self.probe.shares_pids_with(&lease.claim.proof.origin)
            && process::foreign_user(process).is_none();
        // The holder may have renewed the lease since it was read, so it is read again.
        let is_overdue = may_be_stopped
            && self.look(|overlay| {
                let found = overlay.lease(lease.id)?;
                Ok(found.is_some_and(|found| overlay.judge_lease(&found) == Verdict::Overdue))
            })?;
        if is_overdue {
            let stop = Stop { root: Root::Process(process), grace, mark: None };
            stop_tree(&stop).map_err(|source| {
                StoreError::io("stop the processes of", Path::new(lease.claim.owner.as_str()), source)
            })?;
        }
        Ok(is_overdue)
    }

    /// Watches every process whose end concerns this ticket.
    fn watch_blockers(&self, waiting: &Waiting, watches: &mut Watches) {
        let silent_until = waiting.blockers.iter().find_map(|blocker| blocker.silent_until);
        // One millisecond later it is over for certain.
        let silence = silent_until.map(|end| end.since(waiting.looked_at) + Duration::from_millis(1));
        watches.timer = [watches.timer, silence].into_iter().flatten().min();
        for watched in watch_list(&waiting.blockers) {
            watches.timer =
                [watches.timer, time_left(&watched, waiting.looked_at)].into_iter().flatten().min();
            let proof = &watched.claim().proof;
            let pids_count = self.probe.shares_pids_with(&proof.origin);
            let same_machine = self.probe.sees(&proof.origin);
            match proof.voucher {
                Voucher::Time | Voucher::TimeFor(_) => {}
                Voucher::Process(process) if pids_count => watches.add(self.probe.watch(process)),
                Voucher::Process(_) => {}
                Voucher::KernelLock { holder, process } if same_machine => {
                    let watch = if pids_count { self.probe.watch(process) } else { Watch::Unavailable };
                    match watch {
                        Watch::Exit(_) => watches.add(watch),
                        // The process is gone, but its command may still hold the lock.
                        Watch::Gone | Watch::Unavailable => match self.probe.watch_lock(holder) {
                            Some(descriptor) => watches.descriptors.push(descriptor),
                            None => watches.timer = Some(LOOK_AT_UNWATCHED_EVERY),
                        },
                    }
                }
                Voucher::KernelLock { .. } => {}
            }
        }
    }
}

/// How soon a waiter has to refresh its ticket, so that it is not reaped.
fn refresh_within(ticket: &Ticket) -> Duration {
    if ticket.lapses_at().is_some() { LOOK_EVERY.min(ticket.patience().get() / 3) } else { LOOK_EVERY }
}

/// The lease that a wake-up carries, if it is that of this ticket and the waiter can take it without a write: the waiter holds it
/// as a resident process, and it has no TTL.
///
/// A late wake-up may carry a lease that is lost again. The same can happen right after a read of the store.
fn grant_of(ticket: &Ticket, granted: Granted) -> Option<Grant> {
    let is_plain = ticket.is_resident() && ticket.claim.ttl.is_none() && ticket.upgrades.is_none();
    let is_ours = is_plain && granted.id == ticket.id;
    is_ours.then(|| Grant { lease: granted.lease(Arc::clone(&ticket.claim)), joined: false })
}

/// What a waiter watches while it sleeps.
#[derive(Default)]
struct Watches {
    /// Readable when a process ends.
    descriptors: Vec<Arc<OwnedFd>>,
    /// When the first time is up.
    timer: Option<Duration>,
    /// Whether a process has ended already.
    is_over: bool,
}

impl Watches {
    fn add(&mut self, watch: Watch) {
        match watch {
            Watch::Exit(descriptor) => self.descriptors.push(descriptor),
            Watch::Gone => self.is_over = true,
            Watch::Unavailable => {}
        }
    }
}

/// How long until a watched record ends by time alone.
fn time_left(watched: &Watched, now: Moment) -> Option<Duration> {
    let end = watched.ends_at()?;
    let ends_by_time_alone = watched.claim().proof.voucher.is_time_alone();
    // One millisecond later it is over for certain.
    Some(end.since(now) + Duration::from_millis(1)).filter(|_| end > now || ends_by_time_alone)
}
