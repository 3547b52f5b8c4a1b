//! Listing: all holders and waiters in one snapshot, and what blocks each waiter.

use std::collections::BTreeMap;

use lockkeeper_core::liveness::Verdict;
use lockkeeper_core::record::{Lease, Ticket};
use lockkeeper_core::resource::{Key, Resource, Target};
use lockkeeper_core::time::Moment;
use lockkeeper_core::waiting::{Asker, Blocker, blockers};

use super::Engine;
use lockkeeper_store::StoreError;

/// All records of a store at one moment.
#[derive(Clone, Debug)]
pub struct Listing {
    /// The moment.
    pub now: Moment,
    /// All leases, oldest first, also those of dead holders.
    pub holders: Vec<HolderEntry>,
    /// Tickets, in the order in which they are served.
    pub waiters: Vec<WaiterEntry>,
}

/// A lease and its verdict.
#[derive(Clone, Debug)]
pub struct HolderEntry {
    /// The lease.
    pub lease: Lease,
    /// Whether its holder lives.
    pub verdict: Verdict,
}

/// A ticket and what it waits for.
#[derive(Clone, Debug)]
pub struct WaiterEntry {
    /// The ticket.
    pub ticket: Ticket,
    /// Whether its waiter lives.
    pub verdict: Verdict,
    /// What blocks it. Of the tickets ahead only those up to the nearest that stands for all before it.
    pub blockers: Vec<Blocker>,
    /// Its place in the longest of its lines, from 1.
    pub position: usize,
}

/// A lease that would block a request.
#[derive(Clone, Debug)]
pub struct InTheWay<'l> {
    /// The lease and whether its holder lives.
    pub holder: &'l HolderEntry,
    /// The name, or a path that both match.
    pub witness: String,
}

impl Listing {
    /// The leases that would block a request for these resources. Free slots are not counted.
    pub fn in_the_way(&self, resources: &[Resource]) -> Vec<InTheWay<'_>> {
        let held = self.holders.iter().filter(|holder| !holder.verdict.is_free());
        held.filter_map(|holder| {
            let meets = |wanted: &Resource| {
                holder.lease.claim.resources.iter().find_map(|held| held.excludes(wanted))
            };
            Some(InTheWay { holder, witness: resources.iter().find_map(meets)? })
        })
        .collect()
    }
}

impl Engine {
    /// Reads everything in one snapshot. Changes nothing and blocks nobody.
    pub fn listing(&self) -> Result<Listing, StoreError> {
        self.look(|overlay| {
            let (leases, tickets) = overlay.all()?;
            let judged = leases.into_iter().map(|lease| {
                let verdict = overlay.judge_lease(&lease);
                HolderEntry { lease, verdict }
            });
            let holders = judged.collect();
            let mut waiters = Vec::with_capacity(tickets.len());
            let mut lines: BTreeMap<Key, usize> = BTreeMap::new();
            for ticket in tickets {
                let verdict = overlay.judge_ticket(&ticket);
                let asker = Asker { claim: &ticket.claim, rank: ticket.rank, whole_line: false };
                let blockers = blockers(overlay, asker)?;
                let places = ticket.claim.targets().map(Target::key).map(|key| {
                    let place = lines.entry(key).or_default();
                    *place += usize::from(!verdict.is_free());
                    *place
                });
                let position = places.max().unwrap_or(1).max(1);
                waiters.push(WaiterEntry { ticket, verdict, blockers, position });
            }
            Ok(Listing { now: overlay.now(), holders, waiters })
        })
    }
}
