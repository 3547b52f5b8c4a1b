//! `run claim`, `mark`, `cancel`, `retry` and `answer`.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use lockkeeper_core::id::{RunId, WorkerId};
use lockkeeper_core::run::transition::Mark;
use lockkeeper_core::run::{Run, Status};
use lockkeeper_engine::open::OpenError;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::runs::Runs;
use lockkeeper_engine::views::RunView;
use lockkeeper_engine::work::unattended_runs;
use lockkeeper_platform::signal::{Signal, Signals};
use serde_json::json;

use super::Which;
use crate::cli::context::Context;
use crate::cli::{print, rescue, table};

/// How long `run cancel` waits for the worker.
const PATIENCE: Duration = Duration::from_millis(200);

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

#[derive(clap::Args)]
pub(super) struct AnswerArgs {
    #[command(flatten)]
    which: Which,
    /// The answer
    #[arg(value_name = "TEXT")]
    text: String,
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
    let (id, claim) = (&claimed.id, claimed.claim());
    let kept = format!("{id} is claimed: `lockkeeper run mark {id} canceled --claim {claim}` ends it");
    print::check_written(&kept)?;
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
    // A command that has ended has its true end: there is nothing to cancel.
    if is_executed(&run) && unattended_runs(&runs, &context.engine()?)?.gone.contains(&run.id) {
        complete(context, &runs, &run)?;
    }
    let mut canceled = runs.cancel(&run.id, args.reason.as_deref())?.run;
    if is_executed(&canceled) && canceled.process().is_some() {
        // Its worker ends the command, mostly at once. A worker that is being killed right now still looks alive before this.
        let until = Some(Instant::now() + PATIENCE);
        canceled = runs.wait_until(&canceled.id, until, None, |run| !is_executed(run))?;
    }
    let canceled = settle(context, &runs, canceled)?;
    print_run(context, &runs, &canceled);
    if let Some(worker) = canceled.worker().filter(|_| is_executed(&canceled) && canceled.process().is_none())
    {
        let (id, worker) = (&canceled.id, table::plain(worker.as_str()));
        let values = [("worker", &*worker), ("id", id.as_str())];
        hint(context, &context.say("run.claimed_outside", &values));
    }
    Ok(Exit::Done)
}

pub(super) fn retry(context: &Context, which: &Which) -> Result<Exit, Report> {
    let (runs, run) = which.find(context)?;
    if let Some(latest) = runs.request(&run.request)?.latest {
        settle(context, &runs, latest)?;
    }
    let again = runs.run_again(&run.request)?;
    print_queued(context, &run, &again);
    Ok(Exit::Done)
}

pub(super) fn answer(context: &Context, args: &AnswerArgs) -> Result<Exit, Report> {
    let (runs, run) = args.which.find(context)?;
    let again = runs.answer(&run.request, &args.text)?;
    print_queued(context, &run, &again);
    Ok(Exit::Done)
}

fn print_queued(context: &Context, run: &Run, again: &RunId) {
    if context.json {
        print::json(&json!({ "request_id": run.request.as_str(), "run_id": again.as_str() }));
    } else {
        let request = table::plain(run.request.as_str());
        print::talk(&context.say("run.queued_again", &[("request", &request)]));
        print::data(&format!("{}\t{again}", run.request));
    }
}

/// Whether a worker executes the run, as far as the store knows.
fn is_executed(run: &Run) -> bool {
    run.worker().is_some() && !run.status().is_terminal()
}

/// Lets a rescuer complete a run whose worker is gone, if its command has ended or the run is canceled. Returns the run afterwards.
fn settle(context: &Context, runs: &Runs, run: Run) -> Result<Run, Report> {
    if !is_executed(&run) {
        return Ok(run);
    }
    let unattended = unattended_runs(runs, &context.engine()?)?;
    if let Some((_, user)) = unattended.out_of_reach.iter().find(|(id, _)| *id == run.id) {
        let id = &run.id;
        let (why, end) = match user {
            Some(user) => {
                let values = [("id", id.as_str()), ("user", &*user.to_string())];
                (context.say("run.of_user", &values), context.say("run.of_user_do", &values))
            }
            None => {
                let values = [("id", id.as_str())];
                (context.say("run.of_namespace", &values), context.say("run.of_namespace_do", &values))
            }
        };
        print::talk(&why);
        hint(context, &end);
        return Ok(run);
    }
    let ends = unattended.gone.contains(&run.id)
        || run.status() == Status::Cancelling && unattended.all.contains(&run.id);
    if ends { complete(context, runs, &run) } else { Ok(run) }
}

/// Lets a rescuer complete a run, and returns it afterwards. A signal ends the wait.
fn complete(context: &Context, runs: &Runs, run: &Run) -> Result<Run, Report> {
    let signals = Signals::receive(&[Signal::INT, Signal::TERM, Signal::HUP]).map_err(OpenError::Machine)?;
    let rescue = rescue::watch(context, runs, run)?;
    let version = run.version;
    let run = runs.wait_until(&run.id, None, Some(signals.as_fd()), |run| {
        run.status().is_terminal() || run.version > version && run.worker().is_none()
    })?;
    drop(rescue);
    Ok(run)
}

fn print_run(context: &Context, runs: &Runs, run: &Run) {
    if context.json {
        print::json(&json!({ "run": RunView::new(run, runs.now().moment) }));
    } else {
        let values = [("id", run.id.as_str()), ("status", &*run.status().to_string())];
        print::talk(&context.say("run.is", &values));
    }
}

fn hint(context: &Context, what: &str) {
    print::talk(&format!("{}: {what}", context.say("hint", &[])));
}
