//! Sleeping in line: woken by a hand-off, by a death, or by the time that a holder has left.
//!
//! The order is always: have the waker, look, then sleep. Whoever hands on wakes; deaths are noticed through
//! the kernel, by the one waiter who watches that process. The slow timer is only a net below both, for the
//! case that the one who should wake is frozen after its commit.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use lockkeeper_core::lease::{Grant, Outcome, WaitTerms, Waiting};
use lockkeeper_core::liveness::{Contract, Verdict, Voucher};
use lockkeeper_core::record::{Lease, Ticket};
use lockkeeper_core::time::Moment;
use lockkeeper_core::waiting::{Watched, watch_list};

use super::Engine;
use crate::platform::poll;
use crate::platform::process::Watch;
use crate::platform::tree::{Root, Stop, stop_tree};
use crate::store::{Granted, StoreError, Waker};

/// Nobody relies on it: see the module's description.
const SAFETY_NET: Duration = Duration::from_secs(5);

/// How long to wait, and what else may end the wait.
pub struct Patience<'p> {
    /// When to stop, if ever.
    pub until: Option<Instant>,
    /// Descriptors whose readiness ends the wait, such as a signal's.
    pub interrupts: &'p [BorrowedFd<'p>],
    /// How long an overdue holder gets to stop by itself.
    pub grace: Duration,
    /// How often to report progress although nothing happened; for a clock on a terminal.
    pub tick: Option<Duration>,
}

/// Told whenever the wait has been looked at again.
pub type Progress<'p> = &'p mut dyn FnMut(&Waiting);

/// How a wait ended.
#[derive(Debug)]
pub enum Waited {
    /// The lease is held.
    Granted(Grant),
    /// The time was up.
    TimedOut(Waiting),
    /// One of the interrupts came.
    Interrupted(Waiting),
    /// The ticket was taken away by somebody else.
    Gone,
}

impl Engine {
    /// Sleeps until the ticket is granted.
    pub fn wait(
        &self,
        mut waiting: Waiting,
        waker: &dyn Waker,
        patience: &Patience<'_>,
        progress: Progress<'_>,
    ) -> Result<Waited, StoreError> {
        let ticket = waiting.ticket.clone();
        let terms = WaitTerms { waker: Some(waker.id()), stays: ticket.stays };
        loop {
            if self.stop_overdue(&waiting, patience.grace)? {
                match self.attend_again(&ticket, terms)? {
                    Outcome::Waiting(still) => waiting = still,
                    Outcome::Granted(grant) => return Ok(Waited::Granted(grant)),
                    Outcome::Gone | Outcome::Held(_) | Outcome::Deadlock(_) => return Ok(Waited::Gone),
                }
            }
            let interrupted = self.sleep(&[&waiting], waker, patience, &mut || progress(&waiting))?;
            if let Some(grant) = waker.receive().and_then(|granted| grant_of(&ticket, granted)) {
                return Ok(Waited::Granted(grant));
            }
            match self.attend_again(&ticket, terms)? {
                Outcome::Granted(grant) => return Ok(Waited::Granted(grant)),
                Outcome::Waiting(still) => waiting = still,
                Outcome::Gone | Outcome::Held(_) | Outcome::Deadlock(_) => return Ok(Waited::Gone),
            }
            if interrupted {
                return Ok(Waited::Interrupted(waiting));
            }
            if patience.until.is_some_and(|until| Instant::now() >= until) {
                return Ok(Waited::TimedOut(waiting));
            }
        }
    }

