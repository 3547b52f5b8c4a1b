//! `work`: runs a worker, which executes queued requests.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lockkeeper_core::id::{Name, RunId};
use lockkeeper_core::request::Request;
use lockkeeper_core::run::{Reason, Run, Status};
use lockkeeper_core::time::{format_span, parse_span};
use lockkeeper_engine::executors::{self, ExecutorFormat};
use lockkeeper_engine::messages::{Phrases, said};
use lockkeeper_engine::open::OpenError;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::runs::new_request::labels;
use lockkeeper_engine::runs::{RunFolder, Runs, Stuck, flags_for, short_id};
use lockkeeper_engine::with_short_ids;
use lockkeeper_engine::work::{Listener, Settings, Worker, WorkerEvent, unattended_runs};
use lockkeeper_formats::aiflow::Aiflow;
use lockkeeper_formats::status::StatusLog;
use lockkeeper_formats::swarm::{DEFAULT_DIR, Swarm};
use lockkeeper_platform::signal::{Signal, Signals};
use serde_json::json;

use super::context::{Context, Globals};
use super::obtain::grace;
use super::runs::rows::{has_failed, named, typed};
use super::work_live::Live;
use super::{Verb, print, table};

/// How many events may wait to be printed.
const MAX_UNPRINTED: usize = 65_536;

/// Execute requests from the queue
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  lockkeeper submit -- make test\n  lockkeeper work --jobs 4 --drain\n\n\
    After the first Ctrl-C the worker finishes its running commands and starts no more; the second stops them. \
    Several workers share one queue. If a worker is killed, its commands continue, and another worker takes them over.")]
pub(super) struct Args {
    /// How many runs at a time
    #[arg(long, short, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    jobs: u32,
    /// Also run requests that need this label (`submit --needs`); may be given several times
    #[arg(long = "label", value_name = "LABEL")]
    labels: Vec<String>,
    /// Exit when the queue is empty, with 1 if a run failed or can never start
    #[arg(long)]
    drain: bool,
    /// How much output of a command is kept, in mebibytes
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(4..=1_048_576))]
    output_limit: u64,
    /// The interval of heartbeats; after three missed ones, other workers take over
    #[arg(long, value_name = "DUR", default_value = "10s")]
    heartbeat: String,
    #[command(flatten)]
    place: Place,
    /// Print nothing about runs
    #[arg(long, short)]
    quiet: bool,
}

/// Folders and lock files that a worker shares with other programs.
#[derive(Default, clap::Args)]
pub(super) struct Place {
    /// The folder of a swarm, for the status log and task locks [default: AI_SWARM_DIR, else the setting swarm_dir,
    /// else the log is in the state folder]
    #[arg(long, value_name = "DIR")]
    status_dir: Option<PathBuf>,
    /// How requests are locked: only in the store, or also in .aiflow/locks
    #[arg(long, value_name = "FORMAT", default_value = "native")]
    pub(super) lock_format: LockFormat,
}

/// How requests and the queue are locked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum LockFormat {
    /// Only in the store
    #[default]
    Native,
    /// In the store and in the lock files of aiflow, so that its programs respect the locks
    Aiflow,
}

impl Place {
    /// The folder of the status log. Other repositories and users can read the folder of a swarm, so it is used only if the user
    /// names it.
    pub(super) fn status_dir(&self, context: &Context) -> PathBuf {
        self.swarm_dir(context).unwrap_or_else(|| context.location.state.clone())
    }

    /// The folder of the swarm, if it is named.
    fn swarm_dir(&self, context: &Context) -> Option<PathBuf> {
        // The settings have only variables that are UTF-8.
        let variable = || std::env::var_os("AI_SWARM_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
        self.status_dir.clone().or_else(variable).or_else(|| context.folder("swarm_dir"))
    }

    /// The settings with which the executors at work see requests: they lock in one format, whatever this command was given.
    pub(super) fn settings_to_look(&self, context: &Context) -> Result<Settings, Report> {
        let aiflow = executors::at_work(&context.location.state, ExecutorFormat::Aiflow)?;
        let settings = self.settings(context)?;
        Ok(Settings {
            aiflow: aiflow.then(|| Aiflow::new(&context.location.root)).or(settings.aiflow),
            ..settings
        })
    }

    /// The settings of the worker.
    pub(super) fn settings(&self, context: &Context) -> Result<Settings, Report> {
        let aiflow = match self.lock_format {
            LockFormat::Native => None,
            LockFormat::Aiflow => Some(Aiflow::new(&context.location.root)),
        };
        let dir = self.swarm_dir(context).unwrap_or_else(|| PathBuf::from(DEFAULT_DIR));
        let swarm = Some(Swarm::new(dir, super::task::default_ttl()?));
        Ok(Settings { grace: grace(context), aiflow, swarm, ..Settings::default() })
    }
}

impl Verb for Args {
    const NAME: &'static str = "work";

