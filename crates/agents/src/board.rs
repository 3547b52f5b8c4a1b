//! Board: every agent of a repository, with what it holds and waits for in the lease store.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use lockkeeper_core::record::Claim;
use lockkeeper_core::resource::{Resource, Target};
use lockkeeper_engine::open::{OpenError, has_store, lost_store, open_engine_to_read};
use lockkeeper_engine::views::{AgentView, BoardView, WaitingView};
use lockkeeper_engine::{Listing, WaiterEntry};
use lockkeeper_platform::origin;
use lockkeeper_platform::wall_clock::ClockOffset;

use crate::hook_log::{HookLog, LOST_STORE};
use crate::session::{Activity, Session, Sessions};

/// How many incidents and failed calls are shown.
const SHOWN: usize = 5;

/// The agents of a repository, as they were at one moment.
#[derive(Default)]
pub struct Board {
    takes_part: bool,
    agents: Vec<BoardAgent>,
    waiters: Vec<(Arc<Claim>, WaitingView)>,
    incidents: Vec<String>,
    failed_open: Vec<String>,
}

struct BoardAgent {
    session: Session,
    claims: Vec<Arc<Claim>>,
    waits_for: Vec<Arc<Claim>>,
}

impl Board {
    /// Reads the board below a state folder. It is empty where agents are not coordinated.
    ///
    /// # Errors
    ///
    /// The records of agents or the lease store cannot be read.
    pub fn read(state: &Path) -> Result<Self, OpenError> {
        if !state.join("agents").is_dir() {
            return Ok(Self::default());
        }
        let here = origin::origin().map_err(OpenError::Machine)?;
        let sessions = Sessions::new(state).all(&here).map_err(OpenError::Machine)?;
        let is_lost = lost_store(state);
        let engine = (has_store(state) && !is_lost).then(|| open_engine_to_read(state)).transpose()?;
        let listing = engine.map(|engine| engine.listing()).transpose()?;
        let incidents = HookLog::incidents(state).last(SHOWN);
        let mut failed_open = HookLog::new(state).last(SHOWN);
        failed_open.extend(is_lost.then(|| LOST_STORE.to_owned()));
        Ok(Self { incidents, failed_open, ..Self::new(sessions, listing.as_ref()) })
    }

    /// Puts records of agents and leases together. Leases and tickets of the dead are left out.
    fn new(sessions: Vec<Session>, listing: Option<&Listing>) -> Self {
        let mut held: BTreeMap<&str, Vec<Arc<Claim>>> = BTreeMap::new();
        let mut waited: BTreeMap<&str, Vec<Arc<Claim>>> = BTreeMap::new();
        let mut waiters = Vec::new();
        if let Some(listing) = listing {
            for holder in listing.holders.iter().filter(|holder| !holder.verdict.is_free()) {
                let claim = &holder.lease.claim;
                held.entry(claim.owner.as_str()).or_default().push(Arc::clone(claim));
            }
            let clock = ClockOffset::at(listing.now);
            for waiter in listing.waiters.iter().filter(|waiter| !waiter.verdict.is_free()) {
                let claim = &waiter.ticket.claim;
                waited.entry(claim.owner.as_str()).or_default().push(Arc::clone(claim));
                waiters.push((Arc::clone(claim), waiting(waiter, clock)));
            }
        }
        let agent = |session: Session| BoardAgent {
            claims: held.remove(session.owner.as_str()).unwrap_or_default(),
            waits_for: waited.remove(session.owner.as_str()).unwrap_or_default(),
            session,
        };
        let agents = sessions.into_iter().map(agent).collect();
        Self { takes_part: true, agents, waiters, ..Self::default() }
    }

    /// Keeps only agents and waiters that hold or wait for one of these resources.
    pub(crate) fn about(mut self, resources: &[Resource]) -> Self {
        let meets = |claim: &Arc<Claim>| {
            claim.targets().any(|target| resources.iter().any(|one| one.target.meets(target).is_some()))
        };
        self.agents.retain(|agent| agent.claims.iter().chain(&agent.waits_for).any(meets));
        self.waiters.retain(|(claim, _)| meets(claim));
        self
    }

    /// The board for people and programs. Notes and names in it come from other agents: front ends have to escape them.
    pub fn view(self) -> BoardView {
        let waiting = self.waiters.into_iter().map(|(_, waiting)| waiting).collect();
        let agents = self.agents.into_iter().map(BoardAgent::view).collect();
        let Self { takes_part, incidents, failed_open, .. } = self;
        BoardView { takes_part, agents, waiting, incidents, failed_open }
    }
}

impl BoardAgent {
    fn view(self) -> AgentView {
        let Session { owner, harness, since, seen_at, pid, cwd, note, denied, state, .. } = self.session;
        let texts = |claims: &[Arc<Claim>]| claims.iter().map(|claim| claim_text(claim)).collect();
        AgentView {
            owner,
            harness,
            state: word(state),
            since,
            last_seen: seen_at,
            pid,
            cwd,
            note,
            claims: texts(&self.claims),
            waits_for: texts(&self.waits_for),
            denied,
        }
    }
}

fn word(state: Activity) -> &'static str {
    match state {
        Activity::Works => "works",
        Activity::Rests => "rests",
        Activity::Waits => "waits",
    }
}

fn waiting(waiter: &WaiterEntry, clock: ClockOffset) -> WaitingView {
    let (ticket, claim) = (&waiter.ticket, &waiter.ticket.claim);
    let holder = waiter.blockers.iter().flat_map(|blocker| &blocker.leases).next();
    WaitingView {
        owner: claim.owner.to_string(),
        path: claim_text(claim),
        position: waiter.position,
        since: clock.unix_millis(ticket.enqueued_at).div_euclid(1000),
        held_by: holder.map(|holder| holder.record.claim.owner.to_string()),
    }
}

/// The first target of a claim. Where the file system ignores case, the second one is the same file.
fn claim_text(claim: &Claim) -> String {
    claim.targets().next().map(target_text).unwrap_or_default()
}

/// A target as people call it: a path without the escapes of a pattern.
pub(crate) fn target_text(target: &Target) -> String {
    match target {
        Target::Path(pattern) if pattern.is_literal() => pattern.literal_prefix().to_owned(),
        Target::Path(_) | Target::Name(_) => target.as_str().to_owned(),
    }
}
