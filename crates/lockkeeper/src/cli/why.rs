//! `why`: prints the evidence that a name or path is held or free, and what to do.

use std::time::Duration;

use lockkeeper_core::resource::Target;
use lockkeeper_core::time::format_span;
use lockkeeper_engine::OwnerNames;
use lockkeeper_engine::evidence::{Evidence, verdict_word};
use lockkeeper_engine::foreign_locks::{ForeignLock, ForeignLocks, ForeignPlaces};
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_formats::group::Folders;
use lockkeeper_platform::clock;
use lockkeeper_platform::wall_clock::WallTime;
use serde_json::{Value, json};

use super::args::path_target;
use super::context::{Context, Globals};
use super::obtain::reason;
use super::{Verb, print, table, task};

/// Explain why a name or path is held or free, and what to do
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  lockkeeper why db\n  lockkeeper why src/api/users.rs")]
pub(super) struct Args {
    /// A name or a path; without a flag both are checked
    #[arg(value_name = "NAME|PATH")]
    target: String,
    /// It is a path
    #[arg(long, conflicts_with = "name")]
    path: bool,
    /// It is a name
    #[arg(long)]
    name: bool,
}

impl Verb for Args {
    const NAME: &'static str = "why";

    fn run(self, globals: &Globals) -> Result<Exit, Report> {
        run(&Context::new(globals)?, &self)
    }
}

fn run(context: &Context, args: &Args) -> Result<Exit, Report> {
    let targets = targets(context, args)?;
    let engine = context.engine_to_read()?;
    let mut found = Vec::new();
    for target in targets {
        found.push(match &engine {
            Some(engine) => engine.why(&target)?,
            None => {
                let (now, holders, waiters) = (clock::now(), Vec::new(), Vec::new());
                Evidence { target, now, holders, waiters, is_read_only: false }
            }
        });
    }
    // A word can be a name and a path. The one without holders and waiters is left out.
    let busy = found.iter().any(|evidence| !evidence.holders.is_empty() || !evidence.waiters.is_empty());
    if busy {
        found.retain(|evidence| !evidence.holders.is_empty() || !evidence.waiters.is_empty());
    } else {
        found.truncate(1);
    }
    let foreign = if args.path { ForeignLocks::default() } else { foreign(context)?.named(&args.target) };
    if context.json {
        let held = found.iter().any(Evidence::is_held) || foreign.locks.iter().any(ForeignLock::is_held);
        let chains: Vec<Value> = found.iter().map(as_json).collect();
        print::json(&json!({
            "target": args.target, "held": held, "evidence": chains,
            "foreign": foreign.locks, "foreign_waiters": foreign.waiters,
        }));
        return Ok(Exit::Done);
    }
    if !foreign.locks.is_empty() {
        print::out(&table::wrap_terminal(&foreign_text(&args.target, &foreign), 2));
        if !busy {
            return Ok(Exit::Done);
        }
    }
    for evidence in &found {
        let names = OwnerNames::of_evidence(evidence, &context.location.root);
        print::out(&table::wrap_terminal(&names.in_text(&as_text(evidence)), 2));
    }
    Ok(Exit::Done)
}

fn targets(context: &Context, args: &Args) -> Result<Vec<Target>, Report> {
    let name = || args.target.parse().map(Target::Name).map_err(Report::from);
    if args.name {
        return Ok(vec![name()?]);
    }
    let path = path_target(context, &args.target);
    if args.path {
        return Ok(vec![path?]);
    }
    match (name(), path) {
        (Ok(name), Ok(path)) => Ok(vec![name, path]),
        (Ok(one), Err(_)) | (Err(_), Ok(one)) => Ok(vec![one]),
        (Err(_), Err(error)) => Err(error),
    }
}

fn foreign(context: &Context) -> Result<ForeignLocks, Report> {
    let (swarm, groups) = (task::swarm()?, Folders::from_variables(&|name| std::env::var_os(name)));
    let places = ForeignPlaces { root: &context.location.root, swarm: &swarm, groups: &groups };
    Ok(ForeignLocks::look(places, WallTime::now()))
}

