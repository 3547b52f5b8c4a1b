//! `queue`: work through the requests one by one.

use std::sync::Arc;

use clap::Subcommand;
use lockkeeper_core::queue::{Limits, PassedOver, Selection, Stop};
use lockkeeper_core::request::RequestStatus;
use lockkeeper_core::run::Run;
use lockkeeper_core::time::parse_span;
use lockkeeper_engine::queue::{self, QueueBusy, QueueTurn};
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::runs::Runs;
use lockkeeper_engine::work::{ControlListener, Worker, WorkerEvent};
use lockkeeper_formats::aiflow::Aiflow;
use lockkeeper_formats::status::StatusLog;
use lockkeeper_platform::signal::{Signal, Signals};
use serde_json::{Value, json};

use super::context::{Context, Globals};
use super::work::{LockFormat, Place, in_words};
use super::{Verb, doctor, print, table};

/// Work through the requests one by one, under the queue's lock
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show what is next, and why the others are not
    List,
    /// Execute the next request
    RunNext(Place),
    /// Execute request after request until one fails, needs input, or nothing is left
    Auto(AutoArgs),
    /// Ask whoever works through the queue to end after the present run
    Stop {
        /// End the present run as well
        #[arg(long)]
        now: bool,
    },
}

#[derive(clap::Args)]
struct AutoArgs {
    #[command(flatten)]
    place: Place,
    /// At most so many runs
    #[arg(long, value_name = "N", default_value_t = Limits::default().runs, value_parser = clap::value_parser!(u32).range(1..))]
    max_runs: u32,
    /// For so long at most
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
        true => runs.store().read(|tables| tables.auto_run())?,
        false => None,
    };
    if context.json {
        let auto = auto.map(|auto| {
            json!({ "worker": auto.worker.as_str(), "runs": auto.runs, "stopping": auto.stop,
                    "current_run_id": auto.current.map(|run| run.to_string()) })
        });
        let mut document = selection_json(&selection);
        document["running"] = json!(auto.is_some());
        document["auto_run"] = json!(auto);
        print::json(&document);
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
    let mut turn = take_turn(context, place)?;
    let step = turn.run_next()?;
    drop(turn);
    let Some(run) = step.run else {
        if context.json {
            print::json(&selection_json(&step.selection));
            return Ok(Exit::Done);
        }
        print::talk("nothing is ready");
        return Ok(Exit::Done);
    };
    if context.json {
        let mut document = selection_json(&step.selection);
        document["run"] = run_json(&run);
        print::json(&document);
    }
    Ok(if RequestStatus::from(&run) == RequestStatus::Done { Exit::Done } else { Exit::Failed })
}

fn auto(context: &Context, args: &AutoArgs) -> Result<Exit, Report> {
    let limits = Limits { runs: args.max_runs, span: parse_span(&args.max_time)? };
    let mut turn = take_turn(context, &args.place)?;
    let end = turn.auto(limits, &mut || doctor::is_well(context), &mut |_| {})?;
    drop(turn);
    if context.json {
        let mut document = selection_json(&end.selection);
        document["stopped"] = json!(end.stop.as_str());
        document["runs"] = end.runs.iter().map(run_json).collect();
        print::json(&document);
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
    let current = runs.store().read(|tables| tables.auto_run())?.and_then(|auto| auto.current);
    if let Some(run) = current.filter(|_| now && stopped) {
        // It may have ended in the meantime, which is what was wanted.
        let _ = runs.cancel(&run, Some("the queue was stopped"));
    }
    if context.json {
        print::json(&json!({ "stopping": stopped }));
        return Ok(Exit::Done);
    }
    print::talk(if stopped { "the queue ends after the present run" } else { "no queue is running" });
    Ok(Exit::Done)
}

fn take_turn(context: &Context, place: &Place) -> Result<QueueTurn, Report> {
    let signals = Signals::receive(&[Signal::INT, Signal::TERM, Signal::HUP])
        .map_err(lockkeeper::KeeperError::Machine)?;
    let json = context.json;
    let listener = Box::new(move |event: &WorkerEvent| {
        if !json {
            print::talk(&in_words(event));
        }
    });
    let runs = Runs::open(&context.location.state)?;
    let leases = lockkeeper_engine::open::open_engine(&context.location.state)?;
    let status = StatusLog::open(&place.status_dir)?;
    let settings = place.settings(context)?;
    let worker = Arc::new(Worker::begin(runs, leases, settings, 1, Some(status), listener)?);
    let listener = ControlListener::begin(&worker, Some(signals))?;
    let aiflow = match place.lock_format {
        LockFormat::Native => None,
        LockFormat::Aiflow => Some(Aiflow::new(&context.location.root)),
    };
    QueueTurn::take(&worker, listener, aiflow.as_ref())?.map_err(busy)
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

fn selection_json(selection: &Selection) -> Value {
    let passed_over: Vec<Value> = selection
        .passed_over
        .iter()
        .map(|(id, reason): &(_, PassedOver)| json!({ "request_id": id.as_str(), "reason": reason.as_str() }))
        .collect();
    json!({ "next": selection.next.as_ref().map(|id| id.as_str()), "passed_over": passed_over })
}

fn run_json(run: &Run) -> Value {
    json!({
        "id": run.id.as_str(),
        "request_id": run.request.as_str(),
        "status": run.status.as_str(),
        "request_status": RequestStatus::from(run).as_str(),
        "attempt": run.attempt,
        "exit_code": run.ending.map(|ending| ending.exit_code()),
        "reason_code": run.reason.map(|reason| reason.as_str()),
    })
}
