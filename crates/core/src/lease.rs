//! Lease rules: acquire, wait, renew, release, upgrade, revoke, reap.
//!
//! A lease is the right of one owner to a set of resources, all of them or none. It begins when nothing blocks it, or in its
//! turn if its owner waits. It ends when it is released, when its holder is proved dead, when its time is up under a contract
//! that lets it go, or when a person breaks it. Its token is larger than every token before. So the thing that the lease
//! protects can refuse a late writer.
//!
//! An owner never blocks itself: if it asks again for what it holds, it gets the lease that it has, or a second one beside it.
//! So an owner must be one worker, never a tool or a machine.
//!
//! Every function here reads and changes an [`Overlay`]. The caller commits the changes if the records that were read are
//! unchanged, or runs the same function again on newer records. Each function ends with the grant of what it freed, so no
//! resource is ever free while somebody waits for it.

mod agents;
mod attribute;
mod ending;
mod hand_over;
mod outcome;
mod permission;
mod reassert;
mod resume;
mod strength;

use std::sync::Arc;

use crate::deadlock::cycle;
use crate::id::{LeaseId, Token, WakerId};
use crate::overlay::Overlay;
use crate::record::{Claim, Lease, Priority, Rank, Ticket};
use crate::resource::Target;
use crate::time::{Moment, Ttl};
use crate::waiting::{Asker, blockers, excludes, hand_off, settle};
pub use agents::{AgentAnswer, AgentCall, Denial, agent_call, end_session, hand_up, rest};
pub use attribute::{Attributed, attribute};
pub use ending::{
    acknowledge, clean_up, end, evict, evict_unless_acknowledged, is_acknowledged, release, remove_ticket,
    revoke, withdraw,
};
pub use hand_over::{HandOver, HandedOver, hand_over};
pub use outcome::{Grant, NotCurrent, Outcome, Waiting};
pub use permission::{Caller, permit, permit_renewal};
pub use reassert::{release_forgotten, wait_again};
pub use resume::{Resumer, find_tickets, resume};
pub use strength::{downgrade, upgrade};

/// A request for a lease.
#[derive(Clone, Debug)]
pub struct AcquireRequest {
    /// What is wanted, by whom.
    pub claim: Claim,
    /// How urgent it is.
    pub priority: Priority,
    /// The leases under which the asking process runs: it is part of their commands.
    pub under: Vec<LeaseId>,
    /// How to wait for it. Without this, the request is refused if something blocks it.
    pub wait: Option<WaitTerms>,
    /// Whether a lease that the owner already has is enough. A process that stays asks for a lease of its own, which does not
    /// end when another process of the same owner is done.
    pub join: bool,
}

/// How a request waits.
#[derive(Clone, Copy, Debug)]
pub struct WaitTerms {
    /// The waker on which the process sleeps.
    pub waker: Option<WakerId>,
    /// How long the ticket stays in line while its owner is away.
    pub stays: Ttl,
}

/// Takes a lease, or a place in line for it.
pub fn acquire<E>(overlay: &mut Overlay<'_, E>, request: &AcquireRequest) -> Result<Outcome, E> {
    if request.join
        && let Some(lease) = lease_to_join(overlay, &request.claim)?
    {
        let lease = refresh(overlay, lease);
        settle(overlay, None)?;
        return Ok(Outcome::Granted(Grant { lease, joined: true }));
    }
    overlay.expect(request.claim.keys_to_read());
    // What a dead holder leaves goes to the waiters first, and then to a new request.
    reap_dead(overlay, &request.claim)?;
    hand_off(overlay)?;
    let now = overlay.now();
    let last = Rank::new(now, request.priority, LeaseId(u64::MAX));
    let asker = Asker { claim: &request.claim, rank: last, whole_line: false };
    let mut in_the_way = blockers(overlay, asker)?;
    // `blockers` may have reaped a ticket. A parent that waited behind it holds now, and no longer blocks its sub-agent.
    while !in_the_way.is_empty() && overlay.has_freed() {
        hand_off(overlay)?;
        in_the_way = blockers(overlay, asker)?;
    }
    if in_the_way.is_empty() {
        let token = overlay.next_token()?;
        let lease = new_lease(LeaseId(token.0), token, Arc::new(request.claim.clone()), now);
        overlay.put_lease(None, lease.clone());
        settle(overlay, None)?;
        return Ok(Outcome::Granted(Grant { lease, joined: false }));
    }
    let Some(terms) = request.wait else {
        settle(overlay, None)?;
        return Ok(Outcome::Held(in_the_way));
    };
    let id = LeaseId(overlay.next_number()?);
    let ticket = Ticket {
        id,
        claim: Arc::new(request.claim.clone()),
        priority: request.priority,
        rank: Rank::new(now, request.priority, id),
        enqueued_at: now,
        seen_at: now,
        stays: terms.stays,
        waker: terms.waker,
        under: request.under.clone(),
        upgrades: None,
    };
    line_up(overlay, ticket)
}

