//! Waits that would never end: who waits for whom, and the cycle that a new wait would close.
//!
//! An owner is taken as one thread of control. It can finish if it waits for nothing, or if one of its waits
//! can end; a wait can end if enough of those in its way can finish. What is left over waits in a cycle.
//! Counted names make this more than a search for a cycle: of three holders of a slot it is enough that one
//! can finish.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::ControlFlow;

use crate::id::Owner;
use crate::overlay::{Overlay, Scan, View};
use crate::record::Ticket;
use crate::resource::{Key, KeyRange};
use crate::waiting::{Asker, Blocker, blockers};

/// One step around the cycle: who waits, for what, and who has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Who waits.
    pub waiter: Owner,
    /// What is wanted: a name, or a path that both claims match.
    pub wanted: String,
    /// Who holds it or goes first.
    pub holder: Owner,
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} waits for {} of {}", self.waiter, self.wanted, self.holder)
    }
}

/// The cycle that a ticket is caught in which was just put into the line.
pub fn cycle<V: View>(overlay: &mut Overlay<'_, V>, ticket: &Ticket) -> Result<Option<Vec<Link>>, V::Error> {
    let owner = &ticket.claim.owner;
    // Nobody can be waiting for an owner that holds nothing and goes before nobody.
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

/// All cycles among the waits that the store has now; there are none unless force was used.
pub fn cycles<V: View>(overlay: &mut Overlay<'_, V>) -> Result<Vec<Vec<Link>>, V::Error> {
    let mut graph = Graph::default();
    let (_, tickets) = overlay.all()?;
    let mut owners = BTreeSet::new();
    for id in tickets {
        if let Some(ticket) = overlay.ticket(id)? {
            owners.insert(ticket.claim.owner.clone());
        }
    }
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

fn goes_before_somebody<V: View>(overlay: &mut Overlay<'_, V>, ticket: &Ticket) -> Result<bool, V::Error> {
    for target in ticket.claim.targets() {
        if overlay.next_ticket(&target.key_range(), Scan::Forward(Some(ticket.rank)))?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The waits of every owner within observation, each as the blockers that have to clear; an owner without waits has none.
#[derive(Default)]
struct Graph {
    waits: BTreeMap<Owner, Vec<Vec<Blocker>>>,
}

impl Graph {
    /// Follows the waits from some owners on, until everybody who matters is known.
    fn load<'o, V: View>(
        &mut self,
        overlay: &mut Overlay<'_, V>,
        owners: impl IntoIterator<Item = &'o Owner>,
    ) -> Result<(), V::Error> {
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

    /// Everybody who does not wait in a cycle, or behind one.
    fn able_to_finish(&self) -> BTreeSet<&Owner> {
        let mut open: Vec<(&Owner, &Vec<Vec<Blocker>>)> = self.waits.iter().collect();
        // Those with the fewest in their way first: along a line one pass settles everybody.
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

/// Who is in the way, and on what.
fn others(blocker: &Blocker) -> impl Iterator<Item = (&Owner, &str)> {
    let leases = blocker.leases.iter().map(|found| (&found.record.claim.owner, found.witness.as_str()));
    leases.chain(blocker.tickets.iter().map(|found| (&found.record.claim.owner, found.witness.as_str())))
}

/// What an owner waits for: its own tickets, and those of commands that run under its leases, the dead among
/// them reaped.
fn waits_of<V: View>(overlay: &mut Overlay<'_, V>, owner: &Owner) -> Result<Vec<Vec<Blocker>>, V::Error> {
    let mut tickets = Vec::new();
    collect(overlay, &KeyRange::of(Key::of_owner(owner)), &mut tickets)?;
    for lease in overlay.leases_of(owner)? {
        collect(overlay, &KeyRange::of(Key::of_wait_under(lease.id)), &mut tickets)?;
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

fn collect<V: View>(
    overlay: &mut Overlay<'_, V>,
    range: &KeyRange,
    tickets: &mut Vec<Ticket>,
) -> Result<(), V::Error> {
    overlay.tickets(range, Scan::Forward(None), &mut |ticket| {
        tickets.push(ticket);
        ControlFlow::Continue(())
    })
}
