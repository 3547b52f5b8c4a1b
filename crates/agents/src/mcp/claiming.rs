//! Tools that claim: `claim` answers at once, `wait` sleeps in line.

use std::io::{PipeReader, PipeWriter, pipe};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use lockkeeper_core::lease::{AgentAnswer, Denial};
use lockkeeper_core::time::Moment;
use lockkeeper_engine::open::OpenError;
use lockkeeper_engine::{Acquired, Engine, WaitOptions};
use serde_json::{Value, json};

use super::arguments::{CallError, ClaimCall, WaitCall};
use super::giving::checked_note;
use super::server::Visit;
use super::wording::{claim_text, conflicts, next_step, path_text};
use crate::claims::WorkTrees;
use crate::hook::tell_of_work_trees;
use crate::session::{Activity, Session};

/// How long an overdue holder gets to stop by itself, under the contract `kill`.
pub(super) const GRACE: Duration = Duration::from_secs(4);
/// The longest sleep. With the grace it is less than what the tool promises.
pub(super) const LONGEST: Duration = Duration::from_secs(45);

/// Ends a sleep in line when its other end is dropped.
pub(super) struct Interrupt(PipeReader);

impl Interrupt {
    /// Creates an interrupt. It comes when the returned writer is dropped.
    pub(super) fn new() -> Result<(Self, PipeWriter), CallError> {
        let (reader, writer) = pipe()?;
        Ok((Self(reader), writer))
    }

    /// A descriptor that becomes readable when the interrupt comes.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Visit<'_> {
    /// Claims all or nothing.
    pub(super) fn claim(&self, call: &ClaimCall) -> Result<Value, CallError> {
        let note = call.note.as_deref().map(checked_note).transpose()?;
        // A name that cannot be one is found before anything is written.
        self.agent_call(call.asked())?;
        self.keep_record(|session| {
            if let Some(note) = note {
                session.note = note;
            }
        })?;
        let engine = self.engine()?;
        let request = self.agent_call(call.asked())?;
        let (answer, now) = engine.agent_call(&request).map_err(OpenError::Store)?;
        if answer.denied.is_empty() {
            return self.granted(&engine, &request.claims, &answer);
        }
        self.count_denied(&answer.denied)?;
        let mut result = self.refused(&answer.denied, now);
        result["next"] = json!(next_step(&answer.denied, &self.caller.owner));
        Ok(result)
    }

    /// Waits until all is granted, the time is up, or the interrupt comes. The place in line is kept.
    pub(super) fn wait(&self, call: &WaitCall, interrupt: &Interrupt) -> Result<Value, CallError> {
        let request = self.agent_call(call.asked())?;
        self.keep_record(|_| {})?;
        let engine = self.engine()?;
        let until = Instant::now() + Duration::from_secs(call.seconds()).min(LONGEST);
        let mut is_over = call.seconds() == 0;
        let mut is_first = true;
        loop {
            let (answer, now) = engine.agent_call(&request).map_err(OpenError::Store)?;
            if answer.denied.is_empty() {
                return self.granted(&engine, &request.claims, &answer);
            }
            if std::mem::take(&mut is_first) {
                self.count_denied(&answer.denied)?;
            }
            let ticket = answer.denied.iter().find_map(|denial| denial.ticket.as_ref());
            let is_deadlock = answer.denied.iter().any(|denial| denial.ticket.is_none());
            let (false, false, Some(ticket)) = (is_over, is_deadlock, ticket) else {
                let mut result = self.refused(&answer.denied, now);
                if is_deadlock {
                    result["told"] = json!([next_step(&answer.denied, &self.caller.owner)]);
                } else {
                    result["position"] = json!(position(&answer.denied));
                }
                return Ok(result);
            };
            let interrupts = [interrupt.as_fd()];
            let options =
                WaitOptions { until: Some(until), interrupts: &interrupts, grace: GRACE, tick: None };
            let acquired = engine
                .resume(ticket.id, self.settings.ticket, &options, &mut |_| {})
                .map_err(OpenError::Store)?;
            // The next turn of the loop reads the store again. It is the last one, unless the lease was granted or the ticket
            // is gone.
            is_over = !matches!(acquired, Acquired::Granted(_) | Acquired::Gone) || Instant::now() >= until;
        }
    }

    fn count_denied(&self, denied: &[Denial]) -> Result<(), CallError> {
        let change = |session: &mut Session| {
            session.state = Activity::Waits;
            denied.iter().for_each(|denial| session.count_denied(&claim_text(&denial.claim)));
        };
        self.sessions.update(&self.caller.owner, change)?;
        Ok(())
    }

    fn refused(&self, denied: &[Denial], now: Moment) -> Value {
        let mut result = json!({ "granted": false, "conflicts": conflicts(denied, now, &self.sessions) });
        if let Some(ticket) = denied.iter().find_map(|denial| denial.ticket.as_ref()) {
            result["ticket"] = json!(ticket.id.as_ticket());
        }
        result
    }

    fn granted(
        &self,
        engine: &Engine,
        claims: &[lockkeeper_core::record::Claim],
        answer: &AgentAnswer,
    ) -> Result<Value, CallError> {
        let names: Vec<String> = claims.iter().map(claim_text).collect();
        let change = |session: &mut Session| {
            session.state = Activity::Works;
            session.denied.retain(|path, _| !names.contains(path));
        };
        self.sessions.update(&self.caller.owner, change)?;
        let held = engine.leases_of(&self.caller.owner).map_err(OpenError::Store)?;
        let mut leases: Vec<Value> = Vec::new();
        for claim in claims {
            let lease = held.iter().find(|lease| lease.claim.satisfies(&claim.resources));
            // If the agent has no lease of its own, an owner above it holds the target, which is enough.
            leases.extend(lease.map(|lease| {
                json!({ "target": claim_text(claim), "lease": lease.id.to_string(), "token": lease.token.0 })
            }));
        }
        let mut result = json!({ "granted": true, "conflicts": [] });
        if let [one] = leases.as_slice() {
            result["lease"] = one["lease"].clone();
            result["token"] = one["token"].clone();
        }
        result["leases"] = Value::Array(leases);
        if self.settings.work_trees == WorkTrees::Tell && !answer.elsewhere.is_empty() {
            let here = self.location.root.display().to_string();
            let told = tell_of_work_trees(&self.sessions, &self.caller.owner, &answer.elsewhere, &here)?;
            result["told"] = told.iter().map(|news| path_text(news)).collect();
        }
        Ok(result)
    }
}

/// The place in line: with several claims, the worst one.
fn position(denied: &[Denial]) -> usize {
    let ahead = denied.iter().flat_map(|denial| &denial.blockers).map(|blocker| blocker.tickets.len());
    ahead.max().unwrap_or(0) + 1
}
