//! The life of a lease.
//!
//! A lease is the right of one owner to a set of resources, all of them or none. It begins when nothing
//! stands in its way, or in its turn if its owner waits; it ends when it is released, when its holder is
//! proved dead, when its time is up under a contract that lets it go, or when a person breaks it. Its token
//! is larger than every token before, so that what the lease protects can refuse a late writer.
//!
//! An owner never stands in its own way: who asks again for what it holds gets the lease it has, or a second
//! one beside it. So an owner must be one worker, never a tool or a machine.
//!
//! Every function here takes a [`Overlay`] over one consistent view and leaves the outcome in it; the caller
//! commits the changes if the view still holds, or runs the same function again on a newer one. Each ends by
//! handing on what it freed, so that no resource is ever free while somebody waits for it.

mod strength;

use std::ops::ControlFlow;
use std::sync::Arc;

use thiserror::Error;

use crate::deadlock::{Link, cycle};
use crate::id::{LeaseId, TicketName, Token, WakerId};
use crate::overlay::{Overlay, Scan, View};
use crate::record::{Claim, Lease, Priority, Rank, Ticket};
use crate::resource::{Key, KeyRange, Target};
use crate::time::{Moment, Ttl};
use crate::waiting::{Asker, Blocker, blockers, hand_off, settle};
pub use strength::{downgrade, upgrade};

/// Somebody asks for a lease.
#[derive(Clone, Debug)]
pub struct Request {
    /// What is wanted, by whom.
    pub claim: Claim,
    /// How urgent it is.
    pub priority: Priority,
    /// The leases whose commands the asking process is a part of.
    pub under: Vec<LeaseId>,
    /// How to wait for it; without this, what is not free is refused.
    pub wait: Option<WaitTerms>,
    /// Whether a lease that the owner has already will do. A process that stays wants one of its own, which
    /// does not end when somebody else of the same owner is done.
    pub join: bool,
}

/// How somebody waits.
#[derive(Clone, Copy, Debug)]
pub struct WaitTerms {
    /// What the waiting process sleeps on.
    pub waker: Option<WakerId>,
    /// How long the ticket stays in line without its owner.
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
    /// The ticket or lease that was asked about is not there any more.
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
    /// What stands in its way.
    pub blockers: Vec<Blocker>,
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
    /// Its time was up.
    #[error("{0} has expired")]
    Expired(LeaseId),
    /// It is to be let go.
    #[error("{0} was revoked")]
    Revoked(LeaseId),
}

