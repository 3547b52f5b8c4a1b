//! The wait of a group for its lease and its lock.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use lockkeeper_core::lease::{self, Outcome, WaitTerms};
use lockkeeper_core::liveness::{Contract, Proof, Voucher};
use lockkeeper_core::record::{Claim, Lease, Priority};
use lockkeeper_core::resource::{Mode, Resource, Target};
use lockkeeper_core::time::{Ttl, format_span};
use lockkeeper_formats::group::{self, Folders, GroupId, GroupLock};
use lockkeeper_platform::flock::Waited;
use lockkeeper_platform::wall_clock::epoch_seconds;

use super::{CHECK_EVERY, GroupExecution, GroupMessage, STOPPED};
use crate::runs::RunError;
use crate::stages::patience::{Next, Patience};
use crate::stages::{PhaseEvent, StageError};
use crate::work::{Worker, why};
use crate::{Acquired, AtEnd, WaitOptions};

/// The TTL of the ticket. It matters only when nothing is known about this process: a live process keeps its ticket.
const TICKET_TTL: Duration = Duration::from_secs(120);
const TICKET_REMOVED: &str = "its ticket was removed";

/// The lock of a group, which this process and the commands of the group hold. Dropping it releases it.
pub(super) struct HeldLock {
    pub(super) lock: GroupLock,
    /// The process in the registry.
    pid: u32,
}

impl HeldLock {
    /// Registers the guardian: the shell scripts remove the lock of a process that is dead, and the commands go on if this
    /// process is killed.
    fn register(lock: GroupLock, worker: &Worker) -> Self {
        let pid = worker.guardian_pid().unwrap_or_else(std::process::id);
        // The lock does not depend on the registry.
        let _ = lock.register(pid, epoch_seconds());
        Self { lock, pid }
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        // If this fails, the end of this process frees the lock.
        let _ = self.lock.release(self.pid, epoch_seconds());
    }
}

