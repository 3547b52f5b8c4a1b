//! `wait`: waits until files or names are the agent's own.

use std::time::{Duration, Instant};

use lockkeeper_agents::{Activity, Wanted, claim_of, wanted_file, wanted_name};
use lockkeeper_core::lease::{AgentCall, Denial};
use lockkeeper_core::record::Lease;
use lockkeeper_core::resource::Target;
use lockkeeper_core::time::{Ttl, parse_span};
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::{Acquired, Engine};
use serde_json::json;

use super::acquire::resume;
use super::agent_owner::{self, AgentOwner};
use super::agent_settings::settings;
use super::args::Waiting;
use super::context::{Context, Globals};
use super::obtain::WaitSettings;
use super::{Verb, print};

/// How long a call waits: shorter than the time-out that harnesses have for commands.
const USUAL: Duration = Duration::from_secs(100);

/// Wait until files or names are yours, as an agent that was denied them
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  lockkeeper wait --owner claude:S1 src/parser.rs\n  lockkeeper wait --name port/3000\n\n\
    Exit 0: they are yours; a name is kept for the next command that needs it. Exit 75: \
    the time is up, and your place in line is kept for a while: call again."
)]
pub(super) struct Args {
    /// The files
    #[arg(value_name = "PATH", required_unless_present = "names")]
    paths: Vec<String>,
    /// A name of `[agents.commands]` or of git, such as port/3000
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<String>,
    /// The agent, as its deny message names it [default: the agent whose process runs this command]
    #[arg(long, value_name = "OWNER")]
    owner: Option<String>,
    /// How long to wait at most
    #[arg(long = "for", value_name = "DUR")]
    span: Option<String>,
}

impl Verb for Args {
    const NAME: &'static str = "wait";

    fn run(self, globals: &Globals) -> Result<Exit, Report> {
        run(&Context::new(globals)?, &self)
    }
}

fn run(context: &Context, args: &Args) -> Result<Exit, Report> {
    let span = args.span.as_deref().map(parse_span).transpose()?.unwrap_or(USUAL);
    let sessions = agent_owner::sessions(context)?;
    let AgentOwner { owner, proof } = agent_owner::find(context, &sessions, args.owner.as_deref())?;
    let mut wanted =
        args.paths.iter().map(|path| find(context, path)).collect::<Result<Vec<Wanted>, Report>>()?;
    for name in &args.names {
        wanted.extend(wanted_name(&name.parse()?, "waited for it", &context.location));
    }
    let terms = settings(&context.config);
    let claims = wanted.iter().map(|wanted| claim_of(wanted, &owner, &proof, None, &terms)).collect();
    let call = AgentCall {
        owner: owner.clone(),
        claims,
        checks: Vec::new(),
        ttl: terms.working,
        stays: terms.ticket,
        unrenewed: Vec::new(),
        files: Vec::new(),
        proof: None,
    };
    let engine = context.engine()?;
    let until = Instant::now() + span;
    let mut received: Vec<Lease> = Vec::new();
    loop {
        let (answer, now) = engine.agent_call(&call)?;
        let Some(denial) = answer.denied.first() else {
            let paths: Vec<&str> = wanted.iter().map(|wanted| wanted.shown.as_str()).collect();
            received.extend(answer.granted.iter().chain(&answer.picked_up).cloned());
            let names = names_for_a_while(&engine, &received, terms.ticket)?;
            let change = |session: &mut lockkeeper_agents::Session| {
                session.state = Activity::Works;
                session.denied.retain(|path, _| !paths.contains(&path.as_str()));
                session.keep_for_next_call(&context.location.state, &names);
            };
            sessions.update(&owner, change).map_err(|error| Report::machine(&error))?;
            if context.json {
                let leases: Vec<_> = answer.granted.iter().map(|lease| print::lease(lease, now)).collect();
                print::json(
                    &json!({ "status": "acquired", "owner": owner.as_str(), "paths": paths, "leases": leases }),
                );
            } else {
                print::talk(&format!("yours now: {}", paths.join(", ")));
            }
            return Ok(Exit::Done);
        };
        let Some(ticket) = &denial.ticket else { return Err(print::deadlock(&denial.cycle)) };
        let waiting = Waiting::For(until.saturating_duration_since(Instant::now()));
        let line = WaitSettings { waiting, keep_ticket: true, signals_win: false, quiet: false };
        match resume(context, &engine, ticket.id, &line)?.acquired {
            Acquired::Granted(grant) => received.push(grant.lease),
            Acquired::Gone => {}
            Acquired::Waiting(_) | Acquired::Interrupted(_) | Acquired::Held(_) => {
                return Err(still_held(denial));
            }
            Acquired::Deadlock(links) => return Err(print::deadlock(&links)),
        }
    }
}

/// Sets the TTL of the leases on names to that of a ticket, because no command uses these names yet. Returns those leases.
fn names_for_a_while(engine: &Engine, leases: &[Lease], ttl: Ttl) -> Result<Vec<Lease>, Report> {
    let is_name = |lease: &&Lease| lease.claim.targets().all(|target| matches!(target, Target::Name(_)));
    let mut names: Vec<Lease> = Vec::new();
    for lease in leases.iter().filter(is_name) {
        if names.iter().all(|known| known.id != lease.id) {
            names.extend(engine.renew(lease.id, Some(lease.token), Some(ttl))?.ok());
        }
    }
    Ok(names)
}

fn find(context: &Context, path: &str) -> Result<Wanted, Report> {
    let named = context.location.source == lockkeeper_engine::location::LocationSource::Named;
    let state = named.then_some(context.location.state.as_path());
    let wanted = wanted_file(&context.cwd.join(path), state);
    wanted.filter(|wanted| wanted.location.state == context.location.state).ok_or_else(|| {
        Report::usage(format!("`{path}` is not a file of {}", context.location.root.display()))
            .with_hint("run the command inside of the repository of the file")
    })
}

fn still_held(denial: &Denial) -> Report {
    let ticket = denial.ticket.as_ref().map(|ticket| ticket.id.as_ticket());
    print::held(&denial.blockers, ticket.as_deref())
        .with_hint("your place in line is kept for a while: call again, or do something else first")
}
