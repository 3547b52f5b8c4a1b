//! Tools that only read: `board`, `check` and `why`.

use std::path::Path;

use lockkeeper_core::resource::Target;
use lockkeeper_core::waiting::meets;
use lockkeeper_engine::HolderEntry;
use lockkeeper_engine::evidence::{Evidence, verdict_word};
use lockkeeper_engine::location::Location;
use lockkeeper_engine::open::OpenError;
use lockkeeper_engine::views::{AgentView, WaitingView};
use serde_json::{Value, json};

use super::arguments::{Asked, CallError};
use super::server::{Server, Visit, engine_to_read};
use super::wording::{
    ago, claim_text, conflict, note_text, path_text, since_epoch, target_text, waits_before,
};
use crate::board::Board;

/// The most agents, and the most waiters, of one board.
const MAX_ROWS: usize = 100;
/// The most claims of one agent on the board.
const MAX_CLAIMS: usize = 50;

impl Server {
    /// The agents of the repository of a path, or of the one in which the server was started.
    pub(super) fn board(&self, path: Option<&str>) -> Result<Value, CallError> {
        let wanted = path.map(|path| self.wanted(path)).transpose()?;
        let Some(location) = wanted.as_ref().map(|wanted| wanted.location.clone()).or_else(|| self.home())
        else {
            return Ok(json!({ "agents": [], "waiting": [] }));
        };
        let board = Board::read(&location.state)?;
        let board = match &wanted {
            Some(wanted) => board.about(&wanted.resources),
            None => board,
        };
        let board = board.view();
        let agents: Vec<Value> = board.agents.iter().take(MAX_ROWS).map(agent_row).collect();
        let waiting: Vec<Value> = board.waiting.iter().take(MAX_ROWS).map(waiting_row).collect();
        Ok(json!({ "agents": agents, "waiting": waiting }))
    }

    /// The evidence on a path or name. A word can be both: the one that nobody holds or waits for is left out.
    pub(super) fn why(&self, target: &str) -> Result<Value, CallError> {
        let wanted = self.wanted(target);
        let location: Option<Location> = wanted.as_ref().ok().map(|wanted| wanted.location.clone());
        let mut targets: Vec<Target> = Vec::new();
        let is_path = Path::new(target).is_absolute();
        targets.extend(target.parse().ok().filter(|_| !is_path).map(Target::Name));
        match (wanted, targets.is_empty()) {
            (Ok(wanted), _) => targets.extend(wanted.resources.into_iter().next().map(|one| one.target)),
            (Err(error), true) => return Err(error),
            (Err(_), false) => {}
        }
        let mut found: Vec<Evidence> = Vec::new();
        if let Some(location) = location.or_else(|| self.home())
            && let Some(engine) = engine_to_read(&location.state)?
        {
            for target in &targets {
                found.push(engine.why(target).map_err(OpenError::Store)?);
            }
        }
        found.retain(|evidence| !evidence.holders.is_empty() || !evidence.waiters.is_empty());
        let held = found.iter().any(Evidence::is_held);
        let evidence: Vec<Value> = found.iter().map(evidence_row).collect();
        Ok(json!({ "target": path_text(target), "held": held, "evidence": evidence }))
    }
}

