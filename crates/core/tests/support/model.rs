//! Naive model of the rules: no index; every claim is compared with every other one, in the order of the line.

use std::collections::BTreeSet;

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::in_memory::InMemoryRecords;
use lockkeeper_core::record::{Claim, Rank};
use lockkeeper_core::resource::{Mode, Resource, Target};

use crate::steps::OWNERS;

/// One claim of the model.
#[derive(Clone, Debug)]
pub struct Entry {
    pub id: LeaseId,
    pub claim: Claim,
    /// Its place in the line, if it waits.
    pub rank: Rank,
    /// The lease that it upgrades, if it waits for an upgrade.
    pub upgrades: Option<LeaseId>,
}

/// The claims that hold, and those that wait.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub held: Vec<Entry>,
    pub waiting: Vec<Entry>,
}

impl Model {
    /// The model of these records.
    pub fn of(records: &InMemoryRecords) -> Self {
        let held = records.leases().map(|lease| Entry {
            id: lease.id,
            claim: Claim::clone(&lease.claim),
            rank: Rank::of_upgrade(LeaseId(0)),
            upgrades: None,
        });
        let waiting = records.tickets().map(|ticket| Entry {
            id: ticket.id,
            claim: Claim::clone(&ticket.claim),
            rank: ticket.rank,
            upgrades: ticket.upgrades,
        });
        Self { held: held.collect(), waiting: waiting.collect() }
    }

    /// The claims of other owners that block, resource by resource.
    pub fn in_the_way(&self, claim: &Claim, rank: Rank) -> Vec<(Resource, Vec<&Claim>)> {
        let mut blocked = Vec::new();
        for wanted in &claim.resources {
            let meets = |other: &&Claim| {
                other.owner != claim.owner
                    && other.resources.iter().any(|r| r.target.meets(&wanted.target).is_some())
            };
            let mut held: Vec<&Claim> = self.held.iter().map(|entry| &entry.claim).filter(meets).collect();
            let ahead = self
                .waiting
                .iter()
                .filter(|entry| entry.rank < rank && !self.waits_for_something_of(&entry.claim, claim));
            let mut ahead: Vec<&Claim> = ahead.map(|entry| &entry.claim).filter(meets).collect();
            let counts =
                |other: &&Claim| other.resources.iter().any(|r| r.target == wanted.target && is_counted(r));
            if !is_counted(wanted) && !held.iter().chain(&ahead).any(counts) {
                held.retain(|other| !gives_way(other, claim));
                ahead.retain(|other| !is_apart(other, claim));
            }
            let others = [held, ahead].concat();
            if !fits(wanted, &others) {
                blocked.push((wanted.clone(), others));
            }
        }
        blocked
    }

    /// Whether a ticket waits for something that the asker holds, or an owner above the asker.
    fn waits_for_something_of(&self, claim: &Claim, asker: &Claim) -> bool {
        let theirs = self.held.iter().filter(|entry| {
            (entry.claim.owner == asker.owner || is_sub_agent(asker, &entry.claim))
                && !gives_way(&entry.claim, claim)
        });
        theirs.flat_map(|entry| &entry.claim.resources).any(|has| {
            claim.resources.iter().any(|wanted| {
                let one_only = wanted.mode.capacity() == 1 || has.mode.capacity() == 1;
                one_only && wanted.target.meets(&has.target).is_some()
            })
        })
    }

    pub fn change(&mut self, id: LeaseId, mode: Mode) {
        for entry in self.held.iter_mut().filter(|entry| entry.id == id) {
            entry.claim.resources.iter_mut().for_each(|resource| resource.mode = mode);
        }
    }

    /// Grants all that can be granted, the first in line first.
    pub fn hand_off(&mut self) {
        self.waiting.sort_by_key(|entry| entry.rank);
        let held = self.held.clone();
        self.waiting
            .retain(|entry| entry.upgrades.is_none_or(|lease| held.iter().any(|held| held.id == lease)));
        while let Some(next) =
            self.waiting.iter().position(|entry| self.in_the_way(&entry.claim, entry.rank).is_empty())
        {
            let entry = self.waiting.remove(next);
            match entry.upgrades {
                None => self.held.push(entry),
                Some(lease) => {
                    let lease = self.held.iter_mut().find(|held| held.id == lease).unwrap();
                    lease.claim.resources = entry.claim.resources;
                }
            }
        }
    }

    /// Whether an owner can never go on. Only an owner with several waits at once can cause that.
    pub fn has_cycle(&self) -> bool {
        OWNERS.iter().any(|owner| self.is_stuck(&format!("worker:{owner}")))
    }

    /// Whether an owner can never go on. Each owner is one thread; an owner that can go on releases all that it has.
    pub fn is_stuck(&self, owner: &str) -> bool {
        let mut finished: BTreeSet<&str> = BTreeSet::new();
        loop {
            let before = finished.len();
            for candidate in OWNERS.map(|owner| format!("worker:{owner}")) {
                let waits: Vec<&Entry> =
                    self.waiting.iter().filter(|entry| entry.claim.owner.as_str() == candidate).collect();
                let can_go = |entry: &&Entry| {
                    self.in_the_way(&entry.claim, entry.rank).iter().all(|(wanted, others)| {
                        let left: Vec<&Claim> = others
                            .iter()
                            .filter(|other| !finished.contains(other.owner.as_str()))
                            .copied()
                            .collect();
                        fits(wanted, &left)
                    })
                };
                if waits.is_empty() || waits.iter().any(can_go) {
                    let all = self.held.iter().chain(&self.waiting);
                    finished.extend(
                        all.map(|entry| entry.claim.owner.as_str()).filter(|owner| *owner == candidate),
                    );
                }
            }
            if finished.len() == before {
                return !finished.contains(owner)
                    && self.waiting.iter().any(|e| e.claim.owner.as_str() == owner);
            }
        }
    }
}

fn is_counted(resource: &Resource) -> bool {
    matches!(resource.mode, Mode::Slots(_))
}

/// Whether one agent's owner is the other's with more parts.
pub fn is_sub_agent(below: &Claim, above: &Claim) -> bool {
    let prefix = format!("{}:", above.owner);
    below.agent.is_some() && above.agent.is_some() && below.owner.as_str().starts_with(&prefix)
}

/// Whether `asker` may hold the same beside `held`: one owner, a sub-agent, or another work tree.
pub fn gives_way(held: &Claim, asker: &Claim) -> bool {
    held.owner == asker.owner || is_sub_agent(asker, held) || is_apart(held, asker)
}

fn is_apart(one: &Claim, other: &Claim) -> bool {
    let tree = |claim: &Claim| claim.agent.clone().and_then(|agent| agent.work_tree);
    tree(one).is_some() && tree(other).is_some() && tree(one) != tree(other)
}

fn fits(wanted: &Resource, others: &[&Claim]) -> bool {
    let theirs = |claim: &&Claim| {
        let same = claim.resources.iter().filter(|other| other.target.meets(&wanted.target).is_some());
        same.map(|other| other.mode.capacity()).min().unwrap()
    };
    let least = others.iter().map(theirs).min().unwrap_or(u32::MAX).min(wanted.mode.capacity());
    let owners: BTreeSet<&str> = others.iter().map(|claim| claim.owner.as_str()).collect();
    match wanted.target {
        Target::Name(_) => owners.is_empty() || owners.len() < least as usize,
        Target::Path(_) => others.is_empty() || least > 1,
    }
}
