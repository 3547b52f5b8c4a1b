//! Upgrade and downgrade: makes a shared lease exclusive, and an exclusive lease shared.

use std::sync::Arc;

use super::{Grant, NotCurrent, Outcome, WaitTerms, check_ticket, current, line_up, reap_dead};
use crate::id::{LeaseId, Token};
use crate::overlay::Overlay;
use crate::record::{Claim, Lease, Priority, Rank, Ticket};
use crate::resource::{Key, KeyRange, Mode, Resource};
use crate::waiting::{Asker, blockers, hand_off, settle};

/// Makes a shared lease exclusive. If that fails, it stays shared.
pub fn upgrade<E>(
    overlay: &mut Overlay<'_, E>,
    id: LeaseId,
    token: Option<Token>,
    wait: Option<WaitTerms>,
) -> Result<Result<Outcome, NotCurrent>, E> {
    let lease = match current(overlay, id, token)? {
        Ok(lease) => lease,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let exclusive = |resource: &Resource| Resource { mode: Mode::Exclusive, ..resource.clone() };
    let resources: Vec<Resource> = lease.claim.resources.iter().map(exclusive).collect();
    if resources == lease.claim.resources {
        return Ok(Ok(Outcome::Granted(Grant { lease, joined: true })));
    }
    if let Some(terms) = wait
        && let Some(ticket) = ticket_to_upgrade(overlay, &lease)?
    {
        return check_ticket(overlay, ticket.id, Some(terms)).map(Ok);
    }
    let claim = lease.claim.with_resources(resources);
    reap_dead(overlay, &claim)?;
    hand_off(overlay)?;
    let rank = Rank::of_upgrade(LeaseId(u64::MAX));
    let in_the_way = blockers(overlay, Asker { claim: &claim, rank, whole_line: false })?;
    let now = overlay.now();
    if in_the_way.is_empty() {
        let token = overlay.next_token()?;
        let stronger = Lease { token, claim, heartbeat_at: lease.touched_at(now), pickup_by: None, ..lease };
        overlay.put_lease(Some(lease), stronger.clone());
        settle(overlay, None)?;
        return Ok(Ok(Outcome::Granted(Grant { lease: stronger, joined: false })));
    }
    let Some(terms) = wait else {
        settle(overlay, None)?;
        return Ok(Ok(Outcome::Held(in_the_way)));
    };
    let ticket_id = LeaseId(overlay.next_number()?);
    let ticket = Ticket {
        id: ticket_id,
        claim: Arc::new(Claim { ticket: None, ..Claim::clone(&claim) }),
        priority: Priority::default(),
        rank: Rank::of_upgrade(ticket_id),
        enqueued_at: now,
        seen_at: now,
        stays: terms.stays,
        waker: terms.waker,
        under: Vec::new(),
        upgrades: Some(id),
    };
    line_up(overlay, ticket).map(Ok)
}

/// The ticket that already waits to upgrade this lease.
fn ticket_to_upgrade<E>(overlay: &mut Overlay<'_, E>, lease: &Lease) -> Result<Option<Ticket>, E> {
    let tickets = overlay.tickets(&KeyRange::of(Key::of_owner(&lease.claim.owner)))?;
    Ok(tickets.into_iter().find(|ticket| ticket.upgrades == Some(lease.id)))
}

/// Makes a lease shared, and grants it to those who wait to share it.
pub fn downgrade<E>(
    overlay: &mut Overlay<'_, E>,
    id: LeaseId,
    token: Option<Token>,
) -> Result<Result<Lease, NotCurrent>, E> {
    let lease = match current(overlay, id, token)? {
        Ok(lease) => lease,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let shared = |resource: &Resource| Resource { mode: Mode::Shared, ..resource.clone() };
    let resources = lease.claim.resources.iter().map(shared).collect();
    let claim = lease.claim.with_resources(resources);
    let heartbeat_at = lease.touched_at(overlay.now());
    let weaker = Lease { claim, heartbeat_at, pickup_by: None, ..lease };
    overlay.put_lease(Some(lease), weaker.clone());
    settle(overlay, None)?;
    Ok(Ok(weaker))
}
