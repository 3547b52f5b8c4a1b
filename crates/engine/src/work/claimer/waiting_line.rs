//! The waiting line: tickets for the leases of runs that could begin otherwise.

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
const TICKETS: usize = 16;
/// How long a ticket stays while nothing is known about this process. While the process lives, its ticket stays.
const STAYS: Duration = Duration::from_secs(120);

/// The tickets of one claimer.
#[derive(Default)]
pub(super) struct WaitingLine {
    /// Woken when one of the tickets is granted.
    waker: Option<Box<dyn Waker>>,
    waiting: Vec<Waiting>,
    /// The kernel locks that the processes of waiting runs will share.
    locks: HashMap<LeaseId, LivenessLock>,
    /// The kernel lock that the processes of the next run will share.
    pub(super) lock: Option<LivenessLock>,
    /// Runs whose lock files other programs hold. No wake-up comes when those become free.
    pub(super) file_held: HashSet<RunId>,
    /// Whether other tickets may have been granted together with the last one.
    look_first: bool,
    /// Whether some runs have no ticket, because there are too many.
    is_full: bool,
}

impl WaitingLine {
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
    /// Gets tickets for these runs and gives up all others. A lease may be granted at once: then its run is claimed.
    pub(super) fn wait_for_leases(
        &self,
        held: Vec<(Run, Request)>,
        line: &mut WaitingLine,
    ) -> Result<Option<Claimed>, RunError> {
        self.leave(line, |other| held.iter().any(|(run, request)| owner(run, request) == *other))?;
        let still_waits =
            |id: &RunId| line.file_held.contains(id) || held.iter().any(|(run, _)| run.id == *id);
        locked(&self.published).retain(|id, _| still_waits(id));
        line.is_full = held.len() > TICKETS;
        for (run, request) in held.into_iter().take(TICKETS) {
            if let Some(grant) = self.get_ticket(&run, &request, line)?
                && let Some(claimed) = self.claim_with(&run, request, Some(grant.lease), line)?
            {
                return Ok(Some(claimed));
            }
        }
        Ok(None)
    }

    /// Sleeps until a lease is granted, and claims its run. None when it was interrupted, or the run is gone.
    pub(super) fn wait_in_line(
        &self,
        line: &mut WaitingLine,
        interrupts: &[BorrowedFd<'_>],
        until: Option<Instant>,
    ) -> Result<Option<Claimed>, RunError> {
        let options = WaitOptions { until, interrupts, grace: self.grace, tick: None };
        let Some(waker) = &line.waker else { return Ok(None) };
        let look_first = std::mem::take(&mut line.look_first);
        let Some(grant) = self.leases.wait_any(&mut line.waiting, &**waker, &options, look_first)? else {
            return Ok(None);
        };
        line.look_first = true;
        if let Some(lock) = line.locks.remove(&grant.lease.id) {
            line.lock = Some(lock);
        }
        let found = match run_of(&grant.lease.claim.owner) {
            Some(id) => self.runs.run_with_request(&id)?,
            None => None,
        };
        let Some((run, request)) = found else {
            self.release(Some((grant.lease.id, grant.lease.token)))?;
            return Ok(None);
        };
        self.claim_with(&run, request, Some(grant.lease), line)
    }

    /// Gives up all tickets.
    pub(super) fn leave_all(&self, line: &mut WaitingLine) -> Result<(), RunError> {
        self.leave(line, |_| false)
    }

    /// Gives up all tickets but those of some owners.
    fn leave(&self, line: &mut WaitingLine, keep: impl Fn(&Owner) -> bool) -> Result<(), RunError> {
        let mut place = 0;
        while place < line.waiting.len() {
            if keep(&line.waiting[place].ticket.claim.owner) {
                place += 1;
                continue;
            }
            self.leases.give_up(&line.waiting[place].ticket)?;
            line.waiting.remove(place);
        }
        line.locks.retain(|id, _| line.waiting.iter().any(|waiting| waiting.ticket.id == *id));
        Ok(())
    }

    /// Gets a ticket for the lease of a run; returns the lease itself when it has become free meanwhile.
    fn get_ticket(
        &self,
        run: &Run,
        request: &Request,
        line: &mut WaitingLine,
    ) -> Result<Option<Grant>, RunError> {
        if line.has(&owner(run, request)) {
            return Ok(None);
        }
        if line.waker.is_none() {
            line.waker = Some(self.leases.store().waker()?);
        }
        let waker = line.waker.as_ref().map(|waker| waker.id());
        let stays = Ttl::new(STAYS).expect("two minutes are a TTL");
        let wanted = self.lease_request(run, request, Some(WaitTerms { waker, stays }), line)?;
        match self.leases.acquire(&wanted)? {
            Outcome::Granted(grant) => return Ok(Some(grant)),
            Outcome::Waiting(waiting) => {
                let lock = line.lock.take().expect("the request names it");
                line.locks.insert(waiting.ticket.id, lock);
                self.publish_wait(run, why(&waiting.blockers));
                line.waiting.push(waiting);
            }
            // It is tried again whenever something changes.
            Outcome::Held(_) | Outcome::Deadlock(_) | Outcome::Gone => {}
        }
        Ok(None)
    }
}
