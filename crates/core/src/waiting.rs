//! Who stands in whose way, and who is next.
//!
//! A claim is in the way of another when both cannot hold together; a ticket that came earlier counts as if
//! it held already. So nobody overtakes, a writer is not starved by readers, and a claim on many resources
//! gets them all in its turn. There is one exception: a ticket that waits for something which the newcomer
//! itself holds is not in the newcomer's way, because it cannot go before the newcomer is done.
//!
//! A ticket ahead that wants all of a resource for itself alone stands for everybody before it, so that the
//! line need not be walked to its beginning.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use crate::id::{LeaseId, Owner};
use crate::overlay::{Overlay, Scan, View};
use crate::record::{Claim, Lease, Rank, Ticket};
use crate::resource::{Key, KeyRange, Mode, Resource, Target};
pub use crate::watching::{Watched, wake_for_news, watch_list};

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
pub struct Blocker {
    /// What is wanted.
    pub resource: Resource,
    /// Who holds it.
    pub leases: Vec<Obstacle<Lease>>,
    /// Who waits for it and goes first.
    pub tickets: Vec<Obstacle<Ticket>>,
    /// How many of their owners have to go before there is room.
    pub excess: usize,
}

impl Blocker {
    /// What is in the way of `resource` among these, if they leave no room.
    fn new(
        resource: &Resource,
        mut leases: Vec<Obstacle<Lease>>,
        mut tickets: Vec<Obstacle<Ticket>>,
    ) -> Option<Self> {
        let is_counted = |claim: &Claim| {
            let on_same = resource_of(claim, resource);
            on_same.is_some_and(|other| matches!(other.mode, Mode::Slots(_)))
        };
        let counted = matches!(resource.mode, Mode::Slots(_))
            || leases.iter().any(|found| is_counted(&found.record.claim))
            || tickets.iter().any(|found| is_counted(&found.record.claim));
        if !counted {
            leases.retain(|found| excludes(resource, &found.record.claim));
            tickets.retain(|found| excludes(resource, &found.record.claim));
        }
        let mut blocker = Self { resource: resource.clone(), leases, tickets, excess: 0 };
        let capacities = blocker.capacities(|_| false);
        while !has_room(resource, &capacities[blocker.excess..]) {
            blocker.excess += 1;
        }
        (blocker.excess > 0).then_some(blocker)
    }

    /// Whether there is room once all those are gone.
    pub fn has_room_without(&self, is_gone: impl Fn(&Owner) -> bool) -> bool {
        has_room(&self.resource, &self.capacities(is_gone))
    }

    /// How many others each owner puts up with, the least tolerant first.
    ///
    /// An owner counts once, however many claims it has: they do not exclude each other.
    fn capacities(&self, is_gone: impl Fn(&Owner) -> bool) -> Vec<usize> {
        let mut by_owner: BTreeMap<&Owner, usize> = BTreeMap::new();
        for claim in self.claims().filter(|claim| !is_gone(&claim.owner)) {
            let least = by_owner.entry(&claim.owner).or_insert(usize::MAX);
            *least = (*least).min(capacity(&self.resource, claim));
        }
        let mut capacities: Vec<usize> = by_owner.into_values().collect();
        capacities.sort_unstable();
        capacities
    }

    fn claims(&self) -> impl Iterator<Item = &Claim> {
        let leases = self.leases.iter().map(|found| &*found.record.claim);
        leases.chain(self.tickets.iter().map(|found| &*found.record.claim))
    }
}

/// Whether one more fits in beside these, the least tolerant of whom comes first.
fn has_room(resource: &Resource, capacities: &[usize]) -> bool {
    let least = capacities.first().copied().unwrap_or(usize::MAX);
    capacities.is_empty() || capacities.len() < least.min(capacity_of(resource))
}

fn capacity(resource: &Resource, claim: &Claim) -> usize {
    match &resource.target {
        // Only those that exclude are in the way of a path.
        Target::Path(_) => 1,
        Target::Name(_) => resource_of(claim, resource).map_or(usize::MAX, capacity_of),
    }
}

