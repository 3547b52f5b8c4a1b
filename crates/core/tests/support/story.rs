//! Builders for tests of leases: `world.hold(ask("a").name("db"))`.

use std::num::NonZeroU32;
use std::time::Duration;

use lockkeeper_core::deadlock::Link;
use lockkeeper_core::id::{LeaseId, WakerId};
use lockkeeper_core::lease::{self, AcquireRequest, Outcome, WaitTerms};
use lockkeeper_core::liveness::{Contract, ProcessRef, Voucher};
use lockkeeper_core::record::{Agent, Claim, Lease, Priority, Ticket};
use lockkeeper_core::records::Effect;
use lockkeeper_core::resource::{Mode, Resource, Target};
use lockkeeper_core::waiting::{Blocker, Watched, watch_list};

use crate::world::{World, claim, name, resident, seconds, waker};

/// A request for a lease: by default of a resident process, and without a TTL.
#[derive(Clone)]
pub struct Ask(AcquireRequest);

/// The process of owner `a` is 1, of `b` 2, and so on.
pub fn pid(owner: &str) -> u32 {
    u32::from(owner.as_bytes()[0] - b'a') + 1
}

pub fn ask(owner: &str) -> Ask {
    Ask(AcquireRequest {
        claim: claim(owner, resident(pid(owner)), Vec::new()),
        priority: Priority::default(),
        under: Vec::new(),
        wait: Some(WaitTerms { waker: Some(waker(pid(owner))), stays: seconds(100) }),
        join: false,
    })
}

impl Ask {
    pub fn name(self, text: &str) -> Self {
        self.wants(name(text, Mode::Exclusive))
    }

    pub fn shared(self, text: &str) -> Self {
        self.wants(name(text, Mode::Shared))
    }

    pub fn slots(self, text: &str, count: u32) -> Self {
        self.wants(name(text, Mode::Slots(NonZeroU32::new(count).unwrap())))
    }

    pub fn path(self, pattern: &str) -> Self {
        self.wants(Resource { target: Target::Path(pattern.parse().unwrap()), mode: Mode::Exclusive })
    }

    pub fn shared_path(self, pattern: &str) -> Self {
        self.wants(Resource { target: Target::Path(pattern.parse().unwrap()), mode: Mode::Shared })
    }

    fn wants(mut self, resource: Resource) -> Self {
        self.0.claim.resources.push(resource);
        self
    }

    pub fn priority(mut self, level: i32) -> Self {
        self.0.priority = Priority::new(level).unwrap();
        self
    }

    /// Another process of the same owner.
    pub fn of_process(mut self, pid: u32) -> Self {
        self.0.claim.proof.voucher = resident(pid);
        self.0.wait = Some(WaitTerms { waker: Some(waker(pid)), stays: seconds(100) });
        self
    }

    /// The request of a short command; this process vouches for the claim.
    pub fn for_process(mut self, pid: u32) -> Self {
        self.0.claim.proof.voucher = Voucher::Process(ProcessRef { pid, started: 1 });
        self
    }

    /// No process vouches: the claim ends with its TTL.
    pub fn by_time(mut self, ttl: u64) -> Self {
        self.0.claim.proof.voucher = Voucher::Time;
        self.ttl(ttl)
    }

    /// A process on another machine, which keeps a session of 30 seconds.
    pub fn elsewhere(mut self) -> Self {
        self.0.claim.proof.origin.host = "there".to_owned();
        self.0.claim.proof.origin.session = Some(seconds(30));
        self
    }

    pub fn ttl(mut self, ttl: u64) -> Self {
        self.0.claim.ttl = Some(seconds(ttl));
        self
    }

    pub fn contract(mut self, contract: Contract) -> Self {
        self.0.claim.contract = contract;
        self
    }

    pub fn ticket_name(mut self, text: &str) -> Self {
        self.0.claim.ticket = Some(text.parse().unwrap());
        self
    }

    /// The claim of an agent, in one work tree or in all.
    pub fn agent(mut self, work_tree: Option<&str>) -> Self {
        self.0.claim.agent = Some(Agent { work_tree: work_tree.map(Into::into) });
        self
    }

