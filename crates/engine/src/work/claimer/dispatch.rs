//! The loop of the claimer: it claims runs for free slots, and sleeps until the queue changes, a lease is granted or a
//! slot is free.

use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use lockkeeper_core::request::Request;
use lockkeeper_core::run::Run;

use super::waiting_line::WaitingLine;
use super::{ClaimResult, Claimed, Claimer, owner, why};
use crate::runs::RunError;
use crate::work::slots::Slots;
use lockkeeper_platform::poll;
use lockkeeper_store::runs::Listing;

/// How many different leases are tried for one that can be had.
const LOOK_AT: usize = 4096;
/// How often leases without a ticket and lock files are tried: no wake-up comes when those become free.
const TRY_AGAIN: Duration = Duration::from_millis(500);
/// The pause after the store failed.
const AFTER_TROUBLE: Duration = Duration::from_millis(500);

impl Claimer {
    /// Claims runs for free slots until the worker drains.
    pub(in crate::work) fn run(&self, slots: &Slots, claimed: &Sender<Claimed>) {
        let mut line = WaitingLine::default();
        while slots.wait_for_free() {
            match self.wait_for_next(slots, &mut line) {
                Ok(Some(next)) => {
                    slots.occupy();
                    // Slots go on until this sender is dropped.
                    let _ = claimed.send(next);
                }
                Ok(None) => {}
                Err(error) => {
                    self.events.trouble(error.to_string());
                    thread::sleep(AFTER_TROUBLE);
                }
            }
        }
        if let Err(error) = self.leave_all(&mut line) {
            self.events.trouble(format!("cannot give up the tickets of runs: {error}"));
        }
    }

    /// Sleeps until a run was claimed; none when the worker drains.
    fn wait_for_next(&self, slots: &Slots, line: &mut WaitingLine) -> Result<Option<Claimed>, RunError> {
        // Not for longer than this: every write to the store costs more while somebody listens.
        let mut changes = self.runs.subscribe()?;
        let mut was_woken = false;
        loop {
            changes.reset(was_woken);
            slots.drain_wakes();
            if slots.is_draining() {
                return Ok(None);
            }
            if !self.may_claim() {
                // The session is renewed as soon as the store answers again.
                poll::wait(&[slots.as_fd()], Some(AFTER_TROUBLE)).map_err(RunError::Machine)?;
                continue;
            }
            slots.set_idle(false);
            let looked_at = self.runs.now().moment;
            if let Some(claimed) = self.claim_next(line)? {
                return Ok(Some(self.leave_if_last(claimed, slots, line)));
            }
            slots.set_idle(line.is_empty() && !line.tries_again());
            let due = self.runs.next_due(looked_at)?;
            let now = self.runs.now().moment;
            let due = due.map(|due| due.since(now) + Duration::from_millis(1));
            let again = line.tries_again().then_some(TRY_AGAIN);
            let limit = [due, changes.longest_sleep(), again].into_iter().flatten().min();
            let mut interrupts: Vec<BorrowedFd<'_>> = vec![slots.as_fd()];
            interrupts.extend(changes.as_fd());
            if line.is_empty() {
                let ready = poll::wait(&interrupts, limit).map_err(RunError::Machine)?;
                was_woken = ready.contains(1);
            } else {
                let until = limit.and_then(|limit| Instant::now().checked_add(limit));
                if let Some(claimed) = self.wait_in_line(line, &interrupts, until)? {
                    return Ok(Some(self.leave_if_last(claimed, slots, line)));
                }
                // What was written meanwhile is looked at in any case.
                was_woken = false;
            }
        }
    }

    /// Gives up all tickets if no slot is left for what they could be granted: others may want it.
    fn leave_if_last(&self, claimed: Claimed, slots: &Slots, line: &mut WaitingLine) -> Claimed {
        if slots.is_last_free()
            && let Err(error) = self.leave_all(line)
        {
            // The run is claimed and has to be executed in any case.
            self.events.trouble(format!("cannot give up the tickets of runs: {error}"));
        }
        claimed
    }

    /// Claims the next run that can begin. Runs whose leases others hold get tickets.
    fn claim_next(&self, line: &mut WaitingLine) -> Result<Option<Claimed>, RunError> {
        line.file_held.clear();
        let listing =
            if self.formats.aiflow.is_some() { Listing::EveryRun } else { Listing::FirstOfEachLease };
        let mut held: Vec<(Run, Request)> = Vec::new();
        let mut tried: HashSet<String> = HashSet::new();
        for (run, request) in self.runs.claimable(listing, LOOK_AT)? {
            if !request.needs_lease() && !self.formats.apply_to(&request) {
                if let Some(claimed) = self.claim_plain(&run, request, line)? {
                    return Ok(Some(claimed));
                }
                continue;
            }
            // Thousands may need the same: it is tried once.
            if tried.contains(&request.lease_key()) {
                continue;
            }
            if !line.has(&owner(&run, &request)) {
                match self.claim_known(&run, request.clone(), line)? {
                    ClaimResult::Claimed(claimed) => return Ok(Some(*claimed)),
                    ClaimResult::Lost => continue,
                    ClaimResult::Held(blockers) => self.publish_wait(&run, why(&blockers)),
                }
            }
            tried.insert(request.lease_key());
            held.push((run, request));
        }
        self.wait_for_leases(held, line)
    }
}
