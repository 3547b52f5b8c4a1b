//! Every interleaving of small worlds, by breadth-first search to the last state.
//!
//! An owner is one process with one thread of control: while it waits it can only be woken, give up or die. Time
//! stands still. States that differ only in numbers that nobody compares are one state, and so are those in
//! which alike owners have changed places.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "support/sleepers.rs"]
mod sleepers;
#[path = "support/world.rs"]
mod world;

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::fmt::Write;
use std::num::NonZeroU32;

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::lease::{self, Outcome, Request, WaitTerms};
use lockkeeper_core::record::{Agent, Claim, Lease, Priority};
use lockkeeper_core::records::Effect;
use lockkeeper_core::resource::{Mode, Resource, Target};
use lockkeeper_core::waiting::{Asker, blockers};

use crate::sleepers::{Sleepers, describe};
use crate::world::{World, claim, name, resident, seconds, waker};

const OWNERS: [&str; 4] = ["a", "b", "c", "d"];

/// What the owners of a world may do.
struct Rules {
    owners: usize,
    /// What may be asked for.
    wishes: Vec<Vec<Resource>>,
    /// The priority of each owner, if they are not alike.
    priorities: Option<Vec<i32>>,
    /// Whether shared leases are upgraded and exclusive ones downgraded.
    changes_mode: bool,
    /// Whether owners die and give up.
    fails: bool,
    /// The names of the owners, if they are agents.
    family: Option<[&'static str; 3]>,
}

#[derive(Clone)]
struct State {
    world: World,
    sleepers: Sleepers,
    waits: Vec<Option<LeaseId>>,
    family: Option<[&'static str; 3]>,
}

impl State {
    fn new(rules: &Rules) -> Self {
        let (waits, family) = (vec![None; rules.owners], rules.family);
        Self { world: World::new(), sleepers: Sleepers::default(), waits, family }
    }

    fn claim(&self, owner: usize, wish: &[Resource]) -> Claim {
        match self.family {
            None => claim(OWNERS[owner], resident(pid(owner)), wish.to_vec()),
            Some(names) => {
                let agent = Some(Agent::default());
                Claim { agent, ..claim(names[owner], resident(pid(owner)), wish.to_vec()) }
            }
        }
    }

    fn leases_of(&self, owner: usize) -> Vec<Lease> {
        let is_own = |lease: &&Lease| pid_of(&lease.claim) == pid(owner);
        self.world.records.leases().filter(is_own).cloned().collect()
    }

    fn is_dead(&self, owner: usize) -> bool {
        self.world.dead.contains(&pid(owner))
    }

    /// Everything that can happen next.
    fn successors(&self, rules: &Rules) -> Vec<Self> {
        let mut next = Vec::new();
        for owner in (0..rules.owners).filter(|owner| !self.is_dead(*owner)) {
            if rules.fails {
                next.push(self.after(|state| {
                    state.world.dead.insert(pid(owner));
                    state.waits[owner] = None;
                    Vec::new()
                }));
            }
            if let Some(ticket) = self.waits[owner] {
                if self.sleepers.woken().contains(&ticket) {
                    next.push(self.after(|state| {
                        state.look(ticket);
                        Vec::new()
                    }));
                }
                if rules.fails {
                    next.push(self.after(|state| {
                        state.sleepers.forget(ticket);
                        state.waits[owner] = None;
                        state.world.decide(|overlay| lease::give_up(overlay, ticket)).1
                    }));
                }
                continue;
            }
            if rules.family.is_some_and(|names| names[owner].contains(':'))
                && !self.leases_of(owner).is_empty()
            {
                next.push(self.after(|state| state.hand_up(owner)));
            }
            for lease in self.leases_of(owner) {
                next.push(self.after(|state| state.release(&lease)));
                if rules.changes_mode {
                    next.push(self.after(|state| state.upgrade(owner, &lease)));
                    next.push(self.after(|state| {
                        let (weaker, effects, _) =
                            state.world.decide(|overlay| lease::downgrade(overlay, lease.id, None));
                        assert_eq!(weaker.unwrap().token, lease.token);
                        effects
                    }));
                }
            }
            let held: Vec<Target> = self
                .leases_of(owner)
                .iter()
                .flat_map(|lease| lease.claim.targets().cloned().collect::<Vec<_>>())
                .collect();
            for wish in
                rules.wishes.iter().filter(|wish| wish.iter().all(|wanted| !held.contains(&wanted.target)))
            {
                let priority = rules.priorities.as_ref().map_or(0, |priorities| priorities[owner]);
                next.push(self.after(|state| state.acquire(owner, wish, priority)));
            }
        }
        next
    }

