//! The waiting line: which claims block which, and which ticket is granted next.
//!
//! Two claims block each other if they cannot hold together. A ticket that came earlier counts as if it held already. So
//! nobody overtakes, readers do not starve a writer, and a claim on many resources gets all of them in its turn. There is
//! one exception: a ticket that waits for something that the asker holds does not block the asker, because it cannot be
//! granted before the asker is done.
//!
//! Claims of agents have families: what an owner holds does not block its sub-agents. But no sub-agent overtakes an owner above
//! it that waits. A claim in another work tree does not block an agent. On a counted name every owner counts, also in a family.
//!
//! An exclusive ticket stands for all tickets before it: while it waits or holds, nobody behind it is granted. So a scan of the
//! line ends at the first such ticket.

use std::collections::BTreeMap;

use crate::id::{LeaseId, Owner};
use crate::overlay::Overlay;
use crate::record::{Claim, Lease, Rank, Ticket};
use crate::records::Scan;
use crate::resource::{KeyRange, Mode, Resource, Target};
use crate::time::Moment;
pub use crate::watching::{Watched, wake_affected, watch_list};

/// A lease or ticket that blocks, and what both claims want.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle<T> {
    /// The lease or ticket that blocks.
    pub record: T,
    /// The name, or a path that both patterns match.
    pub witness: String,
}

/// Everything that blocks one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocker {
    /// What is wanted.
    pub resource: Resource,
    /// The leases on it.
    pub leases: Vec<Obstacle<Lease>>,
    /// The tickets for it that are served earlier.
    pub tickets: Vec<Obstacle<Ticket>>,
    /// How many of these owners have to leave before there is room.
    pub excess: usize,
    /// Until when nobody gets it, because the store may have forgotten who holds it.
    pub silent_until: Option<Moment>,
}

impl Blocker {
    /// What blocks `resource` among these; none if there is room.
    fn new(
        asker: &Claim,
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
            leases.retain(|found| {
                excludes(resource, &found.record.claim) && !found.record.claim.gives_way_to(asker)
            });
            tickets.retain(|found| {
                excludes(resource, &found.record.claim) && !found.record.claim.is_apart_from(asker)
            });
        }
        let mut blocker = Self { resource: resource.clone(), leases, tickets, excess: 0, silent_until: None };
        let capacities = blocker.capacities(|_| false);
        while !has_room(resource, &capacities[blocker.excess..]) {
            blocker.excess += 1;
        }
        (blocker.excess > 0).then_some(blocker)
    }

    /// Whether there is room once these owners are gone.
    pub fn has_room_without(&self, is_gone: impl Fn(&Owner) -> bool) -> bool {
        has_room(&self.resource, &self.capacities(is_gone))
    }

    /// How many holders each owner accepts, the smallest number first.
    ///
    /// An owner counts once, also if it has several claims: they do not exclude each other.
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

/// Whether one more holder fits beside these. The smallest capacity comes first.
fn has_room(resource: &Resource, capacities: &[usize]) -> bool {
    let least = capacities.first().copied().unwrap_or(usize::MAX);
    capacities.is_empty() || capacities.len() < least.min(capacity_of(resource))
}

fn capacity(resource: &Resource, claim: &Claim) -> usize {
    match &resource.target {
        // Only claims that exclude block a path.
        Target::Path(_) => 1,
        Target::Name(_) => resource_of(claim, resource).map_or(usize::MAX, capacity_of),
    }
}

fn capacity_of(resource: &Resource) -> usize {
    usize::try_from(resource.mode.capacity()).unwrap_or(usize::MAX)
}

/// Whether a claim alone excludes a resource.
pub(crate) fn excludes(resource: &Resource, claim: &Claim) -> bool {
    claim.resources.iter().any(|other| resource.excludes(other).is_some())
}

