//! Board: every agent of a repository, with what it holds and waits for in the lease store.

use std::collections::BTreeMap;
use std::sync::Arc;

use lockkeeper_core::record::Claim;
use lockkeeper_engine::Listing;

use crate::session::{Activity, Session};

/// One agent, with what the lease store knows of it.
pub struct BoardAgent {
    /// Its record.
    pub session: Session,
    /// What it holds.
    pub claims: Vec<Arc<Claim>>,
    /// What it waits for.
    pub waits_for: Vec<Arc<Claim>>,
}

impl BoardAgent {
    /// What the agent does, in one word.
    pub fn state(&self) -> &'static str {
        match self.session.state {
            Activity::Works => "works",
            Activity::Rests => "rests",
            Activity::Waits => "waits",
        }
    }
}

/// Puts records of agents and leases together. Leases and tickets of the dead are left out.
pub fn board(sessions: Vec<Session>, listing: Option<&Listing>) -> Vec<BoardAgent> {
    let mut held: BTreeMap<&str, Vec<Arc<Claim>>> = BTreeMap::new();
    let mut waited: BTreeMap<&str, Vec<Arc<Claim>>> = BTreeMap::new();
    if let Some(listing) = listing {
        for holder in listing.holders.iter().filter(|holder| !holder.verdict.is_free()) {
            let claim = &holder.lease.claim;
            held.entry(claim.owner.as_str()).or_default().push(Arc::clone(claim));
        }
        for waiter in listing.waiters.iter().filter(|waiter| !waiter.verdict.is_free()) {
            let claim = &waiter.ticket.claim;
            waited.entry(claim.owner.as_str()).or_default().push(Arc::clone(claim));
        }
    }
    let agent = |session: Session| BoardAgent {
        claims: held.remove(session.owner.as_str()).unwrap_or_default(),
        waits_for: waited.remove(session.owner.as_str()).unwrap_or_default(),
        session,
    };
    sessions.into_iter().map(agent).collect()
}