impl GroupExecution<'_> {
    /// Waits for the lock of the group in the lock folder. The inner error says why the group did not get it.
    pub(super) fn take_lock(
        &self,
        folders: &Folders,
        id: &GroupId,
        patience: &mut Patience,
        begun: Instant,
        send: &(dyn Fn(GroupMessage) + Sync),
    ) -> Result<Result<HeldLock, String>, StageError> {
        let mut lock = GroupLock::open(folders, id)?;
        if lock.try_acquire(folders)? {
            return Ok(Ok(HeldLock::register(lock, self.worker)));
        }
        let since = epoch_seconds();
        let why = format!("the lock of group {id} is held by {}", lock.held_by());
        self.report_wait(BTreeSet::from([format!("group {id}")]), why, send);
        loop {
            let interrupts = [self.control.stopped.as_fd()];
            let mut nothing = |_: &GroupLock| {};
            let until = patience.until(begun);
            let after = (Duration::MAX, &mut nothing as &mut dyn FnMut(&GroupLock));
            match lock.acquire(folders, group::WaitOptions { until, interrupts: &interrupts, after })? {
                Waited::Locked => return Ok(Ok(HeldLock::register(lock, self.worker))),
                Waited::Interrupted => return Ok(Err(STOPPED.to_owned())),
                Waited::TimedOut => {
                    if self.must_give_up(patience, send) {
                        // The registry is for people: locks work without it.
                        let _ = lock.register_timeout(std::process::id(), since, epoch_seconds());
                        let waited = format_span(begun.elapsed());
                        let holder = lock.held_by();
                        return Ok(Err(format!(
                            "it did not get its lock within {waited}: {id} is held by {holder}"
                        )));
                    }
                }
            }
        }
    }

    /// Reports that others hold what the group needs.
    fn report_wait(&self, held: BTreeSet<String>, why: String, send: &(dyn Fn(GroupMessage) + Sync)) {
        send(GroupMessage::Blocked(held));
        let is_limited = !self.control.wait_without_limit.load(Ordering::SeqCst);
        let limit = is_limited.then(|| self.patience.limit());
        send(GroupMessage::Event(PhaseEvent::GroupWaiting { group: self.index, why, limit }));
    }

    /// Reports a timeout, so that rules can apply. Returns whether the group gives up.
    fn must_give_up(&self, patience: &mut Patience, send: &(dyn Fn(GroupMessage) + Sync)) -> bool {
        self.report_timeout(patience.next(), send);
        patience.waited() == Next::GiveUp && !self.control.wait_without_limit.load(Ordering::SeqCst)
    }

    /// Waits for the lease. The inner error says why the group did not get it.
    pub(super) fn acquire(
        &self,
        patience: &mut Patience,
        begun: Instant,
        send: &(dyn Fn(GroupMessage) + Sync),
    ) -> Result<Result<Lease, String>, StageError> {
        let leases = self.worker.leases();
        let waker = leases.store().waker().map_err(RunError::from)?;
        let stays = Ttl::new(TICKET_TTL).expect("two minutes are a TTL");
        let terms = WaitTerms { waker: Some(waker.id()), stays };
        let mut waiting = match leases.acquire(&self.lease_request(terms)).map_err(RunError::from)? {
            Outcome::Granted(grant) => return Ok(Ok(grant.lease)),
            Outcome::Waiting(waiting) => waiting,
            Outcome::Deadlock(_) => return Ok(Err("waiting for its lease would be a deadlock".to_owned())),
            Outcome::Held(blockers) => return Ok(Err(why(&blockers))),
            Outcome::Gone => return Ok(Err(TICKET_REMOVED.to_owned())),
        };
        let obstacles = waiting.blockers.iter().flat_map(|blocker| &blocker.leases);
        let held = obstacles.map(|found| found.witness.clone()).collect();
        self.report_wait(held, why(&waiting.blockers), send);
        loop {
            let ticket = waiting.ticket.clone();
            let interrupts = [self.control.stopped.as_fd()];
            let until = patience.until(begun);
            let options = WaitOptions { until, interrupts: &interrupts, grace: Duration::ZERO, tick: None };
            let waited = leases.wait(waiting, &*waker, &options, AtEnd::Stay, &mut |_| {});
            match waited.map_err(RunError::from)? {
                Acquired::Granted(grant) => return Ok(Ok(grant.lease)),
                Acquired::Gone | Acquired::Held(_) | Acquired::Deadlock(_) => {
                    return Ok(Err(TICKET_REMOVED.to_owned()));
                }
                Acquired::Interrupted(_) => {
                    leases.give_up(&ticket).map_err(RunError::from)?;
                    return Ok(Err(STOPPED.to_owned()));
                }
                Acquired::Waiting(still) => {
                    if self.must_give_up(patience, send) {
                        leases.give_up(&ticket).map_err(RunError::from)?;
                        let waited = format_span(begun.elapsed());
                        return Ok(Err(format!(
                            "it did not get its lease within {waited}: {}",
                            why(&still.blockers)
                        )));
                    }
                    waiting = still;
                }
            }
        }
    }

    /// Reports a timeout, and waits until the executor has applied its rules.
    fn report_timeout(&self, waited: Duration, send: &(dyn Fn(GroupMessage) + Sync)) {
        let (sender, handled) = channel();
        send(GroupMessage::LockTimeout(waited, sender));
        while handled.recv_timeout(CHECK_EVERY) == Err(RecvTimeoutError::Timeout)
            && !self.control.is_stopped()
        {}
    }

    fn lease_request(&self, terms: WaitTerms) -> lease::AcquireRequest {
        let names = std::iter::once(Target::Name(self.name.clone()));
        let targets = names.chain(self.paths.iter().cloned().map(Target::Path));
        let resources = targets.map(|target| Resource { target, mode: Mode::Exclusive }).collect();
        let worker = self.worker.record();
        let voucher = Voucher::KernelLock { holder: worker.holder, process: worker.process };
        let claim = Claim {
            owner: self.owner.clone(),
            resources,
            proof: Proof { origin: worker.origin.clone(), voucher },
            contract: Contract::Strict,
            ttl: None,
            reason: Some(format!("group {}", self.name)),
            ticket: None,
            agent: None,
        };
        let priority = Priority::new(0).expect("zero is a priority");
        lease::AcquireRequest { claim, priority, under: Vec::new(), wait: Some(terms), join: false }
    }
}
