//! Who stands in whose way, and who is next.
//!
//! A claim is in the way of another when both cannot hold together; a ticket that came earlier counts as if
//! it held already. So nobody overtakes, a writer is not starved by readers, and a claim on many resources
//! gets them all in its turn. There is one exception: a ticket that waits for something which the newcomer
//! itself holds is not in the newcomer's way, because it cannot go before the newcomer is done.
//!
//! For a plain name the nearest ticket ahead stands for all those before it, since everyone on that name
//! excludes or shares alike; only patterns and slots need the whole line.

use std::ops::ControlFlow;

use crate::draft::{Draft, View, Walk};
use crate::id::{LeaseId, Owner};
use crate::record::{Claim, Lease, Rank, Ticket};
use crate::resource::{Mode, Resource, Target};

/// Somebody in the way, and what both want.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle<T> {
    /// The lease or ticket in the way.
    pub record: T,
    /// The name, or a path that both patterns match.
    pub witness: String,
}

/// All that stands in the way of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jam {
    /// What is wanted.
    pub resource: Resource,
    /// Who holds it.
    pub leases: Vec<Obstacle<Lease>>,
    /// Who waits for it and goes first.
    pub tickets: Vec<Obstacle<Ticket>>,
    /// How many of them have to go before there is room.
    pub must_go: usize,
}

/// Who asks, and from which place in line.
#[derive(Clone, Copy)]
pub struct Asker<'a> {
    /// What is wanted.
    pub claim: &'a Claim,
    /// The place in line.
    pub rank: Rank,
    /// Whether all the tickets ahead are of interest, rather than the nearest.
    pub whole_line: bool,
}

/// Finds what stands in the asker's way, resource by resource, and buries the dead found there.
///
/// Nothing in the way means that it may hold now.
pub fn jams<V: View>(draft: &mut Draft<'_, V>, asker: Asker<'_>) -> Result<Vec<Jam>, V::Error> {
    let mut jams = Vec::new();
    let mut asker_holds = None;
    for resource in &asker.claim.resources {
        let leases = live_leases_on(draft, resource, &asker.claim.owner)?;
        let tickets = tickets_ahead(draft, asker, resource, &mut asker_holds)?;
        let together = leases.len() + tickets.len() + 1;
        let room = match &resource.target {
            Target::Path(_) => 1,
            Target::Name(_) => smallest_capacity(resource, &leases, &tickets),
        };
        if together > room && (!leases.is_empty() || !tickets.is_empty()) {
            jams.push(Jam { resource: resource.clone(), must_go: together - room, leases, tickets });
        }
    }
    Ok(jams)
}

fn smallest_capacity(resource: &Resource, leases: &[Obstacle<Lease>], tickets: &[Obstacle<Ticket>]) -> usize {
    let claims = leases.iter().map(|found| &found.record.claim);
    let claims = claims.chain(tickets.iter().map(|found| &found.record.claim));
    let on_same = claims.flat_map(|claim| &claim.resources).filter(|held| held.target == resource.target);
    let smallest = on_same.map(|held| held.mode.capacity()).min().unwrap_or(u32::MAX);
    usize::try_from(smallest.min(resource.mode.capacity())).unwrap_or(usize::MAX)
}

/// The leases of others that meet a resource, the dead among them buried.
///
/// On a name all of them count, since its slots are counted; on a path only those that exclude.
fn live_leases_on<V: View>(
    draft: &mut Draft<'_, V>,
    resource: &Resource,
    owner: &Owner,
) -> Result<Vec<Obstacle<Lease>>, V::Error> {
    let mut live = Vec::new();
    for lease in draft.leases(&resource.target.reach())? {
        if lease.claim.owner == *owner {
            continue;
        }
        if let Some(witness) = meets(resource, &lease.claim) {
            let verdict = draft.judge_lease(&lease);
            if verdict.is_free() {
                draft.bury_lease(lease, verdict);
            } else {
                live.push(Obstacle { record: lease, witness });
            }
        }
    }
    Ok(live)
}

