//! Use cases of leases: one function for each request. Each runs one decision.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkeeper_core::deadlock::{self, Link};
use lockkeeper_core::id::{LeaseId, Owner, TicketName, Token};
use lockkeeper_core::lease::{
    self, AcquireRequest, Caller, Fence, Grant, NotCurrent, Outcome, Resumer, WaitTerms,
};
use lockkeeper_core::record::{Claim, Lease, Ticket};
use lockkeeper_core::records::Reaped;
use lockkeeper_core::resource::Target;
use lockkeeper_core::time::{Moment, Ttl};

use super::Engine;
use lockkeeper_core::overlay::Overlay;
use lockkeeper_platform::{clock, process};
use lockkeeper_store::StoreError;

/// A live holder confirms within this time that it stops its work.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(2);
/// After its grace, a holder takes this long at most to kill its command.
const STOPPED_WITHIN: Duration = Duration::from_secs(10);

/// The outcome of an upgrade.
pub type Upgrade = Result<Outcome, NotCurrent>;

/// A lease that was broken.
#[derive(Clone, Debug)]
pub struct Broken {
    /// The lease as it was before.
    pub lease: Lease,
    /// True if its holder did not release it itself.
    pub by_force: bool,
}

/// What a release has ended.
#[derive(Clone, Debug)]
pub enum Ended {
    /// A lease, and whether its resident holder still has to release it.
    Lease(Lease, bool),
    /// A ticket.
    Ticket(Ticket),
}

impl Engine {
    /// Acquires a lease, or puts a ticket into the line.
    pub fn acquire(&self, request: &AcquireRequest) -> Result<Outcome, StoreError> {
        self.deciding_outcome(|overlay| lease::acquire(overlay, request))
    }

    /// Checks a ticket: returns its lease if it was granted, otherwise refreshes the ticket.
    pub fn check_ticket(&self, ticket: LeaseId, terms: Option<WaitTerms>) -> Result<Outcome, StoreError> {
        match self.collect(ticket)? {
            Some(grant) => Ok(Outcome::Granted(grant)),
            None => self.deciding_outcome(|overlay| lease::check_ticket(overlay, ticket, terms)),
        }
    }

    /// The same for the process that waits. If the store has lost the ticket, this process writes it again, at the same place.
    pub(crate) fn check_own_ticket(
        &self,
        ticket: &Ticket,
        terms: Option<WaitTerms>,
    ) -> Result<Outcome, StoreError> {
        match self.collect(ticket.id)? {
            Some(grant) => Ok(Outcome::Granted(grant)),
            None => self.deciding_outcome(|overlay| lease::wait_again(overlay, ticket, terms)),
        }
    }

    /// The lease of a ticket that was granted, if its waiter need not write anything to take it.
    fn collect(&self, ticket: LeaseId) -> Result<Option<Grant>, StoreError> {
        // A lease without a TTL and a pickup time needs no change when its waiter takes it, so a read is enough.
        let looked_at = clock::now();
        let found = self.look(|overlay| {
            let lease = overlay.lease(ticket)?;
            let lease = lease.filter(|it| it.pickup_by.is_none() && it.claim.ttl.is_none() && !it.revoked);
            let now = overlay.now();
            Ok(lease.map(|lease| (now.since(lease.heartbeat_at), lease)))
        })?;
        Ok(found.map(|(age, lease)| {
            self.sessions.keep(&lease, looked_at.before(age));
            Grant { lease, joined: false }
        }))
    }

    /// Checks the ticket of an upgrade of `lease`.
    pub fn check_upgrade(
        &self,
        ticket: LeaseId,
        lease: LeaseId,
        terms: Option<WaitTerms>,
    ) -> Result<Outcome, StoreError> {
        let (outcome, _) = self.decide(|overlay| lease::check_upgrade(overlay, ticket, lease, terms))?;
        self.note_upgrade(lease, &outcome);
        Ok(outcome)
    }

