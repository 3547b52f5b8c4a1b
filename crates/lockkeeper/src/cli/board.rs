//! `board`: the agents of a repository, what each works on, and what each was denied.

use std::sync::Arc;

use lockkeeper_agents::{BoardAgent, HookLog, Session, Sessions, board, takes_part};
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
            let agents: Vec<Value> = agents.iter().map(to_json).collect();
            print::json(&json!({ "agents": agents, "failed_open": failed_open }));
            return Ok(Exit::Done);
        }
        if agents.is_empty() {
            print::talk("no agents");
        } else {
            // Notes and file names are texts of strangers.
            let safe = |row: Vec<String>| row.iter().map(|cell| plain(cell)).collect();
            let rows: Vec<Vec<String>> = agents.iter().map(to_row).map(safe).collect();
            print::out(&table(&["OWNER", "STATE", "WORKS ON", "NOTE", "DENIED"], &rows));
        }
        if let Some(last) = failed_open.last() {
            print::talk(&format!("some hook calls failed and let the edit pass; the last one: {last}"));
        }
        Ok(Exit::Done)
    }
}

fn agents(context: &Context) -> Result<Vec<BoardAgent>, Report> {
    if !takes_part(&context.location) {
        return Ok(Vec::new());
    }
    let here = origin::origin().map_err(OpenError::Machine)?;
    let sessions =
        Sessions::new(&context.location.state).all(&here).map_err(|error| Report::machine(&error))?;
    let listing = context.existing_engine()?.map(|engine| engine.listing()).transpose()?;
    Ok(board(sessions, listing.as_ref()))
}

fn seen_ago(session: &Session) -> u64 {
    let ago = wall_clock::epoch_seconds().saturating_sub(session.seen_at);
    u64::try_from(ago).unwrap_or(0)
}

fn files(claims: &[Arc<Claim>]) -> Vec<String> {
    let file = |claim: &Arc<Claim>| {
        claim.targets().next().map(|target| target.as_str().to_owned()).unwrap_or_default()
    };
    claims.iter().map(file).collect()
}

fn to_json(agent: &BoardAgent) -> Value {
    let session = &agent.session;
    json!({
        "owner": session.owner, "harness": session.harness, "state": agent.state(), "since": session.since,
        "last_seen": session.seen_at, "pid": session.pid, "cwd": session.cwd, "note": session.note,
        "claims": files(&agent.claims), "waits_for": files(&agent.waits_for), "denied": session.denied,
    })
}

fn to_row(agent: &BoardAgent) -> Vec<String> {
    let session = &agent.session;
    let or_dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    let seen = format_span(std::time::Duration::from_secs(seen_ago(session)));
    let denied = session.denied.iter().map(|(path, count)| format!("{path} ×{count}"));
    vec![
        session.owner.clone(),
        format!("{}, {seen} ago", agent.state()),
        or_dash(files(&agent.claims).join(", ")),
        or_dash(session.note.clone().unwrap_or_default()),
        or_dash(denied.collect::<Vec<_>>().join(", ")),
    ]
}