/// Whether a claim counts against a resource, and where.
pub fn meets(resource: &Resource, claim: &Claim) -> Option<String> {
    claim.resources.iter().find_map(|held| match &resource.target {
        Target::Name(_) => resource.target.meets(&held.target),
        Target::Path(_) => resource.excludes(held),
    })
}

fn tickets_ahead<V: View>(
    draft: &mut Draft<'_, V>,
    asker: Asker<'_>,
    resource: &Resource,
    asker_holds: &mut Option<Vec<Lease>>,
) -> Result<Vec<Obstacle<Ticket>>, V::Error> {
    let counted = matches!(resource.mode, Mode::Slots(_));
    let nearest_is_enough = !asker.whole_line && !counted && matches!(resource.target, Target::Name(_));
    let reach = resource.target.reach();
    let mut ahead = Vec::new();
    let mut place = asker.rank;
    loop {
        // One at a time: judging needs the view that a walk would hold on to.
        let mut found = None;
        draft.tickets(&reach, Walk::Down(Some(place)), &mut |ticket| {
            place = ticket.rank;
            if ticket.claim.owner == asker.claim.owner {
                return ControlFlow::Continue(());
            }
            match meets(resource, &ticket.claim) {
                Some(witness) => {
                    found = Some(Obstacle { record: ticket, witness });
                    ControlFlow::Break(())
                }
                None => ControlFlow::Continue(()),
            }
        })?;
        let Some(obstacle) = found else { return Ok(ahead) };
        let verdict = draft.judge_ticket(&obstacle.record);
        if verdict.is_free() {
            draft.bury_ticket(obstacle.record, verdict);
            continue;
        }
        if waits_for(draft, &obstacle.record, &asker.claim.owner, asker_holds)? {
            continue;
        }
        // A shared one ahead is no reason for a shared one to stop looking.
        let decides = nearest_is_enough
            && resource_of(&obstacle.record.claim, resource)
                .is_some_and(|ahead| ahead.mode.capacity().min(resource.mode.capacity()) == 1);
        ahead.push(obstacle);
        if decides {
            return Ok(ahead);
        }
    }
}

fn resource_of<'c>(claim: &'c Claim, like: &Resource) -> Option<&'c Resource> {
    claim.resources.iter().find(|resource| resource.target == like.target)
}

/// Whether a ticket waits for something that `owner` holds; what that is, is read at most once.
fn waits_for<V: View>(
    draft: &mut Draft<'_, V>,
    ticket: &Ticket,
    owner: &Owner,
    held: &mut Option<Vec<Lease>>,
) -> Result<bool, V::Error> {
    let held = match held {
        Some(known) => known,
        None => held.insert(draft.leases_of(owner)?),
    };
    let has_in_the_way = |wanted: &Resource| {
        held.iter().flat_map(|lease| &lease.claim.resources).any(|has| wanted.excludes(has).is_some())
    };
    Ok(ticket.claim.resources.iter().any(has_in_the_way))
}

/// Grants what became free to whoever is next, and goes on while that frees or decides more.
///
/// Every decision ends with it, so that nothing stays free while somebody waits for it.
pub fn hand_off<V: View>(draft: &mut Draft<'_, V>) -> Result<(), V::Error> {
    while let Some(target) = draft.next_freed() {
        let reach = target.reach();
        let mut passed_over: Vec<Ticket> = Vec::new();
        let mut place = None;
        while let Some(ticket) = draft.next_ticket(&reach, Walk::Up(place))? {
            place = Some(ticket.rank);
            let verdict = draft.judge_ticket(&ticket);
            if verdict.is_free() {
                draft.bury_ticket(ticket, verdict);
                continue;
            }
            let asker = Asker { claim: &ticket.claim, rank: ticket.rank, whole_line: false };
            if !jams(draft, asker)?.is_empty() {
                passed_over.push(ticket);
                continue;
            }
            // Whoever was passed over watches the old holder: it is to look again.
            for passed in passed_over.drain(..) {
                draft.ring(passed.bell);
            }
            let closes = ticket.claim.resources.iter().any(|resource| {
                resource.target == target
                    && resource.mode == Mode::Exclusive
                    && matches!(target, Target::Name(_))
            });
            grant(draft, ticket)?;
            if closes {
                break;
            }
        }
    }
    Ok(())
}