/// Puts a ticket into the line, unless that closes a cycle.
fn line_up<E>(overlay: &mut Overlay<'_, E>, ticket: Ticket) -> Result<Outcome, E> {
    overlay.put_ticket(None, ticket.clone());
    if let Some(links) = cycle(overlay, &ticket)? {
        overlay.take_ticket(ticket);
        settle(overlay, None)?;
        return Ok(Outcome::Deadlock(links));
    }
    settle_for(overlay, &ticket)
}

/// Ends a decision of a waiter, and returns the new state of its ticket.
fn settle_for<E>(overlay: &mut Overlay<'_, E>, ticket: &Ticket) -> Result<Outcome, E> {
    loop {
        settle(overlay, Some(ticket.id))?;
        let Some(ticket) = overlay.ticket(ticket.id)? else { break };
        let blockers =
            blockers(overlay, Asker { claim: &ticket.claim, rank: ticket.rank, whole_line: false })?;
        // `blockers` may have reaped a record, and so freed something.
        if !overlay.has_freed() {
            return Ok(Outcome::Waiting(Waiting { ticket, blockers, looked_at: overlay.now() }));
        }
    }
    let Some(lease) = overlay.lease(ticket.upgrades.unwrap_or(ticket.id))? else { return Ok(Outcome::Gone) };
    let lease = refresh(overlay, lease);
    settle(overlay, None)?;
    Ok(Outcome::Granted(Grant { lease, joined: false }))
}

/// Checks a ticket: returns its lease if it was granted, otherwise refreshes the ticket and keeps waiting.
///
/// A ticket whose time is up is still good as long as nobody has reaped it.
pub fn check_ticket<E>(
    overlay: &mut Overlay<'_, E>,
    id: LeaseId,
    terms: Option<WaitTerms>,
) -> Result<Outcome, E> {
    let Some(ticket) = overlay.ticket(id)? else {
        let outcome = match current(overlay, id, None)? {
            Ok(lease) => Outcome::Granted(Grant { lease: refresh(overlay, lease), joined: false }),
            Err(_) => Outcome::Gone,
        };
        settle(overlay, None)?;
        return Ok(outcome);
    };
    let now = overlay.now();
    let waker = terms.map_or(ticket.waker, |terms| terms.waker);
    let stays = terms.map_or(ticket.stays, |terms| terms.stays);
    let attended = Ticket { waker, stays, ..ticket.clone() };
    let seen_late = now.since(ticket.seen_at) > attended.patience().get() / 4;
    let seen_at = if seen_late { now } else { ticket.seen_at };
    let attended = Ticket { seen_at, ..attended };
    let verdict = overlay.judge_ticket(&attended);
    if verdict.is_free() {
        overlay.reap_ticket(ticket, verdict);
        settle(overlay, None)?;
        return Ok(Outcome::Gone);
    }
    overlay.put_ticket(Some(ticket), attended.clone());
    reap_dead(overlay, &attended.claim)?;
    // The line may have moved without a wake-up, so everything that this ticket waits for is checked.
    if blockers(overlay, Asker { claim: &attended.claim, rank: attended.rank, whole_line: false })?.is_empty()
    {
        overlay.offer(attended.claim.targets());
    }
    settle_for(overlay, &attended)
}

