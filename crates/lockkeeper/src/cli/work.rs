//! `work`: execute what is queued.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lockkeeper_core::run::{Run, Status};
use lockkeeper_core::time::{format_span, parse_span};
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::runs::Runs;
use lockkeeper_engine::work::{Crew, Executor, Orders, Settings, Teller, Told};
use lockkeeper_formats::aiflow::Aiflow;
use lockkeeper_formats::status::StatusLog;
use lockkeeper_formats::swarm::Swarm;
use lockkeeper_platform::signal::{Signal, Signals};
use serde_json::json;

use super::context::{Context, Globals};
use super::obtain::grace;
use super::work_live::Live;
use super::{Verb, print, table};

/// So many lines may wait for a reader.
const UNREAD: usize = 65_536;

/// Execute requests from the queue
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  lockkeeper submit -- make test\n  lockkeeper work --jobs 4 --drain\n\n\
    The first Ctrl-C lets what runs come to its end and takes nothing more; the second ends it. Several workers \
    share one queue; a worker that is killed is replaced by the others, and its commands go on.")]
pub(super) struct Args {
    /// How many runs at once
    #[arg(long, short, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    jobs: u32,
    /// End once nothing is left to do
    #[arg(long)]
    drain: bool,
    /// How much of a command's output is kept, in mebibytes
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(4..))]
    output_limit: u64,
    /// How often to say that this worker lives; after three times without, others replace it
    #[arg(long, value_name = "DUR", default_value = "10s")]
    heartbeat: String,
    #[command(flatten)]
    place: Place,
    /// Say nothing about runs
    #[arg(long, short)]
    quiet: bool,
}

/// Where executors leave signs for other programs.
#[derive(clap::Args)]
pub(super) struct Place {
    /// Folder of the status log, and of the locks of a swarm's tasks
    #[arg(long, value_name = "DIR", env = "AI_SWARM_DIR", default_value = "/tmp/ai_swarm")]
    pub(super) status_dir: PathBuf,
    /// How requests are locked: in the store alone, or also in .aiflow/locks
    #[arg(long, value_name = "FORMAT", default_value = "native")]
    pub(super) lock_format: LockFormat,
}

/// How requests and the queue are locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum LockFormat {
    /// In the store
    Native,
    /// In the store and in the files of aiflow, so that its programs are kept out
    Aiflow,
}