/// Wakes those who watch a ticket that gives up although its process goes on.
pub fn wake_behind<V: View>(draft: &mut Draft<'_, V>, ticket: &Ticket) -> Result<(), V::Error> {
    for resource in &ticket.claim.resources {
        let mut bells = Vec::new();
        draft.tickets(&resource.target.reach(), Walk::Up(Some(ticket.rank)), &mut |behind| {
            if meets(resource, &behind.claim).is_some() {
                bells.push(behind.bell);
            }
            let all_wait_for_it = resource_of(&behind.claim, resource).is_some_and(|wanted| {
                wanted.mode == Mode::Exclusive && matches!(wanted.target, Target::Name(_))
            });
            if all_wait_for_it { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        for bell in bells {
            draft.ring(bell);
        }
    }
    Ok(())
}

/// Turns a ticket into its lease, or its lease into the stronger one that it waited for.
fn grant<V: View>(draft: &mut Draft<'_, V>, ticket: Ticket) -> Result<(), V::Error> {
    let token = draft.draw_token()?;
    let now = draft.now();
    draft.ring(ticket.bell);
    let pickup_by = (!ticket.is_resident()).then(|| now.after(ticket.stays.get()));
    let claim = ticket.claim.clone();
    let upgraded = ticket.upgrades;
    let id = ticket.id;
    draft.take_ticket(ticket);
    match upgraded {
        None => {
            let (acquired_at, heartbeat_at) = (now, now);
            draft.put_lease(
                None,
                Lease { id, token, claim, acquired_at, heartbeat_at, pickup_by, revoked: false },
            );
        }
        Some(lease_id) => {
            if let Some(lease) = draft.lease(lease_id)? {
                let resources = claim.resources;
                let claim = Claim { resources, ..lease.claim.clone() };
                let stronger = Lease { token, claim, heartbeat_at: now, ..lease };
                draft.put_lease(Some(lease), stronger);
            }
        }
    }
    Ok(())
}

/// Those whose death, or whose end in time, a waiter has to notice by itself.
///
/// On each resource the nearest ticket ahead will be the holder before the waiter is, and it is the same
/// process then; so each waiter watches the one before it, and nobody's death wakes a crowd.
pub fn watch_list(jams: &[Jam]) -> Vec<Watched> {
    let mut watched: Vec<Watched> = Vec::new();
    for jam in jams {
        let tickets = jam.tickets.iter().map(|found| Watched::Ticket(found.record.clone()));
        let leases = jam.leases.iter().map(|found| Watched::Lease(found.record.clone()));
        let ones: Vec<Watched> = if jam.tickets.is_empty() { leases.collect() } else { tickets.collect() };
        for one in ones {
            if !watched.iter().any(|known| known.id() == one.id()) {
                watched.push(one);
            }
        }
    }
    watched
}

/// A record that a waiter keeps an eye on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watched {
    /// A holder.
    Lease(Lease),
    /// A waiter further ahead.
    Ticket(Ticket),
}

impl Watched {
    /// Which claim it is.
    pub fn id(&self) -> LeaseId {
        match self {
            Self::Lease(lease) => lease.id,
            Self::Ticket(ticket) => ticket.id,
        }
    }

    /// The claim itself.
    pub fn claim(&self) -> &Claim {
        match self {
            Self::Lease(lease) => &lease.claim,
            Self::Ticket(ticket) => &ticket.claim,
        }
    }
}
