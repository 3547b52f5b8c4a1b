//! Claims of agents: one lease for each file, all files of a call or none, and what happens to them when an agent stops.
//!
//! An agent never sleeps in its hook. A file that another owner has is denied, and the agent gets a ticket for it. When the
//! ticket is granted, the lease waits for the agent's next call until `pickup_by`.

mod stopping;

use std::sync::Arc;

pub use self::stopping::{end_session, hand_up, rest};
use super::{Outcome, lease_to_join, line_up, new_lease, reap_dead, refresh};
use crate::deadlock::Link;
use crate::id::{LeaseId, Owner};
use crate::liveness::Proof;
use crate::overlay::Overlay;
use crate::record::{Claim, Lease, Priority, Rank, Ticket};
use crate::resource::{Key, KeyRange, Target};
use crate::time::Ttl;
use crate::waiting::{Asker, Blocker, Obstacle, blockers, hand_off, meets, settle};

/// A lease is renewed when this part of its TTL has passed, so that most calls write nothing.
const RENEW_AFTER: u32 = 8;

/// One call of an agent: the files that it is about to change. With no files, the call only renews.
#[derive(Clone, Debug)]
pub struct AgentCall {
    /// The agent that calls.
    pub owner: Owner,
    /// One claim for each file, all of this owner.
    pub claims: Vec<Claim>,
    /// Files that no other owner may hold now, but that are not claimed: those of a command that works on a whole folder.
    pub checks: Vec<Claim>,
    /// How long the claims of the agent last without a further call.
    pub ttl: Ttl,
    /// How long a ticket stays in line without a further call.
    pub stays: Ttl,
    /// Leases of the agent that this call does not renew: names that are held for the length of another call.
    pub unrenewed: Vec<LeaseId>,
    /// Leases on a file that is there and is no folder: nothing can be below it. They are in the way of a check only if it is about
    /// the file itself.
    pub files: Vec<LeaseId>,
    /// The process that calls. The files of the agent are tied to it from now on: one session may run in two processes, and one
    /// of them may end. None: they stay as they are.
    pub proof: Option<Proof>,
}

/// The outcome of a call.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct AgentAnswer {
    /// The leases that are new. Empty if something was denied.
    pub granted: Vec<Lease>,
    /// The files that other owners have. Empty if all files are the agent's now.
    pub denied: Vec<Denial>,
    /// Leases that were granted to tickets of the agent since its last call.
    pub arrived: Vec<Lease>,
    /// Those of them that this call asked for. They are the agent's now.
    pub picked_up: Vec<Lease>,
    /// Claims of other agents to the new files in other work trees.
    pub elsewhere: Vec<Obstacle<Lease>>,
}

/// One file that another owner has.
#[derive(Clone, Debug)]
pub struct Denial {
    /// What was asked for.
    pub claim: Claim,
    /// The leases of others on it, and the tickets before that of the agent.
    pub blockers: Vec<Blocker>,
    /// The place in line. None if waiting would never end, or if it was only a check.
    pub ticket: Option<Ticket>,
    /// The cycle that waiting would close.
    pub cycle: Vec<Link>,
}

/// Renews what the agent and the owners above it hold, and claims the files of the call: all of them or none.
///
/// For each denied file a ticket stands in line. A later call for the same file keeps its place.
pub fn agent_call<E>(overlay: &mut Overlay<'_, E>, call: &AgentCall) -> Result<AgentAnswer, E> {
    let (mut arrived, mut picked_up) = (Vec::new(), Vec::new());
    reap_before_tickets(overlay, &call.owner)?;
    renew_leases(overlay, call, &mut arrived)?;
    let mut answer = claim_files(overlay, call, &mut picked_up)?;
    // A round starts again only after one of the files was granted to a ticket of this call.
    for _ in &call.claims {
        if answer.is_none() {
            renew_leases(overlay, call, &mut arrived)?;
            answer = claim_files(overlay, call, &mut picked_up)?;
        }
    }
    // A lease that this call asked for is not reported as arrived.
    arrived.retain(|lease| !call.claims.iter().any(|claim| lease.claim.satisfies(&claim.resources)));
    Ok(AgentAnswer { arrived, picked_up, ..answer.unwrap_or_default() })
}

/// Reaps the dead holders of the files that the agent waits for, and grants these to the next in line. A killed process frees
/// nothing by itself, and the agent has to learn at its next call that its turn has come, whichever files that call is about.
fn reap_before_tickets<E>(overlay: &mut Overlay<'_, E>, owner: &Owner) -> Result<(), E> {
    let tickets = overlay.tickets(&KeyRange::of(Key::of_owner(owner)))?;
    for ticket in &tickets {
        reap_dead(overlay, &ticket.claim)?;
    }
    if tickets.is_empty() { Ok(()) } else { hand_off(overlay) }
}

