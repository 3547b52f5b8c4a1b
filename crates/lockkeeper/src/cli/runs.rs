//! `runs`: lists runs, shows statistics, and removes old requests.

mod bulk;
pub(super) mod rows;

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Subcommand;
use lockkeeper_core::id::{RequestId, RunId};
use lockkeeper_core::run::{Stamp, Status};
use lockkeeper_core::time::{Moment, parse_span};
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::runs::{RunEntry, RunFilter, Spread, Stats, short_id};
use lockkeeper_engine::views::{RunListItem, StatsView};
use lockkeeper_engine::{Listing, OwnerNames};
use lockkeeper_platform::clock;
use serde_json::json;

use super::context::{Context, Globals};
use super::watch::Frame;
use super::{Verb, print, table, watch};
use rows::{age, has_failed, leases_for, status, why};

/// List runs and why they wait; show statistics; cancel or retry many at once; remove old ones
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  lockkeeper runs --watch\n  lockkeeper runs --status failed\n  lockkeeper runs stats --since 1d\n  lockkeeper runs prune --older-than 30d"
)]
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
    /// Update the list live, until Ctrl-C
    #[arg(long, short)]
    watch: bool,
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

/// Runs and the leases that may be in their way, at one moment.
struct List {
    entries: Vec<RunEntry>,
    /// The last line of output of each run that failed.
    last_lines: BTreeMap<RunId, String>,
    leases: Option<Listing>,
    now: Moment,
}

impl List {
    fn read(context: &Context, args: &Args) -> Result<Self, Report> {
        let statuses = args.statuses.iter().map(|text| text.parse()).collect::<Result<Vec<Status>, _>>()?;
        let request = args.request.as_ref().map(|id| id.parse::<RequestId>()).transpose()?;
        let filter = RunFilter { statuses, request, before: None, limit: args.limit };
        let mut last_lines = BTreeMap::new();
        let (entries, now) = match context.existing_runs()? {
            Some(runs) => {
                runs.expire()?;
                let entries = runs.entries(&filter)?;
                let failed =
                    entries.iter().map(|entry| &entry.run).filter(|run| !context.json && has_failed(run));
                last_lines.extend(
                    failed.filter_map(|run| Some((run.id.clone(), runs.folder_of(&run.id).last_line()?))),
                );
                (entries, runs.now().moment)
            }
            // Without a store there are no times to compare with, so any clock will do.
            None => (Vec::new(), clock::now()),
        };
        let leases = leases_for(context, entries.iter().map(|entry| (&entry.run, &entry.request.request)))?;
        Ok(Self { entries, last_lines, leases, now })
    }

    fn as_json(&self) -> String {
        let runs = self.entries.iter().map(|entry| {
            let item = RunListItem::new(entry, self.now);
            let request = &entry.request.request;
            let blocked = item.blocked.map(|blocked| blocked.with_holders(request, self.leases.as_ref()));
            RunListItem { blocked, ..item }
        });
        format!(r#"{{"runs":{}}}"#, print::json_list(runs))
    }

    fn as_text(&self, context: &Context) -> String {
        let root = &context.location.root;
        let names = self.leases.as_ref().map(|leases| OwnerNames::of(leases, root)).unwrap_or_default();
        let rows = self.entries.iter().map(|entry| {
            let (run, request) = (&entry.run, &entry.request.request);
            let why = why(run, request, entry.blocked.as_ref(), self.leases.as_ref(), self.now);
            let last_line = self.last_lines.get(&run.id).map(|line| format!(": {}", table::plain(line)));
            vec![
                short_id(run.id.as_str()).to_owned(),
                table::plain(short_id(request.id.as_str())),
                status(run.status()),
                run.attempt().to_string(),
                age(run, self.now),
                table::cut(&table::plain(&request.title), 40),
                names.in_text(&why) + &last_line.unwrap_or_default(),
            ]
        });
        let heading = ["RUN", "REQUEST", "STATUS", "ATTEMPT", "FOR", "TITLE", "WHY"];
        table::list(&heading, &rows.collect::<Vec<_>>())
    }

    /// The list for `--watch`.
    fn frame(&self, context: &Context) -> Frame {
        let moved = |entry: &RunEntry| {
            format!("{}/{}/{}/{:?}", entry.run.id, entry.run.status(), entry.run.attempt(), entry.blocked)
        };
        let key = self.entries.iter().map(moved).collect::<Vec<_>>().join(" ");
        let output = if context.json { self.as_json() } else { self.as_text(context) };
        // Also an empty list is shown once.
        Frame { output, key: format!("runs {key}") }
    }
}

fn list(context: &Context, args: &Args) -> Result<Exit, Report> {
    if args.watch {
        return watch::run(context, || List::read(context, args).map(|list| list.frame(context)));
    }
    let list = List::read(context, args)?;
    if context.json {
        print::json_text(&list.as_json());
        return Ok(Exit::Done);
    }
    if list.entries.is_empty() {
        print::talk("no runs: put a request into the queue with `lockkeeper submit -- CMD`");
        return Ok(Exit::Done);
    }
    print::out(&table::fit_terminal(&list.as_text(context)));
    if list.entries.iter().any(|entry| has_failed(&entry.run)) {
        print::talk("`lockkeeper run logs RUN` prints the output of a run");
    }
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
