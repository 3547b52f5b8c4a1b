//! `runs cancel` and `runs retry`: bulk operations on all requests that match.

use lockkeeper_core::run::Status;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::runs::bulk::{Bulk, Done, Forecast};
use lockkeeper_engine::runs::{RequestFilter, Runs};
use lockkeeper_engine::views::{ChangedView, RefusedView};
use serde_json::json;

use crate::cli::context::Context;
use crate::cli::{print, table};

/// How many requests are changed before the next line of progress.
const BATCH: usize = 10_000;

/// Filter for requests.
#[derive(clap::Args)]
#[group(id = "which", required = true, multiple = true)]
pub(super) struct Which {
    /// Requests whose latest run has this status, such as queued or failed; may be given several times
    #[arg(long = "status", value_name = "STATUS", group = "which")]
    statuses: Vec<String>,
    /// Requests with this status: QUEUED, RUNNING, DONE, NEEDS_INPUT, FAILED, CANCELED
    #[arg(long = "request-status", value_name = "STATUS", group = "which")]
    request_statuses: Vec<String>,
    /// Requests with this text in their title or id
    #[arg(long, value_name = "TEXT", group = "which")]
    text: Option<String>,
    /// Requests that this worker executes
    #[arg(long, value_name = "ID", group = "which")]
    worker: Option<String>,
    /// This request; may be given several times
    #[arg(long = "request", value_name = "REQUEST", group = "which")]
    requests: Vec<String>,
    /// All requests
    #[arg(long, group = "which", conflicts_with_all = ["statuses", "request_statuses", "text", "worker", "requests"])]
    all: bool,
}

#[derive(clap::Args)]
pub(super) struct CancelArgs {
    #[command(flatten)]
    which: Which,
    /// Why they are canceled
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    confirmation: Confirmation,
}

#[derive(clap::Args)]
pub(super) struct RetryArgs {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    confirmation: Confirmation,
}

/// Confirmation.
#[derive(clap::Args)]
struct Confirmation {
    /// Only count
    #[arg(long)]
    dry_run: bool,
    /// Do it, no matter how many match
    #[arg(long, conflicts_with = "dry_run")]
    yes: bool,
}

pub(super) fn cancel(context: &Context, args: &CancelArgs) -> Result<Exit, Report> {
    if args.reason.as_ref().is_some_and(|reason| reason.len() > 1000) {
        return Err(Report::usage("the reason is too long").with_hint("say it in at most 1000 bytes"));
    }
    act(context, &args.which, &args.confirmation, &Bulk::Cancel { reason: args.reason.clone() })
}

pub(super) fn retry(context: &Context, args: &RetryArgs) -> Result<Exit, Report> {
    act(context, &args.which, &args.confirmation, &Bulk::Retry)
}

impl Which {
    fn filter(&self) -> Result<RequestFilter, Report> {
        Ok(RequestFilter {
            statuses: self.request_statuses.iter().map(|word| word.parse()).collect::<Result<_, _>>()?,
            run_statuses: self
                .statuses
                .iter()
                .map(|word| word.parse())
                .collect::<Result<Vec<Status>, _>>()?,
            text: self.text.clone(),
            worker: self.worker.as_deref().map(str::parse).transpose()?,
            ids: self.requests.iter().map(|id| id.parse()).collect::<Result<_, _>>()?,
            before: None,
            newest: None,
            limit: BATCH,
        })
    }
}

fn act(context: &Context, which: &Which, confirmation: &Confirmation, bulk: &Bulk) -> Result<Exit, Report> {
    let filter = which.filter()?;
    let Some(runs) = context.existing_runs()? else {
        return print_result(
            context,
            &Forecast { matched: 0, movable: 0, newest: None },
            &Done::default(),
            confirmation.dry_run,
        );
    };
    runs.expire()?;
    let forecast = runs.forecast(bulk, &filter)?;
    if confirmation.dry_run {
        return print_result(context, &forecast, &Done::default(), true);
    }
    if !confirmation.yes {
        let (matched, movable) = (forecast.matched, forecast.movable);
        return Err(Report::usage(format!("{matched} requests match, {movable} of them would be changed"))
            .with_hint("if you are sure, add --yes; --dry-run only counts"));
    }
    let done = all(&runs, bulk, RequestFilter { newest: forecast.newest.clone(), ..filter })?;
    print_result(context, &forecast, &done, false)
}

/// Changes all matching requests, batch after batch.
fn all(runs: &Runs, bulk: &Bulk, mut filter: RequestFilter) -> Result<Done, Report> {
    let mut done = Done::default();
    loop {
        let part = runs.bulk(bulk, &filter)?;
        done.moved.extend(part.moved);
        done.refused.extend(part.refused);
        match part.next {
            Some(next) => filter.before = Some(next),
            None => return Ok(done),
        }
        print::talk(&format!("{} so far", done.moved.len()));
    }
}

/// Prints one line for each change on stdout, and the totals on stderr.
fn print_result(context: &Context, forecast: &Forecast, done: &Done, dry_run: bool) -> Result<Exit, Report> {
    let (moved, refused) = match dry_run {
        true => (forecast.movable, forecast.matched - forecast.movable),
        false => (done.moved.len() as u64, done.refused.len() as u64),
    };
    if context.json {
        let runs: Vec<ChangedView> = done.moved.iter().map(ChangedView::new).collect();
        let refusals: Vec<RefusedView> = done.refused.iter().map(RefusedView::new).collect();
        print::json(&json!({
            "matched": forecast.matched, "moved": moved, "refused": refused, "runs": runs, "refusals": refusals,
            "dry_run": dry_run,
        }));
        return Ok(Exit::Done);
    }
    for one in &done.moved {
        print::data(&format!("{}\t{}\t{}", table::plain(one.request.as_str()), one.run, one.status));
    }
    for one in &done.refused {
        print::talk(&format!("{}: {}", table::plain(one.request.as_str()), one.error));
    }
    let would = if dry_run { "would be " } else { "" };
    print::talk(&format!("{moved} {would}changed, {refused} {would}left as they are"));
    Ok(Exit::Done)
}