fn renew_leases<E>(
    overlay: &mut Overlay<'_, E>,
    call: &AgentCall,
    arrived: &mut Vec<Lease>,
) -> Result<(), E> {
    let now = overlay.now();
    let owners: Vec<Owner> = std::iter::once(call.owner.clone()).chain(call.owner.all_above()).collect();
    for owner in owners {
        let mut kept: Vec<Arc<Claim>> = Vec::new();
        for lease in leases_of_agent(overlay, &KeyRange::of(Key::of_owner(&owner)))? {
            let verdict = overlay.judge_lease(&lease);
            if verdict.is_free() {
                overlay.reap_lease(lease, verdict);
                continue;
            }
            if lease.revoked || call.unrenewed.contains(&lease.id) {
                continue;
            }
            let is_own = owner == call.owner;
            // The agent waited for its sub-agent, and got the file again. One lease is enough.
            let is_kept = |claim: &Arc<Claim>| {
                claim.resources == lease.claim.resources && claim.agent == lease.claim.agent
            };
            if is_own && is_file(&lease) && kept.iter().any(is_kept) {
                arrived.extend(lease.pickup_by.is_some().then(|| lease.clone()));
                overlay.remove_lease(lease);
                continue;
            }
            kept.push(Arc::clone(&lease.claim));
            // A file is the agent's from now on. A name is for one command, so only the call that runs it picks it up.
            if lease.pickup_by.is_some() && !is_file(&lease) {
                arrived.extend(Some(lease).filter(|_| is_own));
                continue;
            }
            let proof =
                call.proof.as_ref().filter(|_| is_own && is_file(&lease)).unwrap_or(&lease.claim.proof);
            let is_late = now.since(lease.heartbeat_at) > call.ttl.get() / RENEW_AFTER
                || lease.claim.ttl != Some(call.ttl)
                || *proof != lease.claim.proof
                || lease.pickup_by.is_some();
            // The owner above learns at a call of its own that its turn has come.
            if !is_late || (!is_own && lease.pickup_by.is_some()) {
                continue;
            }
            let proof = proof.clone();
            let claim = Arc::new(Claim { ttl: Some(call.ttl), proof, ..Claim::clone(&lease.claim) });
            let renewed = Lease { claim, heartbeat_at: now, pickup_by: None, ..lease.clone() };
            if lease.pickup_by.is_some() {
                arrived.push(renewed.clone());
            }
            overlay.put_lease(Some(lease), renewed);
        }
    }
    Ok(())
}

/// Whether a lease is on paths, and not on names.
fn is_file(lease: &Lease) -> bool {
    lease.claim.targets().any(|target| matches!(target, Target::Path(_)))
}

/// Claims all files or none. Returns nothing if a ticket was granted meanwhile: then the round starts again.
fn claim_files<E>(
    overlay: &mut Overlay<'_, E>,
    call: &AgentCall,
    picked_up: &mut Vec<Lease>,
) -> Result<Option<AgentAnswer>, E> {
    for claim in call.claims.iter().chain(&call.checks) {
        reap_dead(overlay, claim)?;
    }
    // What a dead holder leaves goes to the waiters first, and then to a new claim.
    hand_off(overlay)?;
    let now = overlay.now();
    let mut missing: Vec<(&Claim, Option<Ticket>)> = Vec::new();
    let mut blocked: Vec<(&Claim, Option<Ticket>, Vec<Blocker>)> = Vec::new();
    for claim in &call.claims {
        let is_repeated = missing.iter().any(|(known, _)| known.resources == claim.resources);
        if is_repeated {
            continue;
        }
        if let Some(lease) = lease_to_join(overlay, claim)? {
            // It may have been granted to the agent's ticket just now.
            if lease.pickup_by.is_some() {
                picked_up.push(refresh(overlay, lease));
            }
            // The agent may have waited for a sub-agent that is done.
            if let Some(ticket) = own_ticket(overlay, claim)? {
                overlay.wake(ticket.waker);
                overlay.remove_ticket(ticket);
            }
            continue;
        }
        let ticket = own_ticket(overlay, claim)?;
        let last = Rank::new(now, Priority::default(), LeaseId(u64::MAX));
        let rank = ticket.as_ref().map_or(last, |ticket| ticket.rank);
        let in_the_way = blockers(overlay, Asker { claim, rank, whole_line: false })?;
        if !in_the_way.is_empty() {
            blocked.push((claim, ticket.clone(), in_the_way));
        }
        missing.push((claim, ticket));
    }
    let mut denied = Vec::new();
    for claim in &call.checks {
        // A check asks as the first in line: waiters do not work on the file yet.
        let first = Rank::of_upgrade(LeaseId(0));
        let mut blockers = blockers(overlay, Asker { claim, rank: first, whole_line: false })?;
        for blocker in &mut blockers {
            blocker.leases.retain(|found| {
                !call.files.contains(&found.record.id) || names_path_of(claim, &found.record.claim)
            });
        }
        blockers.retain(|blocker| !blocker.leases.is_empty() || !blocker.tickets.is_empty());
        if !blockers.is_empty() {
            denied.push(Denial { claim: claim.clone(), blockers, ticket: None, cycle: Vec::new() });
        }
    }
    if blocked.is_empty() && denied.is_empty() {
        return grant_all(overlay, missing).map(Some);
    }
    for (claim, ticket, in_the_way) in blocked {
        let ticket = match ticket {
            Some(ticket) => {
                let seen = Ticket { seen_at: now, stays: call.stays, ..ticket.clone() };
                overlay.put_ticket(Some(ticket), seen.clone());
                Ok(Some(seen))
            }
            None => stand_in_line(overlay, claim, call.stays)?,
        };
        let (ticket, cycle) = match ticket {
            Ok(Some(ticket)) => (Some(ticket), Vec::new()),
            Ok(None) => return Ok(None),
            Err(cycle) => (None, cycle),
        };
        denied.push(Denial { claim: claim.clone(), blockers: in_the_way, ticket, cycle });
    }
    settle(overlay, None)?;
    // This call may have reaped a holder, and so granted the file to the agent's own ticket.
    for denial in denied.iter().filter(|denial| denial.ticket.is_some()) {
        if lease_to_join(overlay, &denial.claim)?.is_some() {
            return Ok(None);
        }
    }
    Ok(Some(AgentAnswer { denied, ..AgentAnswer::default() }))
}