/// Checks the ticket of an upgrade. Once it is granted, the ticket is gone and the lease itself is stronger.
pub fn check_upgrade<E>(
    overlay: &mut Overlay<'_, E>,
    ticket: LeaseId,
    lease: LeaseId,
    terms: Option<WaitTerms>,
) -> Result<Outcome, E> {
    let id = if overlay.ticket(ticket)?.is_some() { ticket } else { lease };
    check_ticket(overlay, id, terms)
}

/// Removes a ticket, or the lease if it was granted meanwhile.
pub fn give_up<E>(overlay: &mut Overlay<'_, E>, id: LeaseId) -> Result<(), E> {
    if let Some(ticket) = overlay.ticket(id)? {
        overlay.remove_ticket(ticket);
    } else if let Some(lease) = overlay.lease(id)? {
        overlay.remove_lease(lease);
    }
    settle(overlay, None)
}

/// Leaves a ticket in the line, with no process asleep on it.
pub fn detach<E>(overlay: &mut Overlay<'_, E>, id: LeaseId) -> Result<(), E> {
    if let Some(ticket) = overlay.ticket(id)? {
        let now = overlay.now();
        overlay.put_ticket(Some(ticket.clone()), Ticket { waker: None, seen_at: now, ..ticket });
    }
    settle(overlay, None)
}

