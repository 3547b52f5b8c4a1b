//! `task`: locks tasks in the lock files of a swarm.

mod hold;

use std::path::PathBuf;

use clap::Subcommand;
use lockkeeper_core::time::Ttl;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_formats::Verdict;
use lockkeeper_formats::swarm::{
    Attempt, DEFAULT_DIR, DEFAULT_TTL, LockState, Swarm, TaskRecord, UpdateOutcome,
};
use lockkeeper_platform::wall_clock::WallTime;
use serde_json::{Value, json};

use super::args::ttl;
use super::context::{Context, Globals};
use super::{Verb, print, table};

/// Lock tasks of a swarm, in the files that its workers use
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  lockkeeper task lock build --worker w1 && make; lockkeeper task unlock build --worker w1\n\n\
    The files are $AI_SWARM_DIR/locks/TASK.lock [/tmp/ai_swarm]. A lock lives for its TTL \
    [AI_SWARM_LOCK_TTL, else 300s] after its last heartbeat. Then any worker may take it over."
)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Lock a task; exit 75 at once if another worker has it
    Lock(LockArgs),
    /// Unlock a task; exit 75 if another worker has it
    Unlock(WorkerArgs),
    /// Write a heartbeat; exit 75 if the lock was lost
    Heartbeat(LockArgs),
    /// Show who has a task, and whether another worker may take it over
    Show(ShowArgs),
    /// Hold a task while a command runs, with heartbeats
    Hold(hold::Args),
}

/// The task, and its worker.
#[derive(clap::Args)]
pub(super) struct WorkerArgs {
    /// The task
    #[arg(value_name = "TASK")]
    pub(super) task: String,
    /// The worker that holds it
    #[arg(long, value_name = "WORKER")]
    pub(super) worker: String,
}

#[derive(clap::Args)]
struct LockArgs {
    #[command(flatten)]
    whose: WorkerArgs,
    /// How long the lock lives without a heartbeat
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    ttl: Option<String>,
}

#[derive(clap::Args)]
struct ShowArgs {
    /// The task
    #[arg(value_name = "TASK")]
    task: String,
    /// Also show whether this worker has it
    #[arg(long, value_name = "WORKER")]
    worker: Option<String>,
}

impl Verb for Args {
    const NAME: &'static str = "task";

    fn run(self, globals: &Globals) -> Result<Exit, Report> {
        run(&Context::without_store(globals)?, self)
    }
}

fn run(context: &Context, args: Args) -> Result<Exit, Report> {
    match args.command {
        Command::Lock(args) => lock(context, &args),
        Command::Unlock(args) => unlock(context, &args),
        Command::Heartbeat(args) => heartbeat(context, &args),
        Command::Show(args) => show(context, &args),
        Command::Hold(args) => hold::run(context, args),
    }
}

/// The swarm folder from the environment.
pub(super) fn swarm() -> Result<Swarm, Report> {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let dir = named("AI_SWARM_DIR").map_or_else(|| PathBuf::from(DEFAULT_DIR), PathBuf::from);
    Ok(Swarm::new(dir, default_ttl()?))
}

/// The TTL of task locks from the environment.
pub(super) fn default_ttl() -> Result<Ttl, Report> {
    match std::env::var_os("AI_SWARM_LOCK_TTL").filter(|value| !value.is_empty()) {
        None => Ok(Ttl::new(DEFAULT_TTL)?),
        Some(text) => ttl(&text.to_string_lossy())
            .map_err(|report| report.with_hint("AI_SWARM_LOCK_TTL is a span in seconds, such as 300")),
    }
}

fn lock(context: &Context, args: &LockArgs) -> Result<Exit, Report> {
    let (swarm, whose) = (swarm()?, &args.whose);
    let span = args.ttl.as_deref().map(ttl).transpose()?;
    match swarm.lock(&whose.task, &whose.worker, span, WallTime::now())? {
        Attempt::Locked { lock, replaced } => {
            print_locked(context, &swarm, lock.record(), replaced.as_ref())?;
            Ok(Exit::Done)
        }
        Attempt::Busy(standing) => Err(busy(&swarm, &whose.task, &standing)),
    }
}