    pub fn under(mut self, lease: &Lease) -> Self {
        self.0.under.push(lease.id);
        self
    }

    /// A lease that the owner already has is enough.
    pub fn join(mut self) -> Self {
        self.0.join = true;
        self
    }

    pub fn claim(&self) -> &Claim {
        &self.0.claim
    }
}

impl World {
    pub fn pass(&mut self, seconds: u64) {
        self.now = self.now.after(Duration::from_secs(seconds));
    }

    pub fn kill(&mut self, owner: &str) {
        self.dead.insert(pid(owner));
    }

    /// Asks without waiting.
    fn try_for(&mut self, mut ask: Ask) -> (Outcome, Vec<Effect>) {
        ask.0.wait = None;
        let (outcome, effects, _) = self.decide(|overlay| lease::acquire(overlay, &ask.0));
        (outcome, effects)
    }

    /// Gets it at once.
    pub fn hold(&mut self, ask: Ask) -> Lease {
        self.hold_with_effects(ask).0
    }

    /// The same, with the effects of the decision.
    pub fn hold_with_effects(&mut self, ask: Ask) -> (Lease, Vec<Effect>) {
        match self.try_for(ask) {
            (Outcome::Granted(grant), effects) => (grant.lease, effects),
            (other, _) => panic!("not granted: {other:?}"),
        }
    }

    /// Does not get it at once.
    pub fn refused(&mut self, ask: Ask) -> Vec<Blocker> {
        match self.try_for(ask) {
            (Outcome::Held(blockers), _) => blockers,
            (other, _) => panic!("not refused: {other:?}"),
        }
    }

    /// Does not get it at once, and waits.
    pub fn queue(&mut self, ask: &Ask) -> Ticket {
        self.queue_and_watch(ask).0
    }

    /// The same, with the records that the waiter watches and the effects of the decision.
    pub fn queue_and_watch(&mut self, ask: &Ask) -> (Ticket, Vec<LeaseId>, Vec<Effect>) {
        let (outcome, effects, _) = self.decide(|overlay| lease::acquire(overlay, &ask.0));
        let Outcome::Waiting(waiting) = outcome else { panic!("not waiting: {outcome:?}") };
        let watched = watch_list(&waiting.blockers).iter().map(Watched::id).collect();
        (waiting.ticket, watched, effects)
    }

    /// Is refused because it would wait for ever. Returns the cycle.
    pub fn deadlock(&mut self, ask: &Ask) -> Vec<Link> {
        let before = self.records.clone();
        let (outcome, _, _) = self.decide(|overlay| lease::acquire(overlay, &ask.0));
        let Outcome::Deadlock(links) = outcome else { panic!("no deadlock: {outcome:?}") };
        assert_eq!(before, self.records, "a refusal leaves nothing behind");
        links
    }

    pub fn release(&mut self, lease: &Lease) -> Vec<Effect> {
        let (released, effects, _) = self.decide(|overlay| lease::release(overlay, lease.id, None));
        released.unwrap();
        effects
    }

    pub fn check_ticket(&mut self, ticket: &Ticket) -> Outcome {
        self.decide(|overlay| lease::check_ticket(overlay, ticket.id, None)).0
    }

    /// Whether the ticket has become a lease.
    pub fn holds(&self, ticket: &Ticket) -> bool {
        self.records.lease(ticket.id).is_some()
    }

    pub fn waits(&self, ticket: &Ticket) -> bool {
        self.records.ticket(ticket.id).is_some()
    }

    /// Asks for an upgrade, and waits for it.
    pub fn upgrade(&mut self, lease: &Lease) -> Outcome {
        let terms = Some(WaitTerms { waker: lease.waker(), stays: seconds(100) });
        self.decide(|overlay| lease::upgrade(overlay, lease.id, None, terms)).0.unwrap()
    }
}

/// The effect that wakes an owner's own process.
pub fn woken(owner: &str) -> Effect {
    Effect::Wake(WakerId(u64::from(pid(owner))))
}