    fn after(&self, act: impl FnOnce(&mut Self) -> Vec<Effect>) -> Self {
        let mut next = self.clone();
        let effects = act(&mut next);
        next.sleepers.notice(&next.world, &effects);
        next
    }

    fn acquire(&mut self, owner: usize, wish: &[Resource], priority: i32) -> Vec<Effect> {
        let mut request = Request {
            claim: self.claim(owner, wish),
            priority: Priority::new(priority).unwrap(),
            under: Vec::new(),
            wait: None,
            join: true,
        };
        // Who does not wait gets the same, or nothing and leaves nothing behind.
        let mut impatient = self.world.clone();
        let (refused, _, reaped) = impatient.decide(|overlay| lease::acquire(overlay, &request));
        if let Outcome::Held(_) = refused {
            assert!(!reaped.is_empty() || impatient.records == self.world.records);
        }
        request.wait = Some(WaitTerms { waker: Some(waker(pid(owner))), stays: seconds(60) });
        let before = self.world.records.clone();
        let (outcome, effects, reaped) = self.world.decide(|overlay| lease::acquire(overlay, &request));
        match outcome {
            Outcome::Granted(_) => assert!(matches!(refused, Outcome::Granted(_))),
            Outcome::Waiting(waiting) => {
                assert!(matches!(refused, Outcome::Held(_)));
                self.waits[owner] = Some(waiting.ticket.id);
                self.sleepers.sleep(&self.world, waiting);
            }
            Outcome::Deadlock(_) => {
                assert!(matches!(refused, Outcome::Held(_)));
                assert!(!reaped.is_empty() || before == self.world.records);
            }
            Outcome::Held(_) | Outcome::Gone => panic!("{outcome:?}"),
        }
        effects
    }

    fn upgrade(&mut self, owner: usize, lease: &Lease) -> Vec<Effect> {
        let terms = Some(WaitTerms { waker: Some(waker(pid(owner))), stays: seconds(60) });
        let (outcome, effects, _) =
            self.world.decide(|overlay| lease::upgrade(overlay, lease.id, None, terms));
        match outcome.unwrap() {
            Outcome::Granted(_) => {}
            Outcome::Waiting(waiting) => {
                self.waits[owner] = Some(waiting.ticket.id);
                self.sleepers.sleep(&self.world, waiting);
                assert_eq!(self.world.records.lease(lease.id), Some(lease));
            }
            Outcome::Deadlock(_) => assert_eq!(self.world.records.lease(lease.id), Some(lease)),
            outcome @ (Outcome::Held(_) | Outcome::Gone) => panic!("{outcome:?}"),
        }
        effects
    }

    fn release(&mut self, lease: &Lease) -> Vec<Effect> {
        let (released, effects, _) =
            self.world.decide(|overlay| lease::release(overlay, lease.id, Some(lease.token)));
        released.unwrap();
        effects
    }

    /// A sub-agent stops. The process of its parent vouches from then on, as if it were one process.
    fn hand_up(&mut self, owner: usize) -> Vec<Effect> {
        let before = self.leases_of(owner);
        let name = before[0].claim.owner.clone();
        let (handed, effects, _) = self.world.decide(|overlay| lease::hand_up(overlay, &name));
        let above = name.all_above().next();
        assert!(handed.iter().all(|lease| Some(&lease.claim.owner) == above.as_ref()));
        assert!(self.world.records.leases().all(|lease| lease.claim.owner != name), "something stayed");
        // In this world the owner of a lease is known by its process, so what was handed up is let go.
        let mut all = effects;
        for lease in handed {
            all.extend(self.release(&lease));
        }
        all
    }

    fn look(&mut self, ticket: LeaseId) {
        self.sleepers.check_ticket(&mut self.world, ticket);
        if !self.sleepers.asleep.contains_key(&ticket) {
            let owner = self.waits.iter().position(|wait| *wait == Some(ticket)).unwrap();
            assert!(!self.leases_of(owner).is_empty(), "a wait ended with nothing");
            self.waits[owner] = None;
        }
    }