fn unlock(context: &Context, args: &WorkerArgs) -> Result<Exit, Report> {
    let swarm = swarm()?;
    let (status, record) = match swarm.unlock(&args.task, &args.worker, WallTime::now())? {
        UpdateOutcome::Done(record) => ("unlocked", Some(record)),
        UpdateOutcome::Absent => ("absent", None),
        UpdateOutcome::Lost(standing) => return Err(lost(&swarm, args, Some(&standing))),
    };
    let message = match &record {
        Some(_) => context.say("task.unlocked", &[("task", &table::plain(&args.task))]),
        None => context.say("task.absent", &[("task", &table::plain(&args.task))]),
    };
    print_result(context, &swarm, status, &args.task, record.as_ref(), &message)?;
    Ok(Exit::Done)
}

fn heartbeat(context: &Context, args: &LockArgs) -> Result<Exit, Report> {
    let (swarm, whose) = (swarm()?, &args.whose);
    let span = args.ttl.as_deref().map(ttl).transpose()?;
    match swarm.heartbeat(&whose.task, &whose.worker, span, WallTime::now())? {
        UpdateOutcome::Done(record) => {
            let until = end_of(&record);
            let message =
                context.say("task.renewed", &[("task", &table::plain(&whose.task)), ("until", &until)]);
            print_result(context, &swarm, "renewed", &whose.task, Some(&record), &message)?;
            Ok(Exit::Done)
        }
        UpdateOutcome::Absent => Err(lost(&swarm, whose, None)),
        UpdateOutcome::Lost(standing) => Err(lost(&swarm, whose, Some(&standing))),
    }
}

fn show(context: &Context, args: &ShowArgs) -> Result<Exit, Report> {
    let swarm = swarm()?;
    let standing = swarm.show(&args.task, WallTime::now())?;
    let record = standing.as_ref().and_then(|standing| standing.record.as_ref());
    let status = standing.as_ref().map_or("free", |standing| standing.verdict.word());
    let reason = standing.as_ref().map(|standing| standing.verdict.to_string());
    let mine = args.worker.as_ref().map(|worker| record.is_some_and(|record| record.worker_id == *worker));
    if context.json {
        let mut value = as_json(&swarm, status, &args.task, record)?;
        value["reason"] = reason.into();
        value["mine"] = mine.into();
        print::json(&value);
        return Ok(Exit::Done);
    }
    for (key, value) in record.map(TaskRecord::to_object).into_iter().flatten() {
        let text = value.as_str().map_or_else(|| value.to_string(), table::plain);
        print::data(&format!("{key}: {text}"));
    }
    let verdict = match &standing {
        Some(standing) => context.say(&verdict_key(standing.verdict), &[]),
        None => context.say("verdict.free", &[]),
    };
    print::data(&context.say("task.verdict", &[("verdict", &verdict)]));
    Ok(Exit::Done)
}

/// Prints that the task was locked, and which worker had it before.
fn print_locked(
    context: &Context,
    swarm: &Swarm,
    record: &TaskRecord,
    replaced: Option<&LockState>,
) -> Result<(), Report> {
    let task = table::plain(&record.task_id);
    let before = replaced.and_then(|standing| standing.record.as_ref());
    let message = match (replaced, before) {
        (Some(_), Some(old)) => {
            let (worker, end) = (table::plain(&old.worker_id), end_of(old));
            context.say("task.taken_over", &[("task", &task), ("worker", &worker), ("until", &end)])
        }
        (Some(_), None) => context.say("task.replaced_torn", &[("task", &task)]),
        (None, _) => {
            let until = end_of(record);
            context.say("task.locked", &[("task", &task), ("until", &until)])
        }
    };
    if context.json {
        let mut value = as_json(swarm, "locked", &record.task_id, Some(record))?;
        value["replaced"] = before.map(TaskRecord::to_object).into();
        value["message"] = message.into();
        print::json(&value);
    } else {
        print::talk(&message);
    }
    Ok(())
}