/// The claim that asks, and its place in line.
#[derive(Clone, Copy)]
pub struct Asker<'a> {
    /// What is wanted.
    pub claim: &'a Claim,
    /// Its place in the line.
    pub rank: Rank,
    /// True: return all tickets ahead. False: the scan may end at a ticket that stands for all before it.
    pub whole_line: bool,
}

/// Finds what blocks the asker, one resource after the other. Reaps the dead records that it finds.
///
/// If nothing blocks it, the asker may hold now.
pub fn blockers<E>(overlay: &mut Overlay<'_, E>, asker: Asker<'_>) -> Result<Vec<Blocker>, E> {
    let mut blockers = Vec::new();
    let mut asker_holds = None;
    for resource in &asker.claim.resources {
        let leases = live_leases_on(overlay, resource, &asker.claim.owner)?;
        let tickets = tickets_ahead(overlay, asker, resource, &mut asker_holds)?;
        blockers.extend(Blocker::new(asker.claim, resource, leases, tickets));
    }
    if let (true, Some(resource)) = (blockers.is_empty(), asker.claim.resources.first()) {
        blockers.extend(silence(overlay, asker.claim, resource));
    }
    Ok(blockers)
}

/// Nothing is granted while holders write their leases again.
fn silence<E>(overlay: &Overlay<'_, E>, asker: &Claim, resource: &Resource) -> Option<Blocker> {
    let silent_until = Some(overlay.silent_until(asker.proof.origin.session)?);
    let (leases, tickets) = (Vec::new(), Vec::new());
    Some(Blocker { resource: resource.clone(), leases, tickets, excess: 0, silent_until })
}