    /// Lets everybody look who is woken.
    fn settle(&mut self) {
        while let Some(ticket) = self.sleepers.woken().first().copied() {
            self.look(ticket);
        }
    }

    fn check(&self) {
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

    /// Invariant 8: when all who can do so let go, everybody who waits gets what it waits for.
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

    /// The state without the numbers that do not matter, the same for owners who changed places.
    fn shape(&self, rules: &Rules) -> String {
        if rules.priorities.is_some() || rules.family.is_some() {
            return self.shape_in(&(0..rules.owners).collect::<Vec<usize>>());
        }
        // Owners who can be told apart are put into one order; only the others are tried in all orders.
        let looks: Vec<_> = (0..rules.owners).map(|owner| self.look_of(owner)).collect();
        let in_order = |order: &&Vec<usize>| {
            let mut by_place: Vec<usize> = (0..rules.owners).collect();
            by_place.sort_by_key(|owner| order[*owner]);
            by_place.is_sorted_by_key(|owner| &looks[*owner])
        };
        permutations(rules.owners).iter().filter(in_order).map(|order| self.shape_in(order)).min().unwrap()
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

    fn shape_in(&self, order: &[usize]) -> String {
        let place = |claim: &Claim| order[pid_of(claim) as usize - 1];
        let claim_shape = |claim: &Claim| {
            let resources: Vec<String> = claim
                .resources
                .iter()
                .map(|resource| format!("{}{}", resource.target, resource.mode))
                .collect();
            format!("{}{}", place(claim), resources.join("+"))
        };
        let mut leases: Vec<(String, LeaseId)> =
            self.world.records.leases().map(|lease| (claim_shape(&lease.claim), lease.id)).collect();
        leases.sort();
        let mut tickets: Vec<_> = self.world.records.tickets().collect();
        tickets.sort_by_key(|ticket| ticket.rank);
        let mut shape = String::new();
        for (lease, _) in &leases {
            write!(shape, "{lease};").unwrap();
        }
        let position = |id: LeaseId| {
            let held = leases.iter().position(|(_, lease)| *lease == id);
            held.or_else(|| tickets.iter().position(|ticket| ticket.id == id).map(|at| at + leases.len()))
        };
        for ticket in &tickets {
            let upgrades = ticket.upgrades.and_then(position);
            write!(shape, "|{}@{}{upgrades:?}", claim_shape(&ticket.claim), ticket.rank.at).unwrap();
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
        shape + &by_owner.join("&")
    }
}

/// Whether the one that came first is of an owner above the other one's.
fn gives_way(one: &Lease, other: &Lease) -> bool {
    let (first, later) = if one.token < other.token { (one, other) } else { (other, one) };
    let prefix = format!("{}:", first.claim.owner);
    first.claim.agent.is_some() && later.claim.owner.as_str().starts_with(&prefix)
}

fn pid(owner: usize) -> u32 {
    u32::try_from(owner).unwrap() + 1
}

fn pid_of(claim: &Claim) -> u32 {
    claim.proof.process().unwrap().pid
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

/// Visits every state and returns how many there are.
fn explore(rules: &Rules) -> usize {
    let start = State::new(rules);
    let mut known: HashSet<String> = HashSet::from([start.shape(rules)]);
    let mut open = VecDeque::from([start]);
    while let Some(state) = open.pop_front() {
        for next in state.successors(rules) {
            if known.insert(next.shape(rules)) {
                next.check();
                open.push_back(next);
            }
        }
    }
    known.len()
}

fn exclusive(text: &str) -> Resource {
    name(text, Mode::Exclusive)
}

fn shared(text: &str) -> Resource {
    name(text, Mode::Shared)
}

fn path(text: &str, mode: Mode) -> Resource {
    Resource { target: Target::Path(text.parse().unwrap()), mode }
}

fn slots(text: &str, count: u32) -> Resource {
    name(text, Mode::Slots(NonZeroU32::new(count).unwrap()))
}

/// What may be asked for when there are two names: one of them, or both.
fn one_name_or_both() -> Vec<Vec<Resource>> {
    vec![vec![exclusive("m")], vec![exclusive("n")], vec![exclusive("m"), exclusive("n")]]
}

/// Checks the number of states, too: a change in it is a change in the rules.
fn assert_states(rules: &Rules, expected: usize) {
    let explored = explore(rules);
    assert_eq!(explored, expected, "{explored} states were explored, all of them good");
}

/// Invariants 1, 4, 6, 7 and 8. Requirements 160 and 162. All 2,639 states.
#[test]
fn three_owners_take_one_name_or_two() {
    let wishes = one_name_or_both();
    assert_states(
        &Rules { owners: 3, wishes, priorities: None, changes_mode: false, fails: true, family: None },
        2_639,
    );
}

/// Invariants 1, 4, 7 and 8. Requirements 154 and 156. All 767 states.
#[test]
fn three_readers_and_writers_upgrade_and_downgrade() {
    let wishes = vec![vec![exclusive("m")], vec![shared("m")]];
    assert_states(
        &Rules { owners: 3, wishes, priorities: None, changes_mode: true, fails: true, family: None },
        767,
    );
}

/// Invariants 1, 4 and 7. Requirement 154. All 7,645 states.
#[test]
fn four_readers_and_writers_share_a_name() {
    let wishes = vec![vec![exclusive("m")], vec![shared("m")]];
    assert_states(
        &Rules { owners: 4, wishes, priorities: None, changes_mode: false, fails: true, family: None },
        7_645,
    );
}

/// Invariants 1, 6, 7 and 8. Requirements 154, 156 and 162. All 3,264 states.
#[test]
fn three_owners_share_one_of_two_names_and_change_their_minds() {
    let wishes = vec![vec![shared("m")], vec![exclusive("n")], vec![shared("m"), exclusive("n")]];
    assert_states(
        &Rules { owners: 3, wishes, priorities: None, changes_mode: true, fails: false, family: None },
        3_264,
    );
}

/// Invariants 1, 4, 7 and 8. Requirements 160 and 162. All 3,120 states.
#[test]
fn three_owners_share_two_slots_and_a_name() {
    let wishes = vec![vec![slots("m", 2)], vec![exclusive("n")], vec![slots("m", 2), exclusive("n")]];
    assert_states(
        &Rules { owners: 3, wishes, priorities: None, changes_mode: false, fails: true, family: None },
        3_120,
    );
}

/// Invariants 1, 7 and 8. Requirements 155 and 160. All 3,256 states.
#[test]
fn an_urgent_owner_goes_before_two_others() {
    let wishes = one_name_or_both();
    let priorities = Some(vec![0, 0, 1]);
    assert_states(
        &Rules { owners: 3, wishes, priorities, changes_mode: false, fails: false, family: None },
        3_256,
    );
}

/// Invariants 1, 7 and 8. All 5,605 states.
#[test]
fn three_owners_claim_overlapping_paths() {
    let claims = [("src/**", Mode::Exclusive), ("src/a.rs", Mode::Exclusive), ("**/*.rs", Mode::Shared)];
    let wishes = claims.map(|(pattern, mode)| vec![path(pattern, mode)]).to_vec();
    assert_states(
        &Rules { owners: 3, wishes, priorities: None, changes_mode: false, fails: false, family: None },
        5_605,
    );
}

/// Invariants 1, 7 and 8 for an agent and two sub-agents of it, of whom each may stop. All 1,196 states.
#[test]
fn a_parent_and_two_sub_agents_take_one_of_two_names() {
    let wishes = vec![vec![exclusive("m")], vec![exclusive("n")]];
    let family = Some(["c", "c:d", "c:e"]);
    let rules = Rules { owners: 3, wishes, priorities: None, changes_mode: false, fails: false, family };
    assert_states(&rules, 1_196);
}

/// Invariants 1, 4, 7 and 8 for an agent, a sub-agent of it, and a stranger, who share and who die. All 12,847 states.
#[test]
fn a_parent_a_sub_agent_and_a_stranger_read_and_write() {
    let wishes = vec![vec![path("src/a.rs", Mode::Exclusive)], vec![path("src/**", Mode::Shared)]];
    let family = Some(["c", "c:d", "x"]);
    let rules = Rules { owners: 3, wishes, priorities: None, changes_mode: false, fails: true, family };
    assert_states(&rules, 12_847);
}
