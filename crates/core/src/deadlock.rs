//! Deadlock detection: the cycle that a new wait would close.
//!
//! An owner counts as one thread of control. It can finish if it waits for nothing, or if one of its waits can end. A wait can
//! end if enough of its blockers can finish. The owners that are left over wait in a cycle. Because of slots a plain search for
//! a cycle is not enough: of three holders of a slot it is enough that one can finish.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::id::Owner;
use crate::overlay::Overlay;
use crate::record::Ticket;
use crate::records::Scan;
use crate::resource::{Key, KeyRange};
use crate::waiting::{Asker, Blocker, blockers};

/// One edge of the cycle: an owner waits for something that another owner has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The owner that waits.
    pub waiter: Owner,
    /// What it waits for: a name, or a path that both claims match.
    pub wanted: String,
    /// The owner that holds it or is served earlier.
    pub holder: Owner,
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} waits for {} of {}", self.waiter, self.wanted, self.holder)
    }
}

/// The cycle that a new ticket closes, if it closes one.
pub fn cycle<E>(overlay: &mut Overlay<'_, E>, ticket: &Ticket) -> Result<Option<Vec<Link>>, E> {
    let owner = &ticket.claim.owner;
    // Nobody waits for an owner that holds nothing and has no ticket behind its own.
    let alone = ticket.under.is_empty()
        && overlay.leases_of(owner)?.is_empty()
        && !goes_before_somebody(overlay, ticket)?;
    if alone {
        return Ok(None);
    }
    let mut stuck_with_it = vec![owner.clone()];
    for lease in &ticket.under {
        stuck_with_it.extend(overlay.lease(*lease)?.map(|lease| lease.claim.owner.clone()));
    }
    let mut graph = Graph::default();
    graph.load(overlay, &stuck_with_it)?;
    let able = graph.able_to_finish();
    Ok(stuck_with_it.iter().find_map(|owner| graph.cycle_from(owner, &able)))
}

/// All cycles among the waits of the store. A new wait never closes one, but a hand-over of claims may.
pub fn cycles<E>(overlay: &mut Overlay<'_, E>) -> Result<Vec<Vec<Link>>, E> {
    let mut graph = Graph::default();
    let (_, tickets) = overlay.all()?;
    let owners: BTreeSet<Owner> = tickets.iter().map(|ticket| ticket.claim.owner.clone()).collect();
    graph.load(overlay, &owners)?;
    let able = graph.able_to_finish();
    let mut found: Vec<Vec<Link>> = Vec::new();
    for cycle in owners.iter().filter_map(|owner| graph.cycle_from(owner, &able)) {
        let members: BTreeSet<&Owner> = cycle.iter().map(|link| &link.waiter).collect();
        let known = found.iter().any(|other| other.iter().any(|link| members.contains(&link.waiter)));
        if !known {
            found.push(cycle);
        }
    }
    Ok(found)
}

fn goes_before_somebody<E>(overlay: &mut Overlay<'_, E>, ticket: &Ticket) -> Result<bool, E> {
    for target in ticket.claim.targets() {
        if overlay.next_ticket(&target.key_range(), Scan::Forward(Some(ticket.rank)))?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Wait-for graph: the waits of each owner. A wait is the list of its blockers. An owner that does not wait has none.
#[derive(Default)]
struct Graph {
    waits: BTreeMap<Owner, Vec<Vec<Blocker>>>,
}

impl Graph {
    /// Adds these owners, and all owners that they wait for, directly or through others.
    fn load<'o, E>(
        &mut self,
        overlay: &mut Overlay<'_, E>,
        owners: impl IntoIterator<Item = &'o Owner>,
    ) -> Result<(), E> {
        let mut open: Vec<Owner> = owners.into_iter().cloned().collect();
        while let Some(owner) = open.pop() {
            if self.waits.contains_key(&owner) {
                continue;
            }
            let waits = waits_of(overlay, &owner)?;
            open.extend(waits.iter().flatten().flat_map(others).map(|(other, _)| other.clone()));
            self.waits.insert(owner, waits);
        }
        Ok(())
    }

    /// The owners that wait neither in a cycle nor behind one.
    fn able_to_finish(&self) -> BTreeSet<&Owner> {
        let mut open: Vec<(&Owner, &Vec<Vec<Blocker>>)> = self.waits.iter().collect();
        // The owners with the fewest blockers first: then one pass is enough for a simple line.
        let in_the_way =
            |wait: &Vec<Blocker>| wait.iter().map(|blocker| others(blocker).count()).max().unwrap_or(0);
        open.sort_by_cached_key(|(_, waits)| waits.iter().map(in_the_way).min().unwrap_or(0));
        let mut able = BTreeSet::new();
        loop {
            let before = able.len();
            open.retain(|(owner, waits)| {
                let can_go = |wait: &Vec<Blocker>| {
                    wait.iter().all(|blocker| blocker.has_room_without(|owner| able.contains(owner)))
                };
                let stuck = !waits.is_empty() && !waits.iter().any(can_go);
                if !stuck {
                    able.insert(*owner);
                }
                stuck
            });
            if able.len() == before {
                return able;
            }
        }
    }

    fn cycle_from(&self, start: &Owner, able: &BTreeSet<&Owner>) -> Option<Vec<Link>> {
        if able.contains(start) {
            return None;
        }
        let mut path: Vec<Link> = Vec::new();
        let mut at = start;
        loop {
            if let Some(first) = path.iter().position(|link| link.waiter == *at) {
                return Some(path.split_off(first));
            }
            let mut blockers = self.waits.get(at)?.iter().flatten();
            let stuck = blockers.find(|blocker| !blocker.has_room_without(|owner| able.contains(owner)))?;
            let (holder, wanted) = others(stuck).find(|(owner, _)| !able.contains(owner))?;
            path.push(Link { waiter: at.clone(), wanted: wanted.to_owned(), holder: holder.clone() });
            at = holder;
        }
    }
}

/// The owners that block, each with the name or path on which it does.
fn others(blocker: &Blocker) -> impl Iterator<Item = (&Owner, &str)> {
    let leases = blocker.leases.iter().map(|found| (&found.record.claim.owner, found.witness.as_str()));
    leases.chain(blocker.tickets.iter().map(|found| (&found.record.claim.owner, found.witness.as_str())))
}

/// What an owner waits for: its own tickets, and those of commands that run under its leases. Reaps the dead ones.
fn waits_of<E>(overlay: &mut Overlay<'_, E>, owner: &Owner) -> Result<Vec<Vec<Blocker>>, E> {
    let mut tickets = overlay.tickets(&KeyRange::of(Key::of_owner(owner)))?;
    for lease in overlay.leases_of(owner)? {
        tickets.extend(overlay.tickets(&KeyRange::of(Key::of_wait_under(lease.id)))?);
    }
    let mut waits = Vec::new();
    for ticket in tickets {
        let verdict = overlay.judge_ticket(&ticket);
        if verdict.is_free() {
            overlay.reap_ticket(ticket, verdict);
            continue;
        }
        waits.push(blockers(overlay, Asker { claim: &ticket.claim, rank: ticket.rank, whole_line: true })?);
    }
    Ok(waits)
}
