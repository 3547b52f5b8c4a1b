//! `runs cancel` and `runs retry`: what is done to every request that matches.

use lockkeeper_core::run::Status;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::runs::bulk::{Bulk, Done, Forecast};
use lockkeeper_engine::runs::{RequestFilter, Runs};
use lockkeeper_engine::views::{ChangedView, RefusedView};
use serde_json::json;

use crate::cli::context::Context;
use crate::cli::{print, table};

/// So many are changed before the next line of progress.
const PART: usize = 10_000;

/// Which requests are meant.
#[derive(clap::Args)]
#[group(id = "which", required = true, multiple = true)]
pub(super) struct Which {
    /// Those whose latest run is in this state, such as queued or failed; may be given several times
    #[arg(long = "status", value_name = "STATUS", group = "which")]
    statuses: Vec<String>,
    /// Those in this state: QUEUED, RUNNING, DONE, NEEDS_INPUT, FAILED, CANCELED
    #[arg(long = "request-status", value_name = "STATUS", group = "which")]
    request_statuses: Vec<String>,
    /// Those with this text in their title or id
    #[arg(long, value_name = "TEXT", group = "which")]
    text: Option<String>,
    /// Those that this worker executes
    #[arg(long, value_name = "ID", group = "which")]
    worker: Option<String>,
    /// This one; may be given several times
    #[arg(long = "request", value_name = "REQUEST", group = "which")]
    requests: Vec<String>,
    /// All of them
    #[arg(long, group = "which", conflicts_with_all = ["statuses", "request_statuses", "text", "worker", "requests"])]
    all: bool,
}

#[derive(clap::Args)]
pub(super) struct CancelArgs {
    #[command(flatten)]
    which: Which,
    /// Tell why
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    word: Word,
}

#[derive(clap::Args)]
pub(super) struct RetryArgs {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    word: Word,
}

/// Whether it is meant.
#[derive(clap::Args)]
struct Word {
    /// Only say how many there are
    #[arg(long)]
    dry_run: bool,
    /// Do it, however many there are
    #[arg(long, conflicts_with = "dry_run")]
    yes: bool,
}

pub(super) fn cancel(context: &Context, args: &CancelArgs) -> Result<Exit, Report> {
    if args.reason.as_ref().is_some_and(|reason| reason.len() > 1000) {
        return Err(Report::usage("the reason is too long").with_hint("say it in at most 1000 bytes"));
    }
    act(context, &args.which, &args.word, &Bulk::Cancel { reason: args.reason.clone() })
}

pub(super) fn retry(context: &Context, args: &RetryArgs) -> Result<Exit, Report> {
    act(context, &args.which, &args.word, &Bulk::Retry)
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
            limit: PART,
        })
    }
}

fn act(context: &Context, which: &Which, word: &Word, bulk: &Bulk) -> Result<Exit, Report> {
    let filter = which.filter()?;
    let Some(runs) = context.existing_runs()? else {
        return tell(
            context,
            &Forecast { matched: 0, movable: 0, newest: None },
            &Done::default(),
            word.dry_run,
        );
    };
    runs.expire()?;
    let forecast = runs.forecast(bulk, &filter)?;
    if word.dry_run {
        return tell(context, &forecast, &Done::default(), true);
    }
    if !word.yes {
        let (matched, movable) = (forecast.matched, forecast.movable);
        return Err(Report::usage(format!("{matched} requests match, {movable} of them would be changed"))
            .with_hint("if you are sure, add --yes; --dry-run only counts"));
    }
    let done = all(&runs, bulk, RequestFilter { newest: forecast.newest.clone(), ..filter })?;
    tell(context, &forecast, &done, false)
}

/// Part after part.
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

/// One line each on stdout, and the sum as talk.
fn tell(context: &Context, forecast: &Forecast, done: &Done, dry_run: bool) -> Result<Exit, Report> {
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
