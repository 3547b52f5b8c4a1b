//! `run wait`: waits for the end of a run, then exits as its command did.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use lockkeeper_core::id::{RequestId, RunId};
use lockkeeper_core::run::transition::NEEDS_INPUT_CODE;
use lockkeeper_core::run::{Ending, Reason, Run, Status};
use lockkeeper_core::time::parse_span;
use lockkeeper_engine::messages::Language;
use lockkeeper_engine::open::OpenError;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::runs::Runs;
use lockkeeper_engine::views::RunView;
use lockkeeper_engine::with_short_ids;
use lockkeeper_platform::signal::{Signal, Signals};
use serde_json::json;

use super::Which;
use crate::cli::context::Context;
use crate::cli::runs::rows::{age, has_failed, leases_for, named, reason_words, typed, why};
use crate::cli::{print, rescue, table};

/// After this long, the command says what it waits for.
const SILENT_FOR: Duration = Duration::from_secs(5);

#[derive(clap::Args)]
#[command(
    after_help = "Exit code: that of the command, 128+n when signal n ended it, 126 or 127 when it did not start; \
    10 when it needs input; 75 when the run timed out, was canceled or refused, or --timeout is over; 1 when it is \
    unknown how it ended, or when it can never start because a request before it failed."
)]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,
    /// Wait at most this long; the run goes on
    #[arg(long, value_name = "DUR")]
    timeout: Option<String>,
}

pub(super) fn run(context: &Context, args: &Args) -> Result<Exit, Report> {
    let span = args.timeout.as_deref().map(parse_span).transpose()?;
    // A duration beyond the range of the clock is no limit.
    let until = span.and_then(|span| Instant::now().checked_add(span));
    let (runs, run) = args.which.find(context)?;
    wait_for(context, &runs, &run.id, until)
}

/// Waits for a run; a signal ends only the waiting.
pub(in crate::cli) fn wait_for(
    context: &Context,
    runs: &Runs,
    id: &RunId,
    until: Option<Instant>,
) -> Result<Exit, Report> {
    let signals = Signals::receive(&[Signal::INT, Signal::TERM, Signal::HUP]).map_err(OpenError::Machine)?;
    let found = runs.show(id)?.run;
    // A process that can only read cannot rescue runs.
    let looks_after = !found.status().is_terminal() && !runs.is_read_only();
    let rescue = looks_after.then(|| rescue::watch(context, runs, &found)).transpose()?;
    let is_over = |run: &Run| run.status().is_terminal() || failed_before(runs, run).is_some();
    let talks_at = Instant::now() + SILENT_FOR;
    let first = until.map_or(talks_at, |until| until.min(talks_at));
    let mut run = runs.wait_until(id, Some(first), Some(signals.as_fd()), is_over)?;
    if !is_over(&run) && talks_at <= Instant::now() {
        let state = state_of(context, runs, &run)?;
        print::talk(&context.say("run.waiting", &[("id", &named(&run)), ("state", &state)]));
        run = runs.wait_until(id, until, Some(signals.as_fd()), is_over)?;
    }
    drop(rescue);
    if let Some(failed) = failed_before(runs, &run) {
        return Err(never_starts(&run, &failed));
    }
    let taken = signals.take().map_err(OpenError::Machine)?;
    if let (false, Some(signal)) = (run.status().is_terminal(), taken.first()) {
        return Ok(print::interrupted(*signal));
    }
    let end = end_of(&run);
    if context.json {
        let value = json!({
            "request_id": run.request.as_str(),
            "run_id": run.id.as_str(),
            "run": RunView::new(&run, runs.now().moment),
        });
        print::json(&value);
        return Ok(end.unwrap_or_else(|report| report.exit()));
    }
    if end.is_ok() && has_failed(&run) {
        print::talk(&failure(context, runs, &run));
    }
    end
}

