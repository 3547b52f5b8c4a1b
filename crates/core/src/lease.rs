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
mod permission;
mod reassert;
mod resume;
mod strength;

use std::sync::Arc;

use thiserror::Error;

use crate::deadlock::{Link, cycle};
use crate::id::{LeaseId, Owner, Token, WakerId};
use crate::overlay::Overlay;
use crate::record::{Claim, Lease, Priority, Rank, Ticket};
use crate::resource::Target;
use crate::time::{Moment, Ttl};
use crate::waiting::{Asker, Blocker, blockers, hand_off, settle};
pub use agents::{AgentAnswer, AgentCall, Denial, agent_call, end_session, hand_up, rest};
pub use attribute::{Attributed, attribute};
pub use ending::{clean_up, end, evict, release, remove_ticket, revoke, withdraw};
pub use hand_over::{HandOver, HandedOver, hand_over};
pub use permission::{Caller, permit, permit_renewal};
pub use reassert::{release_forgotten, wait_again};
pub use resume::{Resumer, find_tickets, resume};
pub use strength::{downgrade, upgrade};

/// A request for a lease.
#[derive(Clone, Debug)]
pub struct Request {
    /// What is wanted, by whom.
    pub claim: Claim,
    /// How urgent it is.
    pub priority: Priority,
    /// The leases whose commands the asking process is a part of.
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

/// What became of a request.
#[derive(Clone, Debug)]
#[must_use]
pub enum Outcome {
    /// The lease is held.
    Granted(Grant),
    /// The ticket is in line.
    Waiting(Waiting),
    /// Others hold it, and the request does not wait.
    Held(Vec<Blocker>),
    /// Waiting would never end.
    Deadlock(Vec<Link>),
    /// The ticket or lease is not there any more.
    Gone,
}

/// A lease that is held.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The lease.
    pub lease: Lease,
    /// Whether the owner held it before this request.
    pub joined: bool,
}

/// A ticket in line.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// The ticket.
    pub ticket: Ticket,
    /// What blocks it.
    pub blockers: Vec<Blocker>,
    /// When that was read, on the store's clock.
    pub looked_at: Moment,
}

/// Why a lease cannot be renewed, released or changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotCurrent {
    /// There is no such lease: it was released, lost or never there.
    #[error("{0} is not held")]
    Unknown(LeaseId),
    /// Somebody else's token is current.
    #[error("token {given} of {id} is not current, {current} is")]
    Token {
        /// The lease.
        id: LeaseId,
        /// The token that was named.
        given: Token,
        /// The token that it has.
        current: Token,
    },
    /// Its time is up.
    #[error("{0} has expired")]
    Expired(LeaseId),
    /// Its holder was told to let go.
    #[error("{0} was revoked")]
    Revoked(LeaseId),
    /// A copy of its holder, on a cloned machine, renews the same session.
    #[error("another machine holds {0} with the same session")]
    SessionTaken(LeaseId),
    /// The store that several machines share could not be reached in time to renew the session.
    #[error("the session of {0} could not be renewed in time")]
    SessionLapsed(LeaseId),
    /// The caller is neither its owner nor a process of its family, and does not name its token.
    #[error("{id} belongs to {owner}")]
    NotTheOwner {
        /// The lease.
        id: LeaseId,
        /// Whose it is.
        owner: Owner,
    },
    /// There is no such ticket: it was granted, given up or never there.
    #[error("{} is not in line", .0.as_ticket())]
    NotInLine(LeaseId),
    /// The caller is neither the owner of a ticket nor a process of its family.
    #[error("{} belongs to {owner}", id.as_ticket())]
    NotTheWaiter {
        /// The ticket.
        id: LeaseId,
        /// Whose it is.
        owner: Owner,
    },
}

/// Takes a lease, or a place in line for it.
pub fn acquire<E>(overlay: &mut Overlay<'_, E>, request: &Request) -> Result<Outcome, E> {
    if request.join
        && let Some(lease) = lease_to_join(overlay, &request.claim)?
    {
        let lease = refresh(overlay, lease);
        settle(overlay, None)?;
        return Ok(Outcome::Granted(Grant { lease, joined: true }));
    }
    // Waiters come before a new request, also for what a dead holder leaves.
    reap_dead(overlay, &request.claim)?;
    hand_off(overlay)?;
    let now = overlay.now();
    let last = Rank::new(now, request.priority, LeaseId(u64::MAX));
    let asker = Asker { claim: &request.claim, rank: last, whole_line: false };
    let mut in_the_way = blockers(overlay, asker)?;
    // The look may have reaped a ticket. A parent that waited behind it holds now, and no longer blocks its sub-agent.
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
        // The look may have reaped a record that nobody had looked at before.
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
    // The holder keeps its own session, and expects the heartbeat that it wrote.
    let heartbeat_at = if claim.session().is_some() { lease.heartbeat_at } else { overlay.now() };
    let renewed = Lease { claim, heartbeat_at, pickup_by: None, ..lease };
    overlay.put_lease(Some(lease), renewed.clone());
    settle(overlay, None)?;
    Ok(Ok(renewed))
}

/// Renews the session of a lease, on a store that several machines share. `written` are the heartbeats
/// that the holder may have written last. A copy of the holder on a cloned machine writes others: one of the two finds them,
/// and loses the lease.
///
/// If the store has forgotten the lease, or what became of it, its holder says again that it holds it, if it is certain (`is_held`).
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
    let lease = match current(overlay, id, Some(known.token))? {
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

/// Whether a token is that of a lease which protects `target` now; nothing is changed.
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

/// What a fence answers.
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

/// A lease of the same owner that is enough for the whole claim.
fn lease_to_join<E>(overlay: &mut Overlay<'_, E>, claim: &Claim) -> Result<Option<Lease>, E> {
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

/// Notes that the owner of a lease was there now.
fn refresh<E>(overlay: &mut Overlay<'_, E>, lease: Lease) -> Lease {
    let untimed = lease.claim.ttl.is_none() && lease.pickup_by.is_none();
    if untimed {
        return lease;
    }
    let seen = Lease { heartbeat_at: overlay.now(), pickup_by: None, ..lease.clone() };
    overlay.put_lease(Some(lease), seen.clone());
    seen
}

/// Reaps every dead lease that meets a claim, also those of its own owner.
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
    let Some(lease) = overlay.lease(id)? else { return Ok(Err(NotCurrent::Unknown(id))) };
    if let Some(given) = token.filter(|given| *given != lease.token) {
        return Ok(Err(NotCurrent::Token { id, given, current: lease.token }));
    }
    let verdict = overlay.judge_lease(&lease);
    if verdict.is_free() {
        overlay.reap_lease(lease, verdict);
        settle(overlay, None)?;
        return Ok(Err(NotCurrent::Expired(id)));
    }
    Ok(Ok(lease))
}
