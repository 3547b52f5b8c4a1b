//! A store of the rules alone: records in memory, a clock that stands until it is moved, and processes that can die.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use lockkeeper_core::id::{HolderId, LeaseId, WakerId};
use lockkeeper_core::in_memory::InMemoryRecords;
use lockkeeper_core::liveness::{
    Contract, LivenessProbe, LockState, Observation, Origin, ProcessRef, ProcessState, Proof, Voucher,
};
use lockkeeper_core::overlay::Overlay;
use lockkeeper_core::record::{Claim, Lease, Ticket};
use lockkeeper_core::records::{Effect, Reaped, Records, Scan};
use lockkeeper_core::resource::{KeyRange, Mode, Resource, Target};
use lockkeeper_core::time::{Moment, Ttl};

/// Everything that a decision can see.
#[derive(Clone, Debug)]
pub struct World {
    pub records: InMemoryRecords,
    pub now: Moment,
    pub last_number: u64,
    /// Since when the store remembers, if it can forget.
    pub remembers_since: Option<Moment>,
    pub dead: BTreeSet<u32>,
    /// A process that dies once the probe has looked at it this many times, also in the middle of a decision.
    pub dying: Option<(u32, usize)>,
    /// How often decisions have read records.
    pub reads: usize,
}

impl World {
    pub fn new() -> Self {
        Self {
            records: InMemoryRecords::default(),
            now: Moment::from_micros(0),
            last_number: 0,
            remembers_since: None,
            dead: BTreeSet::new(),
            dying: None,
            reads: 0,
        }
    }

    /// Runs one decision and commits it.
    pub fn decide<T>(
        &mut self,
        decision: impl FnOnce(&mut Overlay<'_, Infallible>) -> Result<T, Infallible>,
    ) -> (T, Vec<Effect>, Vec<Reaped>) {
        let Self { records, now, last_number, remembers_since, dead, dying, reads } = self;
        let mut snapshot =
            Snapshot { records, now: *now, last_number, remembers_since: *remembers_since, reads };
        let processes = Processes { dead: RefCell::new(dead), dying: RefCell::new(dying) };
        let mut overlay = Overlay::new(&mut snapshot, &processes);
        let Ok(outcome) = decision(&mut overlay);
        let (changes, effects, reaped) = overlay.finish();
        for change in changes {
            records.apply(change).expect("a decision fits what it read");
        }
        (outcome, effects, reaped)
    }
}

struct Snapshot<'w> {
    records: &'w InMemoryRecords,
    now: Moment,
    last_number: &'w mut u64,
    remembers_since: Option<Moment>,
    reads: &'w mut usize,
}

impl Records<Infallible> for Snapshot<'_> {
    fn now(&self) -> Moment {
        self.now
    }

    fn remembers_since(&self) -> Option<Moment> {
        self.remembers_since
    }

    fn next_number(&mut self) -> Result<u64, Infallible> {
        *self.last_number += 1;
        Ok(*self.last_number)
    }

    fn lease(&mut self, id: LeaseId) -> Result<Option<Lease>, Infallible> {
        *self.reads += 1;
        Ok(self.records.lease(id).cloned())
    }

    fn leases(&mut self, range: &KeyRange) -> Result<Vec<Lease>, Infallible> {
        *self.reads += 1;
        Ok(self.records.leases_in(range))
    }

    fn ticket(&mut self, id: LeaseId) -> Result<Option<Ticket>, Infallible> {
        *self.reads += 1;
        Ok(self.records.ticket(id).cloned())
    }

    fn tickets(&mut self, range: &KeyRange, scan: Scan, limit: usize) -> Result<Vec<Ticket>, Infallible> {
        *self.reads += 1;
        Ok(self.records.tickets_in(range, scan, limit))
    }

    fn all(&mut self) -> Result<(Vec<Lease>, Vec<Ticket>), Infallible> {
        Ok(self.records.all())
    }
}

/// The processes that are dead, and the one that is about to die.
struct Processes<'w> {
    dead: RefCell<&'w mut BTreeSet<u32>>,
    dying: RefCell<&'w mut Option<(u32, usize)>>,
}

impl LivenessProbe for Processes<'_> {
    fn observe(&self, proof: &Proof) -> Observation {
        let (mut dead, mut dying) = (self.dead.borrow_mut(), self.dying.borrow_mut());
        let looked_at = proof.process().map(|process| process.pid);
        match &mut **dying {
            Some((pid, 0)) if looked_at == Some(*pid) => {
                dead.insert(*pid);
            }
            Some((pid, looks)) if looked_at == Some(*pid) => *looks -= 1,
            Some(_) | None => {}
        }
        if proof.origin.host != "here" {
            return Observation::OtherHost;
        }
        let is_dead = looked_at.is_some_and(|pid| dead.contains(&pid));
        match proof.voucher {
            Voucher::KernelLock { .. } => {
                Observation::Lock(if is_dead { LockState::Free } else { LockState::Held })
            }
            Voucher::Process(_) => {
                Observation::Process(if is_dead { ProcessState::Gone } else { ProcessState::Running })
            }
            Voucher::Time | Voucher::TimeFor(_) => Observation::Nothing,
        }
    }
}

/// A claim of `worker:OWNER` that holds for good while the proof is good.
pub fn claim(owner: &str, voucher: Voucher, resources: Vec<Resource>) -> Claim {
    Claim {
        owner: format!("worker:{owner}").parse().expect("an owner"),
        resources,
        proof: Proof {
            origin: Origin {
                host: "here".to_owned(),
                boot: "now".to_owned(),
                pid_namespace: 1,
                session: None,
            },
            voucher,
        },
        contract: Contract::Strict,
        ttl: None,
        reason: None,
        ticket: None,
        agent: None,
    }
}

/// A process that stays, with a kernel lock.
pub fn resident(pid: u32) -> Voucher {
    Voucher::KernelLock { holder: HolderId(u64::from(pid)), process: ProcessRef { pid, started: 1 } }
}

/// The waker that a resident process waits on.
pub fn waker(pid: u32) -> WakerId {
    WakerId(u64::from(pid))
}

pub fn name(text: &str, mode: Mode) -> Resource {
    Resource { target: Target::Name(text.parse().expect("a name")), mode }
}

pub fn seconds(seconds: u64) -> Ttl {
    Ttl::new(Duration::from_secs(seconds)).expect("a TTL")
}
