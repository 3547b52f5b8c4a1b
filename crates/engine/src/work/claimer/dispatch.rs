//! The loop of the claimer: it claims runs for free slots, and sleeps until the queue changes, a lease is granted or a
//! slot is free.

use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use lockkeeper_core::request::Request;
use lockkeeper_core::run::Run;

use super::tickets::Tickets;
use super::{ClaimResult, Claimed, Claimer, owner, why};
use crate::runs::RunError;
use crate::work::slots::Slots;
use lockkeeper_platform::poll;
use lockkeeper_store::runs::Listing;

/// At most this many leases are tried in one pass.
const MOST_LEASES: usize = 4096;
/// How often leases without a ticket and lock files are tried again: no wake-up comes when they become free.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The pause after the store failed.
const AFTER_FAILURE: Duration = Duration::from_millis(500);

impl Claimer {
    /// Claims runs for free slots until the worker drains.
    pub(in crate::work) fn run(&self, slots: &Slots, claimed: &Sender<Claimed>) {
        let mut tickets = Tickets::default();
        while slots.wait_for_free() {
            match self.wait_for_next(slots, &mut tickets) {
                Ok(Some(next)) => {
                    slots.occupy();
                    // The slots receive until this sender is dropped.
                    let _ = claimed.send(next);
                }
                Ok(None) => {}
                Err(error) => {
                    self.events.warn(error.to_string());
                    thread::sleep(AFTER_FAILURE);
                }
            }
        }
        if let Err(error) = self.drop_all(&mut tickets) {
            self.events.warn(format!("cannot give up the tickets of runs: {error}"));
        }
    }

    /// Sleeps until a run was claimed; none when the worker drains.
    fn wait_for_next(&self, slots: &Slots, tickets: &mut Tickets) -> Result<Option<Claimed>, RunError> {
        // Subscribe only while waiting: a subscriber makes every write slower.
        let mut changes = self.runs.subscribe()?;
        let mut was_woken = false;
        loop {
            changes.reset(was_woken);
            slots.clear_wakes();
            if slots.is_draining() {
                return Ok(None);
            }
            if !self.may_claim() {
                // The session is renewed as soon as the store answers again.
                poll::wait(&[slots.as_fd()], Some(AFTER_FAILURE)).map_err(RunError::Machine)?;
                continue;
            }
            slots.set_idle(false);
            let looked_at = self.runs.now().moment;
            if let Some(claimed) = self.claim_next(tickets)? {
                return Ok(Some(self.drop_if_last(claimed, slots, tickets)));
            }
            slots.set_idle(tickets.is_empty() && !tickets.tries_again());
            let due = self.runs.next_due(looked_at)?;
            let now = self.runs.now().moment;
            let due = due.map(|due| due.since(now) + Duration::from_millis(1));
            let again = tickets.tries_again().then_some(POLL_INTERVAL);
            let limit = [due, changes.longest_sleep(), again].into_iter().flatten().min();
            let mut interrupts: Vec<BorrowedFd<'_>> = vec![slots.as_fd()];
            interrupts.extend(changes.as_fd());
            if tickets.is_empty() {
                let ready = poll::wait(&interrupts, limit).map_err(RunError::Machine)?;
                was_woken = ready.contains(1);
            } else {
                let until = limit.and_then(|limit| Instant::now().checked_add(limit));
                if let Some(claimed) = self.wait_for_grant(tickets, &interrupts, until)? {
                    return Ok(Some(self.drop_if_last(claimed, slots, tickets)));
                }
                // The queue is read again in any case.
                was_woken = false;
            }
        }
    }

    /// Drops all tickets when the last free slot is taken, so that other workers get the leases.
    fn drop_if_last(&self, claimed: Claimed, slots: &Slots, tickets: &mut Tickets) -> Claimed {
        if slots.is_last_free()
            && let Err(error) = self.drop_all(tickets)
        {
            // The run is claimed and has to be executed in any case.
            self.events.warn(format!("cannot give up the tickets of runs: {error}"));
        }
        claimed
    }

    /// Claims the next run that can begin. A run whose lease another owner holds gets a ticket.
    fn claim_next(&self, tickets: &mut Tickets) -> Result<Option<Claimed>, RunError> {
        tickets.file_held.clear();
        let listing =
            if self.formats.aiflow.is_some() { Listing::EveryRun } else { Listing::FirstOfEachLease };
        let mut held: Vec<(Run, Request)> = Vec::new();
        let mut tried: HashSet<String> = HashSet::new();
        for (run, request) in self.runs.claimable(listing, MOST_LEASES)? {
            if !request.missing_labels(&self.worker.labels).is_empty() {
                continue;
            }
            if request.is_plain() && !self.formats.apply_to(&request) {
                if let Some(claimed) = self.claim_plain(&run, request, tickets)? {
                    return Ok(Some(claimed));
                }
                continue;
            }
            // Thousands of runs may need the same lease: it is tried once.
            if tried.contains(&request.lease_key()) {
                continue;
            }
            if !tickets.has(&owner(&run, &request)) {
                match self.claim_known(&run, request.clone(), tickets)? {
                    ClaimResult::Claimed(claimed) => return Ok(Some(*claimed)),
                    ClaimResult::FileHeld | ClaimResult::NotClaimable => continue,
                    ClaimResult::Held(blockers) => self.publish_wait(&run, why(&blockers)),
                }
            }
            tried.insert(request.lease_key());
            held.push((run, request));
        }
        self.wait_for_leases(held, tickets)
    }
}
