//! Continuing a wait: a command goes on with the ticket that an earlier command has left in line.
//!
//! The name of a ticket is no proof: two programs may choose the same one. So a caller may continue with
//!
//! 1. a ticket that no other process waits with now, or that belongs to the owner that the caller names;
//! 2. a lease that was granted meanwhile and that nobody has collected;
//! 3. a lease that it may end, which is its own already.
//!
//! The process that the claim was made for may have ended. So from then on the claim is for the process of the new caller.

use std::sync::Arc;

use super::permission::Caller;
use super::{Outcome, WaitTerms, check_ticket};
use crate::id::{LeaseId, TicketName};
use crate::liveness::{Origin, ProcessRef, Proof, Voucher};
use crate::overlay::Overlay;
use crate::record::{Claim, Lease, Ticket};
use crate::resource::{Key, KeyRange};

/// The caller that continues a wait, and its process.
#[derive(Clone, Debug)]
pub struct Resumer {
    /// The caller.
    pub caller: Caller,
    /// The process that its lease is for, and where it runs. None: the proof of the claim stays as it is.
    pub made_for: Option<(Origin, ProcessRef)>,
}

/// Finds the claims with this ticket name that a caller may continue with, tickets first.
pub fn find_tickets<E>(
    overlay: &mut Overlay<'_, E>,
    name: &TicketName,
    caller: &Caller,
) -> Result<Vec<(LeaseId, Arc<Claim>)>, E> {
    let range = KeyRange::of(Key::of_ticket(name));
    let mut found = Vec::new();
    for ticket in overlay.tickets(&range)? {
        if may_take_ticket(overlay, &ticket, caller) {
            found.push((ticket.id, ticket.claim));
        }
    }
    for lease in overlay.leases(&range)? {
        if may_take_lease(&lease, caller) {
            found.push((lease.id, lease.claim));
        }
    }
    Ok(found)
}

/// Continues the wait with a ticket. `Gone` if the caller may not: somebody else was faster.
pub fn resume<E>(
    overlay: &mut Overlay<'_, E>,
    id: LeaseId,
    resumer: &Resumer,
    terms: Option<WaitTerms>,
) -> Result<Outcome, E> {
    let caller = &resumer.caller;
    let tied = |claim: &Arc<Claim>| resumer.made_for.as_ref().map_or(Arc::clone(claim), |to| tie(claim, to));
    if let Some(ticket) = overlay.ticket(id)? {
        if !may_take_ticket(overlay, &ticket, caller) {
            return Ok(Outcome::Gone);
        }
        let claim = tied(&ticket.claim);
        overlay.put_ticket(Some(ticket.clone()), Ticket { claim, ..ticket });
    } else if let Some(lease) = overlay.lease(id)? {
        if !may_take_lease(&lease, caller) {
            return Ok(Outcome::Gone);
        }
        if lease.pickup_by.is_some() {
            let claim = tied(&lease.claim);
            overlay.put_lease(Some(lease.clone()), Lease { claim, ..lease });
        }
    }
    check_ticket(overlay, id, terms)
}

fn may_take_ticket<E>(overlay: &Overlay<'_, E>, ticket: &Ticket, caller: &Caller) -> bool {
    match &caller.owner {
        Some(owner) => *owner == ticket.claim.owner,
        None => ticket.waker.is_none_or(|waker| overlay.is_waker_abandoned(waker)),
    }
}

fn may_take_lease(lease: &Lease, caller: &Caller) -> bool {
    let is_left = lease.pickup_by.is_some();
    match &caller.owner {
        Some(owner) => *owner == lease.claim.owner,
        None => is_left || caller.may_end(lease),
    }
}

/// The same claim, made for another process.
fn tie(claim: &Arc<Claim>, (origin, process): &(Origin, ProcessRef)) -> Arc<Claim> {
    let voucher = match claim.proof.voucher {
        Voucher::Process(_) => Voucher::Process(*process),
        Voucher::TimeFor(_) => Voucher::TimeFor(*process),
        Voucher::Time | Voucher::KernelLock { .. } => return Arc::clone(claim),
    };
    Arc::new(Claim { proof: Proof { origin: origin.clone(), voucher }, ..Claim::clone(claim) })
}
