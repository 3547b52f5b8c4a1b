//! Waits that would never end: who waits for whom, and the cycle that a new wait would close.
//!
//! An owner is taken as one thread of control. It can finish if it waits for nothing, or if one of its waits
//! can end; a wait can end if enough of those in its way can finish. What is left over waits in a circle.
//! Counted names make this more than a search for a cycle: of three holders of a slot it is enough that one
//! can finish.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::ControlFlow;

use crate::draft::{Draft, View, Walk};
use crate::id::Owner;
use crate::record::Ticket;
use crate::resource::{Key, Reach};
use crate::waiting::{Asker, Jam, jams};

/// One step around the circle: who waits, for what, and who has it.
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

/// The circle that a ticket is caught in which was just put into the line.
pub fn circle<V: View>(draft: &mut Draft<'_, V>, ticket: &Ticket) -> Result<Option<Vec<Link>>, V::Error> {
    let owner = &ticket.claim.owner;
    // Nobody can be waiting for an owner that holds nothing and goes before nobody.
    let alone = ticket.under.is_empty()
        && draft.leases_of(owner)?.is_empty()
        && !goes_before_somebody(draft, ticket)?;
    if alone {
        return Ok(None);
    }
    let mut stuck_with_it = vec![owner.clone()];
    for lease in &ticket.under {
        stuck_with_it.extend(draft.lease(*lease)?.map(|lease| lease.claim.owner.clone()));
    }
    let mut graph = Graph::default();
    graph.load(draft, &stuck_with_it)?;
    let able = graph.able_to_finish();
    Ok(stuck_with_it.iter().find_map(|owner| graph.circle_from(owner, &able)))
}

/// All circles among the waits that the store has now; there are none unless force was used.
pub fn circles<V: View>(draft: &mut Draft<'_, V>) -> Result<Vec<Vec<Link>>, V::Error> {
    let mut graph = Graph::default();
    let (_, tickets) = draft.all()?;
    let mut owners = BTreeSet::new();
    for id in tickets {
        if let Some(ticket) = draft.ticket(id)? {
            owners.insert(ticket.claim.owner.clone());
        }
    }
    graph.load(draft, &owners)?;
    let able = graph.able_to_finish();
    let mut found: Vec<Vec<Link>> = Vec::new();
    for circle in owners.iter().filter_map(|owner| graph.circle_from(owner, &able)) {
        let members: BTreeSet<&Owner> = circle.iter().map(|link| &link.waiter).collect();
        let known = found.iter().any(|other| other.iter().any(|link| members.contains(&link.waiter)));
        if !known {
            found.push(circle);
        }
    }
    Ok(found)
}

fn goes_before_somebody<V: View>(draft: &mut Draft<'_, V>, ticket: &Ticket) -> Result<bool, V::Error> {
    for target in ticket.claim.targets() {
        if draft.next_ticket(&target.reach(), Walk::Up(Some(ticket.rank)))?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The waits of every owner within sight, each as the jams that have to clear; an owner without waits has none.
#[derive(Default)]
struct Graph {
    waits: BTreeMap<Owner, Vec<Vec<Jam>>>,
}

impl Graph {
    /// Follows the waits from some owners on, until everybody who matters is known.
    fn load<'o, V: View>(
        &mut self,
        draft: &mut Draft<'_, V>,
        owners: impl IntoIterator<Item = &'o Owner>,
    ) -> Result<(), V::Error> {
        let mut open: Vec<Owner> = owners.into_iter().cloned().collect();
        while let Some(owner) = open.pop() {
            if self.waits.contains_key(&owner) {
                continue;
            }
            let waits = waits_of(draft, &owner)?;
            open.extend(waits.iter().flatten().flat_map(others).map(|(other, _)| other.clone()));
            self.waits.insert(owner, waits);
        }
        Ok(())
    }

    /// Everybody who does not wait in a circle, or behind one.
    fn able_to_finish(&self) -> BTreeSet<&Owner> {
        let mut open: Vec<(&Owner, &Vec<Vec<Jam>>)> = self.waits.iter().collect();
        // Those with the fewest in their way first: along a line one pass settles everybody.
        let in_the_way = |wait: &Vec<Jam>| wait.iter().map(|jam| others(jam).count()).max().unwrap_or(0);
        open.sort_by_cached_key(|(_, waits)| waits.iter().map(in_the_way).min().unwrap_or(0));
        let mut able = BTreeSet::new();
        loop {
            let before = able.len();
            open.retain(|(owner, waits)| {
                let can_go = |wait: &Vec<Jam>| {
                    wait.iter().all(|jam| jam.has_room_without(|owner| able.contains(owner)))
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

    fn circle_from(&self, start: &Owner, able: &BTreeSet<&Owner>) -> Option<Vec<Link>> {
        if able.contains(start) {
            return None;
        }
        let mut path: Vec<Link> = Vec::new();
        let mut at = start;
        loop {
            if let Some(first) = path.iter().position(|link| link.waiter == *at) {
                return Some(path.split_off(first));
            }
            let mut jams = self.waits.get(at)?.iter().flatten();
            let stuck = jams.find(|jam| !jam.has_room_without(|owner| able.contains(owner)))?;
            let (holder, wanted) = others(stuck).find(|(owner, _)| !able.contains(owner))?;
            path.push(Link { waiter: at.clone(), wanted: wanted.to_owned(), holder: holder.clone() });
            at = holder;
        }
    }
}

/// Who is in the way, and on what.
fn others(jam: &Jam) -> impl Iterator<Item = (&Owner, &str)> {
    let leases = jam.leases.iter().map(|found| (&found.record.claim.owner, found.witness.as_str()));
    leases.chain(jam.tickets.iter().map(|found| (&found.record.claim.owner, found.witness.as_str())))
}

/// What an owner waits for: its own tickets, and those of commands that run under its leases, the dead among
/// them buried.
fn waits_of<V: View>(draft: &mut Draft<'_, V>, owner: &Owner) -> Result<Vec<Vec<Jam>>, V::Error> {
    let mut tickets = Vec::new();
    collect(draft, &Reach::of(Key::of_owner(owner)), &mut tickets)?;
    for lease in draft.leases_of(owner)? {
        collect(draft, &Reach::of(Key::of_wait_under(lease.id)), &mut tickets)?;
    }
    let mut waits = Vec::new();
    for ticket in tickets {
        let verdict = draft.judge_ticket(&ticket);
        if verdict.is_free() {
            draft.bury_ticket(ticket, verdict);
            continue;
        }
        waits.push(jams(draft, Asker { claim: &ticket.claim, rank: ticket.rank, whole_line: true })?);
    }
    Ok(waits)
}

fn collect<V: View>(
    draft: &mut Draft<'_, V>,
    reach: &Reach,
    tickets: &mut Vec<Ticket>,
) -> Result<(), V::Error> {
    draft.tickets(reach, Walk::Up(None), &mut |ticket| {
        tickets.push(ticket);
        ControlFlow::Continue(())
    })
}
