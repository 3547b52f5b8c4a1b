//! Records: claims that hold (leases) and claims that wait (tickets).

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::id::{LeaseId, Owner, TicketName, Token, WakerId};
use crate::liveness::{Contract, Dates, Observation, Proof, Verdict, Voucher, judge};
use crate::resource::{Key, KeyRange, Resource, Target};
use crate::time::{Moment, Ttl};

/// What an owner asks for, waits for or holds: all of the resources or none of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Whose claim it is.
    pub owner: Owner,
    /// What is claimed, without repetition, in the order given.
    pub resources: Vec<Resource>,
    /// How to know that the owner still lives.
    pub proof: Proof,
    /// What happens when its time is up.
    pub contract: Contract,
    /// How long it holds without being renewed.
    pub ttl: Option<Ttl>,
    /// Why it is wanted. For people only.
    pub reason: Option<String>,
    /// The name by which a later command finds it.
    pub ticket: Option<TicketName>,
    /// Set if it is the claim of an agent. Only such claims have families and work trees.
    pub agent: Option<Agent>,
}

/// What distinguishes the claim of an agent from every other claim: its owner has a family, and it may hold in one work tree only.
///
/// The family is in the owner: `kind:SESSION:AGENT` is a sub-agent of `kind:SESSION`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Agent {
    /// The work tree in which it holds. Without one it holds in all work trees.
    pub work_tree: Option<Arc<str>>,
}

impl Claim {
    /// Whether `asker` may hold the same resource beside this claim. Invariant 1.
    ///
    /// A claim gives way to the claims of its own owner, to those of sub-agents below its owner, and to those of agents in
    /// another work tree. It does not give way to an owner above: a parent waits for its own sub-agent.
    pub fn gives_way_to(&self, asker: &Self) -> bool {
        let both_agents = self.agent.is_some() && asker.agent.is_some();
        let is_above = || both_agents && self.owner.is_above(&asker.owner);
        self.owner == asker.owner || is_above() || self.is_apart_from(asker)
    }

    /// Whether both are claims of agents, each in a work tree of its own.
    pub fn is_apart_from(&self, other: &Self) -> bool {
        let tree = |claim: &'_ Self| claim.agent.as_ref().and_then(|agent| agent.work_tree.clone());
        match (tree(self), tree(other)) {
            (Some(one), Some(other)) => one != other,
            (Some(_) | None, None) | (None, Some(_)) => false,
        }
    }

    /// The keys of the tickets whose turn depends on what this claim's owner holds: its own tickets, and those of its sub-agents.
    pub fn dependents(&self) -> KeyRange {
        let mut range = KeyRange::of(Key::of_owner(&self.owner));
        if self.agent.is_some() {
            range.exact.push(Key::of_family(&self.owner));
        }
        range
    }

    /// The keys that a decision about it reads, except those of paths: it reads those as ranges.
    pub fn keys_to_read(&self) -> Vec<Key> {
        let names = self.targets().filter(|target| matches!(target, Target::Name(_)));
        names.map(Target::key).chain(self.dependents().exact).collect()
    }

    /// The targets of all resources.
    pub fn targets(&self) -> impl Iterator<Item = &Target> {
        self.resources.iter().map(|resource| &resource.target)
    }

    /// Whether holding this claim is enough for all of `wanted`.
    pub fn satisfies(&self, wanted: &[Resource]) -> bool {
        wanted.iter().all(|want| self.resources.iter().any(|held| held.satisfies(want)))
    }

    /// The same claim to other resources.
    pub fn with_resources(&self, resources: Vec<Resource>) -> Arc<Self> {
        Arc::new(Self { resources, ..self.clone() })
    }

    /// How long it lasts after a sign of life of its holder. A claim that its TTL alone ends needs no signs of life.
    pub fn session(&self) -> Option<Ttl> {
        self.proof.origin.session.filter(|_| !self.proof.voucher.is_time_alone())
    }

    fn keys(&self) -> Vec<Key> {
        let mut keys: Vec<Key> = self.targets().map(Target::key).collect();
        keys.push(Key::of_owner(&self.owner));
        keys.extend(self.ticket.as_ref().map(Key::of_ticket));
        if self.agent.is_some() {
            keys.extend(self.owner.all_above().map(|above| Key::of_family(&above)));
        }
        keys.sort();
        keys.dedup();
        keys
    }
}