    fn run(self, globals: &Globals) -> Result<Exit, Report> {
        run(&Context::new(globals)?, &self)
    }
}

fn run(context: &Context, args: &Args) -> Result<Exit, Report> {
    let heartbeat = parse_span(&args.heartbeat)?.max(Duration::from_millis(50));
    let signals = Signals::receive(&[Signal::INT, Signal::TERM, Signal::HUP]).map_err(OpenError::Machine)?;
    let settings = Settings {
        labels: labels(&args.labels)?,
        output_limit: args.output_limit * 1024 * 1024,
        heartbeat,
        ..args.place.settings(context)?
    };
    let runs = context.runs_to_queue(args.quiet)?;
    let _registered = executors::register(&context.location.state, ExecutorFormat::of(&settings))?;
    let status = StatusLog::open(args.place.status_dir(context))?;
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    let live = !context.json && !args.quiet && std::io::stderr().is_terminal() && !dumb;
    let live = live
        .then(|| Live::begin(args.jobs, Arc::clone(context.phrases())))
        .transpose()
        .map_err(OpenError::Machine)?;
    let counts = Arc::new(Mutex::new(Counts::default()));
    let talk = match &live {
        Some(live) => {
            let (show, words) = (live.listener(), EventWords::new(context));
            Box::new(move |event: &WorkerEvent| show(event, words.of(event))) as Box<Listener>
        }
        None => lines(context, args.quiet),
    };
    let silent = args.quiet && !context.json;
    let (listener, printing) = on_own_thread(talk, silent)?;
    let listener = counted(listener, Arc::clone(&counts));
    let leases = context.engine_to_execute()?;
    let worker = Worker::begin(runs, leases, settings, args.jobs, Some(status), listener)?;
    if !args.quiet && !context.json && live.is_none() {
        let jobs = args.jobs.to_string();
        let values = [("worker", short_id(worker.id().as_str())), ("jobs", &jobs)];
        print::talk(&context.say("work.begins", &values));
    }
    let worked = worker.run(&signals, args.drain);
    drop(worker);
    // All events are printed before the summary.
    let _ = printing.join();
    drop(live);
    worked?;
    let counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
    if !args.quiet && !context.json {
        let [succeeded, others] = [counts.succeeded, counts.others].map(|count| count.to_string());
        print::talk(&context.say("work.summary", &[("succeeded", &succeeded), ("others", &others)]));
    }
    if !args.drain {
        return Ok(Exit::Done);
    }
    let left = left_over(context, &labels(&args.labels)?)?;
    left.iter().for_each(|sentence| print::talk(sentence));
    Ok(if counts.failed == 0 && left.is_empty() { Exit::Done } else { Exit::Failed })
}

/// What a worker that drains leaves, in sentences: requests that can never start, requests whose labels no worker has, and runs of others
/// that nobody looks after.
fn left_over(context: &Context, own: &[Name]) -> Result<Vec<String>, Report> {
    let runs = Runs::at(&context.location)?;
    let mut left = Vec::new();
    let stuck = runs.stuck()?;
    if !stuck.is_empty() {
        left.push(in_vain(context, &stuck));
    }
    let unserved = runs.requests_without_worker(own)?;
    if !unserved.is_empty() {
        left.push(without_worker(context, &unserved));
    }
    let unattended = unattended_runs(&runs, &context.engine()?)?;
    if !unattended.out_of_reach.is_empty() {
        left.push(out_of_reach(context, &unattended.out_of_reach));
    }
    Ok(left)
}

/// Names the requests whose labels no worker has, and what helps.
fn without_worker(context: &Context, requests: &[Request]) -> String {
    let labels = |request: &Request| request.needs.iter().map(|label| table::plain(label.as_str())).collect();
    let item = |request: &Request| {
        let labels: Vec<String> = labels(request);
        let name = table::plain(request.id.as_str());
        said("work.needs").with("request", name).with("labels", labels.join(", "))
    };
    let list = said("work.no_label").with_list("list", requests.iter().map(item));
    let flags = requests.first().map(flags_for).unwrap_or_default();
    with_hint(
        context,
        &context.phrases().put(&list),
        &context.say("work.no_label_hint", &[("flags", &flags)]),
    )
}

/// Names runs that nobody looks after, and that cannot be looked after from here.
fn out_of_reach(context: &Context, runs: &[(RunId, Option<u32>)]) -> String {
    let item = |(run, user): &(RunId, Option<u32>)| match user {
        Some(user) => said("work.of_user").with("run", short_id(run.as_str())).with("user", user.to_string()),
        None => said("work.of_namespace").with("run", short_id(run.as_str())),
    };
    let list = said("work.out_of_reach").with_list("list", runs.iter().map(item));
    with_hint(context, &context.phrases().put(&list), &context.say("work.out_of_reach_hint", &[]))
}

fn with_hint(context: &Context, sentence: &str, hint: &str) -> String {
    format!("{sentence}\n{}: {hint}", context.say("hint", &[]))
}

/// Names the requests that can never start, and what helps.
fn in_vain(context: &Context, stuck: &[Stuck]) -> String {
    let (what, advice) = Stuck::sentences(stuck);
    let put = |sentence| table::plain(&context.phrases().put(sentence));
    with_hint(context, &put(&what), &put(&advice))
}

#[derive(Default)]
struct Counts {
    succeeded: u64,
    others: u64,
    /// How many of `others` were not canceled.
    failed: u64,
}

/// Counts how runs end, and passes all events on.
fn counted(listener: Box<Listener>, counts: Arc<Mutex<Counts>>) -> Box<Listener> {
    Box::new(move |event| {
        if let WorkerEvent::Ended(run) = event {
            let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
            match run.status() {
                Status::Succeeded => counts.succeeded += 1,
                Status::Canceled => counts.others += 1,
                _ => {
                    counts.others += 1;
                    counts.failed += 1;
                }
            }
        }
        listener(event);
    })
}

/// Calls a listener on its own thread: a reader that does not read, or a stopped terminal, must not stop the worker. With
/// `quiet` the listener gets only warnings.
fn on_own_thread(listener: Box<Listener>, quiet: bool) -> Result<(Box<Listener>, JoinHandle<()>), Report> {
    // A counter limits the events: a bounded channel would allocate memory for all of them at once.
    let unprinted = Arc::new(AtomicUsize::new(0));
    let (sender, receiver) = channel::<WorkerEvent>();
    let printing = thread::Builder::new().name("print".to_owned());
    let counter = Arc::clone(&unprinted);
    let printing = printing.spawn(move || {
        for event in receiver {
            counter.fetch_sub(1, Ordering::Relaxed);
            listener(&event);
        }
    });
    let printing = printing.map_err(OpenError::Machine)?;
    let passes_on = move |event: &WorkerEvent| {
        let is_wanted = !quiet || matches!(event, WorkerEvent::Warning(_));
        // Further events are not printed. They are in the status log and in the events of the runs.
        if is_wanted && unprinted.load(Ordering::Relaxed) < MAX_UNPRINTED {
            unprinted.fetch_add(1, Ordering::Relaxed);
            let _ = sender.send(event.clone());
        }
    };
    Ok((Box::new(passes_on), printing))
}

/// Prints one line for each event.
fn lines(context: &Context, quiet: bool) -> Box<Listener> {
    let (json, words) = (context.json, EventWords::new(context));
    Box::new(move |event| {
        // A line that cannot be printed is no reason to fail.
        let _ = if json {
            writeln!(std::io::stdout().lock(), "{}", as_json(event))
        } else if quiet && !matches!(event, WorkerEvent::Warning(_)) {
            Ok(())
        } else {
            writeln!(std::io::stderr().lock(), "{}", print::for_terminal(&words.of(event)))
        };
    })
}

/// Puts worker events into the language of the user.
pub(super) struct EventWords {
    phrases: Arc<Phrases>,
    /// The state folder, which has the output of the runs.
    state: PathBuf,
}

impl EventWords {
    pub(super) fn new(context: &Context) -> Self {
        Self { phrases: Arc::clone(context.phrases()), state: context.location.state.clone() }
    }

