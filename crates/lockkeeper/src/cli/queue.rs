//! `queue`: executes requests one by one.

use std::sync::Arc;

use clap::Subcommand;
use lockkeeper_core::queue::{Limits, Selection, Stop};
use lockkeeper_core::request::RequestStatus;
use lockkeeper_core::time::parse_span;
use lockkeeper_engine::executors::{self, ExecutorFormat, Registration};
use lockkeeper_engine::messages::Messages;
use lockkeeper_engine::open::OpenError;
use lockkeeper_engine::queue::{self, FailedCheck, QueueBusy, QueueRunner, QueueStop};
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::runs::{AutoRun, Runs, short_id};
use lockkeeper_engine::views::{PassedOverView, QueueRunView, QueueStopView};
use lockkeeper_engine::work::{ControlListener, Worker, WorkerEvent};
use lockkeeper_formats::aiflow::Aiflow;
use lockkeeper_formats::status::StatusLog;
use lockkeeper_platform::signal::{Signal, Signals};
use serde::Serialize;
use serde_json::json;

use super::context::{Context, Globals};
use super::work::{EventWords, LockFormat, Place};
use super::{Verb, doctor, print, table};

/// Execute requests one by one, under the lock of the queue
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  lockkeeper queue list\n  lockkeeper queue auto --max-runs 20")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show the next request, why the others are not next, and why the queue stopped
    List(Place),
    /// Execute the next request
    RunNext(Place),
    /// Execute one request after the other until one fails or needs input, or none is left
    Auto(AutoArgs),
    /// Ask the worker of the queue to stop after its current run
    Stop {
        /// Cancel the current run, too
        #[arg(long)]
        now: bool,
    },
}

#[derive(clap::Args)]
struct AutoArgs {
    #[command(flatten)]
    place: Place,
    /// At most this many runs
    #[arg(long, value_name = "N", default_value_t = Limits::default().runs, value_parser = clap::value_parser!(u32).range(1..))]
    max_runs: u32,
    /// At most for this long
    #[arg(long, value_name = "DUR", default_value = "60m")]
    max_time: String,
}

impl Verb for Args {
    const NAME: &'static str = "queue";

    fn run(self, globals: &Globals) -> Result<Exit, Report> {
        run(&Context::new(globals)?, &self.command)
    }
}

fn run(context: &Context, command: &Command) -> Result<Exit, Report> {
    match command {
        Command::List(place) => list(context, place),
        Command::RunNext(place) => run_next(context, place),
        Command::Auto(args) => auto(context, args),
        Command::Stop { now } => stop(context, *now),
    }
}

fn list(context: &Context, place: &Place) -> Result<Exit, Report> {
    let runs = context.existing_runs()?.map_or_else(|| context.runs(), Ok)?;
    runs.expire()?;
    let leases = context.engine_to_read()?.map_or_else(|| context.engine(), Ok)?;
    let settings = place.settings_to_look(context)?;
    let mut selection = queue::forecast(&runs, &leases, &settings)?;
    let (auto, stop) = queue::state(&runs, &leases)?;
    // An auto-run that has not begun its first run holds the file itself.
    let held_by = queue::lock_file_holder(&runs, &settings).filter(|_| auto.is_none());
    if held_by.is_some() {
        selection.next = None;
    }
    let stop = stop.filter(|_| held_by.is_none());
    let stop = stop.map(|stop| QueueStopView::new(&stop, context.language(), &Messages::load()));
    if context.json {
        print::json(&Listed {
            selection: SelectionView::new(&selection),
            running: auto.is_some() || held_by.is_some(),
            held_by,
            auto_run: auto.as_ref().map(AutoRunItem::new),
            last_stop: stop,
        });
        return Ok(Exit::Done);
    }
    if let Some(auto) = auto {
        let current = auto
            .current
            .map_or_else(String::new, |run| context.say("queue.now", &[("run", short_id(run.as_str()))]));
        let stopping = if auto.stop { context.say("queue.stopping", &[]) } else { String::new() };
        let values = [
            ("worker", short_id(auto.worker.as_str())),
            ("count", &auto.runs.to_string()),
            ("current", &current),
            ("stopping", &stopping),
        ];
        print::talk(&context.say("queue.running", &values));
    }
    if let Some(stop) = &stop {
        print::talk(&stopped(context, stop));
    }
    match (&selection.next, &held_by) {
        (_, Some(holder)) => {
            print::talk(&context.say("queue.held_elsewhere", &[("holder", &table::plain(holder))]));
        }
        (Some(next), None) => {
            print::data(&context.say("queue.next", &[("request", &table::plain(short_id(next.as_str())))]));
        }
        (None, None) => print::talk(&context.say("queue.nothing_ready", &[])),
    }
    for skipped in &selection.passed_over {
        let (id, why) = (short_id(skipped.request.as_str()), context.phrases().put(&queue::explain(skipped)));
        print::data(&format!("{}  {}", table::plain(id), table::plain(&why)));
    }
    Ok(Exit::Done)
}