/// A claim that holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The id it has had since it was first asked for.
    pub id: LeaseId,
    /// The fencing number of this hold; an upgrade gives a new one.
    pub token: Token,
    /// What is held, and by whom. Behind an `Arc`, since a decision copies records many times.
    pub claim: Arc<Claim>,
    /// When it was granted.
    pub acquired_at: Moment,
    /// When it was last renewed.
    pub heartbeat_at: Moment,
    /// When it ends unless its owner picks it up.
    pub pickup_by: Option<Moment>,
    /// Whether it was revoked: its holder has to release it.
    pub revoked: bool,
}

impl Lease {
    /// When it runs out, unless renewed.
    pub fn expires_at(&self) -> Option<Moment> {
        self.dates().expires_at()
    }

    /// Whether it is still held, given what was observed of its holder, and since when the store remembers.
    pub fn verdict(
        &self,
        observation: Observation,
        now: Moment,
        remembered_since: Option<Moment>,
    ) -> Verdict {
        judge(self.claim.contract, &Dates { remembered_since, ..self.dates() }, observation, now)
    }

    /// Whether it was waited for, or upgraded since. Only then do its id and its token differ.
    pub fn was_waited_for(&self) -> bool {
        self.id.0 != self.token.0
    }

    /// Its heartbeat after somebody renewed or changed it at `now`. Its holder alone keeps a session, and expects the heartbeat that
    /// it wrote.
    pub fn touched_at(&self, now: Moment) -> Moment {
        if self.claim.session().is_some() { self.heartbeat_at } else { now }
    }

    /// The keys under which a store finds it.
    pub fn keys(&self) -> Vec<Key> {
        self.claim.keys()
    }

    /// The waker of the process that stays with it. It is woken when the lease is lost.
    pub fn waker(&self) -> Option<WakerId> {
        match self.claim.proof.voucher {
            Voucher::KernelLock { holder, .. } => Some(WakerId(holder.0)),
            Voucher::Process(_) | Voucher::Time | Voucher::TimeFor(_) => None,
        }
    }

    /// When the session of its holder ends, unless the holder renews it. It counts only where nothing of the holder can be
    /// observed.
    pub fn session_ends_at(&self) -> Option<Moment> {
        self.dates().session_ends_at()
    }

    fn dates(&self) -> Dates {
        let session = self.claim.session();
        Dates {
            heartbeat_at: self.heartbeat_at,
            ttl: self.claim.ttl,
            pickup_by: self.pickup_by,
            session,
            remembered_since: None,
        }
    }
}

/// How urgent a wait is: −100 to 100. A larger number is served earlier.
///
/// One step is worth one minute of waiting, so a ticket with a low priority is served eventually, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(i32);

impl Priority {
    /// How much longer a ticket has to wait to be served before a ticket that is one step higher.
    pub const STEP: Duration = Duration::from_secs(60);

    /// Checks that `level` can be a priority.
    pub fn new(level: i32) -> Result<Self, PriorityError> {
        if (-100..=100).contains(&level) { Ok(Self(level)) } else { Err(PriorityError(level.to_string())) }
    }

    /// The number.
    pub const fn get(self) -> i32 {
        self.0
    }
}

impl FromStr for Priority {
    type Err = PriorityError;

    fn from_str(text: &str) -> Result<Self, PriorityError> {
        text.parse().map_err(|_| PriorityError(text.to_owned())).and_then(Self::new)
    }
}

/// The text is not a priority.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not a priority from -100 to 100")]
pub struct PriorityError(String);

/// A place in the line. The smaller rank is served earlier.
///
/// Because every step of priority is worth the same time of waiting, the order between two tickets never
/// changes while they wait, and a store can keep tickets sorted by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank {
    /// When it was enqueued, minus its priority as time.
    pub at: i64,
    /// Decides between equal times: the smaller id came first.
    pub id: LeaseId,
}

impl Rank {
    /// The place of a ticket that is enqueued now.
    pub fn new(enqueued_at: Moment, priority: Priority, id: LeaseId) -> Self {
        let advance =
            i64::from(priority.get()) * i64::try_from(Priority::STEP.as_micros()).unwrap_or(i64::MAX);
        Self { at: enqueued_at.as_micros().saturating_sub(advance), id }
    }