    /// Sleeps until any of several tickets is granted, all of which this waker is for. Those that are not stay in line.
    ///
    /// Returns without any when the time was up or an interrupt came. With `look_first`, it does not sleep before it has
    /// looked: after a grant others may have been granted too, and the waker was heard for all of them.
    pub fn wait_any(
        &self,
        line: &mut Vec<Waiting>,
        waker: &dyn Waker,
        patience: &Patience<'_>,
        look_first: bool,
    ) -> Result<Option<Grant>, StoreError> {
        let mut sleeps = !look_first;
        loop {
            for waiting in line.iter() {
                self.stop_overdue(waiting, patience.grace)?;
            }
            let all: Vec<&Waiting> = line.iter().collect();
            let interrupted = sleeps && self.sleep(&all, waker, patience, &mut || {})?;
            sleeps = true;
            waker.receive();
            let mut place = 0;
            while place < line.len() {
                let ticket = line[place].ticket.clone();
                let terms = WaitTerms { waker: Some(waker.id()), stays: ticket.stays };
                match self.attend_again(&ticket, terms)? {
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
            if interrupted || patience.until.is_some_and(|until| Instant::now() >= until) {
                return Ok(None);
            }
        }
    }

    /// Comes back to a ticket. That of an upgrade is gone once it is granted: then the lease itself tells.
    fn attend_again(&self, ticket: &Ticket, terms: WaitTerms) -> Result<Outcome, StoreError> {
        let Some(lease) = ticket.upgrades else { return self.check_ticket(ticket.id, Some(terms)) };
        Ok(match self.check_upgrade(ticket.id, lease, Some(terms))? {
            // The ticket was taken away, and the lease is what it was.
            Outcome::Granted(grant) if !grant.lease.claim.satisfies(&ticket.claim.resources) => Outcome::Gone,
            outcome => outcome,
        })
    }

    /// Sleeps until there is a reason to look again, true when that is an interrupt.
    fn sleep(
        &self,
        line: &[&Waiting],
        waker: &dyn Waker,
        patience: &Patience<'_>,
        progress: &mut dyn FnMut(),
    ) -> Result<bool, StoreError> {
        let mut sentries = Sentries::default();
        for waiting in line {
            self.post_sentries(waiting, &mut sentries);
        }
        let attendance = line.iter().map(|waiting| self.attendance(waiting)).min();
        let look_at = [attendance, sentries.timer].into_iter().flatten().min();
        let look_at = look_at.and_then(|span| Instant::now().checked_add(span));
        let look_at = [look_at, patience.until].into_iter().flatten().min();
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![waker.as_fd()];
        descriptors.extend_from_slice(patience.interrupts);
        descriptors.extend(sentries.descriptors.iter().map(|descriptor| descriptor.as_fd()));
        loop {
            progress();
            if sentries.somebody_is_gone {
                return Ok(false);
            }
            let left = look_at.map(|at| at.saturating_duration_since(Instant::now()));
            let sleep = [left, patience.tick].into_iter().flatten().min();
            let ready = poll::wait(&descriptors, sleep)
                .map_err(|source| StoreError::io("wait for", Path::new("the store"), source))?;
            if ready.any() || left.is_some_and(|left| left.is_zero()) {
                return Ok(ready.places().any(|place| (1..=patience.interrupts.len()).contains(&place)));
            }
        }
    }

    /// Waits until a lease is not held any more; false when it still is after `grace`.
    pub(super) fn wait_until_gone(&self, lease: &Lease, grace: Duration) -> Result<bool, StoreError> {
        let until = Instant::now() + grace;
        let mut pause = Duration::from_millis(1);
        // Nobody wakes for a stranger who only watches, so this looks now and then, for a few seconds at most.
        loop {
            let gone = self.look(|overlay| match overlay.lease(lease.id)? {
                None => Ok(true),
                Some(found) => Ok(overlay.judge_lease(&found).is_free()),
            })?;
            let left = until.saturating_duration_since(Instant::now());
            if gone || left.is_zero() {
                return Ok(gone);
            }
            thread::sleep(pause.min(left));
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }

    /// How long a ticket may go without its owner being seen.
    fn attendance(&self, waiting: &Waiting) -> Duration {
        let ticket = &waiting.ticket;
        if ticket.is_resident() { SAFETY_NET } else { SAFETY_NET.min(ticket.stays.get() / 3) }
    }

    /// Stops holders whose time is up and who agreed to be stopped; true when there were any.
    fn stop_overdue(&self, waiting: &Waiting, grace: Duration) -> Result<bool, StoreError> {
        let mut stopped = false;
        for lease in waiting.blockers.iter().flat_map(|blocker| &blocker.leases).map(|found| &found.record) {
            stopped |= self.stop_if_overdue(lease, grace)?;
        }
        Ok(stopped)
    }

    /// Stops the processes of a holder whose time is up, if it holds under the contract `kill`. Returns whether it did.
    pub fn stop_if_overdue(&self, lease: &Lease, grace: Duration) -> Result<bool, StoreError> {
        let Some(process) = lease.claim.proof.process() else { return Ok(false) };
        let may_be_stopped =
            lease.claim.contract == Contract::Kill && self.probe.shares_pids_with(&lease.claim.proof.origin);
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

    /// Has everybody watched whose end concerns this ticket.
    fn post_sentries(&self, waiting: &Waiting, sentries: &mut Sentries) {
        for watched in watch_list(&waiting.blockers) {
            sentries.timer =
                [sentries.timer, time_left(&watched, waiting.looked_at)].into_iter().flatten().min();
            let proof = &watched.claim().proof;
            let pids_count = self.probe.shares_pids_with(&proof.origin);
            let same_machine = proof.origin.boot == self.probe.origin().boot;
            match proof.voucher {
                Voucher::Time => {}
                Voucher::Process(process) if pids_count => sentries.add(self.probe.watch(process)),
                Voucher::Process(_) => {}
                Voucher::KernelLock { holder, process } if same_machine => {
                    let watch = if pids_count { self.probe.watch(process) } else { Watch::Unavailable };
                    match watch {
                        Watch::Exit(_) => sentries.add(watch),
                        // The process is gone, but its command may hold on.
                        Watch::Gone | Watch::Unavailable => match self.probe.sentry(holder) {
                            Some(descriptor) => sentries.descriptors.push(descriptor),
                            None => sentries.timer = Some(SAFETY_NET / 50),
                        },
                    }
                }
                Voucher::KernelLock { .. } => {}
            }
        }
    }
}

/// The lease that a wake told of, if it is this ticket's and there is nothing to be written when it is taken up: its
/// waiter stays with it, and no time is counted.
///
/// Who is told late may have lost it since; so may anybody who looked, a moment later.
fn grant_of(ticket: &Ticket, granted: Granted) -> Option<Grant> {
    let plain = ticket.is_resident() && ticket.claim.ttl.is_none() && ticket.upgrades.is_none();
    let is_it = plain && granted.id == ticket.id;
    is_it.then(|| Grant { lease: granted.lease(Arc::clone(&ticket.claim)), joined: false })
}

#[derive(Default)]
struct Sentries {
    descriptors: Vec<Arc<OwnedFd>>,
    timer: Option<Duration>,
    somebody_is_gone: bool,
}

impl Sentries {
    fn add(&mut self, watch: Watch) {
        match watch {
            Watch::Exit(descriptor) => self.descriptors.push(descriptor),
            Watch::Gone => self.somebody_is_gone = true,
            Watch::Unavailable => {}
        }
    }
}

/// When time alone may end a holder or waiter.
fn time_left(watched: &Watched, now: Moment) -> Option<Duration> {
    let end = match watched {
        Watched::Lease(lease) => lease.expires_at(),
        Watched::Ticket(ticket) if ticket.is_resident() => None,
        Watched::Ticket(ticket) => Some(ticket.seen_at.after(ticket.stays.get())),
    }?;
    // One millisecond later it is over for certain.
    Some(end.since(now) + Duration::from_millis(1)).filter(|_| end > now || is_timed(watched))
}

fn is_timed(watched: &Watched) -> bool {
    matches!(watched.claim().proof.voucher, Voucher::Time)
}