    /// Decides about a lease of this process. If it is granted, its session is renewed from now on.
    fn deciding_outcome(
        &self,
        rule: impl FnMut(&mut Overlay<'_, StoreError>) -> Result<Outcome, StoreError>,
    ) -> Result<Outcome, StoreError> {
        let sent_at = clock::now();
        let (outcome, _) = self.decide(rule)?;
        // A lease that was joined belongs to another process of the same owner, which renews it.
        if let Outcome::Granted(Grant { lease, joined: false }) = &outcome {
            self.sessions.keep(lease, sent_at);
        }
        Ok(outcome)
    }

    /// Finds the claims with this ticket name that a caller may continue with.
    pub fn find_tickets(
        &self,
        name: &TicketName,
        caller: &Caller,
    ) -> Result<Vec<(LeaseId, Arc<Claim>)>, StoreError> {
        self.look(|overlay| lease::find_tickets(overlay, name, caller))
    }

    /// Continues with a ticket of an earlier command, without waiting.
    pub fn resume_now(
        &self,
        ticket: LeaseId,
        resumer: &Resumer,
        terms: Option<WaitTerms>,
    ) -> Result<Outcome, StoreError> {
        self.decide(|overlay| lease::resume(overlay, ticket, resumer, terms)).map(|(outcome, _)| outcome)
    }

    /// Removes a ticket. If it was an upgrade that is granted already, returns the lease instead.
    pub fn give_up(&self, ticket: &Ticket) -> Result<Option<Grant>, StoreError> {
        self.sessions.forget(ticket.id);
        let decided = self.decide(|overlay| {
            lease::give_up(overlay, ticket.id)?;
            let lease = ticket.upgrades.map(|id| overlay.lease(id)).transpose()?.flatten();
            Ok(lease.filter(|lease| lease.claim.satisfies(&ticket.claim.resources)))
        });
        decided.map(|(lease, _)| lease.map(|lease| Grant { lease, joined: false }))
    }

    /// Leaves a ticket in line, with no process asleep on it.
    pub fn detach(&self, ticket: LeaseId) -> Result<(), StoreError> {
        self.decide(|overlay| lease::detach(overlay, ticket)).map(|_| ())
    }

    /// This process as the caller that wants to end or change a lease.
    pub fn caller(&self, token: Option<Token>, owner: Option<Owner>) -> Caller {
        // Where the process table cannot be read, the caller has no family, and needs the token or the owner.
        let processes = process::with_ancestors().ok();
        Caller { token, owner, processes: processes.map(|found| (self.probe().origin().clone(), found)) }
    }

    /// Renews a lease: its TTL starts again. Only a caller that may end the lease may shorten its TTL.
    pub fn renew(
        &self,
        id: LeaseId,
        caller: impl Into<Caller>,
        ttl: Option<Ttl>,
    ) -> Result<Result<Lease, NotCurrent>, StoreError> {
        let caller = caller.into();
        let decided = self.decide(|overlay| match lease::permit_renewal(overlay, id, &caller, ttl)? {
            Ok(()) => lease::renew(overlay, id, caller.token, ttl),
            Err(refusal) => Ok(Err(refusal)),
        });
        decided.map(|(renewed, _)| renewed)
    }

    /// Ends a lease of this process: its work is over. Other processes call [`Engine::begin_end`].
    pub fn release(
        &self,
        id: LeaseId,
        caller: impl Into<Caller>,
    ) -> Result<Result<Lease, NotCurrent>, StoreError> {
        let caller = caller.into();
        let known = self.sessions.forget(id);
        let decided = self.decide(|overlay| {
            // The store may have lost the lease. No other owner has got it since.
            if let Some(known) = &known
                && lease::release_forgotten(overlay, id, known.claim.session())?
            {
                return Ok(Ok(known.clone()));
            }
            match lease::permit(overlay, id, &caller)? {
                Ok(()) => lease::release(overlay, id, caller.token),
                Err(refusal) => Ok(Err(refusal)),
            }
        });
        decided.map(|(released, _)| released)
    }

    /// Ends a lease from outside of its holder process, if the caller may do it, or asks its resident holder to release it. Returns
    /// the lease, and whether it is still held: see [`Engine::wait_for_release`].
    pub fn begin_end(
        &self,
        id: LeaseId,
        caller: &Caller,
    ) -> Result<Result<(Lease, bool), NotCurrent>, StoreError> {
        self.decide(|overlay| lease::end(overlay, id, caller)).map(|(revoked, _)| revoked)
    }

    /// Removes a ticket. If the ticket has become a lease, begins to end the lease, if the caller may do it.
    pub fn begin_end_of_any(
        &self,
        id: LeaseId,
        caller: &Caller,
    ) -> Result<Result<Ended, NotCurrent>, StoreError> {
        let decided = self.decide(|overlay| match lease::withdraw(overlay, id, caller)? {
            Err(NotCurrent::NotInLine(_)) => {
                let ended = lease::end(overlay, id, caller)?;
                Ok(ended.map(|(lease, stays)| Ended::Lease(lease, stays)))
            }
            withdrawn => Ok(withdrawn.map(Ended::Ticket)),
        });
        decided.map(|(ended, _)| ended)
    }

    /// Removes a ticket. Only a person decides that.
    pub fn remove_ticket(&self, id: LeaseId) -> Result<Option<Ticket>, StoreError> {
        self.decide(|overlay| lease::remove_ticket(overlay, id)).map(|(removed, _)| removed)
    }

    /// Makes a shared lease exclusive.
    pub fn upgrade(
        &self,
        id: LeaseId,
        caller: impl Into<Caller>,
        wait: Option<WaitTerms>,
    ) -> Result<Upgrade, StoreError> {
        let caller = caller.into();
        let decided = self.decide(|overlay| match lease::permit(overlay, id, &caller)? {
            Ok(()) => lease::upgrade(overlay, id, caller.token, wait),
            Err(refusal) => Ok(Err(refusal)),
        });
        let (upgraded, _) = decided?;
        if let Ok(outcome) = &upgraded {
            self.note_upgrade(id, outcome);
        }
        Ok(upgraded)
    }

    /// Notes the new token in the session of this process: if the store loses the lease, the session writes it again with this
    /// token.
    fn note_upgrade(&self, id: LeaseId, outcome: &Outcome) {
        if let Outcome::Granted(_) = outcome {
            self.sessions.check(id);
        }
    }

    /// Makes a lease shared.
    pub fn downgrade(
        &self,
        id: LeaseId,
        caller: impl Into<Caller>,
    ) -> Result<Result<Lease, NotCurrent>, StoreError> {
        let caller = caller.into();
        let decided = self.decide(|overlay| match lease::permit(overlay, id, &caller)? {
            Ok(()) => lease::downgrade(overlay, id, caller.token),
            Err(refusal) => Ok(Err(refusal)),
        });
        decided.map(|(downgraded, _)| downgraded)
    }

    /// Whether a token is current for a target.
    pub fn fence(&self, target: &Target, token: Token) -> Result<Fence, StoreError> {
        self.look(|overlay| lease::fence(overlay, target, token))
    }

    /// One lease, if it is held.
    pub fn lease(&self, id: LeaseId) -> Result<Option<Lease>, StoreError> {
        self.look(|overlay| overlay.lease(id))
    }

    /// Why a lease is not held any more under this token; none if it is.
    pub fn loss(&self, id: LeaseId, token: Token) -> Result<Option<NotCurrent>, StoreError> {
        let loss = match self.lease(id)? {
            None => NotCurrent::Unknown(id),
            Some(lease) if lease.token != token => {
                let loss = NotCurrent::Token { id, given: token, current: lease.token };
                if lease.token > token {
                    return Ok(Some(loss));
                }
                loss
            }
            Some(lease) if lease.revoked => return Ok(Some(NotCurrent::Revoked(id))),
            Some(_) => return Ok(None),
        };
        // A store that several machines share may have lost the lease.
        Ok(self.sessions.check(id).map_or(Some(loss), Result::err))
    }

    /// Why a command under this lease must not begin, or has to be stopped: the session is over, or would end before the command
    /// is stopped.
    pub fn session_loss(&self, id: LeaseId, grace: Duration) -> Option<NotCurrent> {
        self.sessions.loss(id, grace)
    }

    /// How soon to look at the session of this lease again; none if it has no session.
    pub fn session_due(&self, id: LeaseId, grace: Duration) -> Option<Duration> {
        self.sessions.look_at(id, grace).map(|due| due.since(clock::now()))
    }

    /// The claim of a lease or ticket.
    pub fn claim(&self, id: LeaseId) -> Result<Option<Arc<Claim>>, StoreError> {
        self.look(|overlay| {
            let lease = overlay.lease(id)?.map(|lease| lease.claim);
            Ok(match lease {
                Some(claim) => Some(claim),
                None => overlay.ticket(id)?.map(|ticket| ticket.claim),
            })
        })
    }

    /// The moment on the store's clock.
    pub fn now(&self) -> Result<Moment, StoreError> {
        self.look(|overlay| Ok(overlay.now()))
    }

    /// All leases, also those of dead holders.
    pub fn leases(&self) -> Result<Vec<Lease>, StoreError> {
        self.look(|overlay| Ok(overlay.all()?.0))
    }

    /// The leases of one owner.
    pub fn leases_of(&self, owner: &Owner) -> Result<Vec<Lease>, StoreError> {
        self.look(|overlay| overlay.leases_of(owner))
    }

    /// Reaps all records of dead processes and ended times, and removes the wakers that they left.
    pub fn clean_up(&self) -> Result<Vec<Reaped>, StoreError> {
        let ((), reaped) = self.decide(lease::clean_up)?;
        self.store().sweep()?;
        Ok(reaped)
    }

    /// All deadlocks among the waits.
    pub fn cycles(&self) -> Result<Vec<Vec<Link>>, StoreError> {
        self.look(deadlock::cycles)
    }

    /// Breaks a lease: revokes it, gives its holder `grace` to stop its work, then removes the lease.
    pub fn break_lease(&self, id: LeaseId, grace: Duration) -> Result<Option<Broken>, StoreError> {
        let (revoked, _) = self.decide(|overlay| lease::revoke(overlay, id))?;
        revoked.map(|revoked| self.wait_or_evict(revoked, grace)).transpose()
    }

    /// Breaks every lease: revokes all of them first, then gives all holders together `grace`.
    pub fn break_all(&self, grace: Duration) -> Result<Vec<Broken>, StoreError> {
        let until = Instant::now() + grace;
        let (leases, _) = self.look(|overlay| overlay.all())?;
        let mut revoked = Vec::new();
        for lease in leases {
            revoked.extend(self.decide(|overlay| lease::revoke(overlay, lease.id))?.0);
        }
        let left = || until.saturating_duration_since(Instant::now());
        revoked.into_iter().map(|revoked| self.wait_or_evict(revoked, left())).collect()
    }

    /// Like [`Engine::loss`], for a holder that now stops its work and then releases the lease. It confirms that to the process
    /// that has revoked the lease, so that this process waits for the release.
    pub(crate) fn loss_to_obey(&self, id: LeaseId, token: Token) -> Result<Option<NotCurrent>, StoreError> {
        let loss = self.loss(id, token)?;
        if matches!(loss, Some(NotCurrent::Revoked(_))) {
            self.decide(|overlay| lease::acknowledge(overlay, id, token))?;
        }
        Ok(loss)
    }

    /// Waits until the holder has released a revoked lease. Returns false if the holder does not confirm that it stops its work.
    /// It then keeps the lease until its processes have ended: only [`Engine::break_lease`] takes it away before.
    pub fn wait_for_release(&self, lease: &Lease, grace: Duration) -> Result<bool, StoreError> {
        self.wait_until_gone(lease, confirmed_within(lease, grace))
    }

    /// Waits until the holder has released a revoked lease. Removes the lease if the holder does not confirm that it stops its
    /// work. A holder that has confirmed keeps the lease until its work has ended.
    pub fn wait_or_evict(
        &self,
        (lease, stays): (Lease, bool),
        grace: Duration,
    ) -> Result<Broken, StoreError> {
        let grace = confirmed_within(&lease, grace);
        let mut by_force = false;
        while stays && !by_force && !self.wait_until_gone(&lease, grace)? {
            by_force = self.decide(|overlay| lease::evict_unless_acknowledged(overlay, &lease))?.0;
        }
        Ok(Broken { lease, by_force })
    }
}

/// How long to wait for the confirmation of a holder whose lease was revoked. If another process revoked the lease before, that process
/// may have got the confirmation. The lease then ends within the grace of its holder.
fn confirmed_within(lease: &Lease, grace: Duration) -> Duration {
    if lease.revoked { grace + STOPPED_WITHIN } else { grace.max(CONFIRMED_WITHIN) }
}
