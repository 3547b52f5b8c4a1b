//! `queue`: executes requests one by one.

use std::sync::Arc;

use clap::Subcommand;
use lockkeeper_core::queue::{Limits, Selection, Stop};
use lockkeeper_core::request::RequestStatus;
use lockkeeper_core::time::parse_span;
use lockkeeper_engine::open::OpenError;
use lockkeeper_engine::queue::{self, QueueBusy, QueueRunner};
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::runs::{AutoRun, Runs};
use lockkeeper_engine::views::{PassedOverView, QueueRunView};
use lockkeeper_engine::work::{ControlListener, Worker, WorkerEvent};
use lockkeeper_formats::aiflow::Aiflow;
use lockkeeper_formats::status::StatusLog;
use lockkeeper_platform::signal::{Signal, Signals};
use serde::Serialize;
use serde_json::json;

use super::context::{Context, Globals};
use super::work::{LockFormat, Place, in_words};
use super::{Verb, doctor, print, table};

/// Execute requests one by one, under the lock of the queue
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show the next request, and why the others are not next
    List,
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
        Command::List => list(context),
        Command::RunNext(place) => run_next(context, place),
        Command::Auto(args) => auto(context, args),
        Command::Stop { now } => stop(context, *now),
    }
}

fn list(context: &Context) -> Result<Exit, Report> {
    let runs = Runs::open(&context.location.state)?;
    runs.expire()?;
    let selection = queue::selection(&runs, &[])?;
    let leases = lockkeeper_engine::open::open_engine(&context.location.state)?;
    let auto = match queue::is_running(&leases)? {
        true => runs.auto_run()?,
        false => None,
    };
    if context.json {
        print::json(&Listed {
            selection: SelectionView::new(&selection),
            running: auto.is_some(),
            auto_run: auto.as_ref().map(AutoRunItem::new),
        });
        return Ok(Exit::Done);
    }
    if let Some(auto) = auto {
        let current = auto.current.map_or_else(String::new, |run| format!(", now {run}"));
        let stopping = if auto.stop { ", stopping" } else { "" };
        print::talk(&format!("queue running: worker {}, {} runs{current}{stopping}", auto.worker, auto.runs));
    }
    match &selection.next {
        Some(next) => print::data(&format!("next: {}", table::plain(next.as_str()))),
        None => print::talk("nothing is ready"),
    }
    for (id, reason) in &selection.passed_over {
        print::data(&format!("{}  {reason}: {}", table::plain(id.as_str()), queue::explain(*reason)));
    }
    Ok(Exit::Done)
}

fn run_next(context: &Context, place: &Place) -> Result<Exit, Report> {
    let mut runner = queue_runner(context, place)?;
    let step = runner.run_next()?;
    drop(runner);
    let Some(run) = step.run else {
        if context.json {
            print::json(&SelectionView::new(&step.selection));
            return Ok(Exit::Done);
        }
        print::talk("nothing is ready");
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
    let mut runner = queue_runner(context, &args.place)?;
    let end = runner.auto(limits, &mut || doctor::is_well(context), &mut |_| {})?;
    drop(runner);
    if context.json {
        print::json(&Ended {
            selection: SelectionView::new(&end.selection),
            stopped: end.stop.as_str(),
            runs: end.runs.iter().map(QueueRunView::new).collect(),
        });
    } else {
        print::talk(&format!("queue ended: {} after {} runs", end.stop, end.runs.len()));
    }
    Ok(match end.stop {
        Stop::NothingLeft | Stop::RunLimit | Stop::TimeLimit | Stop::Asked => Exit::Done,
        Stop::NeedsInput | Stop::Failed | Stop::Canceled | Stop::DoctorFailed | Stop::LockLost => {
            Exit::Failed
        }
    })
}

fn stop(context: &Context, now: bool) -> Result<Exit, Report> {
    let runs = Runs::open(&context.location.state)?;
    let leases = lockkeeper_engine::open::open_engine(&context.location.state)?;
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
    print::talk(if stopped { "the queue ends after the present run" } else { "no queue is running" });
    Ok(Exit::Done)
}

fn queue_runner(context: &Context, place: &Place) -> Result<QueueRunner, Report> {
    let signals = Signals::receive(&[Signal::INT, Signal::TERM, Signal::HUP]).map_err(OpenError::Machine)?;
    let json = context.json;
    let listener = Box::new(move |event: &WorkerEvent| {
        if !json {
            print::talk(&in_words(event));
        }
    });
    let runs = Runs::open(&context.location.state)?;
    let leases = lockkeeper_engine::open::open_engine(&context.location.state)?;
    let status = StatusLog::open(place.status_dir(context))?;
    let settings = place.settings(context)?;
    let worker = Arc::new(Worker::begin(runs, leases, settings, 0, Some(status), listener)?);
    let listener = ControlListener::begin(&worker, Some(signals))?;
    let aiflow = match place.lock_format {
        LockFormat::Native => None,
        LockFormat::Aiflow => Some(Aiflow::new(&context.location.root)),
    };
    QueueRunner::lock(&worker, listener, aiflow.as_ref())?.map_err(busy)
}

fn busy(busy: QueueBusy) -> Report {
    let report = Report::new(Exit::Refused, "QUEUE_IN_PROGRESS", "somebody else works through the queue")
        .with_hint("`lockkeeper queue list` shows who; `lockkeeper queue stop` ends it after the present run")
        .with_context("holder", busy.holder);
    match busy.auto_run.and_then(|auto| auto.current) {
        Some(run) => report.with_context("run_id", run.as_str()),
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
    auto_run: Option<AutoRunItem>,
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
}