/// Takes a lease, or a place in line for it.
pub fn acquire<V: View>(overlay: &mut Overlay<'_, V>, request: &Request) -> Result<Outcome, V::Error> {
    if request.join
        && let Some(lease) = lease_to_join(overlay, &request.claim)?
    {
        let lease = refresh(overlay, lease);
        settle(overlay, None)?;
        return Ok(Outcome::Granted(Grant { lease, joined: true }));
    }
    // Whoever waits comes before the newcomer, also for what a dead holder leaves.
    reap_dead(overlay, &request.claim)?;
    hand_off(overlay)?;
    let now = overlay.now();
    let last = Rank::new(now, request.priority, LeaseId(u64::MAX));
    let asker = Asker { claim: &request.claim, rank: last, whole_line: false };
    let in_the_way = blockers(overlay, asker)?;
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
    let id = LeaseId(overlay.draw()?);
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

/// Puts a ticket into the line unless it would wait there for ever.
fn line_up<V: View>(overlay: &mut Overlay<'_, V>, ticket: Ticket) -> Result<Outcome, V::Error> {
    overlay.put_ticket(None, ticket.clone());
    if let Some(links) = cycle(overlay, &ticket)? {
        overlay.take_ticket(ticket);
        settle(overlay, None)?;
        return Ok(Outcome::Deadlock(links));
    }
    settle_for(overlay, &ticket)
}

/// Ends a decision that its own waiter asked for, and says where the ticket stands then.
fn settle_for<V: View>(overlay: &mut Overlay<'_, V>, ticket: &Ticket) -> Result<Outcome, V::Error> {
    loop {
        settle(overlay, Some(ticket.id))?;
        let Some(ticket) = overlay.ticket(ticket.id)? else { break };
        let blockers =
            blockers(overlay, Asker { claim: &ticket.claim, rank: ticket.rank, whole_line: false })?;
        // The look may have found somebody dead whom nobody had looked at before.
        if !overlay.has_freed() {
            return Ok(Outcome::Waiting(Waiting { ticket, blockers }));
        }
    }
    let Some(lease) = overlay.lease(ticket.upgrades.unwrap_or(ticket.id))? else { return Ok(Outcome::Gone) };
    let lease = refresh(overlay, lease);
    settle(overlay, None)?;
    Ok(Outcome::Granted(Grant { lease, joined: false }))
}

/// Comes back to a ticket: takes its lease if it was granted, or goes on waiting.
///
/// A ticket whose time ran out is still good as long as nobody has put it away.
pub fn check_ticket<V: View>(
    overlay: &mut Overlay<'_, V>,
    id: LeaseId,
    terms: Option<WaitTerms>,
) -> Result<Outcome, V::Error> {
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
    let seen_late = now.since(ticket.seen_at) > stays.get() / 4;
    let seen_at = if seen_late { now } else { ticket.seen_at };
    let attended = Ticket { waker, seen_at, stays, ..ticket.clone() };
    let verdict = overlay.judge_ticket(&attended);
    if verdict.is_free() {
        overlay.reap_ticket(ticket, verdict);
        settle(overlay, None)?;
        return Ok(Outcome::Gone);
    }
    overlay.put_ticket(Some(ticket), attended.clone());
    reap_dead(overlay, &attended.claim)?;
    // The line may have moved without anybody telling: look at all that this ticket waits for.
    if blockers(overlay, Asker { claim: &attended.claim, rank: attended.rank, whole_line: false })?.is_empty()
    {
        overlay.offer(attended.claim.targets());
    }
    settle_for(overlay, &attended)
}

/// Comes back to an upgrade: once it is granted, its ticket is gone and the lease itself is stronger.
pub fn check_upgrade<V: View>(
    overlay: &mut Overlay<'_, V>,
    ticket: LeaseId,
    lease: LeaseId,
    terms: Option<WaitTerms>,
) -> Result<Outcome, V::Error> {
    let id = if overlay.ticket(ticket)?.is_some() { ticket } else { lease };
    check_ticket(overlay, id, terms)
}

/// Finds the claims that their users gave this name, those that wait first. Each owner has names of its own.
pub fn find_tickets<V: View>(
    overlay: &mut Overlay<'_, V>,
    name: &TicketName,
) -> Result<Vec<(LeaseId, Arc<Claim>)>, V::Error> {
    let range = KeyRange::of(Key::of_ticket(name));
    let mut found = Vec::new();
    overlay.tickets(&range, Scan::Forward(None), &mut |ticket| {
        found.push((ticket.id, ticket.claim));
        ControlFlow::Continue(())
    })?;
    found.extend(overlay.leases(&range)?.into_iter().map(|lease| (lease.id, lease.claim)));
    Ok(found)
}

/// Gives up a place in line, and the lease if it was granted in the meantime.
pub fn give_up<V: View>(overlay: &mut Overlay<'_, V>, id: LeaseId) -> Result<(), V::Error> {
    if let Some(ticket) = overlay.ticket(id)? {
        overlay.remove_ticket(ticket);
    } else if let Some(lease) = overlay.lease(id)? {
        overlay.remove_lease(lease);
    }
    settle(overlay, None)
}

/// Leaves a ticket in line without anybody sleeping on it.
pub fn detach<V: View>(overlay: &mut Overlay<'_, V>, id: LeaseId) -> Result<(), V::Error> {
    if let Some(ticket) = overlay.ticket(id)? {
        let now = overlay.now();
        overlay.put_ticket(Some(ticket.clone()), Ticket { waker: None, seen_at: now, ..ticket });
    }
    settle(overlay, None)
}

/// Says that the holder is still there.
pub fn renew<V: View>(
    overlay: &mut Overlay<'_, V>,
    id: LeaseId,
    token: Option<Token>,
    ttl: Option<Ttl>,
) -> Result<Result<Lease, NotCurrent>, V::Error> {
    let lease = match current(overlay, id, token)? {
        Ok(lease) if lease.revoked => return Ok(Err(NotCurrent::Revoked(id))),
        Ok(lease) => lease,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let ttl = ttl.or(lease.claim.ttl);
    let claim = Arc::new(Claim { ttl, ..Claim::clone(&lease.claim) });
    let renewed = Lease { claim, heartbeat_at: overlay.now(), pickup_by: None, ..lease };
    overlay.put_lease(Some(lease), renewed.clone());
    settle(overlay, None)?;
    Ok(Ok(renewed))
}

/// Ends a lease.
pub fn release<V: View>(
    overlay: &mut Overlay<'_, V>,
    id: LeaseId,
    token: Option<Token>,
) -> Result<Result<Lease, NotCurrent>, V::Error> {
    let Some(lease) = overlay.lease(id)? else { return Ok(Err(NotCurrent::Unknown(id))) };
    if let Some(given) = token.filter(|given| *given != lease.token) {
        return Ok(Err(NotCurrent::Token { id, given, current: lease.token }));
    }
    overlay.remove_lease(lease.clone());
    settle(overlay, None)?;
    Ok(Ok(lease))
}

/// Whether a token is that of a lease which protects `target` now; nothing is changed.
pub fn fence<V: View>(
    overlay: &mut Overlay<'_, V>,
    target: &Target,
    token: Token,
) -> Result<Fence, V::Error> {
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

/// Tells a holder to let go.
///
/// A resident holder hears of it and stops its work first; everybody else loses the lease at once. Returns
/// the lease, and whether it is still held.
pub fn revoke<V: View>(overlay: &mut Overlay<'_, V>, id: LeaseId) -> Result<Option<(Lease, bool)>, V::Error> {
    let Some(lease) = overlay.lease(id)? else { return Ok(None) };
    let verdict = overlay.judge_lease(&lease);
    let stays = lease.waker().is_some() && !verdict.is_free();
    if stays {
        overlay.wake(lease.waker());
        overlay.put_lease(Some(lease.clone()), Lease { revoked: true, ..lease.clone() });
    } else {
        overlay.remove_lease(lease.clone());
        settle(overlay, None)?;
    }
    Ok(Some((lease, stays)))
}

/// Takes a lease away whatever its holder does; for a person who knows.
pub fn evict<V: View>(overlay: &mut Overlay<'_, V>, id: LeaseId) -> Result<bool, V::Error> {
    let Some(lease) = overlay.lease(id)? else { return Ok(false) };
    overlay.wake(lease.waker());
    overlay.remove_lease(lease);
    settle(overlay, None)?;
    Ok(true)
}

/// Puts away every lease and ticket whose holder or waiter is not there any more.
pub fn clean_up<V: View>(overlay: &mut Overlay<'_, V>) -> Result<(), V::Error> {
    let (leases, tickets) = overlay.all()?;
    for id in leases {
        if let Some(lease) = overlay.lease(id)? {
            let verdict = overlay.judge_lease(&lease);
            if verdict.is_free() {
                overlay.reap_lease(lease, verdict);
            }
        }
    }
    for id in tickets {
        if let Some(ticket) = overlay.ticket(id)? {
            let verdict = overlay.judge_ticket(&ticket);
            if verdict.is_free() {
                overlay.reap_ticket(ticket, verdict);
            }
        }
    }
    settle(overlay, None)
}

fn new_lease(id: LeaseId, token: Token, claim: Arc<Claim>, now: Moment) -> Lease {
    let (acquired_at, heartbeat_at) = (now, now);
    Lease { id, token, claim, acquired_at, heartbeat_at, pickup_by: None, revoked: false }
}

/// The lease of the same owner that is enough for the whole claim.
fn lease_to_join<V: View>(overlay: &mut Overlay<'_, V>, claim: &Claim) -> Result<Option<Lease>, V::Error> {
    let Some(first) = claim.resources.first() else { return Ok(None) };
    for lease in overlay.leases(&first.target.key_range())? {
        let same =
            lease.claim.owner == claim.owner && !lease.revoked && lease.claim.satisfies(&claim.resources);
        if same && !overlay.judge_lease(&lease).is_free() {
            return Ok(Some(lease));
        }
    }
    Ok(None)
}

/// Marks a lease as seen by its owner just now.
fn refresh<V: View>(overlay: &mut Overlay<'_, V>, lease: Lease) -> Lease {
    let untimed = lease.claim.ttl.is_none() && lease.pickup_by.is_none();
    if untimed {
        return lease;
    }
    let seen = Lease { heartbeat_at: overlay.now(), pickup_by: None, ..lease.clone() };
    overlay.put_lease(Some(lease), seen.clone());
    seen
}

/// Buries every dead lease within range of a claim, its owner's own included.
fn reap_dead<V: View>(overlay: &mut Overlay<'_, V>, claim: &Claim) -> Result<(), V::Error> {
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
fn current<V: View>(
    overlay: &mut Overlay<'_, V>,
    id: LeaseId,
    token: Option<Token>,
) -> Result<Result<Lease, NotCurrent>, V::Error> {
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