fn capacity_of(resource: &Resource) -> usize {
    usize::try_from(resource.mode.capacity()).unwrap_or(usize::MAX)
}

/// Whether a claim excludes a resource by itself, however many others there are.
pub(crate) fn excludes(resource: &Resource, claim: &Claim) -> bool {
    claim.resources.iter().any(|other| resource.excludes(other).is_some())
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

/// Finds what stands in the asker's way, resource by resource, and reaps the dead found there.
///
/// Nothing in the way means that it may hold now.
pub fn blockers<V: View>(overlay: &mut Overlay<'_, V>, asker: Asker<'_>) -> Result<Vec<Blocker>, V::Error> {
    let mut blockers = Vec::new();
    let mut asker_holds = None;
    for resource in &asker.claim.resources {
        let leases = live_leases_on(overlay, resource, &asker.claim.owner)?;
        let tickets = tickets_ahead(overlay, asker, resource, &mut asker_holds)?;
        blockers.extend(Blocker::new(resource, leases, tickets));
    }
    Ok(blockers)
}

/// The leases of others that meet a resource, the dead among them reaped.
///
/// On a name all of them count, since its slots are counted; on a path only those that exclude.
fn live_leases_on<V: View>(
    overlay: &mut Overlay<'_, V>,
    resource: &Resource,
    owner: &Owner,
) -> Result<Vec<Obstacle<Lease>>, V::Error> {
    let mut live = Vec::new();
    for lease in overlay.leases(&resource.target.key_range())? {
        if lease.claim.owner == *owner {
            continue;
        }
        if let Some(witness) = meets(resource, &lease.claim) {
            let verdict = overlay.judge_lease(&lease);
            if verdict.is_free() {
                overlay.reap_lease(lease, verdict);
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
    overlay: &mut Overlay<'_, V>,
    asker: Asker<'_>,
    resource: &Resource,
    asker_holds: &mut Option<Vec<Lease>>,
) -> Result<Vec<Obstacle<Ticket>>, V::Error> {
    let range = resource.target.key_range();
    let mut ahead = Vec::new();
    let mut place = asker.rank;
    loop {
        // One at a time: judging needs the view that a scan would hold on to.
        let mut found = None;
        overlay.tickets(&range, Scan::Backward(Some(place)), &mut |ticket| {
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
        let verdict = overlay.judge_ticket(&obstacle.record);
        if verdict.is_free() {
            overlay.reap_ticket(obstacle.record, verdict);
            continue;
        }
        if waits_for(overlay, &obstacle.record, &asker.claim.owner, asker_holds)? {
            continue;
        }
        let decides = !asker.whole_line && obstacle.record.stands_for_all_before(&resource.target);
        ahead.push(obstacle);
        if decides {
            return Ok(ahead);
        }
    }
}

fn resource_of<'c>(claim: &'c Claim, like: &Resource) -> Option<&'c Resource> {
    claim.resources.iter().find(|resource| resource.target == like.target)
}

/// Whether a ticket waits for something that `owner` holds; what that is, is read and judged at most once.
fn waits_for<V: View>(
    overlay: &mut Overlay<'_, V>,
    ticket: &Ticket,
    owner: &Owner,
    held: &mut Option<Vec<Lease>>,
) -> Result<bool, V::Error> {
    let held = match held {
        Some(known) => known,
        None => held.insert(live_leases_of(overlay, owner)?),
    };
    let has_in_the_way = |wanted: &Resource| {
        held.iter().flat_map(|lease| &lease.claim.resources).any(|has| wanted.excludes(has).is_some())
    };
    Ok(ticket.claim.resources.iter().any(has_in_the_way))
}

fn live_leases_of<V: View>(overlay: &mut Overlay<'_, V>, owner: &Owner) -> Result<Vec<Lease>, V::Error> {
    let mut live = Vec::new();
    for lease in overlay.leases_of(owner)? {
        let verdict = overlay.judge_lease(&lease);
        if verdict.is_free() {
            overlay.reap_lease(lease, verdict);
        } else {
            live.push(lease);
        }
    }
    Ok(live)
}

/// Ends a decision: hands on what became free, and wakes those who have to look again.
///
/// `here` is the ticket whose waiter asked for the decision, and sees its outcome anyway.
pub fn settle<V: View>(overlay: &mut Overlay<'_, V>, here: Option<LeaseId>) -> Result<(), V::Error> {
    loop {
        hand_off(overlay)?;
        wake_for_news(overlay, here)?;
        // Looking again may find more of the dead.
        if !overlay.has_freed() {
            return Ok(());
        }
    }
}

/// Grants what became free to whoever is next, and goes on while that frees or decides more.
///
/// Every decision ends with it, so that nothing stays free while somebody waits for it.
pub fn hand_off<V: View>(overlay: &mut Overlay<'_, V>) -> Result<(), V::Error> {
    loop {
        while let Some(owner) = overlay.next_moved() {
            reconsider(overlay, &owner)?;
        }
        let Some(target) = overlay.next_freed() else { return Ok(()) };
        hand_on(overlay, &target)?;
    }
}

/// Looks at the tickets of an owner who came to hold more or less than before.
///
/// Whoever waits for what it holds is not in its way any more, and a lease that is gone cannot become more.
fn reconsider<V: View>(overlay: &mut Overlay<'_, V>, owner: &Owner) -> Result<(), V::Error> {
    let range = KeyRange::of(Key::of_owner(owner));
    let mut place = None;
    while let Some(ticket) = overlay.next_ticket(&range, Scan::Forward(place))? {
        place = Some(ticket.rank);
        let lost = match ticket.upgrades {
            Some(lease) => overlay.lease(lease)?.is_none(),
            None => false,
        };
        if lost {
            overlay.wake(ticket.waker);
            overlay.remove_ticket(ticket);
        } else {
            overlay.offer(ticket.claim.targets());
        }
    }
    Ok(())
}

/// Grants one target to whoever is next in its line.
fn hand_on<V: View>(overlay: &mut Overlay<'_, V>, target: &Target) -> Result<(), V::Error> {
    let range = target.key_range();
    let mut place = None;
    while let Some(ticket) = overlay.next_ticket(&range, Scan::Forward(place))? {
        place = Some(ticket.rank);
        let verdict = overlay.judge_ticket(&ticket);
        if verdict.is_free() {
            overlay.reap_ticket(ticket, verdict);
            continue;
        }
        let asker = Asker { claim: &ticket.claim, rank: ticket.rank, whole_line: false };
        if !blockers(overlay, asker)?.is_empty() {
            continue;
        }
        let takes_all = |wanted: &Resource| wanted.mode == Mode::Exclusive && wanted.target == *target;
        let closes = matches!(target, Target::Name(_)) && ticket.claim.resources.iter().any(takes_all);
        grant(overlay, ticket)?;
        if closes {
            return Ok(());
        }
    }
    Ok(())
}

/// Turns a ticket into its lease, or its lease into the stronger one that it waited for.
fn grant<V: View>(overlay: &mut Overlay<'_, V>, ticket: Ticket) -> Result<(), V::Error> {
    overlay.wake(ticket.waker);
    overlay.take_ticket(ticket.clone());
    let now = overlay.now();
    match ticket.upgrades {
        None => {
            let pickup_by = (!ticket.is_resident()).then(|| now.after(ticket.stays.get()));
            let (id, claim) = (ticket.id, ticket.claim);
            let token = overlay.next_token()?;
            let (acquired_at, heartbeat_at) = (now, now);
            overlay.put_lease(
                None,
                Lease { id, token, claim, acquired_at, heartbeat_at, pickup_by, revoked: false },
            );
        }
        Some(lease) => {
            let lease = overlay.lease(lease)?;
            if let Some(lease) = lease.filter(|lease| lease.claim.resources != ticket.claim.resources) {
                let claim = lease.claim.with_resources(ticket.claim.resources.clone());
                let token = overlay.next_token()?;
                let stronger = Lease { token, claim, heartbeat_at: now, ..lease };
                overlay.put_lease(Some(lease), stronger);
            }
        }
    }
    Ok(())
}