/// Whether a check is about a path that the other claim names, not only about paths below it.
fn names_path_of(check: &Claim, other: &Claim) -> bool {
    let patterns = |claim: &'_ Claim| {
        let pattern = |target: &Target| match target {
            Target::Path(pattern) => Some(pattern.clone()),
            Target::Name(_) => None,
        };
        claim.targets().filter_map(pattern).collect::<Vec<_>>()
    };
    let others = patterns(other);
    patterns(check).iter().any(|pattern| others.iter().any(|other| pattern.matches(other.literal_prefix())))
}

fn grant_all<E>(
    overlay: &mut Overlay<'_, E>,
    missing: Vec<(&Claim, Option<Ticket>)>,
) -> Result<AgentAnswer, E> {
    let mut answer = AgentAnswer::default();
    for (claim, ticket) in missing {
        if let Some(ticket) = ticket {
            overlay.remove_ticket(ticket);
        }
        let token = overlay.next_token()?;
        let lease = new_lease(LeaseId(token.0), token, Arc::new(claim.clone()), overlay.now());
        overlay.put_lease(None, lease.clone());
        answer.elsewhere.extend(in_other_work_trees(overlay, claim)?);
        answer.granted.push(lease);
    }
    settle(overlay, None)?;
    Ok(answer)
}

/// Puts a new ticket into the line. Returns none if it was granted at once, and the cycle if waiting would never end.
fn stand_in_line<E>(
    overlay: &mut Overlay<'_, E>,
    claim: &Claim,
    stays: Ttl,
) -> Result<Result<Option<Ticket>, Vec<Link>>, E> {
    let (id, now) = (LeaseId(overlay.next_number()?), overlay.now());
    let priority = Priority::default();
    let ticket = Ticket {
        id,
        claim: Arc::new(claim.clone()),
        priority,
        rank: Rank::new(now, priority, id),
        enqueued_at: now,
        seen_at: now,
        stays,
        waker: None,
        under: Vec::new(),
        upgrades: None,
    };
    Ok(match line_up(overlay, ticket)? {
        Outcome::Waiting(waiting) => Ok(Some(waiting.ticket)),
        Outcome::Deadlock(links) => Err(links),
        Outcome::Granted(_) | Outcome::Held(_) | Outcome::Gone => Ok(None),
    })
}

/// The ticket of the same owner for the same file.
fn own_ticket<E>(overlay: &mut Overlay<'_, E>, claim: &Claim) -> Result<Option<Ticket>, E> {
    let tickets = overlay.tickets(&KeyRange::of(Key::of_owner(&claim.owner)))?;
    let is_same = |ticket: &Ticket| {
        ticket.claim.resources == claim.resources
            && ticket.claim.agent == claim.agent
            && ticket.upgrades.is_none()
    };
    for ticket in tickets.into_iter().filter(is_same) {
        let verdict = overlay.judge_ticket(&ticket);
        if !verdict.is_free() {
            return Ok(Some(ticket));
        }
        overlay.reap_ticket(ticket, verdict);
    }
    Ok(None)
}

/// The leases of other agents that overlap a claim in another work tree.
pub(super) fn in_other_work_trees<E>(
    overlay: &mut Overlay<'_, E>,
    claim: &Claim,
) -> Result<Vec<Obstacle<Lease>>, E> {
    let mut found = Vec::new();
    for resource in &claim.resources {
        for lease in overlay.leases(&resource.target.key_range())? {
            let other = &lease.claim;
            let is_family = other.owner == claim.owner
                || other.owner.is_above(&claim.owner)
                || claim.owner.is_above(&other.owner);
            if is_family || !other.is_apart_from(claim) || overlay.judge_lease(&lease).is_free() {
                continue;
            }
            let witness = meets(resource, other);
            found.extend(witness.map(|witness| Obstacle { record: lease, witness }));
        }
    }
    Ok(found)
}

/// What an agent or a family of agents holds, without leases that were taken by hand.
fn leases_of_agent<E>(overlay: &mut Overlay<'_, E>, range: &KeyRange) -> Result<Vec<Lease>, E> {
    let mut leases = overlay.leases(range)?;
    leases.retain(|lease| lease.claim.agent.is_some());
    Ok(leases)
}
