//! `board`: the agents of a repository, what each works on, and what each was denied.

use std::collections::BTreeMap;

use lockkeeper_agents::{Activity, HookLog, Session, Sessions, takes_part};
use lockkeeper_core::record::Claim;
use lockkeeper_core::time::format_span;
use lockkeeper_engine::open::OpenError;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_platform::{origin, wall_clock};
use serde_json::{Value, json};

use super::context::{Context, Globals};
use super::table::{plain, table};
use super::{Verb, print};

/// How many failed calls are shown.
const SHOWN: usize = 5;

/// Show the agents here: what each works on, waits for and was denied
#[derive(clap::Args)]
pub(super) struct Args {}

impl Verb for Args {
    const NAME: &'static str = "board";

    fn run(self, globals: &Globals) -> Result<Exit, Report> {
        let context = Context::new(globals)?;
        let agents = agents(&context)?;
        let failed_open = HookLog::new(&context.location.state).last(SHOWN);
        if context.json {
            let agents: Vec<Value> = agents.iter().map(Agent::to_json).collect();
            print::json(&json!({ "agents": agents, "failed_open": failed_open }));
            return Ok(Exit::Done);
        }
        if agents.is_empty() {
            print::talk("no agents");
        } else {
            // Notes and file names are texts of strangers.
            let safe = |row: Vec<String>| row.iter().map(|cell| plain(cell)).collect();
            let rows: Vec<Vec<String>> = agents.iter().map(Agent::to_row).map(safe).collect();
            print::out(&table(&["OWNER", "STATE", "WORKS ON", "NOTE", "DENIED"], &rows));
        }
        if let Some(last) = failed_open.last() {
            print::talk(&format!("some hook calls failed and let the edit pass; the last one: {last}"));
        }
        Ok(Exit::Done)
    }
}

/// One agent, with what the lease store knows of it.
struct Agent {
    session: Session,
    claims: Vec<String>,
    waits_for: Vec<String>,
}

fn agents(context: &Context) -> Result<Vec<Agent>, Report> {
    if !takes_part(&context.location) {
        return Ok(Vec::new());
    }
    let here = origin::origin().map_err(OpenError::Machine)?;
    let sessions =
        Sessions::new(&context.location.state).all(&here).map_err(|error| Report::machine(&error))?;
    let mut held: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut waited: BTreeMap<String, Vec<String>> = BTreeMap::new();
    if let Some(engine) = context.existing_engine()? {
        let listing = engine.listing()?;
        let file = |claim: &Claim| {
            claim.targets().next().map(|target| target.as_str().to_owned()).unwrap_or_default()
        };
        for holder in listing.holders.iter().filter(|holder| !holder.verdict.is_free()) {
            let claim = &holder.lease.claim;
            held.entry(claim.owner.to_string()).or_default().push(file(claim));
        }
        for waiter in listing.waiters.iter().filter(|waiter| !waiter.verdict.is_free()) {
            let claim = &waiter.ticket.claim;
            waited.entry(claim.owner.to_string()).or_default().push(file(claim));
        }
    }
    let agent = |session: Session| Agent {
        claims: held.remove(&session.owner).unwrap_or_default(),
        waits_for: waited.remove(&session.owner).unwrap_or_default(),
        session,
    };
    Ok(sessions.into_iter().map(agent).collect())
}

impl Agent {
    fn state(&self) -> &'static str {
        match self.session.state {
            Activity::Works => "works",
            Activity::Rests => "rests",
            Activity::Waits => "waits",
        }
    }

    fn seen_ago(&self) -> u64 {
        let ago = wall_clock::epoch_seconds().saturating_sub(self.session.seen_at);
        u64::try_from(ago).unwrap_or(0)
    }

    fn to_json(&self) -> Value {
        let session = &self.session;
        json!({
            "owner": session.owner, "harness": session.harness, "state": self.state(), "since": session.since,
            "last_seen": session.seen_at, "pid": session.pid, "cwd": session.cwd, "note": session.note,
            "claims": self.claims, "waits_for": self.waits_for, "denied": session.denied,
        })
    }

    fn to_row(&self) -> Vec<String> {
        let or_dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
        let seen = format_span(std::time::Duration::from_secs(self.seen_ago()));
        let denied = self.session.denied.iter().map(|(path, count)| format!("{path} ×{count}"));
        vec![
            self.session.owner.clone(),
            format!("{}, {seen} ago", self.state()),
            or_dash(self.claims.join(", ")),
            or_dash(self.session.note.clone().unwrap_or_default()),
            or_dash(denied.collect::<Vec<_>>().join(", ")),
        ]
    }
}
