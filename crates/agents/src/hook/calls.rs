//! Open calls of an agent: opened before a tool, closed after it; the names that they hold, and waiting for names.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use lockkeeper_core::id::{LeaseId, Token};
use lockkeeper_core::lease::{AgentAnswer, AgentCall, Denial};
use lockkeeper_core::liveness::Contract;
use lockkeeper_core::record::Lease;
use lockkeeper_core::resource::Target;
use lockkeeper_core::time::Moment;
use lockkeeper_engine::location::literal_pattern;
use lockkeeper_engine::open::{OpenError, has_store, open_engine};
use lockkeeper_engine::{Acquired, WaitOptions};
use lockkeeper_platform::wall_clock::WallTime;

use super::plan::{Plan, id_of};
use super::stores::{Store, Stores};
use super::{Hook, HookError};
use crate::Event;
use crate::open_calls::{OpenCall, OpenName};
use crate::place::join;
use crate::repository::{locate, real_path, takes_part};
use crate::session::Session;

/// What has changed in the calls of an agent.
#[derive(Default)]
pub(super) struct CallChanges {
    /// Calls that may have changed files that were not known before.
    pub(super) look: Vec<OpenCall>,
    /// Names that no call needs any more.
    pub(super) free: Vec<OpenName>,
}

impl Hook<'_> {
    /// Opens or closes calls in the record of the agent, as the event says.
    pub(super) fn change_calls(&self, session: &mut Session, plan: &Plan) -> CallChanges {
        let now = WallTime::of_files().as_micros();
        let mut changes = CallChanges::default();
        match self.input.event {
            Event::BeforeTool => {
                // The harness may never report the end of an earlier call, so look now. The call may also still run, so it
                // stays open. Two settings files may call the hook for one call.
                let own = self.input.tool.as_ref().map(|tool| id_of(self.input, tool));
                let is_earlier = |call: &&mut OpenCall| is_unseen(call) && own.as_ref() != Some(&call.id);
                for call in session.calls.iter_mut().filter(is_earlier) {
                    changes.look.push(call.clone());
                    call.began = now;
                }
                if let Some(open) = &plan.open {
                    session.open_call(OpenCall { began: now, ..open.clone() });
                }
            }
            Event::AfterTool | Event::ToolFailed => {
                let Some(tool) = &self.input.tool else { return changes };
                let id = id_of(self.input, tool);
                self.go_on_in_background(session, &id);
                let mut is_first = true;
                let ends = |call: &OpenCall| {
                    call.id == id && !call.background && !call.waited && std::mem::take(&mut is_first)
                };
                self.close(session, ends, now, &mut changes);
                // A call that was taken for one that only reads was not opened. It began when the agent was last seen.
                let began = session.seen_at.saturating_mul(1_000_000);
                let unopened = OpenCall { began, root: self.root(), ..OpenCall::default() };
                if is_first && self.tells_more(&unopened) {
                    changes.look.push(unopened);
                }
            }
            Event::TurnBegins => {
                self.close(session, |call| !call.background && !call.waited, now, &mut changes);
            }
            Event::TurnEnds => {
                let runs = |task: &str| self.input.background.iter().any(|other| other.id == task);
                let is_over = |call: &OpenCall| {
                    !call.background || call.task.as_deref().is_some_and(|task| !runs(task))
                };
                self.close(session, is_over, now, &mut changes);
            }
            Event::SessionBegins
            | Event::SessionEnds
            | Event::SubagentBegins
            | Event::SubagentEnds
            | Event::Other(_) => {}
        }
        changes
    }

    fn close(
        &self,
        session: &mut Session,
        ends: impl FnMut(&OpenCall) -> bool,
        now: i64,
        changes: &mut CallChanges,
    ) {
        let (closed, free) = session.close_calls(ends);
        changes.free.extend(free);
        for call in closed {
            call.paths.iter().for_each(|path| session.note_written(path, now));
            changes.look.extend(Some(call).filter(|call| is_unseen(call) || self.tells_more(call)));
        }
    }

    /// The root of the work tree in which the agent works. Empty if it takes no part.
    fn root(&self) -> PathBuf {
        let location = locate(&self.cwd, self.call.state.as_deref()).filter(takes_part);
        location.map(|location| location.root).unwrap_or_default()
    }

    /// Whether the harness says that a call has changed a file that was not known before.
    fn tells_more(&self, call: &OpenCall) -> bool {
        let told = self.input.changed.iter().flatten().filter_map(|path| real_path(&join(&self.cwd, path)));
        !call.background
            && call.root != PathBuf::new()
            && told.into_iter().any(|path| !call.paths.contains(&path))
    }

    /// Keeps the names of commands that continue in the background after the tool has ended.
    fn go_on_in_background(&self, session: &mut Session, id: &str) {
        let Some(call) = session.calls.iter_mut().find(|call| call.id == id && !call.background) else {
            return;
        };
        let lasting: Vec<OpenName> = call.names.iter().filter(|name| name.lasts).cloned().collect();
        if self.input.event == Event::AfterTool && !lasting.is_empty() {
            let task = self.input.task.clone();
            let id = call.id.clone();
            session.open_call(OpenCall { id, names: lasting, background: true, task, ..OpenCall::default() });
        }
    }

    /// A sub-agent, or the turn of an agent, ends with all its calls.
    pub(super) fn close_all(&self, stores: &Stores) -> Result<(), HookError> {
        let Some(home) = stores.iter().next() else { return Ok(()) };
        if home.sessions.get(&self.owner).is_none_or(|session| session.calls.is_empty()) {
            return Ok(());
        }
        let mut changes = CallChanges::default();
        let change = |session: &mut Session| {
            self.close(session, |_| true, WallTime::of_files().as_micros(), &mut changes);
        };
        home.sessions.update(&self.owner, change).map_err(HookError::Sessions)?;
        self.look(stores, &changes.look)?;
        release(&changes.free)
    }

    /// Takes back a call that was denied.
    pub(super) fn withdraw(&self, stores: &Stores, plan: &Plan) -> Result<(), HookError> {
        let (Some(open), Some(home)) = (&plan.open, stores.iter().next()) else { return Ok(()) };
        let change = |session: &mut Session| {
            let at = session.calls.iter().rposition(|call| call.id == open.id && !call.background);
            let Some(call) = at.map(|at| session.calls.remove(at)) else { return };
            // Names that `wait` acquired stay for the next attempt.
            let names: Vec<OpenName> = call.names.into_iter().filter(|name| name.lease.is_some()).collect();
            if !names.is_empty() {
                session.open_call(OpenCall { names, waited: true, ..OpenCall::default() });
            }
        };
        home.sessions.update(&self.owner, change).map(|_| ()).map_err(HookError::Sessions)
    }

    /// Remembers the leases of the names that a call has got, so that its end releases them.
    pub(super) fn keep_names(
        &self,
        stores: &Stores,
        plan: &Plan,
        state: &std::path::Path,
        leases: &[Lease],
    ) -> Result<(), HookError> {
        let named: Vec<(&str, (u64, u64))> = leases
            .iter()
            .filter_map(|lease| match lease.claim.targets().next()? {
                Target::Name(name) => Some((name.as_str(), (lease.id.0, lease.token.0))),
                Target::Path(_) => None,
            })
            .collect();
        let (Some(open), Some(home), false) = (&plan.open, stores.iter().next(), named.is_empty()) else {
            return Ok(());
        };
        let change = |session: &mut Session| {
            named.iter().for_each(|(name, lease)| session.set_lease(&open.id, name, state, *lease));
        };
        home.sessions.update(&self.owner, change).map(|_| ()).map_err(HookError::Sessions)
    }

    /// Calls the rules, and waits for names that another owner has: their commands may end soon. Files are not waited for.
    pub(super) fn call_patiently(
        &self,
        store: &Store,
        mut call: AgentCall,
    ) -> Result<(AgentAnswer, Moment), HookError> {
        let until = Instant::now() + self.call.patience;
        let mut received: Vec<Lease> = Vec::new();
        loop {
            let (mut answer, now) = store.call(&call)?;
            let files = files_beside(&answer, store, &call.files);
            if !files.is_empty() {
                call.files.extend(files);
                continue;
            }
            let ticket = answer.denied.iter().find_map(|denial| denial.ticket.as_ref());
            let waits = !answer.denied.is_empty() && answer.denied.iter().all(can_be_waited_for);
            let (true, Some(ticket), true) = (waits, ticket, Instant::now() < until) else {
                answer.picked_up.append(&mut received);
                return Ok((answer, now));
            };
            let options =
                WaitOptions { until: Some(until), interrupts: &[], grace: Duration::ZERO, tick: None };
            let acquired = store
                .engine()?
                .resume(ticket.id, call.stays, &options, &mut |_| {})
                .map_err(OpenError::Store)?;
            if let Acquired::Granted(grant) = acquired {
                received.push(grant.lease);
            }
        }
    }
}

