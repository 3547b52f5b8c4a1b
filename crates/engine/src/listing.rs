//! Listing: all holders and waiters in one snapshot, and what blocks each waiter.

use std::collections::BTreeMap;

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::liveness::{Contract, Proof, Verdict, Voucher};
use lockkeeper_core::record::{Claim, Lease, Rank, Ticket};
use lockkeeper_core::request::Request;
use lockkeeper_core::resource::{Key, Resource, Target};
use lockkeeper_core::time::Moment;
use lockkeeper_core::waiting::{Asker, Blocker, blockers};
use lockkeeper_store::StoreError;

use crate::Engine;

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
    /// What blocks it. Of the tickets ahead of it, only the nearest ones that are enough to explain the wait.
    pub blockers: Vec<Blocker>,
    /// Its position in line, from 1. With several resources, the worst of its positions.
    pub position: usize,
}

/// A lease that would block a request.
#[derive(Clone, Debug)]
pub struct ConflictingLease<'l> {
    /// The lease and whether its holder lives.
    pub holder: &'l HolderEntry,
    /// The name, or a path that both match.
    pub witness: String,
}

impl Listing {
    /// The leases that would block a request for these resources. Free slots are not counted.
    pub fn conflicting_leases(&self, resources: &[Resource]) -> Vec<ConflictingLease<'_>> {
        let held = self.holders.iter().filter(|holder| !holder.verdict.is_free());
        held.filter_map(|holder| {
            let meets = |wanted: &Resource| {
                holder.lease.claim.resources.iter().find_map(|held| held.excludes(wanted))
            };
            Some(ConflictingLease { holder, witness: resources.iter().find_map(meets)? })
        })
        .collect()
    }
}

impl Engine {
    /// Whether the lease that a request needs would be granted now. Changes nothing.
    pub fn would_grant(&self, request: &Request) -> Result<bool, StoreError> {
        if !request.needs_lease() {
            return Ok(true);
        }
        let claim = Claim {
            owner: format!("request:{}", request.id).parse().expect("an id is never empty"),
            resources: request.resources(),
            proof: Proof { origin: self.probe().origin().clone(), voucher: Voucher::Time },
            contract: Contract::Strict,
            ttl: None,
            reason: None,
            ticket: None,
            agent: None,
        };
        self.look(|overlay| {
            let rank = Rank::new(overlay.now(), request.priority, LeaseId(u64::MAX));
            Ok(blockers(overlay, Asker { claim: &claim, rank, whole_line: false })?.is_empty())
        })
    }

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
                let positions = ticket.claim.targets().map(Target::key).map(|key| {
                    let position = lines.entry(key).or_default();
                    *position += usize::from(!verdict.is_free());
                    *position
                });
                let position = positions.max().unwrap_or(1).max(1);
                waiters.push(WaiterEntry { ticket, verdict, blockers, position });
            }
            Ok(Listing { now: overlay.now(), holders, waiters })
        })
    }
}
