//! What has to be true in every state of an exploration.

use std::collections::BTreeSet;

use lockkeeper_core::record::Lease;
use lockkeeper_core::waiting::{Asker, blockers};

use crate::exploration::{State, pid_of};
use crate::sleepers::describe;

impl State {
    pub fn check(&self) {
        self.check_exclusion();
        let mut settled = self.clone();
        settled.settle();
        settled.sleepers.check(&settled.world);
        settled.check_exclusion();
        settled.check_hand_off();
        settled.check_progress();
    }

    /// Invariant 1.
    fn check_exclusion(&self) {
        let live: Vec<&Lease> = self
            .world
            .records
            .leases()
            .filter(|lease| !self.world.dead.contains(&pid_of(&lease.claim)))
            .collect();
        for lease in &live {
            for held in &lease.claim.resources {
                let others: BTreeSet<u32> = live
                    .iter()
                    .filter(|other| other.claim.owner != lease.claim.owner && !gives_way(lease, other))
                    .filter(|other| other.claim.targets().any(|target| target.meets(&held.target).is_some()))
                    .map(|other| pid_of(&other.claim))
                    .collect();
                let too_many = others.len() >= held.mode.capacity() as usize;
                assert!(!too_many, "too many on {}\n{}", held.target, describe(&self.world));
            }
        }
    }

    /// Invariant 7: nobody waits without a reason.
    fn check_hand_off(&self) {
        for ticket in
            self.world.records.tickets().filter(|ticket| !self.world.dead.contains(&pid_of(&ticket.claim)))
        {
            let asker = Asker { claim: &ticket.claim, rank: ticket.rank, whole_line: true };
            let (in_the_way, _, _) = self.world.clone().decide(|overlay| blockers(overlay, asker));
            assert!(!in_the_way.is_empty(), "{} waits for nothing\n{}", ticket.id, describe(&self.world));
        }
    }

    /// Invariant 8: if all owners that do not wait release what they hold, again and again, every waiter is granted in the end.
    fn check_progress(&self) {
        let mut state = self.clone();
        while state.waits.iter().any(Option::is_some) {
            let able = (0..state.waits.len())
                .filter(|owner| state.waits[*owner].is_none() && !state.is_dead(*owner));
            let leases: Vec<Lease> = able.flat_map(|owner| state.leases_of(owner)).collect();
            let before = state.waits.clone();
            for lease in &leases {
                state = state.after(|state| state.release(lease));
            }
            state.settle();
            assert_ne!(state.waits, before, "all wait for each other\n{}", describe(&self.world));
        }
    }
}

/// Whether the one that came first is of an owner above the other one's.
fn gives_way(one: &Lease, other: &Lease) -> bool {
    let (first, later) = if one.token < other.token { (one, other) } else { (other, one) };
    let prefix = format!("{}:", first.claim.owner);
    first.claim.agent.is_some() && later.claim.owner.as_str().starts_with(&prefix)
}
