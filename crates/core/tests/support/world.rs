//! A store of the rules alone: a records, a clock that stands until it is moved, and processes that can die.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::ops::ControlFlow;
use std::time::Duration;

use lockkeeper_core::id::{HolderId, LeaseId, WakerId};
use lockkeeper_core::in_memory::InMemoryRecords;
use lockkeeper_core::liveness::{
    Contract, LockState, Observation, Origin, ProcessRef, ProcessState, Proof, Voucher,
};
use lockkeeper_core::overlay::{Effect, Overlay, Reaped, Scan, View};
use lockkeeper_core::record::{Claim, Lease, Ticket};
use lockkeeper_core::resource::{KeyRange, Mode, Resource, Target};
use lockkeeper_core::time::{Moment, Ttl};

/// Everything that a decision can see.
#[derive(Clone, Debug)]
pub struct World {
    pub records: InMemoryRecords,
    pub now: Moment,
    pub drawn: u64,
    pub dead: BTreeSet<u32>,
    /// A process that dies once it was looked at so many times, be it in the middle of a decision.
    pub dying: Option<(u32, usize)>,
}

impl World {
    pub fn new() -> Self {
        Self {
            records: InMemoryRecords::default(),
            now: Moment::from_micros(0),
            drawn: 0,
            dead: BTreeSet::new(),
            dying: None,
        }
    }

    /// Runs one decision and commits it.
    pub fn decide<T>(
        &mut self,
        decision: impl FnOnce(&mut Overlay<'_, Self>) -> Result<T, Infallible>,
    ) -> (T, Vec<Effect>, Vec<Reaped>) {
        let mut overlay = Overlay::new(self);
        let Ok(outcome) = decision(&mut overlay);
        let (changes, effects, reaped) = overlay.finish();
        for change in changes {
            self.records.apply(change).expect("a decision fits what it read");
        }
        (outcome, effects, reaped)
    }
}

impl View for World {
    type Error = Infallible;

    fn now(&self) -> Moment {
        self.now
    }

    fn draw(&mut self) -> Result<u64, Infallible> {
        self.drawn += 1;
        Ok(self.drawn)
    }

    fn lease(&mut self, id: LeaseId) -> Result<Option<Lease>, Infallible> {
        Ok(self.records.lease(id).cloned())
    }

    fn leases(&mut self, range: &KeyRange, visit: &mut dyn FnMut(Lease)) -> Result<(), Infallible> {
        self.records.leases_within(range).into_iter().cloned().for_each(visit);
        Ok(())
    }

    fn ticket(&mut self, id: LeaseId) -> Result<Option<Ticket>, Infallible> {
        Ok(self.records.ticket(id).cloned())
    }

    fn tickets(
        &mut self,
        range: &KeyRange,
        scan: Scan,
        visit: &mut dyn FnMut(Ticket) -> ControlFlow<()>,
    ) -> Result<(), Infallible> {
        self.records.visit_tickets(range, scan, &mut |ticket| visit(ticket.clone()));
        Ok(())
    }

    fn all(&mut self) -> Result<(Vec<LeaseId>, Vec<LeaseId>), Infallible> {
        let leases = self.records.leases().map(|lease| lease.id).collect();
        Ok((leases, self.records.tickets().map(|ticket| ticket.id).collect()))
    }

    fn observation(&mut self, proof: &Proof) -> Observation {
        let looked_at = proof.process().map(|process| process.pid);
        match &mut self.dying {
            Some((pid, 0)) if looked_at == Some(*pid) => {
                self.dead.insert(*pid);
            }
            Some((pid, looks)) if looked_at == Some(*pid) => *looks -= 1,
            Some(_) | None => {}
        }
        let is_dead = proof.process().is_some_and(|process| self.dead.contains(&process.pid));
        match proof.voucher {
            Voucher::KernelLock { .. } => {
                Observation::Lock(if is_dead { LockState::Free } else { LockState::Held })
            }
            Voucher::Process(_) => {
                Observation::Process(if is_dead { ProcessState::Gone } else { ProcessState::Running })
            }
            Voucher::Time => Observation::Nothing,
        }
    }
}

/// A claim of `worker:OWNER` that holds for good while the proof is good.
pub fn claim(owner: &str, voucher: Voucher, resources: Vec<Resource>) -> Claim {
    Claim {
        owner: format!("worker:{owner}").parse().expect("an owner"),
        resources,
        proof: Proof {
            origin: Origin { host: "here".to_owned(), boot: "now".to_owned(), pid_namespace: 1 },
            voucher,
        },
        contract: Contract::Strict,
        ttl: None,
        reason: None,
        ticket: None,
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