    /// An event as a line, or as lines, for people.
    pub(super) fn of(&self, event: &WorkerEvent) -> String {
        let about = |key: &str, run: &Run, more: &[(&str, &str)]| {
            let name = named(run);
            self.phrases.fill(key, &[&[("run", name.as_str())], more].concat())
        };
        match event {
            WorkerEvent::Started(run) if run.attempt() > 1 => {
                about("work.started_again", run, &[("attempt", &run.attempt().to_string())])
            }
            WorkerEvent::Started(run) => about("work.started", run, &[]),
            WorkerEvent::Waiting(run, why) => {
                about("work.waits", run, &[("why", &table::plain(&with_short_ids(why)))])
            }
            WorkerEvent::Retrying(run) => about("work.retrying", run, &[("reason", &self.reason(run))]),
            WorkerEvent::Ended(run) => {
                let took =
                    run.completed_at().zip(run.started_at()).map_or_else(String::new, |(end, start)| {
                        self.phrases
                            .fill("work.took", &[("span", &format_span(end.moment.since(start.moment)))])
                    });
                let (status, reason) = (run.status().to_string(), self.reason(run));
                let values = [("status", &*status), ("took", &*took), ("reason", &*reason)];
                if !has_failed(run) {
                    return about("work.ended", run, &values);
                }
                let (said, id) = (self.last_words(run), typed(run));
                about("work.failed", run, &[&values[..], &[("said", &said), ("id", &id)]].concat())
            }
            WorkerEvent::Adopted(run) => about("work.adopted", run, &[]),
            WorkerEvent::Superseded(run) => about("work.superseded", run, &[]),
            WorkerEvent::Draining => self.phrases.fill("work.draining", &[]),
            WorkerEvent::Stopping => self.phrases.fill("work.stopping", &[]),
            WorkerEvent::Warning(what) => self.phrases.fill("warning", &[("what", &table::plain(what))]),
        }
    }