impl Visit<'_> {
    /// The leases of others that would block a claim, else those who wait before it.
    pub(super) fn check(&self) -> Result<Value, CallError> {
        let mut conflicts = Vec::new();
        if let Some(engine) = engine_to_read(&self.location.state)? {
            let listing = engine.listing().map_err(OpenError::Store)?;
            for claim in self.agent_call(Asked { paths: &[], names: &[], shared: false })?.claims {
                let shown = claim_text(&claim);
                let before = conflicts.len();
                for found in listing.conflicting_leases(&claim.resources) {
                    let lease = &found.holder.lease;
                    if !lease.claim.gives_way_to(&claim) {
                        conflicts.push(conflict(&shown, lease, &found.witness, listing.now, &self.sessions));
                    }
                }
                let is_own = |holder: &HolderEntry| {
                    let lease = &holder.lease;
                    lease.claim.owner == claim.owner && lease.claim.satisfies(&claim.resources)
                };
                if conflicts.len() > before || listing.holders.iter().any(is_own) {
                    continue;
                }
                for waiter in listing.waiters.iter().filter(|waiter| !waiter.verdict.is_free()) {
                    let ticket = &waiter.ticket;
                    let witness = claim.resources.iter().find_map(|wanted| meets(wanted, &ticket.claim));
                    let is_apart = ticket.claim.owner == claim.owner || ticket.claim.is_apart_from(&claim);
                    let witness = witness.filter(|_| !is_apart);
                    conflicts.extend(witness.map(|found| waits_before(&shown, ticket, &found, listing.now)));
                }
            }
        }
        Ok(json!({ "free": conflicts.is_empty(), "conflicts": conflicts }))
    }
}

fn agent_row(agent: &AgentView) -> Value {
    let texts = |texts: &mut dyn Iterator<Item = &String>| -> Vec<String> {
        texts.take(MAX_CLAIMS).map(|text| path_text(text)).collect()
    };
    let mut row = json!({
        "owner": path_text(&agent.owner),
        "state": agent.state,
        "since": since_epoch(agent.since),
        "last_seen": since_epoch(agent.last_seen),
        "claims": texts(&mut agent.claims.iter()),
        "denied": texts(&mut agent.denied.keys()),
    });
    if let Some(note) = &agent.note {
        row["note"] = json!(note_text(note));
    }
    if agent.claims.len() > MAX_CLAIMS {
        row["more_claims"] = json!(agent.claims.len() - MAX_CLAIMS);
    }
    row
}

fn waiting_row(waiting: &WaitingView) -> Value {
    let mut row = json!({
        "owner": path_text(&waiting.owner),
        "path": path_text(&waiting.path),
        "position": waiting.position,
        "since": since_epoch(waiting.since),
    });
    if let Some(holder) = &waiting.held_by {
        row["held_by"] = json!(path_text(holder));
    }
    row
}

/// The steps of the command `why`. Its advice is for people: it names how to break a lease.
fn evidence_row(evidence: &Evidence) -> Value {
    let holders = evidence.holders.iter().take(MAX_ROWS).map(|chain| {
        let lease = &chain.holder.lease;
        let step = |step: &lockkeeper_engine::evidence::Step| {
            json!({ "question": step.question, "seen": path_text(&step.seen), "means": path_text(&step.means) })
        };
        let mut holder = json!({
            "lease": lease.id.to_string(),
            "owner": path_text(lease.claim.owner.as_str()),
            "token": lease.token.0,
            "since": ago(evidence.now.since(lease.acquired_at)),
            "witness": path_text(&chain.witness),
            "steps": chain.steps.iter().map(step).collect::<Vec<Value>>(),
            "verdict": verdict_word(chain.holder.verdict),
        });
        if let Some(reason) = &lease.claim.reason {
            holder["note"] = json!(note_text(reason));
        }
        holder
    });
    let waiters = evidence.waiters.iter().take(MAX_ROWS).map(|waiter| {
        json!({
            "ticket": waiter.ticket.id.as_ticket(),
            "owner": path_text(waiter.ticket.claim.owner.as_str()),
            "position": waiter.position,
            "since": ago(evidence.now.since(waiter.ticket.enqueued_at)),
        })
    });
    let kind = match evidence.target {
        Target::Name(_) => "name",
        Target::Path(_) => "path",
    };
    json!({
        kind: target_text(&evidence.target),
        "held": evidence.is_held(),
        "holders": holders.collect::<Vec<Value>>(),
        "waiters": waiters.collect::<Vec<Value>>(),
    })
}
