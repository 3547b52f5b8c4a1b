//! The life of leases: one function for each thing that can be asked.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkeeper_core::deadlock::{self, Link};
use lockkeeper_core::id::{LeaseId, Owner, TicketName, Token};
use lockkeeper_core::lease::{self, Fence, Grant, NotCurrent, Outcome, Request, WaitTerms};
use lockkeeper_core::record::{Claim, Lease, Ticket};
use lockkeeper_core::records::Reaped;
use lockkeeper_core::resource::Target;
use lockkeeper_core::time::{Moment, Ttl};

use super::Engine;
use crate::store::StoreError;

/// What became of a wish for more of a lease.
pub type Upgrade = Result<Outcome, NotCurrent>;

/// What became of a lease that was to be broken.
#[derive(Clone, Debug)]
pub struct Broken {
    /// The lease as it was.
    pub lease: Lease,
    /// Whether its holder did not let go by itself.
    pub by_force: bool,
}

impl Engine {
    /// Takes a lease, or a place in line.
    pub fn acquire(&self, request: &Request) -> Result<Outcome, StoreError> {
        self.decide(|overlay| lease::acquire(overlay, request)).map(|(outcome, _)| outcome)
    }

    /// Comes back to a ticket.
    pub fn check_ticket(&self, ticket: LeaseId, terms: Option<WaitTerms>) -> Result<Outcome, StoreError> {
        // Mostly it was granted to somebody who stays: that needs no decision.
        if let Some(lease) = self.look(|overlay| {
            let lease = overlay.lease(ticket)?;
            Ok(lease.filter(|lease| lease.pickup_by.is_none() && lease.claim.ttl.is_none() && !lease.revoked))
        })? {
            return Ok(Outcome::Granted(Grant { lease, joined: false }));
        }
        self.decide(|overlay| lease::check_ticket(overlay, ticket, terms)).map(|(outcome, _)| outcome)
    }

    /// Comes back to a ticket that is to make `lease` stronger.
    pub fn check_upgrade(
        &self,
        ticket: LeaseId,
        lease: LeaseId,
        terms: Option<WaitTerms>,
    ) -> Result<Outcome, StoreError> {
        self.decide(|overlay| lease::check_upgrade(overlay, ticket, lease, terms)).map(|(outcome, _)| outcome)
    }

    /// Finds the claims that their users gave this name.
    pub fn find_tickets(&self, name: &TicketName) -> Result<Vec<(LeaseId, Arc<Claim>)>, StoreError> {
        self.look(|overlay| lease::find_tickets(overlay, name))
    }

    /// Gives up a place in line. An upgrade that was granted before that is not undone but returned.
    pub fn give_up(&self, ticket: &Ticket) -> Result<Option<Grant>, StoreError> {
        let decided = self.decide(|overlay| {
            lease::give_up(overlay, ticket.id)?;
            let lease = ticket.upgrades.map(|id| overlay.lease(id)).transpose()?.flatten();
            Ok(lease.filter(|lease| lease.claim.satisfies(&ticket.claim.resources)))
        });
        decided.map(|(lease, _)| lease.map(|lease| Grant { lease, joined: false }))
    }

    /// Leaves a ticket in line with nobody sleeping on it.
    pub fn detach(&self, ticket: LeaseId) -> Result<(), StoreError> {
        self.decide(|overlay| lease::detach(overlay, ticket)).map(|_| ())
    }

    /// Says that the holder is still there.
    pub fn renew(
        &self,
        id: LeaseId,
        token: Option<Token>,
        ttl: Option<Ttl>,
    ) -> Result<Result<Lease, NotCurrent>, StoreError> {
        self.decide(|overlay| lease::renew(overlay, id, token, ttl)).map(|(renewed, _)| renewed)
    }

    /// Ends a lease.
    pub fn release(
        &self,
        id: LeaseId,
        token: Option<Token>,
    ) -> Result<Result<Lease, NotCurrent>, StoreError> {
        self.decide(|overlay| lease::release(overlay, id, token)).map(|(released, _)| released)
    }

    /// Makes a shared lease exclusive.
    pub fn upgrade(
        &self,
        id: LeaseId,
        token: Option<Token>,
        wait: Option<WaitTerms>,
    ) -> Result<Upgrade, StoreError> {
        self.decide(|overlay| lease::upgrade(overlay, id, token, wait)).map(|(upgraded, _)| upgraded)
    }

