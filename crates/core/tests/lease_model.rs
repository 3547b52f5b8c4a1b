//! Model test: random histories of a few owners, compared step by step with a naive model.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "support/family.rs"]
mod family;
#[path = "support/model.rs"]
mod model;
#[path = "support/sleepers.rs"]
mod sleepers;
#[path = "support/steps.rs"]
mod steps;
#[path = "support/world.rs"]
mod world;

use std::collections::BTreeSet;
use std::time::Duration;

use lockkeeper_core::id::{LeaseId, Token, WakerId};
use lockkeeper_core::lease::{self, AcquireRequest, Outcome, WaitTerms};
use lockkeeper_core::liveness::{Contract, ProcessRef, Voucher};
use lockkeeper_core::record::{Claim, Lease, Priority, Rank, Ticket};
use lockkeeper_core::records::Effect;
use lockkeeper_core::resource::{Mode, Resource};
use proptest::prelude::*;

use crate::model::{Entry, Model, gives_way};
use crate::sleepers::Sleepers;
use crate::steps::{NAMES, OWNERS, Step, resources, step};
use crate::world::{World, claim, name, resident, seconds, waker};

/// How long a ticket stays without its owner.
const STAYS: u64 = 90;

/// The records under test, the waiters that sleep, and the model.
#[derive(Clone)]
struct Trial {
    world: World,
    sleepers: Sleepers,
    model: Model,
    last_token: u64,
    next_pid: u32,
    pids: Vec<[u32; 3]>,
    /// Whether woken waiters look before the next step, as the model assumes.
    prompt: bool,
    /// Whether the last owners are agents of one family.
    families: bool,
}

impl Trial {
    fn new(prompt: bool, families: bool) -> Self {
        let pids = (0..5).map(|owner| [owner * 3 + 1, owner * 3 + 2, owner * 3 + 3]).collect();
        Self {
            world: World::new(),
            sleepers: Sleepers::default(),
            model: Model::default(),
            last_token: 0,
            next_pid: 100,
            pids,
            prompt,
            families,
        }
    }

    fn lease(&self, n: usize) -> Option<LeaseId> {
        let leases: Vec<LeaseId> = self.world.records.leases().map(|lease| lease.id).collect();
        (!leases.is_empty()).then(|| leases[n % leases.len()])
    }

    fn ticket(&self, n: usize) -> Option<LeaseId> {
        let tickets: Vec<LeaseId> = self.world.records.tickets().map(|ticket| ticket.id).collect();
        (!tickets.is_empty()).then(|| tickets[n % tickets.len()])
    }

    fn take(&mut self, step: &Step) {
        let effects = self.act(step).unwrap_or_default();
        self.sleepers.notice(&self.world, &effects);
        self.check_tokens();
        self.check_exclusion();
        self.check_hand_off();
        let mut settled = self.clone();
        settled.settle();
        settled.check_exclusion();
        settled.sleepers.check(&settled.world);
        if self.prompt {
            // The next request notices a record on which nobody sleeps.
            let (_, effects, _) = settled.world.decide(lease::clean_up);
            settled.sleepers.notice(&settled.world, &effects);
            settled.settle();
            *self = settled;
            self.compare();
        } else {
            settled.check_every_death();
            if let Some(id) = self.sleepers.woken().last() {
                self.sleepers.check_ticket(&mut self.world, *id);
            }
        }
    }

    /// Lets each woken waiter check its ticket, until no waiter is woken.
    fn settle(&mut self) {
        for _ in 0..200 {
            let Some(id) = self.sleepers.woken().first().copied() else { return };
            self.sleepers.check_ticket(&mut self.world, id);
        }
        panic!("the waiters keep waking each other");
    }

