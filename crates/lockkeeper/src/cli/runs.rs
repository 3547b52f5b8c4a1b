//! `runs`: lists runs, shows statistics, and removes old requests.

mod bulk;
pub(super) mod rows;

use std::time::Duration;

use clap::Subcommand;
use lockkeeper_core::id::RequestId;
use lockkeeper_core::run::{Stamp, Status};
use lockkeeper_core::time::parse_span;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::runs::{RunFilter, Spread, Stats};
use lockkeeper_engine::views::{RunListItem, StatsView};
use lockkeeper_platform::clock;
use serde_json::json;

use super::context::{Context, Globals};
use super::{Verb, print, table};
use rows::{age, leases_for, status, why};

/// List runs and why they wait; show statistics; cancel or retry many at once; remove old ones
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Args {
    /// Only runs with this status, such as queued or failed; may be given several times
    #[arg(long = "status", value_name = "STATUS")]
    statuses: Vec<String>,
    /// Only runs of this request
    #[arg(long, value_name = "REQUEST")]
    request: Option<String>,
    /// At most this many, the latest first
    #[arg(long, value_name = "N", default_value = "50")]
    limit: usize,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Show counts, waiting times, durations and runs per hour
    Stats(StatsArgs),
    /// Remove requests that ended long ago, with their runs, events and output
    Prune(PruneArgs),
    /// Cancel the latest run of every request that matches
    Cancel(bulk::CancelArgs),
    /// Queue a new run of every request that matches and has ended
    Retry(bulk::RetryArgs),
}

#[derive(clap::Args)]
struct StatsArgs {
    /// Only runs that were queued within this time
    #[arg(long, value_name = "DUR")]
    since: Option<String>,
}

#[derive(clap::Args)]
struct PruneArgs {
    /// Requests that ended longer ago than this
    #[arg(long, value_name = "DUR")]
    older_than: String,
    /// Only show what would be removed
    #[arg(long)]
    dry_run: bool,
}

impl Verb for Args {
    const NAME: &'static str = "runs";

    fn run(self, globals: &Globals) -> Result<Exit, Report> {
        let context = Context::new(globals)?;
        match &self.command {
            None => list(&context, &self),
            Some(Command::Stats(args)) => stats(&context, args),
            Some(Command::Prune(args)) => prune(&context, args),
            Some(Command::Cancel(args)) => bulk::cancel(&context, args),
            Some(Command::Retry(args)) => bulk::retry(&context, args),
        }
    }
}

fn list(context: &Context, args: &Args) -> Result<Exit, Report> {
    let statuses = args.statuses.iter().map(|text| text.parse()).collect::<Result<Vec<Status>, _>>()?;
    let request = args.request.as_ref().map(|id| id.parse::<RequestId>()).transpose()?;
    let filter = RunFilter { statuses, request, before: None, limit: args.limit };
    let (entries, now) = match context.existing_runs()? {
        Some(runs) => {
            runs.expire()?;
            (runs.entries(&filter)?, runs.now().moment)
        }
        // There is nothing to compare it with.
        None => (Vec::new(), clock::now()),
    };
    let leases = leases_for(context, entries.iter().map(|entry| (&entry.run, &entry.request.request)))?;
    if context.json {
        let runs = entries.iter().map(|entry| {
            let item = RunListItem::new(entry, now);
            let request = &entry.request.request;
            let blocked = item.blocked.map(|blocked| blocked.with_holders(request, leases.as_ref()));
            RunListItem { blocked, ..item }
        });
        print::json_text(&format!(r#"{{"runs":{}}}"#, print::json_list(runs)));
        return Ok(Exit::Done);
    }
    if entries.is_empty() {
        print::talk("no runs: put a request into the queue with `lockkeeper submit -- CMD`");
        return Ok(Exit::Done);
    }
    let rows = entries.iter().map(|entry| {
        let (run, request) = (&entry.run, &entry.request.request);
        vec![
            run.id.to_string(),
            table::plain(request.id.as_str()),
            status(run.status()),
            run.attempt().to_string(),
            age(run, now),
            table::cut(&table::plain(&request.title), 40),
            why(run, request, entry.blocked.as_ref(), leases.as_ref(), now),
        ]
    });
    let heading = ["RUN", "REQUEST", "STATUS", "ATTEMPT", "FOR", "TITLE", "WHY"];
    print::out(&table::table(&heading, &rows.collect::<Vec<_>>()));
    Ok(Exit::Done)
}

fn stats(context: &Context, args: &StatsArgs) -> Result<Exit, Report> {
    let span = args.since.as_deref().map(parse_span).transpose()?;
    let Some(runs) = context.existing_runs()? else {
        return Err(
            Report::usage("there are no runs yet").with_hint("submit one with `lockkeeper submit -- CMD`")
        );
    };
    let stats = runs.stats(span.map_or(i64::MIN, |span| before(runs.now(), span)))?;
    if context.json {
        print::json(&StatsView::new(&stats));
    } else {
        print::out(&stats_text(&stats));
    }
    Ok(Exit::Done)
}

fn stats_text(stats: &Stats) -> String {
    let counts: Vec<String> =
        stats.counts.iter().map(|(one, count)| format!("{count} {}", status(*one))).collect();
    let mut text = format!("{}; {} retries", counts.join(", "), stats.retries);
    text.push_str(&format!("; {:.1} ended an hour\n\n", stats.ended_an_hour));
    let row = |what: &str, spread: &Spread| {
        let spans = [spread.p50, spread.p90, spread.p99, spread.max, spread.mean].map(print::span);
        [vec![what.to_owned(), spread.count.to_string()], spans.to_vec()].concat()
    };
    let mut rows = vec![row("waited", &stats.waits), row("took", &stats.durations)];
    let groups = stats.groups.iter().take(20);
    rows.extend(groups.map(|group| row(&table::cut(&table::plain(&group.title), 40), &group.durations)));
    text.push_str(&table::table(&["", "COUNT", "P50", "P90", "P99", "MAX", "MEAN"], &rows));
    text
}

fn prune(context: &Context, args: &PruneArgs) -> Result<Exit, Report> {
    let span = parse_span(&args.older_than)?;
    let gone = match context.existing_runs()? {
        Some(runs) if args.dry_run => runs.prunable(before(runs.now(), span))?,
        Some(runs) => runs.prune(before(runs.now(), span))?,
        None => Vec::new(),
    };
    if context.json {
        let gone: Vec<&str> = gone.iter().map(|request| request.as_str()).collect();
        print::json(&json!({ "pruned": gone, "dry_run": args.dry_run }));
        return Ok(Exit::Done);
    }
    for request in &gone {
        print::data(&table::plain(request.as_str()));
    }
    let what = if args.dry_run { "would be forgotten" } else { "forgotten" };
    print::talk(&format!("{} requests {what}", gone.len()));
    Ok(Exit::Done)
}

/// This long before `now` on the wall clock, in microseconds since 1970.
fn before(now: Stamp, span: Duration) -> i64 {
    let span = i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
    now.unix_micros.saturating_sub(span)
}
