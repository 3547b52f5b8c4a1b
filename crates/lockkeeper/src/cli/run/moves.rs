//! `run claim`, `mark`, `cancel` and `retry`.

use lockkeeper_core::id::WorkerId;
use lockkeeper_core::run::transition::Mark;
use lockkeeper_core::run::{Run, Status};
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::runs::Runs;
use lockkeeper_engine::views::RunView;
use serde_json::json;

use super::Which;
use crate::cli::context::Context;
use crate::cli::{print, table};

#[derive(clap::Args)]
pub(super) struct ClaimArgs {
    #[command(flatten)]
    which: Which,
    /// The worker that executes it from now on
    #[arg(long, value_name = "ID")]
    worker: String,
}

#[derive(clap::Args)]
pub(super) struct MarkArgs {
    #[command(flatten)]
    which: Which,
    /// The new status, such as succeeded
    #[arg(value_name = "STATUS")]
    to: String,
    /// Only if this is the current status
    #[arg(long, value_name = "STATUS")]
    expect: Option<String>,
    /// Only if this is the current claim
    #[arg(long, value_name = "N")]
    claim: Option<u64>,
    /// The exit code of its command
    #[arg(long, value_name = "N")]
    exit_code: Option<u8>,
    /// The worker that moves it
    #[arg(long, value_name = "ID", default_value = "outside")]
    worker: String,
}

#[derive(clap::Args)]
pub(super) struct CancelArgs {
    #[command(flatten)]
    which: Which,
    /// Why it is canceled
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

pub(super) fn claim(context: &Context, args: &ClaimArgs) -> Result<Exit, Report> {
    let worker: WorkerId = args.worker.parse()?;
    let (runs, run) = args.which.find(context)?;
    let claimed = runs.claim(&run.id, worker)?;
    if context.json {
        print_run(context, &runs, &claimed);
    } else {
        print::data(&claimed.claim().to_string());
    }
    Ok(Exit::Done)
}

pub(super) fn mark(context: &Context, args: &MarkArgs) -> Result<Exit, Report> {
    let to: Status = args.to.parse()?;
    let expect = args.expect.as_deref().map(str::parse).transpose()?;
    let worker = args.worker.parse()?;
    let (runs, run) = args.which.find(context)?;
    let mark = Mark { to, expect, claim: args.claim, exit_code: args.exit_code, worker };
    print_run(context, &runs, &runs.mark(&run.id, &mark)?);
    Ok(Exit::Done)
}

pub(super) fn cancel(context: &Context, args: &CancelArgs) -> Result<Exit, Report> {
    if args.reason.as_ref().is_some_and(|reason| reason.len() > 1000) {
        return Err(Report::usage("the reason is too long").with_hint("say it in at most 1000 bytes"));
    }
    let (runs, run) = args.which.find(context)?;
    print_run(context, &runs, &runs.cancel(&run.id, args.reason.as_deref())?.run);
    Ok(Exit::Done)
}

pub(super) fn retry(context: &Context, which: &Which) -> Result<Exit, Report> {
    let (runs, run) = which.find(context)?;
    let again = runs.run_again(&run.request)?;
    if context.json {
        print::json(&json!({ "request_id": run.request.as_str(), "run_id": again.as_str() }));
    } else {
        print::talk(&format!("queued again: {}", table::plain(run.request.as_str())));
        print::data(&format!("{}\t{again}", run.request));
    }
    Ok(Exit::Done)
}

fn print_run(context: &Context, runs: &Runs, run: &Run) {
    if context.json {
        print::json(&json!({ "run": RunView::new(run, runs.now().moment) }));
    } else {
        print::talk(&format!("{} is {}", run.id, run.status()));
    }
}