    fn act(&mut self, step: &Step) -> Option<Vec<Effect>> {
        match step {
            Step::Acquire { owner, voucher, wants, priority, wait, join, ttl, tree } => {
                let mut request = self.request(*owner, *voucher, wants, *priority, *wait, *join, *ttl);
                request.claim.agent = self.agent(*owner, *tree);
                Some(self.acquire(&request))
            }
            Step::Call { owner, files, tree } => self.call(*owner, files, *tree),
            Step::HandUp(owner) => Some(self.hand_up(*owner)),
            Step::EndSession(owner) => Some(self.end_session(*owner)),
            Step::Release(n) => {
                let id = self.lease(*n)?;
                let token = self.world.records.lease(id).map(|lease| lease.token);
                let (released, effects, _) = self.world.decide(|overlay| lease::release(overlay, id, token));
                released.unwrap();
                self.model.held.retain(|entry| entry.id != id);
                Some(effects)
            }
            Step::Renew(n, ttl) => {
                let id = self.lease(*n)?;
                let ttl = (*ttl > 0).then(|| seconds(u64::from(*ttl) * 20));
                let live = self.is_live(id);
                let (renewed, effects, _) = self.world.decide(|overlay| lease::renew(overlay, id, None, ttl));
                assert!(live || renewed.is_err(), "renewal after the end");
                Some(effects)
            }
            Step::Upgrade { lease, wait } => self.upgrade(*lease, *wait),
            Step::Downgrade(n) => {
                let id = self.lease(*n)?;
                let (weaker, effects, _) = self.world.decide(|overlay| lease::downgrade(overlay, id, None));
                if weaker.is_ok() {
                    self.model.change(id, Mode::Shared);
                }
                Some(effects)
            }
            Step::GiveUp(n) => {
                let id = self.ticket(*n)?;
                self.sleepers.forget(id);
                let ((), effects, _) = self.world.decide(|overlay| lease::give_up(overlay, id));
                self.model.waiting.retain(|entry| entry.id != id);
                Some(effects)
            }
            Step::Attend(n) => {
                let id = self.ticket(*n)?;
                let ticket = self.world.records.ticket(id).unwrap().clone();
                if !ticket_is_live(&mut self.world, &ticket) {
                    return None;
                }
                self.sleepers.forget(id);
                let terms = WaitTerms { waker: Some(WakerId(id.0 + 10_000)), stays: ticket.stays };
                let (outcome, effects, _) =
                    self.world.decide(|overlay| lease::check_ticket(overlay, id, Some(terms)));
                if let Outcome::Waiting(waiting) = outcome {
                    self.sleepers.sleep(&self.world, waiting);
                }
                Some(effects)
            }
            Step::WalkAway(n) => {
                let id = self.ticket(*n)?;
                self.sleepers.forget(id);
                Some(self.world.decide(|overlay| lease::detach(overlay, id)).1)
            }
            Step::Kill(n) => {
                let owner = n % self.pids.len();
                let which = n / self.pids.len() % 3;
                self.world.dead.insert(self.pids[owner][which]);
                self.pids[owner][which] = self.next_pid;
                self.next_pid += 1;
                None
            }
            Step::Advance(seconds) => {
                self.world.now = self.world.now.after(Duration::from_secs(*seconds));
                None
            }
            Step::CleanUp => Some(self.world.decide(lease::clean_up).1),
            Step::Revoke(n) => {
                let id = self.lease(*n)?;
                let (revoked, effects, _) = self.world.decide(|overlay| lease::revoke(overlay, id));
                if revoked.is_some_and(|(_, stays)| !stays) {
                    self.model.held.retain(|entry| entry.id != id);
                }
                Some(effects)
            }
            Step::Evict(n) => {
                let id = self.lease(*n)?;
                let (_, effects, _) = self.world.decide(|overlay| lease::evict(overlay, id));
                self.model.held.retain(|entry| entry.id != id);
                Some(effects)
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of a step, in its order")]
    fn request(
        &self,
        owner: usize,
        voucher: u8,
        wants: &[(usize, u8)],
        priority: i32,
        wait: bool,
        join: bool,
        ttl: u8,
    ) -> AcquireRequest {
        let pids = self.pids[owner];
        let (voucher, waker) = match voucher {
            0..5 => (resident(pids[0]), waker(pids[0])),
            5..8 => (resident(pids[1]), waker(pids[1])),
            8 => (Voucher::Process(ProcessRef { pid: pids[2], started: 1 }), waker(pids[2])),
            _ => (Voucher::Time, WakerId(900 + owner as u64)),
        };
        let contract = if ttl == 1 { Contract::Lease } else { Contract::Strict };
        let ttl = (ttl < 2 || voucher == Voucher::Time).then(|| seconds(40));
        AcquireRequest {
            claim: Claim { contract, ttl, ..claim(OWNERS[owner], voucher, resources(wants)) },
            priority: Priority::new(priority).unwrap(),
            under: Vec::new(),
            wait: wait.then(|| WaitTerms { waker: Some(waker), stays: seconds(STAYS) }),
            join,
        }
    }

    fn acquire(&mut self, request: &AcquireRequest) -> Vec<Effect> {
        let before = self.world.records.clone();
        let (outcome, effects, reaped) = self.world.decide(|overlay| lease::acquire(overlay, request));
        let claim = request.claim.clone();
        let rank = |id| Rank::new(self.world.now, request.priority, id);
        let blocked = !self.model.in_the_way(&claim, rank(LeaseId(u64::MAX))).is_empty();
        let had_cycle = self.model.has_cycle();
        match outcome {
            Outcome::Granted(grant) if grant.joined => {
                assert!(request.join && grant.lease.claim.satisfies(&claim.resources));
            }
            Outcome::Granted(grant) => {
                let id = grant.lease.id;
                assert!(!self.prompt || !blocked, "granted over others: {id}");
                self.model.held.push(Entry { id, claim, rank: rank(id), upgrades: None });
            }
            Outcome::Waiting(waiting) => {
                let id = waiting.ticket.id;
                self.model.waiting.push(Entry { id, claim, rank: waiting.ticket.rank, upgrades: None });
                assert!(!self.prompt || blocked, "nothing is in the way of {id}");
                assert_eq!(waiting.ticket.rank, rank(id));
                let is_stuck = self.model.is_stuck(request.claim.owner.as_str());
                assert!(!self.prompt || had_cycle || !is_stuck, "an unseen cycle");
                self.sleepers.sleep(&self.world, waiting);
            }
            Outcome::Held(blockers) => {
                assert!(!blockers.is_empty() && (!self.prompt || blocked));
                assert!(request.wait.is_none());
                assert!(
                    !reaped.is_empty() || before == self.world.records,
                    "a refusal left something behind"
                );
            }
            Outcome::Deadlock(links) => {
                assert!(
                    !reaped.is_empty() || before == self.world.records,
                    "a refusal left something behind"
                );
                check_links(&links);
                let mut model = self.model.clone();
                let id = LeaseId(u64::MAX);
                model.waiting.push(Entry { id, claim, rank: rank(id), upgrades: None });
                assert!(
                    !self.prompt || model.is_stuck(request.claim.owner.as_str()),
                    "a false cycle {links:?}"
                );
            }
            Outcome::Gone => panic!("a new claim cannot be gone"),
        }
        effects
    }

    fn upgrade(&mut self, n: usize, wait: bool) -> Option<Vec<Effect>> {
        let id = self.lease(n)?;
        let before = self.world.records.lease(id).unwrap().clone();
        let waker = before.waker().unwrap_or(WakerId(id.0 + 20_000));
        let terms = wait.then(|| WaitTerms { waker: Some(waker), stays: seconds(STAYS) });
        let (outcome, effects, _) = self.world.decide(|overlay| lease::upgrade(overlay, id, None, terms));
        let Ok(outcome) = outcome else { return Some(effects) };
        let had_cycle = self.model.has_cycle();
        let after = self.world.records.lease(id).expect("an upgrade never loses the lease").clone();
        let mut claim = Claim::clone(&before.claim);
        claim.resources.iter_mut().for_each(|resource| resource.mode = Mode::Exclusive);
        match outcome {
            Outcome::Granted(grant) => {
                assert_eq!(grant.lease.claim.resources, claim.resources);
                assert!(grant.joined || after.token > before.token);
                self.model.change(id, Mode::Exclusive);
            }
            Outcome::Waiting(waiting) => {
                assert_eq!(after, before);
                let (id, rank) = (waiting.ticket.id, waiting.ticket.rank);
                if !self.model.waiting.iter().any(|entry| entry.id == id) {
                    let upgrades = waiting.ticket.upgrades;
                    self.model.waiting.push(Entry { id, claim, rank, upgrades });
                }
                let is_stuck = self.model.is_stuck(before.claim.owner.as_str());
                assert!(!self.prompt || had_cycle || !is_stuck, "an unseen cycle");
                self.sleepers.sleep(&self.world, waiting);
            }
            Outcome::Held(_) => assert_eq!(after, before),
            Outcome::Deadlock(links) => {
                assert_eq!(after, before);
                check_links(&links);
            }
            Outcome::Gone => panic!("the lease is there"),
        }
        Some(effects)
    }

    fn is_live(&mut self, id: LeaseId) -> bool {
        let lease = self.world.records.lease(id).unwrap().clone();
        lease_is_live(&mut self.world, &lease)
    }

    /// Invariant 2.
    fn check_tokens(&mut self) {
        let mut tokens: Vec<Token> = self.world.records.leases().map(|lease| lease.token).collect();
        tokens.sort();
        assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "a token twice");
        let largest = tokens.last().map_or(0, |token| token.0);
        assert!(largest <= self.world.last_number);
        self.last_token = self.last_token.max(largest);
    }

    /// Invariant 1, pairwise and by counting, with no use of the rules' own notion of a blocker.
    fn check_exclusion(&mut self) {
        let leases: Vec<_> = self.world.records.leases().cloned().collect();
        let live: Vec<_> = leases.into_iter().filter(|lease| lease_is_live(&mut self.world, lease)).collect();
        for (n, one) in live.iter().enumerate() {
            for other in live[n + 1..].iter().filter(|other| other.claim.owner != one.claim.owner) {
                for (a, b) in
                    one.claim.resources.iter().flat_map(|a| other.claim.resources.iter().map(move |b| (a, b)))
                {
                    let both_share = a.mode != Mode::Exclusive && b.mode != Mode::Exclusive;
                    // The one that came first gives way to a sub-agent that came later, not the other way round.
                    let (first, later) = if one.token < other.token { (one, other) } else { (other, one) };
                    let at_peace = gives_way(&first.claim, &later.claim);
                    assert!(
                        both_share || at_peace || a.target.meets(&b.target).is_none(),
                        "{} and {} conflict",
                        one.id,
                        other.id
                    );
                }
            }
        }
        for text in NAMES {
            let on_it: Vec<_> = live
                .iter()
                .flat_map(|lease| lease.claim.resources.iter().map(move |resource| (lease, resource)))
                .filter(|(_, resource)| resource.target == name(text, Mode::Shared).target)
                .collect();
            for (lease, resource) in &on_it {
                // An owner's own leases do not count against it, but they do against others. A slot is counted also within
                // a family.
                let counted = matches!(resource.mode, Mode::Slots(_));
                let others = on_it.iter().map(|(other, _)| &other.claim).filter(|other| {
                    let family = gives_way(other, &lease.claim) || gives_way(&lease.claim, other);
                    other.owner != lease.claim.owner && (counted || !family)
                });
                let others = others.map(|other| other.owner.as_str()).collect::<BTreeSet<_>>().len();
                assert!(others < resource.mode.capacity() as usize, "too many on {text}");
            }
        }
    }

    /// Invariants 4 and 7: while nobody is dead or late, nobody waits without a reason.
    fn check_hand_off(&mut self) {
        let (leases, tickets): (Vec<_>, Vec<_>) =
            (self.world.records.leases().cloned().collect(), self.world.records.tickets().cloned().collect());
        let all_live = leases.iter().all(|lease| lease_is_live(&mut self.world, lease))
            && tickets.iter().all(|ticket| ticket_is_live(&mut self.world, ticket));
        if !all_live {
            return;
        }
        let model = Model::of(&self.world.records);
        for entry in &model.waiting {
            assert!(
                !model.in_the_way(&entry.claim, entry.rank).is_empty(),
                "{} waits for nothing\n{:#?}",
                entry.id,
                self.world.records
            );
        }
    }

    /// Whichever single process dies next, no waiter that may be granted sleeps on.
    fn check_every_death(&self) {
        let mut pids: BTreeSet<u32> = BTreeSet::new();
        let proofs = self.world.records.leases().map(|lease| &lease.claim.proof);
        let proofs = proofs.chain(self.world.records.tickets().map(|ticket| &ticket.claim.proof));
        pids.extend(proofs.filter_map(|proof| proof.process()).map(|process| process.pid));
        for pid in pids {
            let mut after = self.clone();
            after.world.dead.insert(pid);
            after.sleepers.notice(&after.world, &[]);
            after.settle();
            after.sleepers.check(&after.world);
        }
    }

    /// Compares the records with the model, after all woken waiters have checked their tickets.
    fn compare(&mut self) {
        let mut model = self.model.clone();
        model.held.retain(|entry| !self.ended_by_death_or_time(entry));
        model.waiting.retain(|entry| !self.ended_by_death_or_time(entry));
        model.hand_off();
        let of_records: BTreeSet<(LeaseId, Vec<Resource>)> =
            self.world.records.leases().map(|lease| (lease.id, lease.claim.resources.clone())).collect();
        let of_model: BTreeSet<(LeaseId, Vec<Resource>)> =
            model.held.iter().map(|entry| (entry.id, entry.claim.resources.clone())).collect();
        assert_eq!(of_records, of_model, "who holds");
        let of_records: BTreeSet<LeaseId> = self.world.records.tickets().map(|ticket| ticket.id).collect();
        let of_model: BTreeSet<LeaseId> = model.waiting.iter().map(|entry| entry.id).collect();
        assert_eq!(of_records, of_model, "who waits");
        self.model = model;
    }

    /// Whether a claim is gone from the records because its process died or because it had a time to live.
    ///
    /// The tests of the rules cover times. Here the records decide whose time is up.
    fn ended_by_death_or_time(&self, entry: &Entry) -> bool {
        let records = &self.world.records;
        let upgraded = entry.upgrades.and_then(|lease| records.lease(lease));
        let was_granted = upgraded.is_some_and(|lease| lease.claim.resources == entry.claim.resources);
        let is_there = records.lease(entry.id).is_some() || records.ticket(entry.id).is_some() || was_granted;
        let proof = &entry.claim.proof;
        let is_dead = proof.process().is_some_and(|process| self.world.dead.contains(&process.pid));
        let is_timed = entry.claim.ttl.is_some() || !matches!(proof.voucher, Voucher::KernelLock { .. });
        !is_there && (is_dead || is_timed)
    }
}

fn lease_is_live(world: &mut World, lease: &Lease) -> bool {
    !world.decide(|overlay| Ok(overlay.judge_lease(lease))).0.is_free()
}

fn ticket_is_live(world: &mut World, ticket: &Ticket) -> bool {
    !world.decide(|overlay| Ok(overlay.judge_ticket(ticket))).0.is_free()
}

/// Invariant 8: the refusal names the whole cycle.
fn check_links(links: &[lockkeeper_core::deadlock::Link]) {
    assert!(!links.is_empty());
    for (n, link) in links.iter().enumerate() {
        assert_eq!(link.holder, links[(n + 1) % links.len()].waiter, "{links:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(1_000), max_shrink_iters: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Invariants 1 to 8. Requirements 154, 155, 156, 160 and 162.
    #[test]
    fn every_history_agrees_with_the_model(steps in prop::collection::vec(step(), 1..40)) {
        let mut trial = Trial::new(true, false);
        for step in &steps {
            trial.take(step);
        }
    }

    /// Invariants 4 and 7. Here woken waiters are slow, so that several steps pass before they look.
    #[test]
    fn no_waiter_sleeps_for_ever(steps in prop::collection::vec(step(), 1..40)) {
        let mut trial = Trial::new(false, false);
        for step in &steps {
            trial.take(step);
        }
    }

    /// Invariants 1 to 8, with two sub-agents of one agent, and work trees.
    #[test]
    fn every_history_of_a_family_agrees_with_the_model(steps in prop::collection::vec(step(), 1..40)) {
        let mut trial = Trial::new(true, true);
        for step in &steps {
            trial.take(step);
        }
    }

    /// Invariants 4 and 7, with two sub-agents of one agent, and work trees.
    #[test]
    fn no_waiter_of_a_family_sleeps_for_ever(steps in prop::collection::vec(step(), 1..40)) {
        let mut trial = Trial::new(false, true);
        for step in &steps {
            trial.take(step);
        }
    }
}
