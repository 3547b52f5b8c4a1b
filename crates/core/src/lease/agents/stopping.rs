//! What happens to the claims of an agent when its turn, a sub-agent or its session ends.

use std::sync::Arc;

use super::leases_of_agent;
use crate::id::{LeaseId, Owner};
use crate::lease::{lease_of_owner, new_lease};
use crate::overlay::Overlay;
use crate::record::{Claim, Lease, Rank};
use crate::resource::{Key, KeyRange};
use crate::time::Ttl;
use crate::waiting::{Asker, blockers, settle};

/// A sub-agent has stopped: what it and its own sub-agents hold goes to the owner above it, and their tickets end.
///
/// Returns the new leases of the owner above.
pub fn hand_up<E>(overlay: &mut Overlay<'_, E>, owner: &Owner) -> Result<Vec<Lease>, E> {
    let Some(above) = owner.all_above().next() else { return Ok(Vec::new()) };
    let mut handed = Vec::new();
    let family = family_of(owner);
    for ticket in overlay.tickets(&family)? {
        if ticket.claim.agent.is_some() {
            overlay.remove_ticket(ticket);
        }
    }
    let leases = remove_leases(overlay, &family)?;
    // The sub-agent never worked on a file that it had not picked up.
    for lease in leases.into_iter().filter(|lease| lease.pickup_by.is_none() && !lease.revoked) {
        let claim = Claim { owner: above.clone(), ticket: None, ..Claim::clone(&lease.claim) };
        // A lease that the sub-agent took by hand stays, and the owner above must not hold the same beside it.
        let first = Rank::of_upgrade(LeaseId(0));
        let is_free = blockers(overlay, Asker { claim: &claim, rank: first, whole_line: false })?.is_empty();
        if is_free && lease_of_owner(overlay, &claim)?.is_none() {
            let token = overlay.next_token()?;
            let new = new_lease(LeaseId(token.0), token, Arc::new(claim), overlay.now());
            let lease = Lease { acquired_at: lease.acquired_at, ..new };
            overlay.put_lease(None, lease.clone());
            handed.push(lease);
        }
    }
    // A ticket of the owner above is granted now. Its next call keeps one of the two leases.
    settle(overlay, None)?;
    Ok(handed)
}

/// A session has ended: everything that the agent and its sub-agents hold or wait for ends. Returns the leases.
pub fn end_session<E>(overlay: &mut Overlay<'_, E>, owner: &Owner) -> Result<Vec<Lease>, E> {
    let family = family_of(owner);
    for ticket in overlay.tickets(&family)? {
        if ticket.claim.agent.is_some() {
            overlay.remove_ticket(ticket);
        }
    }
    let leases = remove_leases(overlay, &family)?;
    settle(overlay, None)?;
    Ok(leases)
}

/// The turn of an agent has ended: releases `done`, and keeps its other leases for `ttl` only.
///
/// A lease that was renewed since `done` was read belongs to a new turn and stays.
pub fn rest<E>(overlay: &mut Overlay<'_, E>, owner: &Owner, done: &[Lease], ttl: Ttl) -> Result<(), E> {
    for lease in leases_of_agent(overlay, &KeyRange::of(Key::of_owner(owner)))? {
        if lease.revoked {
            continue;
        }
        if done.contains(&lease) {
            overlay.remove_lease(lease);
        } else if lease.pickup_by.is_none() {
            let claim = Arc::new(Claim { ttl: Some(ttl), ..Claim::clone(&lease.claim) });
            let resting = Lease { claim, heartbeat_at: overlay.now(), ..lease.clone() };
            overlay.put_lease(Some(lease), resting);
        }
    }
    settle(overlay, None)
}

/// The keys of an owner's own records and of those of its sub-agents.
fn family_of(owner: &Owner) -> KeyRange {
    KeyRange { exact: vec![Key::of_owner(owner), Key::of_family(owner)], below: None }
}

fn remove_leases<E>(overlay: &mut Overlay<'_, E>, range: &KeyRange) -> Result<Vec<Lease>, E> {
    let leases = leases_of_agent(overlay, range)?;
    for lease in &leases {
        overlay.wake(lease.waker());
        overlay.remove_lease(lease.clone());
    }
    Ok(leases)
}
