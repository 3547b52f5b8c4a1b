//! Canonical form of a state: two states of an exploration with the same form count as one.

use std::fmt::Write;

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::record::Claim;
use lockkeeper_core::resource::Resource;

use crate::exploration::{Rules, State, pid, pid_of};

impl State {
    /// The state as text, without the numbers that do not matter. It is the same after alike owners have changed places.
    pub fn canonical_form(&self, rules: &Rules) -> String {
        if rules.priorities.is_some() || rules.family.is_some() {
            return self.form_in(&(0..rules.owners).collect::<Vec<usize>>());
        }
        // Owners that differ are put into one order. Only alike owners are tried in all orders.
        let looks: Vec<_> = (0..rules.owners).map(|owner| self.look_of(owner)).collect();
        let in_order = |order: &&Vec<usize>| {
            let mut by_place: Vec<usize> = (0..rules.owners).collect();
            by_place.sort_by_key(|owner| order[*owner]);
            by_place.is_sorted_by_key(|owner| &looks[*owner])
        };
        permutations(rules.owners).iter().filter(in_order).map(|order| self.form_in(order)).min().unwrap()
    }

    /// What an owner looks like, whatever its name.
    fn look_of(&self, owner: usize) -> (bool, Vec<Vec<Resource>>, Option<usize>) {
        let mut held: Vec<_> =
            self.leases_of(owner).into_iter().map(|lease| lease.claim.resources.clone()).collect();
        held.sort();
        let ticket = self.world.records.tickets().find(|ticket| pid_of(&ticket.claim) == pid(owner));
        let before = |rank| self.world.records.tickets().filter(|other| other.rank < rank).count();
        (self.is_dead(owner), held, ticket.map(|ticket| before(ticket.rank)))
    }

    fn form_in(&self, order: &[usize]) -> String {
        let place = |claim: &Claim| order[pid_of(claim) as usize - 1];
        let claim_form = |claim: &Claim| {
            let resources: Vec<String> = claim
                .resources
                .iter()
                .map(|resource| format!("{}{}", resource.target, resource.mode))
                .collect();
            format!("{}{}", place(claim), resources.join("+"))
        };
        let mut leases: Vec<(String, LeaseId)> =
            self.world.records.leases().map(|lease| (claim_form(&lease.claim), lease.id)).collect();
        leases.sort();
        let mut tickets: Vec<_> = self.world.records.tickets().collect();
        tickets.sort_by_key(|ticket| ticket.rank);
        let mut form = String::new();
        for (lease, _) in &leases {
            write!(form, "{lease};").unwrap();
        }
        let position = |id: LeaseId| {
            let held = leases.iter().position(|(_, lease)| *lease == id);
            held.or_else(|| tickets.iter().position(|ticket| ticket.id == id).map(|at| at + leases.len()))
        };
        for ticket in &tickets {
            let upgrades = ticket.upgrades.and_then(position);
            write!(form, "|{}@{}{upgrades:?}", claim_form(&ticket.claim), ticket.rank.at).unwrap();
        }
        let mut by_owner: Vec<String> = vec![String::new(); order.len()];
        for (owner, at) in order.iter().enumerate() {
            let seen = self.waits[owner].map(|ticket| {
                let sleeper = &self.sleepers.asleep[&ticket];
                let mut watched: Vec<(usize, Option<usize>)> = sleeper
                    .watched
                    .iter()
                    .map(|watched| (place(watched.claim()), position(watched.id())))
                    .collect();
                watched.sort_unstable();
                (position(ticket), watched, sleeper.woken)
            });
            by_owner[*at] = format!("{}{seen:?}", self.is_dead(owner));
        }
        form + &by_owner.join("&")
    }
}

fn permutations(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let insert = |shorter: Vec<usize>| {
        (0..count).map(move |at| {
            let mut longer = shorter.clone();
            longer.insert(at, count - 1);
            longer
        })
    };
    permutations(count - 1).into_iter().flat_map(insert).collect()
}
