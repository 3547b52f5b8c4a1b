//! Hand-over: an agent gives claims to another agent, all of them or none.

use std::sync::Arc;

use super::{lease_of_owner, new_lease};
use crate::id::{LeaseId, Owner};
use crate::liveness::Proof;
use crate::overlay::Overlay;
use crate::record::{Claim, Lease, Rank, Ticket};
use crate::resource::{Key, KeyRange, Target};
use crate::time::Ttl;
use crate::waiting::{Asker, blockers, settle};

/// What an agent gives to whom.
#[derive(Clone, Debug)]
pub struct HandOver {
    /// The agent that holds the claims.
    pub from: Owner,
    /// The targets of each claim.
    pub claims: Vec<Vec<Target>>,
    /// The agent that gets them.
    pub to: Owner,
    /// The proof of life of that agent.
    pub proof: Proof,
    /// How long the claims last without a call of that agent.
    pub ttl: Ttl,
}

/// The outcome of a hand-over.
#[derive(Clone, Debug)]
#[must_use]
pub enum HandedOver {
    /// The new leases of the other agent.
    Done(Vec<Lease>),
    /// The agent does not hold these targets. Nothing was changed.
    NotHeld(Vec<Target>),
    /// A third owner holds some of it, such as a sub-agent of the giver. Nothing was changed.
    Blocked(Box<Lease>),
}

/// Gives claims to another agent. Those who wait for them keep their places in line.
pub fn hand_over<E>(overlay: &mut Overlay<'_, E>, request: &HandOver) -> Result<HandedOver, E> {
    let mut held = overlay.leases(&KeyRange::of(Key::of_owner(&request.from)))?;
    held.retain(|lease| {
        lease.claim.agent.is_some() && !lease.revoked && !overlay.judge_lease(lease).is_free()
    });
    let mut given: Vec<(Lease, Claim)> = Vec::new();
    for targets in &request.claims {
        let is_it = |lease: &&Lease| lease.claim.targets().eq(targets);
        let of_targets: Vec<&Lease> = held.iter().filter(is_it).collect();
        if of_targets.is_empty() {
            return Ok(HandedOver::NotHeld(targets.clone()));
        }
        for lease in of_targets {
            if given.iter().any(|(known, _)| known.id == lease.id) {
                continue;
            }
            let new = Claim {
                owner: request.to.clone(),
                proof: request.proof.clone(),
                ttl: Some(request.ttl),
                ticket: None,
                ..Claim::clone(&lease.claim)
            };
            given.push((lease.clone(), new));
        }
    }
    let ids: Vec<LeaseId> = given.iter().map(|(lease, _)| lease.id).collect();
    for (_, claim) in &given {
        // Those who wait do not count: they waited for the giver, and now wait for the taker.
        let first = Rank::of_upgrade(LeaseId(0));
        let found = blockers(overlay, Asker { claim, rank: first, whole_line: false })?;
        let mut others = found.into_iter().flat_map(|blocker| blocker.leases).map(|found| found.record);
        if let Some(other) = others.find(|lease| !ids.contains(&lease.id)) {
            return Ok(HandedOver::Blocked(Box::new(other)));
        }
    }
    let mut new_leases = Vec::new();
    for (lease, claim) in given {
        remove_tickets(overlay, &claim)?;
        let acquired_at = lease.acquired_at;
        overlay.wake(lease.waker());
        overlay.remove_lease(lease);
        if lease_of_owner(overlay, &claim)?.is_none() {
            let token = overlay.next_token()?;
            let new = new_lease(LeaseId(token.0), token, Arc::new(claim), overlay.now());
            let new = Lease { acquired_at, ..new };
            overlay.put_lease(None, new.clone());
            new_leases.push(new);
        }
    }
    settle(overlay, None)?;
    Ok(HandedOver::Done(new_leases))
}

/// Removes the tickets of the taker for what it gets now.
fn remove_tickets<E>(overlay: &mut Overlay<'_, E>, claim: &Claim) -> Result<(), E> {
    let is_same = |ticket: &Ticket| {
        ticket.claim.agent.is_some()
            && ticket.upgrades.is_none()
            && ticket.claim.targets().eq(claim.targets())
    };
    let tickets = overlay.tickets(&KeyRange::of(Key::of_owner(&claim.owner)))?;
    for ticket in tickets.into_iter().filter(is_same) {
        overlay.wake(ticket.waker);
        overlay.remove_ticket(ticket);
    }
    Ok(())
}