impl Place {
    /// How commands are executed here.
    pub(super) fn settings(&self, context: &Context) -> Result<Settings, Report> {
        let aiflow = match self.lock_format {
            LockFormat::Native => None,
            LockFormat::Aiflow => Some(Aiflow::new(&context.location.root)),
        };
        let swarm = Some(Swarm::new(&self.status_dir, super::task::default_ttl()?));
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
    let signals = Signals::receive(&[Signal::INT, Signal::TERM, Signal::HUP])
        .map_err(lockkeeper::KeeperError::Machine)?;
    let settings = Settings {
        output_limit: args.output_limit * 1024 * 1024,
        heartbeat,
        ..args.place.settings(context)?
    };
    let runs = Runs::open(&context.location.state)?;
    let status = StatusLog::open(&args.place.status_dir)?;
    let live = !context.json && !args.quiet && std::io::stderr().is_terminal();
    let live = live.then(|| Live::begin(args.jobs)).transpose().map_err(lockkeeper::KeeperError::Machine)?;
    let counts = Arc::new(Mutex::new(Counts::default()));
    let talk = match &live {
        Some(live) => {
            let tell = live.teller();
            Box::new(move |told: &Told| tell(told, in_words(told))) as Box<Teller>
        }
        None => lines(context.json, args.quiet),
    };
    let silent = args.quiet && !context.json;
    let (teller, talking) = aside(counted(talk, Arc::clone(&counts)), silent)?;
    let leases = lockkeeper_engine::open::open_engine(&context.location.state)?;
    let executor = Executor::begin(runs, leases, settings, args.jobs, Some(status), teller)?;
    if !args.quiet && !context.json && live.is_none() {
        print::talk(&format!("worker {}: {} at once", executor.worker(), args.jobs));
    }
    let crew = Crew::new(executor, Orders { jobs: args.jobs, drain: args.drain })?;
    let worked = crew.work(&signals);
    drop(crew);
    // All that was told is said before the last word.
    let _ = talking.join();
    drop(live);
    worked?;
    if !args.quiet && !context.json {
        let counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        print::talk(&format!("{} succeeded, {} did not", counts.succeeded, counts.others));
    }
    Ok(Exit::Done)
}

#[derive(Default)]
struct Counts {
    succeeded: u64,
    others: u64,
}

/// Counts how runs end, besides telling of it.
fn counted(talk: Box<Teller>, counts: Arc<Mutex<Counts>>) -> Box<Teller> {
    Box::new(move |told| {
        if let Told::Ended(run) = told {
            let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
            match run.status {
                Status::Succeeded => counts.succeeded += 1,
                _ => counts.others += 1,
            }
        }
        talk(told);
    })
}

/// Talks on a thread of its own: a reader who does not read, or a terminal that was stopped, must not stop the work. Who is
/// silent says only what is wrong.
fn aside(talk: Box<Teller>, silent: bool) -> Result<(Box<Teller>, JoinHandle<()>), Report> {
    // Counted here: a channel with a limit would take the room for all of them at once.
    let unread = Arc::new(AtomicUsize::new(0));
    let (sender, receiver) = channel::<Told>();
    let talking = thread::Builder::new().name("talk".to_owned());
    let read = Arc::clone(&unread);
    let talking = talking.spawn(move || {
        for told in receiver {
            read.fetch_sub(1, Ordering::Relaxed);
            talk(&told);
        }
    });
    let talking = talking.map_err(lockkeeper::KeeperError::Machine)?;
    let teller = move |told: &Told| {
        let wanted = !silent || matches!(told, Told::Trouble(_));
        // What nobody reads any more is lost, which the status log and the events are not.
        if wanted && unread.load(Ordering::Relaxed) < UNREAD {
            unread.fetch_add(1, Ordering::Relaxed);
            let _ = sender.send(told.clone());
        }
    };
    Ok((Box::new(teller), talking))
}

/// Plain lines, one for everything that happens.
fn lines(json: bool, quiet: bool) -> Box<Teller> {
    Box::new(move |told| {
        // Talk that cannot be printed is not worth failing for.
        let _ = if json {
            writeln!(std::io::stdout().lock(), "{}", as_json(told))
        } else if quiet && !matches!(told, Told::Trouble(_)) {
            Ok(())
        } else {
            writeln!(std::io::stderr().lock(), "{}", in_words(told))
        };
    })
}

pub(super) fn in_words(told: &Told) -> String {
    let name = |run: &Run| format!("{} {}", run.id, table::plain(run.request.as_str()));
    match told {
        Told::Started(run) if run.attempt > 1 => format!("{}: started, attempt {}", name(run), run.attempt),
        Told::Started(run) => format!("{}: started", name(run)),
        Told::Waiting(run, why) => format!("{}: waits, {}", name(run), table::plain(why)),
        Told::Retrying(run) => format!("{}: failed, will be tried again", name(run)),
        Told::Ended(run) => {
            let took = run.completed_at.zip(run.started_at);
            let took = took.map_or_else(String::new, |(end, start)| {
                format!(" after {}", format_span(end.moment.since(start.moment)))
            });
            let code =
                run.ending.map_or_else(String::new, |ending| format!(", exit code {}", ending.exit_code()));
            let reason = run.reason.map_or_else(String::new, |reason| format!(" ({reason}{code})"));
            format!("{}: {}{took}{reason}", name(run), run.status)
        }
        Told::Adopted(run) => format!("{}: its worker is gone, looked after here", name(run)),
        Told::Superseded(run) => format!("{}: somebody else has it now", name(run)),
        Told::Draining => "no more runs are begun; a second signal (Ctrl-C) ends those that run".to_owned(),
        Told::Stopping => "those that run are ended".to_owned(),
        Told::Trouble(what) => format!("warning: {}", table::plain(what)),
    }
}

pub(super) fn as_json(told: &Told) -> serde_json::Value {
    let (event, run, message) = match told {
        Told::Started(run) => ("started", run, None),
        Told::Waiting(run, why) => ("waiting", run, Some(why)),
        Told::Retrying(run) => ("retrying", run, None),
        Told::Ended(run) => ("ended", run, None),
        Told::Adopted(run) => ("adopted", run, None),
        Told::Superseded(run) => ("superseded", run, None),
        Told::Draining => return json!({ "event": "draining" }),
        Told::Stopping => return json!({ "event": "stopping" }),
        Told::Trouble(what) => return json!({ "event": "trouble", "message": what }),
    };
    json!({
        "event": event,
        "run_id": run.id.as_str(),
        "request_id": run.request.as_str(),
        "status": run.status.as_str(),
        "attempt": run.attempt,
        "exit_code": run.ending.map(|ending| ending.exit_code()),
        "reason_code": run.reason.map(|reason| reason.as_str()),
        "message": message.or(run.message.as_ref()),
    })
}
