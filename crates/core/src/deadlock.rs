//! Waits that would never end: who waits for whom, and the cycle that a new wait would close.
//!
//! An owner is taken as one thread of control. It can finish if it waits for nothing, or if one of its waits
//! can end; a wait can end if enough of those in its way can finish. What is left over waits in a circle.
//! Counted names make this more than a search for a cycle: of three holders of a slot it is enough that one
//! can finish.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::ops::ControlFlow;

use crate::draft::{Draft, View, Walk};
use crate::id::{LeaseId, Owner};
use crate::record::{Claim, Rank, Ticket};
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

/// A wait that is about to begin.
#[derive(Clone, Copy)]
pub struct Intent<'a> {
    /// What is wanted.
    pub claim: &'a Claim,
    /// The place in line that it would have.
    pub rank: Rank,
    /// The leases whose commands the waiting process is a part of.
    pub under: &'a [LeaseId],
}

/// The circle that the intended wait would be caught in, given what stands in its way.
pub fn circle<V: View>(
    draft: &mut Draft<'_, V>,
    intent: Intent<'_>,
    in_the_way: &[Jam],
) -> Result<Option<Vec<Link>>, V::Error> {
    // Nobody can be waiting for an owner that holds nothing and goes before nobody.
    let alone = intent.under.is_empty()
        && draft.leases_of(&intent.claim.owner)?.is_empty()
        && !goes_before_somebody(draft, intent)?;
    if alone {
        return Ok(None);
    }
    let asker = Asker { claim: intent.claim, rank: intent.rank, whole_line: true };
    let wait = Wait::new(if in_the_way.is_empty() { Vec::new() } else { jams(draft, asker)? });
    let mut graph = Graph::default();
    for lease in intent.under {
        if let Some(lease) = draft.lease(*lease)? {
            graph.waits.entry(lease.claim.owner).or_default().push(wait.clone());
        }
    }
    graph.waits.entry(intent.claim.owner.clone()).or_default().push(wait);
    graph.load(draft)?;
    Ok(graph.circle_from(&intent.claim.owner))
}

/// All circles among the waits that the store has now; there are none unless force was used.
pub fn circles<V: View>(draft: &mut Draft<'_, V>) -> Result<Vec<Vec<Link>>, V::Error> {
    let mut graph = Graph::default();
    let (_, tickets) = draft.all()?;
    let mut owners = BTreeSet::new();
    for id in tickets {
        if let Some(ticket) = draft.ticket(id)? {
            owners.insert(ticket.claim.owner);
        }
    }
    for owner in &owners {
        graph.load_owner(draft, owner)?;
    }
    graph.load(draft)?;
    let mut found: Vec<Vec<Link>> = Vec::new();
    for circle in owners.iter().filter_map(|owner| graph.circle_from(owner)) {
        let members: BTreeSet<&Owner> = circle.iter().map(|link| &link.waiter).collect();
        let known = found.iter().any(|other| other.iter().any(|link| members.contains(&link.waiter)));
        if !known {
            found.push(circle);
        }
    }
    Ok(found)
}

fn goes_before_somebody<V: View>(draft: &mut Draft<'_, V>, intent: Intent<'_>) -> Result<bool, V::Error> {
    for target in intent.claim.targets() {
        if draft.next_ticket(&target.reach(), Walk::Up(Some(intent.rank)))?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What one ticket waits for: on every resource, enough of these have to go.
#[derive(Clone)]
struct Wait {
    groups: Vec<Group>,
}

#[derive(Clone)]
struct Group {
    /// Who is in the way, and on what.
    others: Vec<(Owner, String)>,
    must_go: usize,
}

impl Wait {
    fn new(jams: Vec<Jam>) -> Self {
        let group = |jam: Jam| {
            let leases = jam.leases.into_iter().map(|found| (found.record.claim.owner, found.witness));
            let tickets = jam.tickets.into_iter().map(|found| (found.record.claim.owner, found.witness));
            Group { others: leases.chain(tickets).collect(), must_go: jam.must_go }
        };
        Self { groups: jams.into_iter().map(group).collect() }
    }

    fn owners(&self) -> impl Iterator<Item = &Owner> {
        self.groups.iter().flat_map(|group| &group.others).map(|(owner, _)| owner)
    }
}

/// The waits of every owner within sight; an owner without waits has none.
#[derive(Default)]
struct Graph {
    waits: BTreeMap<Owner, Vec<Wait>>,
    loaded: BTreeSet<Owner>,
}

impl Graph {
    /// Follows the waits until everybody who matters is known.
    fn load<V: View>(&mut self, draft: &mut Draft<'_, V>) -> Result<(), V::Error> {
        let mut open: VecDeque<Owner> = self.waits.keys().cloned().collect();
        open.extend(self.waits.values().flatten().flat_map(Wait::owners).cloned());
        while let Some(owner) = open.pop_front() {
            if self.loaded.contains(&owner) {
                continue;
            }
            self.load_owner(draft, &owner)?;
            open.extend(self.waits[&owner].iter().flat_map(Wait::owners).cloned());
        }
        Ok(())
    }

    fn load_owner<V: View>(&mut self, draft: &mut Draft<'_, V>, owner: &Owner) -> Result<(), V::Error> {
        if !self.loaded.insert(owner.clone()) {
            return Ok(());
        }
        let mut tickets = Vec::new();
        collect(draft, &Reach::of(Key::of_owner(owner)), &mut tickets)?;
        for lease in draft.leases_of(owner)? {
            collect(draft, &Reach::of(Key::of_wait_under(lease.id)), &mut tickets)?;
        }
        let waits = self.waits.entry(owner.clone()).or_default();
        for ticket in tickets {
            let asker = Asker { claim: &ticket.claim, rank: ticket.rank, whole_line: true };
            waits.push(Wait::new(jams(draft, asker)?));
        }
        Ok(())
    }

    fn able_to_finish(&self) -> BTreeSet<&Owner> {
        let mut able = BTreeSet::new();
        loop {
            let can_go = |wait: &Wait| {
                wait.groups.iter().all(|group| {
                    let going = group.others.iter().filter(|(owner, _)| able.contains(owner)).count();
                    going >= group.must_go
                })
            };
            let more: Vec<&Owner> = self
                .waits
                .iter()
                .filter(|(owner, waits)| {
                    !able.contains(owner) && (waits.is_empty() || waits.iter().any(can_go))
                })
                .map(|(owner, _)| owner)
                .collect();
            if more.is_empty() {
                return able;
            }
            able.extend(more);
        }
    }

    fn circle_from(&self, start: &Owner) -> Option<Vec<Link>> {
        let able = self.able_to_finish();
        if able.contains(start) {
            return None;
        }
        let mut path: Vec<Link> = Vec::new();
        let mut at = start;
        loop {
            if let Some(first) = path.iter().position(|link| link.waiter == *at) {
                return Some(path.split_off(first));
            }
            let stuck =
                self.waits.get(at)?.iter().flat_map(|wait| &wait.groups).flat_map(|group| &group.others);
            let (holder, wanted) = stuck.into_iter().find(|(owner, _)| !able.contains(owner))?;
            path.push(Link { waiter: at.clone(), wanted: wanted.clone(), holder: holder.clone() });
            at = holder;
        }
    }
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
