//! Tickets of runs that wait only for a lease.

use std::collections::{HashMap, HashSet};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use lockkeeper_core::id::{LeaseId, Owner, RunId};
use lockkeeper_core::lease::{Grant, Outcome, WaitTerms, Waiting};
use lockkeeper_core::request::Request;
use lockkeeper_core::run::Run;
use lockkeeper_core::time::Ttl;

use super::{Claimed, Claimer, owner, run_of, why};
use crate::WaitOptions;
use crate::runs::RunError;
use crate::work::locked;
use lockkeeper_platform::liveness_lock::LivenessLock;
use lockkeeper_store::Waker;

/// How many runs of one worker have tickets at most.
const MOST_TICKETS: usize = 16;
/// How long a ticket lasts if its waiter cannot be judged by others (TTL of the ticket).
const STAYS: Duration = Duration::from_secs(120);

/// The tickets of one claimer.
#[derive(Default)]
pub(super) struct Tickets {
    /// Woken when one of the tickets is granted.
    waker: Option<Box<dyn Waker>>,
    waiting: Vec<Waiting>,
    /// The liveness locks of waiting runs, by ticket.
    locks: HashMap<LeaseId, LivenessLock>,
    /// The liveness lock for the next run.
    pub(super) lock: Option<LivenessLock>,
    /// Runs whose lock files other programs hold. No wake-up comes when those become free.
    pub(super) file_held: HashSet<RunId>,
    /// Whether other tickets may have been granted together with the last one.
    look_first: bool,
    /// Whether some waiting runs have no ticket, because there are more than [`MOST_TICKETS`].
    is_full: bool,
}

impl Tickets {
    /// Whether no run has a ticket.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether a run waits for something that sends no wake-up when it ends.
    pub(super) fn tries_again(&self) -> bool {
        self.is_full || !self.file_held.is_empty()
    }

    pub(super) fn has(&self, owner: &Owner) -> bool {
        self.waiting.iter().any(|waiting| waiting.ticket.claim.owner == *owner)
    }
}

impl Claimer {
    /// Gets tickets for these runs and drops all others. A lease may be granted at once: then its run is claimed.
    pub(super) fn wait_for_leases(
        &self,
        held: Vec<(Run, Request)>,
        tickets: &mut Tickets,
    ) -> Result<Option<Claimed>, RunError> {
        self.drop_tickets(tickets, |other| held.iter().any(|(run, request)| owner(run, request) == *other))?;
        let still_waits =
            |id: &RunId| tickets.file_held.contains(id) || held.iter().any(|(run, _)| run.id == *id);
        locked(&self.published).retain(|id, _| still_waits(id));
        tickets.is_full = held.len() > MOST_TICKETS;
        for (run, request) in held.into_iter().take(MOST_TICKETS) {
            if let Some(grant) = self.get_ticket(&run, &request, tickets)?
                && let Some(claimed) = self.claim_with(&run, request, Some(grant.lease), tickets)?
            {
                return Ok(Some(claimed));
            }
        }
        Ok(None)
    }

    /// Sleeps until a lease is granted, and claims its run. None when it was interrupted, or the run is gone.
    pub(super) fn wait_for_grant(
        &self,
        tickets: &mut Tickets,
        interrupts: &[BorrowedFd<'_>],
        until: Option<Instant>,
    ) -> Result<Option<Claimed>, RunError> {
        let options = WaitOptions { until, interrupts, grace: self.grace, tick: None };
        let Some(waker) = &tickets.waker else { return Ok(None) };
        let look_first = std::mem::take(&mut tickets.look_first);
        let Some(grant) = self.leases.wait_any(&mut tickets.waiting, &**waker, &options, look_first)? else {
            return Ok(None);
        };
        tickets.look_first = true;
        if let Some(lock) = tickets.locks.remove(&grant.lease.id) {
            tickets.lock = Some(lock);
        }
        let found = match run_of(&grant.lease.claim.owner) {
            Some(id) => self.runs.run_with_request(&id)?,
            None => None,
        };
        let Some((run, request)) = found else {
            self.release(Some((grant.lease.id, grant.lease.token)))?;
            return Ok(None);
        };
        self.claim_with(&run, request, Some(grant.lease), tickets)
    }

    /// Drops all tickets.
    pub(super) fn drop_all(&self, tickets: &mut Tickets) -> Result<(), RunError> {
        self.drop_tickets(tickets, |_| false)
    }

    /// Drops all tickets but those of some owners.
    fn drop_tickets(&self, tickets: &mut Tickets, keep: impl Fn(&Owner) -> bool) -> Result<(), RunError> {
        let mut place = 0;
        while place < tickets.waiting.len() {
            if keep(&tickets.waiting[place].ticket.claim.owner) {
                place += 1;
                continue;
            }
            self.leases.give_up(&tickets.waiting[place].ticket)?;
            tickets.waiting.remove(place);
        }
        tickets.locks.retain(|id, _| tickets.waiting.iter().any(|waiting| waiting.ticket.id == *id));
        Ok(())
    }

    /// Gets a ticket for the lease of a run; returns the lease itself when it has become free meanwhile.
    fn get_ticket(
        &self,
        run: &Run,
        request: &Request,
        tickets: &mut Tickets,
    ) -> Result<Option<Grant>, RunError> {
        if tickets.has(&owner(run, request)) {
            return Ok(None);
        }
        if tickets.waker.is_none() {
            tickets.waker = Some(self.leases.store().waker()?);
        }
        let waker = tickets.waker.as_ref().map(|waker| waker.id());
        let stays = Ttl::new(STAYS).expect("two minutes are a TTL");
        let wanted = self.lease_request(run, request, Some(WaitTerms { waker, stays }), tickets)?;
        match self.leases.acquire(&wanted)? {
            Outcome::Granted(grant) => return Ok(Some(grant)),
            Outcome::Waiting(waiting) => {
                let lock = tickets.lock.take().expect("the request names it");
                tickets.locks.insert(waiting.ticket.id, lock);
                self.publish_wait(run, why(&waiting.blockers));
                tickets.waiting.push(waiting);
            }
            // It is tried again whenever something changes.
            Outcome::Held(_) | Outcome::Deadlock(_) | Outcome::Gone => {}
        }
        Ok(None)
    }
}
