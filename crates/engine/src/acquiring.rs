//! Acquire and wait: gets a lease, and waits in line for it if something blocks it.
//!
//! The command, the library and `stages` all get their leases through these functions.

use std::time::Duration;

use lockkeeper_core::deadlock::Link;
use lockkeeper_core::id::LeaseId;
use lockkeeper_core::lease::{
    AcquireRequest, Caller, Grant, NotCurrent, Outcome, Resumer, WaitTerms, Waiting,
};
use lockkeeper_core::liveness::Voucher;
use lockkeeper_core::record::Lease;
use lockkeeper_core::time::Ttl;
use lockkeeper_core::waiting::Blocker;
use lockkeeper_platform::process;

use super::Engine;
use super::waiting::{Progress, Slept, WaitOptions};
use lockkeeper_store::{StoreError, Waker};

/// How an attempt to get a lease ended.
#[derive(Debug)]
pub enum Acquired {
    /// The lease is held.
    Granted(Grant),
    /// Other owners hold it, and the request did not want to wait: there is no ticket.
    Held(Vec<Blocker>),
    /// The time to wait is up. The ticket is still in line.
    Waiting(Waiting),
    /// One of the interrupts ended the wait.
    Interrupted(Waiting),
    /// The wait would close a cycle.
    Deadlock(Vec<Link>),
    /// Another process has removed the ticket.
    Gone,
}

impl From<Outcome> for Acquired {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Granted(grant) => Self::Granted(grant),
            Outcome::Waiting(waiting) => Self::Waiting(waiting),
            Outcome::Held(blockers) => Self::Held(blockers),
            Outcome::Deadlock(links) => Self::Deadlock(links),
            Outcome::Gone => Self::Gone,
        }
    }
}

/// What happens to the ticket when a wait ends without the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtEnd {
    /// It is removed.
    GiveUp,
    /// It stays in line for a while, with no process asleep on it.
    Detach,
    /// It stays as it is: the caller continues with it.
    Stay,
}

impl Engine {
    /// The leases among these that a command above this process holds, such as `exec`. It waits for this process, so a wait for
    /// it would never end. [`under`](super::under) names such leases, too, unless a program in between clears the environment.
    pub fn held_above(&self, blockers: &[Blocker]) -> Vec<LeaseId> {
        let caller = self.caller(None, None);
        let leases = blockers.iter().flat_map(|blocker| &blocker.leases).map(|found| &found.record);
        let is_above = |lease: &&Lease| match lease.claim.proof.voucher {
            // A program that uses the library may go on without this process.
            Voucher::KernelLock { process, .. } => {
                caller.is_in_family_of(&lease.claim) && process::has_own_program(process)
            }
            Voucher::Process(_) | Voucher::Time | Voucher::TimeFor(_) => false,
        };
        leases.filter(is_above).map(|lease| lease.id).collect()
    }

    /// Acquires a lease without waiting. Holders that are overdue are stopped first, if their contract is `kill`.
    pub fn acquire_now(&self, request: &AcquireRequest, grace: Duration) -> Result<Outcome, StoreError> {
        match self.acquire(request)? {
            Outcome::Held(blockers) if self.stop_overdue(&blockers, grace)? => self.acquire(request),
            outcome => Ok(outcome),
        }
    }

    /// Acquires a lease, and waits in line for it if something blocks it. `stays` is the TTL of the ticket.
    pub fn acquire_and_wait(
        &self,
        mut request: AcquireRequest,
        stays: Ttl,
        options: &WaitOptions<'_>,
        at_end: AtEnd,
        progress: Progress<'_>,
    ) -> Result<Acquired, StoreError> {
        // A new waker costs more than an attempt. It is created only if something blocks the lease.
        if !self.wakers.has_idle()
            && let Outcome::Granted(grant) = self.acquire(&request)?
        {
            return Ok(Acquired::Granted(grant));
        }
        let waker = self.wakers.take(self.store())?;
        request.wait = Some(WaitTerms { waker: Some(waker.id()), stays });
        self.wait_if_in_line(self.acquire(&request)?, &*waker, options, at_end, progress)
    }