fn run_next(context: &Context, place: &Place) -> Result<Exit, Report> {
    let (mut runner, _registered) = queue_runner(context, place)?;
    if let Some(check) = runner.ask(&mut || doctor::failed_check(context))? {
        return Err(Report::from(check));
    }
    let step = runner.run_one()?;
    drop(runner);
    let Some(run) = step.run else {
        if context.json {
            print::json(&SelectionView::new(&step.selection));
            return Ok(Exit::Done);
        }
        print::talk(&context.say("queue.nothing_ready", &[]));
        return Ok(Exit::Done);
    };
    if context.json {
        let (selection, run) = (SelectionView::new(&step.selection), QueueRunView::new(&run));
        print::json(&Executed { selection, run });
    }
    Ok(if RequestStatus::from(&run) == RequestStatus::Done { Exit::Done } else { Exit::Failed })
}

fn auto(context: &Context, args: &AutoArgs) -> Result<Exit, Report> {
    let limits = Limits { runs: args.max_runs, span: parse_span(&args.max_time)? };
    let (mut runner, _registered) = queue_runner(context, &args.place)?;
    let end = runner.auto(limits, &mut || doctor::failed_check(context), &mut |_| {})?;
    drop(runner);
    let stop = QueueStop {
        reason: end.stop,
        at: None,
        run: end.runs.last().map(|run| run.id.clone()),
        check: end.check,
    };
    let stop = QueueStopView::new(&stop, context.language(), &Messages::load());
    if context.json {
        print::json(&Ended {
            selection: SelectionView::new(&end.selection),
            stopped: end.stop.as_str(),
            runs: end.runs.iter().map(QueueRunView::new).collect(),
            check: stop.check,
        });
    } else {
        let count = end.runs.len().to_string();
        let ended = [("reason", end.stop.as_str()), ("count", count.as_str())];
        print::talk(&context.say("queue.ended", &ended));
        if !stop.actions.is_empty() {
            print::talk(&stopped(context, &stop));
        }
    }
    Ok(match end.stop {
        Stop::NothingLeft | Stop::RunLimit | Stop::TimeLimit | Stop::Asked => Exit::Done,
        Stop::NeedsInput | Stop::Failed | Stop::Canceled | Stop::DoctorFailed | Stop::LockLost => {
            Exit::Failed
        }
    })
}

/// Why the queue stopped, in words: the reason, the check that failed, and what to do.
fn stopped(context: &Context, stop: &QueueStopView) -> String {
    let run = stop.run_id.as_deref().map_or_else(String::new, |run| format!(" ({})", short_id(run)));
    let mut lines = vec![context.say("queue.stopped", &[("why", &stop.message), ("run", &run)])];
    if let Some(check) = &stop.check {
        // The store keeps the English sentences of the check.
        let english = |text: &str| format!("  {}", context.phrases().english(&table::plain(text)));
        lines.push(english(&format!("{}: {}", check.id, check.detail)));
        lines.extend(check.fix.iter().map(|fix| english(fix)));
    }
    lines.extend(stop.actions.iter().map(|action| format!("{}: {action}", context.say("hint", &[]))));
    lines.join("\n")
}