/// The key of a verdict in the phrases.
fn verdict_key(verdict: Verdict) -> String {
    let word = match verdict {
        Verdict::Held(reason) => format!("{reason:?}"),
        Verdict::Stale(reason) => format!("{reason:?}"),
    };
    let mut key = "verdict".to_owned();
    for character in word.chars() {
        if character.is_uppercase() {
            key.push(if key == "verdict" { '.' } else { '_' });
        }
        key.extend(character.to_lowercase());
    }
    key
}

/// Reports that another worker has the task.
pub(super) fn busy(swarm: &Swarm, task: &str, standing: &LockState) -> Report {
    let who = match &standing.record {
        Some(record) => {
            let end = record.expires_at().map_or_else(String::new, |end| format!(" until {end}"));
            format!("is locked by {}{end}", record.worker_id.escape_debug())
        }
        None => format!("is locked ({})", standing.verdict),
    };
    let report = Report::new(Exit::Refused, "LOCK_HELD", format!("{} {who}", task.escape_debug()))
        .explained_as("TASK_LOCK_HELD")
        .with_hint("take another task, or try again once that time has passed");
    with_holder(report, swarm, task, Some(standing))
}

fn lost(swarm: &Swarm, whose: &WorkerArgs, standing: Option<&LockState>) -> Report {
    let (task, worker) = (whose.task.escape_debug(), whose.worker.escape_debug());
    let holder = standing.and_then(|standing| standing.record.as_ref());
    let message = match (standing, holder) {
        (Some(_), Some(holder)) => {
            format!("{task} is not locked by {worker} but by {}", holder.worker_id.escape_debug())
        }
        (Some(_), None) => format!("{task} is not locked by {worker}: its record is being written"),
        (None, _) => format!("{task} is not locked by {worker}, nor by anybody"),
    };
    let report = Report::new(Exit::Refused, "NOT_THE_OWNER", message)
        .explained_as("TASK_NOT_YOURS")
        .with_hint("the lock was released or taken over: stop working on that task");
    with_holder(report, swarm, &whose.task, standing)
}

fn with_holder(report: Report, swarm: &Swarm, task: &str, standing: Option<&LockState>) -> Report {
    let holder = standing.and_then(|standing| standing.record.as_ref());
    let path = swarm.path(task).map(|path| path.to_string_lossy().into_owned());
    report
        .with_context("task_id", task)
        .with_context("path", path.unwrap_or_default())
        .with_context("holder", holder.map(TaskRecord::to_object))
        .with_context("expires_at", holder.and_then(TaskRecord::expires_at).map(|end| end.to_string()))
}

/// When a lock ends; `-` if it never does.
fn end_of(record: &TaskRecord) -> String {
    record.expires_at().map_or_else(|| "-".to_owned(), |end| end.to_string())
}

fn print_result(
    context: &Context,
    swarm: &Swarm,
    status: &str,
    task: &str,
    record: Option<&TaskRecord>,
    message: &str,
) -> Result<(), Report> {
    if context.json {
        let mut value = as_json(swarm, status, task, record)?;
        value["message"] = message.into();
        print::json(&value);
    } else {
        print::talk(message);
    }
    Ok(())
}

fn as_json(swarm: &Swarm, status: &str, task: &str, record: Option<&TaskRecord>) -> Result<Value, Report> {
    Ok(json!({
        "status": status,
        "task_id": task,
        "path": swarm.path(task)?.to_string_lossy(),
        "lock": record.map(TaskRecord::to_object),
        "expires_at": record.and_then(TaskRecord::expires_at).map(|end| end.to_string()),
    }))
}