    /// Makes a lease shared.
    pub fn downgrade(
        &self,
        id: LeaseId,
        token: Option<Token>,
    ) -> Result<Result<Lease, NotCurrent>, StoreError> {
        self.decide(|overlay| lease::downgrade(overlay, id, token)).map(|(downgraded, _)| downgraded)
    }

    /// Whether a token is current for a target.
    pub fn fence(&self, target: &Target, token: Token) -> Result<Fence, StoreError> {
        self.look(|overlay| lease::fence(overlay, target, token))
    }

    /// One lease, if it is held.
    pub fn lease(&self, id: LeaseId) -> Result<Option<Lease>, StoreError> {
        self.look(|overlay| overlay.lease(id))
    }

    /// Whether a lease is not held any more under this token, and why.
    pub fn loss(&self, id: LeaseId, token: Token) -> Result<Option<NotCurrent>, StoreError> {
        Ok(match self.lease(id)? {
            None => Some(NotCurrent::Unknown(id)),
            Some(lease) if lease.token != token => {
                Some(NotCurrent::Token { id, given: token, current: lease.token })
            }
            Some(lease) if lease.revoked => Some(NotCurrent::Revoked(id)),
            Some(_) => None,
        })
    }

    /// A claim, whether it holds or waits.
    pub fn claim(&self, id: LeaseId) -> Result<Option<Arc<Claim>>, StoreError> {
        self.look(|overlay| {
            let lease = overlay.lease(id)?.map(|lease| lease.claim);
            Ok(match lease {
                Some(claim) => Some(claim),
                None => overlay.ticket(id)?.map(|ticket| ticket.claim),
            })
        })
    }

    /// Whose claim it is.
    pub fn owner_of(&self, id: LeaseId) -> Result<Option<Owner>, StoreError> {
        Ok(self.claim(id)?.map(|claim| claim.owner.clone()))
    }

    /// The moment on the store's clock.
    pub fn now(&self) -> Result<Moment, StoreError> {
        self.look(|overlay| Ok(overlay.now()))
    }

    /// The leases of one owner.
    pub fn leases_of(&self, owner: &Owner) -> Result<Vec<Lease>, StoreError> {
        self.look(|overlay| overlay.leases_of(owner))
    }

    /// Puts away all the dead and what they left.
    pub fn clean_up(&self) -> Result<Vec<Reaped>, StoreError> {
        let ((), reaped) = self.decide(lease::clean_up)?;
        self.store().sweep()?;
        Ok(reaped)
    }

    /// The cycles that waits are caught in.
    pub fn cycles(&self) -> Result<Vec<Vec<Link>>, StoreError> {
        self.look(deadlock::cycles)
    }

    /// Breaks a lease: its holder is told first and has `grace` to stop its work, then it is taken away.
    pub fn break_lease(&self, id: LeaseId, grace: Duration) -> Result<Option<Broken>, StoreError> {
        let (revoked, _) = self.decide(|overlay| lease::revoke(overlay, id))?;
        revoked.map(|revoked| self.see_off(revoked, grace)).transpose()
    }

    /// Breaks every lease; all holders are told first, then `grace` is given to all of them together.
    pub fn break_all(&self, grace: Duration) -> Result<Vec<Broken>, StoreError> {
        let until = Instant::now() + grace;
        let (leases, _) = self.look(|overlay| overlay.all())?;
        let mut revoked = Vec::new();
        for lease in leases {
            revoked.extend(self.decide(|overlay| lease::revoke(overlay, lease.id))?.0);
        }
        let left = || until.saturating_duration_since(Instant::now());
        revoked.into_iter().map(|revoked| self.see_off(revoked, left())).collect()
    }

    /// Waits for a holder that was told to let go, and takes the lease away when it does not.
    fn see_off(&self, (lease, stays): (Lease, bool), grace: Duration) -> Result<Broken, StoreError> {
        let by_force = stays && !self.wait_until_gone(&lease, grace)?;
        if by_force {
            self.decide(|overlay| lease::evict(overlay, lease.id))?;
        }
        Ok(Broken { lease, by_force })
    }
}