/// Whether a claim can hold beside all leases of other owners that were heard of since `since`.
pub(crate) fn has_room_beside<E>(
    overlay: &mut Overlay<'_, E>,
    claim: &Claim,
    since: Moment,
) -> Result<bool, E> {
    for resource in &claim.resources {
        let mut leases = live_leases_on(overlay, resource, &claim.owner)?;
        leases.retain(|found| found.record.heartbeat_at >= since);
        if Blocker::new(claim, resource, leases, Vec::new()).is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The live leases of other owners that overlap a resource. Reaps the dead ones.
///
/// On a name all of them count, since slots are counted. On a path only those count that exclude.
fn live_leases_on<E>(
    overlay: &mut Overlay<'_, E>,
    resource: &Resource,
    owner: &Owner,
) -> Result<Vec<Obstacle<Lease>>, E> {
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

/// Whether a claim counts against a resource. Returns what both want.
pub fn meets(resource: &Resource, claim: &Claim) -> Option<String> {
    claim.resources.iter().find_map(|held| match &resource.target {
        Target::Name(_) => resource.target.meets(&held.target),
        Target::Path(_) => resource.excludes(held),
    })
}

fn tickets_ahead<E>(
    overlay: &mut Overlay<'_, E>,
    asker: Asker<'_>,
    resource: &Resource,
    asker_holds: &mut Option<Vec<Lease>>,
) -> Result<Vec<Obstacle<Ticket>>, E> {
    let range = resource.target.key_range();
    let mut ahead = Vec::new();
    let mut place = asker.rank;
    while let Some(ticket) = overlay.next_ticket(&range, Scan::Backward(Some(place)))? {
        place = ticket.rank;
        if ticket.claim.owner == asker.claim.owner {
            continue;
        }
        let Some(witness) = meets(resource, &ticket.claim) else { continue };
        let verdict = overlay.judge_ticket(&ticket);
        if verdict.is_free() {
            overlay.reap_ticket(ticket, verdict);
            continue;
        }
        if waits_for(overlay, &ticket, asker.claim, asker_holds)? {
            continue;
        }
        let decides = !asker.whole_line
            && ticket.stands_for_all_before(&resource.target)
            && !ticket.claim.is_apart_from(asker.claim);
        ahead.push(Obstacle { record: ticket, witness });
        if decides {
            break;
        }
    }
    Ok(ahead)
}

fn resource_of<'c>(claim: &'c Claim, like: &Resource) -> Option<&'c Resource> {
    claim.resources.iter().find(|resource| resource.target == like.target)
}

/// Whether a ticket waits for something that the asker holds, or an owner above the asker. `held` caches these leases.
fn waits_for<E>(
    overlay: &mut Overlay<'_, E>,
    ticket: &Ticket,
    asker: &Claim,
    held: &mut Option<Vec<Lease>>,
) -> Result<bool, E> {
    let held = match held {
        Some(known) => known,
        None => held.insert(live_leases_for(overlay, asker)?),
    };
    let in_the_way = held.iter().filter(|lease| !lease.claim.gives_way_to(&ticket.claim));
    let mut in_the_way = in_the_way.flat_map(|lease| &lease.claim.resources);
    Ok(in_the_way.any(|has| excludes(has, &ticket.claim)))
}

/// The live leases of the asker's owner. For an agent also those of the owners above: they are not done before it is.
fn live_leases_for<E>(overlay: &mut Overlay<'_, E>, asker: &Claim) -> Result<Vec<Lease>, E> {
    let mut leases = overlay.leases_of(&asker.owner)?;
    if asker.agent.is_some() {
        for above in asker.owner.all_above() {
            leases.extend(overlay.leases_of(&above)?.into_iter().filter(|lease| lease.claim.agent.is_some()));
        }
    }
    let mut live = Vec::new();
    for lease in leases {
        let verdict = overlay.judge_lease(&lease);
        if verdict.is_free() {
            overlay.reap_lease(lease, verdict);
        } else {
            live.push(lease);
        }
    }
    Ok(live)
}

/// Ends a decision: grants what became free to the next waiters, and wakes the waiters that have to look again.
///
/// `caller` is the ticket whose waiter runs this decision. It gets the outcome directly and is not woken.
pub fn settle<E>(overlay: &mut Overlay<'_, E>, caller: Option<LeaseId>) -> Result<(), E> {
    loop {
        hand_off(overlay)?;
        wake_affected(overlay, caller)?;
        // `wake_affected` may have reaped more records, and so freed something.
        if !overlay.has_freed() {
            return Ok(());
        }
    }
}

/// Grants what became free to the next waiters, and repeats that while it frees more.
///
/// Every decision ends with it. So nothing stays free while somebody waits for it.
pub fn hand_off<E>(overlay: &mut Overlay<'_, E>) -> Result<(), E> {
    loop {
        while let Some(dependents) = overlay.next_moved() {
            reconsider(overlay, &dependents)?;
        }
        let Some(target) = overlay.next_freed() else { return Ok(()) };
        grant_next(overlay, &target)?;
    }
}

/// Checks again the tickets of an owner that holds more or less than before, and those of its sub-agents.
///
/// A ticket that waits for something that the owner holds does not block the owner. A ticket that upgrades a lease which is
/// gone is removed.
fn reconsider<E>(overlay: &mut Overlay<'_, E>, dependents: &KeyRange) -> Result<(), E> {
    let mut place = None;
    while let Some(ticket) = overlay.next_ticket(dependents, Scan::Forward(place))? {
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

/// Grants one target to the next tickets in its line.
fn grant_next<E>(overlay: &mut Overlay<'_, E>, target: &Target) -> Result<(), E> {
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
        // After the grant of a whole name nobody behind can be granted, except a sub-agent of the new holder.
        let closes = matches!(target, Target::Name(_))
            && ticket.claim.agent.is_none()
            && ticket.claim.resources.iter().any(takes_all);
        grant(overlay, ticket)?;
        if closes {
            return Ok(());
        }
    }
    Ok(())
}

/// Turns a ticket into its lease. The ticket of an upgrade makes its lease stronger instead.
fn grant<E>(overlay: &mut Overlay<'_, E>, ticket: Ticket) -> Result<(), E> {
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
                let stronger = Lease { token, claim, heartbeat_at: lease.touched_at(now), ..lease };
                overlay.put_lease(Some(lease), stronger);
            }
        }
    }
    Ok(())
}