    /// Why a run ended: the exit code of its command, or the reason code.
    fn reason(&self, run: &Run) -> String {
        let code = run.ending().map(|ending| ending.exit_code().to_string());
        match (run.reason(), code) {
            (None, _) => String::new(),
            (Some(Reason::ExitCode), Some(code)) => self.phrases.fill("work.exit_code", &[("code", &code)]),
            (Some(reason), Some(code)) => {
                self.phrases.fill("work.reason_code", &[("reason", reason.as_str()), ("code", &code)])
            }
            (Some(reason), None) => self.phrases.fill("work.reason", &[("reason", reason.as_str())]),
        }
    }

    /// The message of a run that failed, else the last line of its output.
    fn last_words(&self, run: &Run) -> String {
        let line = run.message().map(str::to_owned);
        let line = line.or_else(|| RunFolder::new(&self.state, &run.id).last_line());
        line.map_or_else(String::new, |line| {
            self.phrases.fill("work.said", &[("line", &table::plain(&line))])
        })
    }
}

pub(super) fn as_json(event: &WorkerEvent) -> serde_json::Value {
    let (name, run, message) = match event {
        WorkerEvent::Started(run) => ("started", run, None),
        WorkerEvent::Waiting(run, why) => ("waiting", run, Some(why)),
        WorkerEvent::Retrying(run) => ("retrying", run, None),
        WorkerEvent::Ended(run) => ("ended", run, None),
        WorkerEvent::Adopted(run) => ("adopted", run, None),
        WorkerEvent::Superseded(run) => ("superseded", run, None),
        WorkerEvent::Draining => return json!({ "event": "draining" }),
        WorkerEvent::Stopping => return json!({ "event": "stopping" }),
        WorkerEvent::Warning(what) => return json!({ "event": "trouble", "message": what }),
    };
    json!({
        "event": name,
        "run_id": run.id.as_str(),
        "request_id": run.request.as_str(),
        "status": run.status().as_str(),
        "attempt": run.attempt(),
        "exit_code": run.ending().map(|ending| ending.exit_code()),
        "reason_code": run.reason().map(|reason| reason.as_str()),
        "message": message.map(String::as_str).or(run.message()),
    })
}