/// The leases that stopped a check of a pattern, are on a file that is there and is no folder, and whose file the pattern does not
/// match: nothing that the pattern matches is below a file.
fn files_beside(answer: &AgentAnswer, store: &Store, known: &[LeaseId]) -> Vec<LeaseId> {
    let checks = answer.denied.iter().filter(|denial| denial.ticket.is_none() && denial.cycle.is_empty());
    let leases = checks.flat_map(|denial| &denial.blockers).flat_map(|blocker| &blocker.leases);
    let is_file = |lease: &Lease| {
        lease.claim.targets().all(|target| match target {
            Target::Path(pattern) => {
                let path = store.root.join(pattern.literal_prefix());
                literal_pattern(pattern.literal_prefix()) == pattern.as_str()
                    && path.symlink_metadata().is_ok_and(|meta| !meta.is_dir())
            }
            Target::Name(_) => false,
        })
    };
    let new = leases.map(|found| &found.record).filter(|lease| !known.contains(&lease.id));
    new.filter(|lease| is_file(lease)).map(|lease| lease.id).collect()
}

/// Whether somebody still has to look at what a call changed.
fn is_unseen(call: &OpenCall) -> bool {
    call.unknown.is_some() && !call.background && call.root != PathBuf::new()
}

/// Whether the hook waits for a denied name: not if the wait would never end, or would end the holder's processes.
fn can_be_waited_for(denial: &Denial) -> bool {
    let is_name = denial.claim.targets().all(|target| matches!(target, Target::Name(_)));
    let mut leases = denial.blockers.iter().flat_map(|blocker| &blocker.leases);
    let kills = leases.any(|found| found.record.claim.contract == Contract::Kill);
    denial.ticket.is_some() && is_name && !kills
}

/// Releases names that no call needs any more.
pub(super) fn release(names: &[OpenName]) -> Result<(), HookError> {
    for name in names.iter().filter(|name| has_store(&name.state)) {
        if let Some((lease, token)) = name.lease {
            // If its TTL has ended meanwhile, nothing is left to release.
            let engine = open_engine(&name.state)?;
            let _ = engine.release(LeaseId(lease), Some(Token(token))).map_err(OpenError::Store)?;
        }
    }
    Ok(())
}