fn stop(context: &Context, now: bool) -> Result<Exit, Report> {
    let runs = Runs::at(&context.location)?;
    let leases = context.engine()?;
    let stopped = queue::stop(&runs, &leases)?;
    let current = runs.auto_run()?.and_then(|auto| auto.current);
    if let Some(run) = current.filter(|_| now && stopped) {
        // It fails when the run has just ended, which is fine.
        let _ = runs.cancel(&run, Some("the queue was stopped"));
    }
    if context.json {
        print::json(&json!({ "stopping": stopped }));
        return Ok(Exit::Done);
    }
    print::talk(&context.say(if stopped { "queue.ends_soon" } else { "queue.not_running" }, &[]));
    Ok(Exit::Done)
}

fn queue_runner(context: &Context, place: &Place) -> Result<(QueueRunner, Registration), Report> {
    let signals = Signals::receive(&[Signal::INT, Signal::TERM, Signal::HUP]).map_err(OpenError::Machine)?;
    let (json, words) = (context.json, EventWords::new(context));
    let listener = Box::new(move |event: &WorkerEvent| {
        if !json {
            print::talk(&words.of(event));
        }
    });
    let runs = Runs::at(&context.location)?;
    let leases = context.engine_to_execute()?;
    let status = StatusLog::open(place.status_dir(context))?;
    let settings = place.settings(context)?;
    let registration = executors::register(&context.location.state, ExecutorFormat::of(&settings))?;
    let worker = Arc::new(Worker::begin(runs, leases, settings, 0, Some(status), listener)?);
    let listener = ControlListener::begin(&worker, Some(signals))?;
    let aiflow = match place.lock_format {
        LockFormat::Native => None,
        LockFormat::Aiflow => Some(Aiflow::new(&context.location.root)),
    };
    let runner = QueueRunner::lock(&worker, listener, aiflow.as_ref())?.map_err(|found| busy(&found))?;
    Ok((runner, registration))
}

fn busy(busy: &QueueBusy) -> Report {
    let report = Report::new(Exit::Refused, "QUEUE_IN_PROGRESS", "somebody else works through the queue")
        .with_hint(match busy.is_foreign {
            true => "another program holds the lock file of the queue: `lockkeeper locks` shows it; wait until it has ended",
            false => "`lockkeeper queue list` shows who; `lockkeeper queue stop` ends it after the present run",
        })
        .with_context("holder", busy.holder.as_str());
    match busy.current_run() {
        Some(run) => report.with_context("run_id", run),
        None => report,
    }
}

/// What is next in the queue, and why the other requests are not.
#[derive(Serialize)]
struct SelectionView {
    next: Option<String>,
    passed_over: Vec<PassedOverView>,
}

impl SelectionView {
    fn new(selection: &Selection) -> Self {
        Self {
            next: selection.next.as_ref().map(ToString::to_string),
            passed_over: selection.passed_over.iter().map(PassedOverView::new).collect(),
        }
    }
}

/// The output of `queue list`.
#[derive(Serialize)]
struct Listed {
    #[serde(flatten)]
    selection: SelectionView,
    running: bool,
    /// The run or process of another program that holds the lock file of the queue.
    held_by: Option<String>,
    auto_run: Option<AutoRunItem>,
    last_stop: Option<QueueStopView>,
}

/// The auto-run in the output of `queue list`.
#[derive(Serialize)]
struct AutoRunItem {
    worker: String,
    runs: u32,
    stopping: bool,
    current_run_id: Option<String>,
}

impl AutoRunItem {
    fn new(auto: &AutoRun) -> Self {
        Self {
            worker: auto.worker.to_string(),
            runs: auto.runs,
            stopping: auto.stop,
            current_run_id: auto.current.as_ref().map(ToString::to_string),
        }
    }
}

/// The output of `queue run-next`.
#[derive(Serialize)]
struct Executed {
    #[serde(flatten)]
    selection: SelectionView,
    run: QueueRunView,
}

/// The output of `queue auto`.
#[derive(Serialize)]
struct Ended {
    #[serde(flatten)]
    selection: SelectionView,
    stopped: &'static str,
    runs: Vec<QueueRunView>,
    check: Option<FailedCheck>,
}
