//! State-space exploration: every interleaving of a small world, by breadth-first search to the last state.
//!
//! An owner is one process with one thread of control: while it waits it can only be woken, give up or die. Time
//! stands still. States that differ only in numbers that nobody compares are one state, and so are those in
//! which alike owners have changed places.

use std::collections::{HashSet, VecDeque};

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::lease::{self, AcquireRequest, Outcome, WaitTerms};
use lockkeeper_core::record::{Agent, Claim, Lease, Priority};
use lockkeeper_core::records::Effect;
use lockkeeper_core::resource::{Mode, Resource, Target};

use crate::sleepers::Sleepers;
use crate::world::{World, claim, name, resident, seconds, waker};

const OWNERS: [&str; 4] = ["a", "b", "c", "d"];

/// What the owners of a world may do.
pub struct Rules {
    pub owners: usize,
    /// What may be asked for.
    pub wishes: Vec<Vec<Resource>>,
    /// The priority of each owner, if they are not alike.
    pub priorities: Option<Vec<i32>>,
    /// Whether shared leases are upgraded and exclusive ones downgraded.
    pub changes_mode: bool,
    /// Whether owners die and give up.
    pub fails: bool,
    /// The names of the owners, if they are agents.
    pub family: Option<[&'static str; 3]>,
}

#[derive(Clone)]
pub struct State {
    pub world: World,
    pub sleepers: Sleepers,
    pub waits: Vec<Option<LeaseId>>,
    pub family: Option<[&'static str; 3]>,
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

    pub fn leases_of(&self, owner: usize) -> Vec<Lease> {
        let is_own = |lease: &&Lease| pid_of(&lease.claim) == pid(owner);
        self.world.records.leases().filter(is_own).cloned().collect()
    }

    pub fn is_dead(&self, owner: usize) -> bool {
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

    pub fn after(&self, act: impl FnOnce(&mut Self) -> Vec<Effect>) -> Self {
        let mut next = self.clone();
        let effects = act(&mut next);
        next.sleepers.notice(&next.world, &effects);
        next
    }

    fn acquire(&mut self, owner: usize, wish: &[Resource], priority: i32) -> Vec<Effect> {
        let mut request = AcquireRequest {
            claim: self.claim(owner, wish),
            priority: Priority::new(priority).unwrap(),
            under: Vec::new(),
            wait: None,
            join: true,
        };
        // The same request without a wait is granted, too, or is refused and leaves nothing behind.
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

    pub fn release(&mut self, lease: &Lease) -> Vec<Effect> {
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
        // In this world a process identifies the owner of a lease, so the leases that were handed up are released.
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

    /// Lets each woken waiter check its ticket.
    pub fn settle(&mut self) {
        while let Some(ticket) = self.sleepers.woken().first().copied() {
            self.look(ticket);
        }
    }
}

pub fn pid(owner: usize) -> u32 {
    u32::try_from(owner).unwrap() + 1
}

pub fn pid_of(claim: &Claim) -> u32 {
    claim.proof.process().unwrap().pid
}

/// Visits every state and returns how many there are.
pub fn explore(rules: &Rules) -> usize {
    let start = State::new(rules);
    let mut known: HashSet<String> = HashSet::from([start.canonical_form(rules)]);
    let mut open = VecDeque::from([start]);
    while let Some(state) = open.pop_front() {
        for next in state.successors(rules) {
            if known.insert(next.canonical_form(rules)) {
                next.check();
                open.push_back(next);
            }
        }
    }
    known.len()
}

pub fn exclusive(text: &str) -> Resource {
    name(text, Mode::Exclusive)
}

pub fn path(text: &str, mode: Mode) -> Resource {
    Resource { target: Target::Path(text.parse().unwrap()), mode }
}

/// Checks the number of states, too: a change in it is a change in the rules.
pub fn assert_states(rules: &Rules, expected: usize) {
    let explored = explore(rules);
    assert_eq!(explored, expected, "{explored} states were explored, all of them good");
}