/// Renews a lease: its TTL starts again.
pub fn renew<E>(
    overlay: &mut Overlay<'_, E>,
    id: LeaseId,
    token: Option<Token>,
    ttl: Option<Ttl>,
) -> Result<Result<Lease, NotCurrent>, E> {
    let lease = match current(overlay, id, token)? {
        Ok(lease) if lease.revoked => return Ok(Err(NotCurrent::Revoked(id))),
        Ok(lease) => lease,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let ttl = ttl.or(lease.claim.ttl);
    let claim = Arc::new(Claim { ttl, ..Claim::clone(&lease.claim) });
    let heartbeat_at = lease.touched_at(overlay.now());
    let renewed = Lease { claim, heartbeat_at, pickup_by: None, ..lease };
    overlay.put_lease(Some(lease), renewed.clone());
    settle(overlay, None)?;
    Ok(Ok(renewed))
}

/// Renews the session of a lease, on a store that several machines share. `written` are the heartbeats
/// that the holder may have written last. A copy of the holder on a cloned machine writes others: one of the two finds them,
/// and loses the lease. The token does not matter: an upgrade gives the lease a new one.
///
/// If the store has lost the lease or its latest state, its holder writes the lease again, if it certainly still holds it
/// (`is_held`).
pub fn keep_session<E>(
    overlay: &mut Overlay<'_, E>,
    known: &Lease,
    written: &[Moment],
    is_held: bool,
) -> Result<Result<Lease, NotCurrent>, E> {
    let id = known.id;
    if is_held && let Some(since) = reassert::is_forgotten(overlay, known, written)? {
        return reassert::reassert(overlay, known, since);
    }
    let lease = match current(overlay, id, None)? {
        Ok(lease) if lease.revoked => return Ok(Err(NotCurrent::Revoked(id))),
        Ok(lease) if !written.contains(&lease.heartbeat_at) => return Ok(Err(NotCurrent::SessionTaken(id))),
        Ok(lease) => lease,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let renewed = Lease { heartbeat_at: overlay.now(), ..lease.clone() };
    overlay.put_lease(Some(lease), renewed.clone());
    settle(overlay, None)?;
    Ok(Ok(renewed))
}

/// Fencing: checks whether a token belongs to a lease that protects `target` now. Changes nothing.
pub fn fence<E>(overlay: &mut Overlay<'_, E>, target: &Target, token: Token) -> Result<Fence, E> {
    let mut current = Vec::new();
    for lease in overlay.leases(&target.key_range())? {
        let protects = lease.claim.targets().any(|held| held.covers(target));
        if protects && !overlay.judge_lease(&lease).is_free() {
            current.push(lease);
        }
    }
    let passes = current.iter().any(|lease| lease.token == token && !lease.revoked);
    Ok(Fence { passes, current })
}

/// The answer of [`fence`].
#[derive(Clone, Debug)]
pub struct Fence {
    /// Whether the token is current.
    pub passes: bool,
    /// The leases that protect the target now.
    pub current: Vec<Lease>,
}

fn new_lease(id: LeaseId, token: Token, claim: Arc<Claim>, now: Moment) -> Lease {
    let (acquired_at, heartbeat_at) = (now, now);
    Lease { id, token, claim, acquired_at, heartbeat_at, pickup_by: None, revoked: false }
}

/// A lease of the same owner that is enough for the whole claim. None while a sub-agent of the owner holds some of it: the owner
/// waits for its own sub-agent.
fn lease_to_join<E>(overlay: &mut Overlay<'_, E>, claim: &Claim) -> Result<Option<Lease>, E> {
    match lease_of_owner(overlay, claim)? {
        Some(lease) if !is_held_below(overlay, claim)? => Ok(Some(lease)),
        Some(_) | None => Ok(None),
    }
}

/// Whether a sub-agent of the claim's owner holds some of it.
fn is_held_below<E>(overlay: &mut Overlay<'_, E>, claim: &Claim) -> Result<bool, E> {
    for resource in claim.resources.iter().filter(|_| claim.agent.is_some()) {
        for lease in overlay.leases(&resource.target.key_range())? {
            let is_in_the_way = lease.claim.agent.is_some()
                && claim.owner.is_above(&lease.claim.owner)
                && !lease.claim.is_apart_from(claim)
                && excludes(resource, &lease.claim);
            if is_in_the_way && !overlay.judge_lease(&lease).is_free() {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// A lease of the same owner that covers the whole claim.
fn lease_of_owner<E>(overlay: &mut Overlay<'_, E>, claim: &Claim) -> Result<Option<Lease>, E> {
    let Some(first) = claim.resources.first() else { return Ok(None) };
    for lease in overlay.leases(&first.target.key_range())? {
        // A lease that holds in one work tree is not enough for another one.
        let holds_there = lease.claim.agent.is_none() || lease.claim.agent == claim.agent;
        let same = lease.claim.owner == claim.owner
            && holds_there
            && !lease.revoked
            && lease.claim.satisfies(&claim.resources);
        if same && !overlay.judge_lease(&lease).is_free() {
            return Ok(Some(lease));
        }
    }
    Ok(None)
}

/// Records a sign of life of the owner of a lease: its TTL starts again, and the lease counts as picked up.
fn refresh<E>(overlay: &mut Overlay<'_, E>, lease: Lease) -> Lease {
    let untimed = lease.claim.ttl.is_none() && lease.pickup_by.is_none();
    if untimed {
        return lease;
    }
    let seen = Lease { heartbeat_at: overlay.now(), pickup_by: None, ..lease.clone() };
    overlay.put_lease(Some(lease), seen.clone());
    seen
}

/// Reaps every dead lease that overlaps a claim, also those of its own owner.
fn reap_dead<E>(overlay: &mut Overlay<'_, E>, claim: &Claim) -> Result<(), E> {
    for target in claim.targets() {
        for lease in overlay.leases(&target.key_range())? {
            let verdict = overlay.judge_lease(&lease);
            if verdict.is_free() {
                overlay.reap_lease(lease, verdict);
            }
        }
    }
    Ok(())
}

/// A lease that may still be used under this token.
fn current<E>(
    overlay: &mut Overlay<'_, E>,
    id: LeaseId,
    token: Option<Token>,
) -> Result<Result<Lease, NotCurrent>, E> {
    let lease = match under_token(overlay, id, token)? {
        Ok(lease) => lease,
        not_current => return Ok(not_current),
    };
    let verdict = overlay.judge_lease(&lease);
    if verdict.is_free() {
        overlay.reap_lease(lease, verdict);
        settle(overlay, None)?;
        return Ok(Err(NotCurrent::Expired(id)));
    }
    Ok(Ok(lease))
}

/// A lease that has this token. Its time may be up, and its holder may be dead.
fn under_token<E>(
    overlay: &mut Overlay<'_, E>,
    id: LeaseId,
    token: Option<Token>,
) -> Result<Result<Lease, NotCurrent>, E> {
    let Some(lease) = overlay.lease(id)? else { return Ok(Err(NotCurrent::Unknown(id))) };
    Ok(match token {
        Some(given) if given != lease.token => Err(NotCurrent::Token { id, given, current: lease.token }),
        Some(_) | None => Ok(lease),
    })
}