/// A run that failed, in one line: why, the last line of its output, and the command that shows all of it.
fn failure(context: &Context, runs: &Runs, run: &Run) -> String {
    let reason = run.reason().unwrap_or(Reason::ExitCode);
    let what = match (context.language(), run.ending()) {
        (Language::En, ending) => reason_words(reason, ending),
        (_, Some(ending)) => format!("{reason} {}", ending.exit_code()),
        (_, None) => reason.to_string(),
    };
    let said = context.say("run.failed", &[("id", &named(run)), ("what", &what)]);
    let last_line = runs.last_line(run).map(|line| format!(": {}", table::plain(&line))).unwrap_or_default();
    format!("{said}{last_line} (`lockkeeper run logs {}`)", typed(run))
}

/// What a run does or waits for, in one line.
fn state_of(context: &Context, runs: &Runs, run: &Run) -> Result<String, Report> {
    let (view, now) = (runs.show(&run.id)?, runs.now().moment);
    let request = &view.request.request;
    let leases = leases_for(context, std::iter::once((&view.run, request)))?;
    let mut state = format!("{} for {}", view.run.status(), age(&view.run, now));
    let why = why(&view.run, request, view.blocked.as_ref(), leases.as_ref(), now);
    if let Some(worker) = runs.stopped_worker(&view.run)? {
        let pid = worker.pid;
        state += &format!(
            "; its worker, process {pid}, is stopped: `kill -CONT {pid}` lets it go on, and otherwise it is replaced"
        );
    } else if !why.is_empty() {
        state += &format!("; {}", with_short_ids(&why));
    }
    Ok(state)
}

/// The requests that keep a queued run from ever starting. None if the store cannot be read.
fn failed_before(runs: &Runs, run: &Run) -> Option<Vec<RequestId>> {
    let is_queued = run.status() == Status::Queued;
    let failed = is_queued.then(|| runs.failed_dependencies(&run.request).ok()).flatten();
    failed.filter(|failed| !failed.is_empty())
}

fn never_starts(run: &Run, failed: &[RequestId]) -> Report {
    let names: Vec<&str> = failed.iter().map(|request| request.as_str()).collect();
    let what = format!("run {} can never start: it comes after {}, not done", named(run), names.join(", "));
    Report::new(Exit::Failed, "DEPENDS_NOT_DONE", what)
        .with_hint(format!("`lockkeeper run retry {}` runs it again", names[0]))
        .with_context("run_id", run.id.as_str())
        .with_context("unmet", names)
}

/// The exit code for the end of a run.
fn end_of(run: &Run) -> Result<Exit, Report> {
    let refused = |code: &'static str, what: &str| {
        let because = run.message().as_ref().map_or_else(String::new, |message| format!(": {message}"));
        Err(Report::new(Exit::Refused, code, format!("run {} {what}{because}", named(run)))
            .with_hint(format!("`lockkeeper run show {}` tells what happened", typed(run)))
            .with_context("run_id", run.id.as_str())
            .with_context("status", run.status().as_str()))
    };
    match run.status() {
        Status::Queued | Status::Running | Status::Cancelling => {
            refused("STILL_RUNNING", &format!("has not ended: it is {}", run.status()))
        }
        Status::Succeeded => Ok(Exit::Command(run.ending().map_or(0, Ending::exit_code))),
        Status::Failed => match run.ending().map(Ending::exit_code) {
            // The command succeeded but asked for input.
            Some(0) if run.reason() == Some(Reason::NeedsInput) => Ok(Exit::Command(NEEDS_INPUT_CODE)),
            Some(0) | None => {
                let reason = run.reason().map_or("FAILED", Reason::as_str);
                Err(Report::new(Exit::Failed, reason, format!("run {} failed: {reason}", named(run)))
                    .explained_as("RUN_FAILED")
                    .with_hint(format!("`lockkeeper run show {}` tells what happened", typed(run)))
                    .with_context("run_id", run.id.as_str()))
            }
            Some(code) => Ok(Exit::Command(code)),
        },
        Status::TimedOut => refused("TIMED_OUT", "took too long"),
        Status::Canceled => refused("CANCELED", "was canceled"),
        Status::Rejected => refused("REJECTED", "was refused"),
    }
}