    /// The place of an upgrade: before everybody who waits for the lease to end.
    pub fn of_upgrade(id: LeaseId) -> Self {
        Self { at: i64::MIN, id }
    }
}

/// A claim that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The id that its lease will have.
    pub id: LeaseId,
    /// What is waited for, and by whom.
    pub claim: Arc<Claim>,
    /// How urgent it is.
    pub priority: Priority,
    /// Its place in the line.
    pub rank: Rank,
    /// When the wait began.
    pub enqueued_at: Moment,
    /// The last sign of life of its owner.
    pub seen_at: Moment,
    /// How long it stays in line while its owner is away.
    pub stays: Ttl,
    /// The waker of the process that sleeps on it, if one does.
    pub waker: Option<WakerId>,
    /// The leases under which the waiting process runs.
    pub under: Vec<LeaseId>,
    /// The lease that it upgrades.
    pub upgrades: Option<LeaseId>,
}

impl Ticket {
    /// Whether somebody still waits on it, given what was observed of its waiter, and since when the store remembers.
    pub fn verdict(
        &self,
        observation: Observation,
        now: Moment,
        remembered_since: Option<Moment>,
    ) -> Verdict {
        let ttl = if self.is_resident() { None } else { Some(self.stays) };
        let (heartbeat_at, session) = (self.seen_at, self.session());
        let dates = Dates { heartbeat_at, ttl, pickup_by: None, session, remembered_since };
        judge(Contract::Lease, &dates, observation, now)
    }

    /// The waker of the process whose death ends the wait, although the lease would outlive that process: `acquire --wait`
    /// without a name for the ticket. A named ticket stays in line for the next command, and the ticket of an agent for its next
    /// call.
    pub fn waiter(&self) -> Option<WakerId> {
        let is_own = !self.is_resident() && self.claim.ticket.is_none() && self.claim.agent.is_none();
        self.waker.filter(|_| is_own)
    }

    /// Whether the ticket ends with the process that waits.
    pub fn is_resident(&self) -> bool {
        matches!(self.claim.proof.voucher, Voucher::KernelLock { .. })
    }

    /// When it leaves the line unless its owner comes back.
    pub fn lapses_at(&self) -> Option<Moment> {
        let stays = if self.is_resident() { self.session()? } else { self.stays };
        Some(self.seen_at.after(stays.get()))
    }

    /// How long its owner may be silent before the ticket leaves the line.
    pub fn patience(&self) -> Ttl {
        self.session().map_or(self.stays, |session| session.min(self.stays))
    }

    /// How long it stays after a sign of life of the process that waits.
    fn session(&self) -> Option<Ttl> {
        self.claim.session().filter(|_| self.is_resident())
    }

    /// Whether it stands for all tickets before it: nobody behind it can get `target` while it waits or holds, and a process
    /// sleeps on it that watches what is before it.
    pub fn stands_for_all_before(&self, target: &Target) -> bool {
        let takes_all = |wanted: &Resource| wanted.mode.capacity() == 1 && wanted.target.covers(target);
        self.waker.is_some() && self.claim.resources.iter().any(takes_all)
    }

    /// The keys under which a store finds it.
    pub fn keys(&self) -> Vec<Key> {
        let mut keys = self.claim.keys();
        keys.extend(self.under.iter().copied().map(Key::of_wait_under));
        keys
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(second: i64, level: i32, id: u64) -> Rank {
        Rank::new(Moment::from_micros(second * 1_000_000), Priority::new(level).unwrap(), LeaseId(id))
    }

    /// Invariant 7. Requirement 155.
    #[test]
    fn priority_comes_before_arrival_and_arrival_before_id() {
        assert!(rank(10, 1, 2) < rank(0, 0, 1));
        assert!(rank(0, 0, 2) < rank(1, 0, 1));
        assert!(rank(0, 0, 1) < rank(0, 0, 2));
    }

    /// Invariant 7.
    #[test]
    fn waiting_a_minute_outranks_a_step_of_priority() {
        assert!(rank(0, 0, 1) < rank(61, 1, 2));
        assert!(rank(0, -100, 1) < rank(200 * 60 + 1, 100, 2));
    }

    #[test]
    fn priorities_are_bounded() {
        assert!("100".parse::<Priority>().is_ok());
        for text in ["101", "-101", "", "high", "1.5"] {
            assert!(text.parse::<Priority>().is_err(), "{text}");
        }
    }
}