    /// Makes a shared lease exclusive, and waits for that if other holders share it. Without success it stays shared.
    pub fn upgrade_and_wait(
        &self,
        id: LeaseId,
        caller: impl Into<Caller>,
        stays: Ttl,
        options: &WaitOptions<'_>,
        progress: Progress<'_>,
    ) -> Result<Result<Acquired, NotCurrent>, StoreError> {
        let waker = self.wakers.take(self.store())?;
        let terms = WaitTerms { waker: Some(waker.id()), stays };
        match self.upgrade(id, caller, Some(terms))? {
            Ok(outcome) => self.wait_if_in_line(outcome, &*waker, options, AtEnd::GiveUp, progress).map(Ok),
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    /// Waits with a ticket that is in line already. Leaves it there if the time is up or an interrupt comes.
    pub fn resume(
        &self,
        ticket: LeaseId,
        stays: Ttl,
        options: &WaitOptions<'_>,
        progress: Progress<'_>,
    ) -> Result<Acquired, StoreError> {
        let waker = self.wakers.take(self.store())?;
        let outcome = self.check_ticket(ticket, Some(WaitTerms { waker: Some(waker.id()), stays }))?;
        self.wait_if_in_line(outcome, &*waker, options, AtEnd::Detach, progress)
    }

    /// Continues the wait of an earlier command. Leaves the ticket in line if the time is up or an interrupt comes.
    pub fn resume_as(
        &self,
        ticket: LeaseId,
        resumer: &Resumer,
        stays: Ttl,
        options: &WaitOptions<'_>,
        progress: Progress<'_>,
    ) -> Result<Acquired, StoreError> {
        let waker = self.wakers.take(self.store())?;
        let outcome = self.resume_now(ticket, resumer, Some(WaitTerms { waker: Some(waker.id()), stays }))?;
        self.wait_if_in_line(outcome, &*waker, options, AtEnd::Detach, progress)
    }

    fn wait_if_in_line(
        &self,
        outcome: Outcome,
        waker: &dyn Waker,
        options: &WaitOptions<'_>,
        at_end: AtEnd,
        progress: Progress<'_>,
    ) -> Result<Acquired, StoreError> {
        match outcome {
            Outcome::Waiting(waiting) => self.wait(waiting, waker, options, at_end, progress),
            outcome => Ok(outcome.into()),
        }
    }

    /// Sleeps on the waker until the ticket is granted, the time is up, or an interrupt comes.
    pub(crate) fn wait(
        &self,
        waiting: Waiting,
        waker: &dyn Waker,
        options: &WaitOptions<'_>,
        at_end: AtEnd,
        progress: Progress<'_>,
    ) -> Result<Acquired, StoreError> {
        let ticket = waiting.ticket.clone();
        let slept = match self.sleep_until_granted(waiting, waker, options, progress) {
            Ok(slept) => slept,
            Err(error) => {
                if at_end != AtEnd::Stay {
                    // The first error is returned. The ticket is removed if that is possible.
                    let _ = self.give_up(&ticket);
                }
                return Err(error);
            }
        };
        let (still, is_interrupted) = match slept {
            Slept::Granted(grant) => return Ok(Acquired::Granted(grant)),
            Slept::Gone => return Ok(Acquired::Gone),
            Slept::TimedOut(waiting) => (waiting, false),
            Slept::Interrupted(waiting) => (waiting, true),
        };
        match at_end {
            AtEnd::GiveUp => {
                // An upgrade may have been granted at the last moment.
                if let Some(grant) = self.give_up(&ticket)? {
                    return Ok(Acquired::Granted(grant));
                }
            }
            AtEnd::Detach => self.detach(ticket.id)?,
            AtEnd::Stay => {}
        }
        Ok(match (is_interrupted, at_end) {
            (true, _) => Acquired::Interrupted(still),
            (false, AtEnd::GiveUp) => Acquired::Held(still.blockers),
            (false, AtEnd::Detach | AtEnd::Stay) => Acquired::Waiting(still),
        })
    }
}
