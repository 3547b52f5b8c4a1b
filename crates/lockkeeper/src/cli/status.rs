//! `status`: the overview, and the status log of a swarm. This file has the arguments and `status emit`.

mod follow;
mod summary;

use std::path::{Path, PathBuf};

use clap::Subcommand;
use lockkeeper_core::size::parse_size;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::runs::RunError;
use lockkeeper_formats::json::Json;
use lockkeeper_formats::status::{Dialect, LineError, Rotation, State, StatusError, StatusLine, StatusLog};
use lockkeeper_formats::swarm::check_task;
use lockkeeper_platform::wall_clock::WallTime;

use super::context::{Context, Globals};
use super::{Verb, overview, print, table};

/// Show what is held, waits, runs and failed; the status log of a swarm
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  lockkeeper status\n  lockkeeper status emit DONE --task build --message 'all green'\n  lockkeeper status follow"
)]
pub(super) struct Args {
    /// Folder of the swarm, with status.log in it
    #[arg(long, global = true, value_name = "DIR", env = "AI_SWARM_DIR", default_value = "/tmp/ai_swarm")]
    swarm_dir: PathBuf,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Append a line: START, DONE, WAIT, ERROR, HELP or SKIP
    Emit(EmitArgs),
    /// Show lines as they come, until Ctrl-C
    Follow(follow::Args),
    /// Show the latest state of every task and worker
    Summary,
}

#[derive(clap::Args)]
#[command(after_help = "Who says it is --worker, else AI_SWARM_WORKER_ID, else the owner of this command \
    (LOCKKEEPER_OWNER; of worker:ID only ID). It is written as meta.worker_id.\n\n\
    Within a run (LOCKKEEPER_RUN_ID), HELP makes it end as one that needs input.\n\n\
    The log is renamed to status.log.1 when it has grown beyond the limit; nothing is lost by that.")]
struct EmitArgs {
    /// The state: START, DONE, WAIT, ERROR, HELP or SKIP
    #[arg(value_name = "STATE")]
    state: String,
    /// The task
    #[arg(long, value_name = "ID")]
    task: String,
    /// A message for people
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    message: Option<String>,
    /// Data for programs, as a JSON object
    #[arg(long, value_name = "JSON")]
    meta: Option<String>,
    /// The worker that writes the line
    #[arg(long, value_name = "ID")]
    worker: Option<String>,
    /// The fields to write: those of the design, or also those that the swarm's master reads
    #[arg(long, value_name = "NAME", env = "LOCKKEEPER_STATUS_DIALECT", default_value = "design")]
    dialect: DialectArg,
    /// How large the log may become, such as 16M; 0 for any size
    #[arg(long, value_name = "SIZE", env = "LOCKKEEPER_STATUS_LIMIT", default_value = "16M")]
    limit: String,
    /// How many older logs are kept
    #[arg(long, value_name = "N", env = "LOCKKEEPER_STATUS_KEEP", default_value = "4")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    keep: u32,
}

/// Which fields a line has.
#[derive(Clone, Copy, clap::ValueEnum)]
enum DialectArg {
    /// state, task_id, timestamp, message, meta
    Design,
    /// Also ts and worker_id at the top
    Scanner,
}

impl Verb for Args {
    const NAME: &'static str = "status";

    fn run(self, globals: &Globals) -> Result<Exit, Report> {
        match &self.command {
            None => overview::run(&Context::new(globals)?),
            Some(command) => run(&Context::without_store(globals)?, &self.swarm_dir, command),
        }
    }
}

fn run(context: &Context, swarm_dir: &Path, command: &Command) -> Result<Exit, Report> {
    // An empty variable counts as unset.
    let named = !swarm_dir.as_os_str().is_empty();
    let folder = if named { context.cwd.join(swarm_dir) } else { PathBuf::from("/tmp/ai_swarm") };
    match command {
        Command::Emit(args) => emit(context, folder, args),
        Command::Follow(args) => follow::run(context, &StatusLog::open(folder)?, args),
        Command::Summary => summary::run(context, &StatusLog::open(folder)?),
    }
}

fn emit(context: &Context, folder: PathBuf, args: &EmitArgs) -> Result<Exit, Report> {
    let line = line(context, args)?;
    let limit = parse_size(&args.limit)?;
    StatusLog::open(folder)?.with_rotation(Rotation { limit, keep: args.keep }).append(&line)?;
    if line.state() == State::Help {
        ask_for_help(context, &line);
    }
    if context.json {
        print::data(&line.to_text());
    }
    Ok(Exit::Done)
}

/// Marks the run of this command, so that it ends with NEEDS_INPUT.
///
/// The line is written already, so an error here is only printed.
fn ask_for_help(context: &Context, line: &StatusLine) {
    let Some(id) = std::env::var("LOCKKEEPER_RUN_ID").ok().filter(|id| !id.is_empty()) else { return };
    let asked = || -> Result<(), Report> {
        let run = id.parse()?;
        let runs = context.existing_runs()?.ok_or_else(|| RunError::NoRun(id.clone()))?;
        Ok(runs.ask_for_help(&run, line.message())?)
    };
    if let Err(error) = asked() {
        let (run, why) = (table::plain(&id), error.to_string());
        print::talk(&context.say("status.run_not_told", &[("run", &run), ("why", &why)]));
    }
}

fn line(context: &Context, args: &EmitArgs) -> Result<StatusLine, Report> {
    let bad = |error: LineError| Report::from(StatusError::from(error));
    let state: State = args.state.parse().map_err(bad)?;
    // A task id that `task` refuses is refused here, too.
    check_task(&args.task)
        .map_err(|error| Report::usage(format!("bad task: {error}")).with_hint(error.hint()))?;
    let mut line = StatusLine::new(state, &args.task, WallTime::now()).map_err(bad)?;
    if let Some(message) = &args.message {
        line = line.with_message(message);
    }
    if let Some(text) = &args.meta {
        line = line.with_meta(meta(text)?).map_err(bad)?;
    }
    let line = match worker(context, args) {
        // A worker in --meta is kept unless --worker is given.
        Some(worker) if args.worker.is_some() || line.worker().is_none() => line.with_worker(worker),
        Some(_) | None => Ok(line),
    };
    let dialect = match args.dialect {
        DialectArg::Design => Dialect::Design,
        DialectArg::Scanner => Dialect::Scanner,
    };
    line.and_then(|line| line.with_dialect(dialect)).map_err(bad)
}

fn meta(text: &str) -> Result<Json, Report> {
    let hint = "give a JSON object, such as --meta '{\"retry_count\": 2}'";
    match Json::parse(text) {
        Ok(meta @ Json::Object(_)) => Ok(meta),
        Ok(_) => Err(Report::usage("meta is not a JSON object").with_hint(hint)),
        Err(error) => Err(Report::usage(format!("meta is not JSON: {error}")).with_hint(hint)),
    }
}

fn worker(context: &Context, args: &EmitArgs) -> Option<String> {
    let of_swarm = || std::env::var("AI_SWARM_WORKER_ID").ok().filter(|worker| !worker.is_empty());
    let of_owner = || {
        let owner = context.config.text("owner")?;
        Some(owner.strip_prefix("worker:").unwrap_or(owner).to_owned())
    };
    args.worker.clone().or_else(of_swarm).or_else(of_owner)
}