/// Locks of other formats with this name.
fn foreign_text(name: &str, foreign: &ForeignLocks) -> String {
    let mut text = String::new();
    for lock in &foreign.locks {
        let state = if lock.is_held() { "held" } else { "free" };
        let holder = if lock.holder.is_empty() { String::new() } else { format!("{}: ", lock.holder) };
        text.push_str(&format!("{name} is {state} as a {} lock\n", lock.format));
        text.push_str(&format!("  {}{}\n", table::plain(&holder), table::plain(&lock.reason)));
        text.push_str(&format!("  file: {}\n", table::plain(&lock.path)));
        text.push_str(&format!("  what to do: {}\n", table::plain(&lock.advice())));
    }
    for waiter in &foreign.waiters {
        let waits = format_span(Duration::from_secs(waiter.waits_seconds));
        let command = table::plain(&waiter.command);
        text.push_str(&format!("  waiting, at most for {waits}: pid {} {command}\n", waiter.pid));
    }
    text
}

fn as_json(evidence: &Evidence) -> Value {
    let holders: Vec<Value> = evidence
        .holders
        .iter()
        .map(|chain| {
            let steps: Vec<Value> = chain
                .steps
                .iter()
                .map(|step| json!({ "question": step.question, "seen": step.seen, "means": step.means }))
                .collect();
            json!({
                "lease": print::lease(&chain.holder.lease, evidence.now),
                "witness": chain.witness,
                "steps": steps,
                "verdict": verdict_word(chain.holder.verdict),
                "advice": chain.advice,
            })
        })
        .collect();
    let waiters: Vec<Value> = evidence
        .waiters
        .iter()
        .map(|waiter| print::ticket(&waiter.ticket, &waiter.blockers, waiter.position, evidence.now))
        .collect();
    let kind = match evidence.target {
        Target::Name(_) => "name",
        Target::Path(_) => "path",
    };
    json!({ kind: evidence.target.as_str(), "held": evidence.is_held(), "holders": holders, "waiters": waiters })
}

fn as_text(evidence: &Evidence) -> String {
    let waiting = evidence.waiting_count();
    let state = match (evidence.is_held(), waiting) {
        (true, _) => "held",
        (false, 0) => "free",
        (false, _) => "free, but others are in line for it",
    };
    let mut text = format!("{} is {state}\n", evidence.target);
    match (evidence.holders.is_empty(), waiting) {
        (false, _) => {}
        (true, 0) if evidence.is_read_only => {
            text.push_str("  nobody has a lease on it; the state folder is read-only here: acquire it elsewhere\n");
        }
        (true, 0) => text.push_str("  nobody has a lease on it: acquire it\n"),
        (true, waiting) => text.push_str(&format!(
            "  nobody has a lease on it, and {waiting} in line come before you: wait behind them (`acquire --wait`)\n"
        )),
    }
    for chain in &evidence.holders {
        let lease = &chain.holder.lease;
        text.push_str(&format!(
            "\n{} of {}, token {}, for {}: {}\n",
            lease.id,
            table::plain(lease.claim.owner.as_str()),
            lease.token,
            format_span(evidence.now.since(lease.acquired_at)),
            print::targets(&lease.claim),
        ));
        if chain.witness != evidence.target.as_str() {
            text.push_str(&format!("  both match {}\n", chain.witness));
        }
        if let Some(reason) = &lease.claim.reason {
            text.push_str(&format!("  reason: {}\n", table::plain(reason)));
        }
        for (number, step) in chain.steps.iter().enumerate() {
            let (question, seen, means) =
                (step.question, table::plain(&step.seen), table::plain(&step.means));
            text.push_str(&format!("  {}. {question}: {seen}: {means}\n", number + 1));
        }
        text.push_str(&format!("  what to do: {}\n", chain.advice));
    }
    for waiter in &evidence.waiters {
        let (state, because) = if waiter.verdict.is_free() {
            ("gone".to_owned(), "it will be skipped".to_owned())
        } else {
            (format!("waiting, position {}", waiter.position), table::plain(&reason(&waiter.blockers)))
        };
        text.push_str(&format!(
            "\n{state}: {} of {} for {}: {because}\n",
            waiter.ticket.id.as_ticket(),
            table::plain(waiter.ticket.claim.owner.as_str()),
            format_span(evidence.now.since(waiter.ticket.enqueued_at)),
        ));
    }
    text
}
