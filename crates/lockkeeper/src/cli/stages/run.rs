//! `stages run`: executes phases as planned.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use lockkeeper_core::plan::{GroupState, Mode};
use lockkeeper_engine::open::OpenError;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::runs::Runs;
use lockkeeper_engine::runs::template::Template;
use lockkeeper_engine::stages::{Options, Outcome, PhaseExecutor, Stopped};
use lockkeeper_engine::work::{Settings, Worker, WorkerEvent};
use lockkeeper_formats::status::StatusLog;
use lockkeeper_platform::signal::{Signal, Signals};
use lockkeeper_stages::{File, PhasePlan};
use serde_json::{Value, json};

use super::live::Live;
use super::load_valid;
use super::plan::{Machine, Prediction};
use crate::cli::context::Context;
use crate::cli::group::{Monitor, lock_timeout, named_folders};
use crate::cli::work::Place;
use crate::cli::{git_wrapper, print, table};

/// Variables that the executor sets for each agent. They are not passed on from this process: there they describe the
/// agent that runs it.
const AGENT_VARIABLES: [&str; 4] =
    ["LOCKKEEPER_PHASE", "LOCKKEEPER_GROUP", "LOCKKEEPER_AGENT", "LOCKKEEPER_TASK"];

#[derive(clap::Args)]
#[command(
    after_help = "An agent's command is its own `command:`, its group's, or the template, in which {agent}, {task}, \
    {group} and {phase} are filled in. It sees LOCKKEEPER_AGENT, LOCKKEEPER_TASK, LOCKKEEPER_GROUP and \
    LOCKKEEPER_PHASE.\nCtrl-C stops all groups; --resume continues with the groups that did not succeed. Logs are \
    written to logs/ beside the file."
)]
pub(super) struct Args {
    /// The STAGES.yml
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
    /// The phase [default: all of them, one after the other]
    #[arg(value_name = "PHASE")]
    phase: Option<String>,
    /// Only these groups of the phase
    #[arg(value_name = "GROUP")]
    groups: Vec<String>,
    /// The command of agents that have none in the file, such as 'tool --task {task} --agent {agent}'
    #[arg(long, value_name = "TEMPLATE")]
    agent_command: Option<String>,
    /// The command to run after an abort, or after a group on the critical path failed; {phase}, {execution} and {head}, the
    /// commit that was checked out before, are filled in
    #[arg(long, value_name = "TEMPLATE")]
    rollback: Option<String>,
    /// Continue the latest execution that did not succeed
    #[arg(long, requires = "phase")]
    resume: bool,
    #[command(flatten)]
    machine: Machine,
    #[command(flatten)]
    prediction: Prediction,
    #[command(flatten)]
    place: Place,
}

pub(super) fn run(context: &Context, args: &Args) -> Result<Exit, Report> {
    let name = args.file.to_str().ok_or_else(|| Report::usage("the path of the file is not UTF-8"))?;
    if name == "-" {
        return Err(Report::usage("a file is needed, since logs are written beside it"));
    }
    let file = load_valid(context, name)?;
    let template = args.agent_command.as_deref().map(Template::parse).transpose()?;
    let rollback = args.rollback.as_deref().map(Template::parse).transpose()?;
    let phases: Vec<String> = match &args.phase {
        Some(phase) => vec![phase.clone()],
        None => file.stages.phases.iter().map(|phase| phase.name.value.clone()).collect(),
    };
    // A phase that cannot be planned is refused before anything runs.
    for phase in &phases {
        file.plan(phase, &args.groups, &args.machine.conditions()?)?;
    }
    let lock_timeout = lock_timeout()?;
    let signals = Signals::receive(&[Signal::INT, Signal::TERM, Signal::HUP]).map_err(OpenError::Machine)?;
    let worker = begin_worker(context, &args.place)?;
    let _monitor = Monitor::begin(context);
    let mut documents = Vec::new();
    for phase in &phases {
        let conditions = args.machine.conditions()?;
        let plan = args.prediction.plan(context, &file, phase, &args.groups, &conditions)?;
        announce(context, &plan);
        let options = Options {
            file: std::fs::canonicalize(&args.file).unwrap_or_else(|_| args.file.clone()),
            dir: context.location.root.to_string_lossy().into_owned(),
            template: template.clone(),
            rollback: rollback.clone(),
            resume: args.resume,
            load: args.machine.load,
            lock_timeout,
            lock_folders: named_folders(context),
        };
        let outcome = execute(context, &worker, &file, &plan, options, &signals)?;
        documents.push(document(&plan, &outcome));
        if !outcome.is_success() {
            finish(context, &documents);
            return Ok(exit(&outcome));
        }
    }
    finish(context, &documents);
    Ok(Exit::Done)
}

fn execute(
    context: &Context,
    worker: &Arc<Worker>,
    file: &File,
    plan: &PhasePlan,
    options: Options,
    signals: &Signals,
) -> Result<Outcome, Report> {
    let executor = PhaseExecutor::new(worker, &file.stages, plan, options)?;
    let mut live = Live::new(context, plan);
    let outcome = executor.execute(signals, &mut |event, standings| live.show(event, standings));
    live.end();
    let outcome = outcome?;
    if !context.json {
        print::talk(&summary(context, plan, &outcome));
    }
    Ok(outcome)
}

fn begin_worker(context: &Context, place: &Place) -> Result<Arc<Worker>, Report> {
    let runs = Runs::at(&context.location)?;
    let leases = context.engine_to_execute()?;
    let status = StatusLog::open(place.status_dir(context))?;
    // Agents work for the user of this command, so they get its whole environment. Their commits wait for each other.
    let path = git_wrapper::path_with_wrapper(context);
    let path = path.map(|path| (OsString::from("PATH"), path));
    let variables = std::env::vars_os()
        .filter(|(name, _)| path.is_none() || name != "PATH")
        .chain(path.clone())
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| !AGENT_VARIABLES.contains(&name.as_str()))
        .collect();
    let settings = Settings { variables, ..place.settings(context)? };
    let (json, phrases) = (context.json, Arc::clone(context.phrases()));
    let listener = Box::new(move |event: &WorkerEvent| {
        if let (WorkerEvent::Warning(what), false) = (event, json) {
            print::talk(&phrases.fill("warning", &[("what", &table::plain(what))]));
        }
    });
    Ok(Arc::new(Worker::begin(runs, leases, settings, 0, Some(status), listener)?))
}

fn announce(context: &Context, plan: &PhasePlan) {
    if context.json {
        return;
    }
    let (phase, reason) = (table::plain(&plan.phase), table::plain(&plan.plan.reason));
    let values = [("phase", &*phase), ("mode", plan.plan.mode.as_str()), ("reason", &*reason)];
    print::talk(&context.say("stages.plan", &values));
    match plan.plan.mode {
        Mode::Abort => {}
        Mode::Direct => print::talk(&context.say("stages.direct", &[])),
        Mode::Parallel | Mode::Serial | Mode::Mutex | Mode::Queue => {
            let count = plan.groups.len().to_string();
            print::talk(&context.say("stages.parallel", &[("count", &count)]));
        }
    }
}

fn summary(context: &Context, plan: &PhasePlan, outcome: &Outcome) -> String {
    let succeeded = outcome.standings.iter().filter(|one| **one == GroupState::Succeeded).count();
    let [succeeded, count] = [succeeded, plan.groups.len()].map(|count| count.to_string());
    let [wall, serial] = [outcome.wall, outcome.serial()].map(lockkeeper_stages::span_in_words);
    let phase = table::plain(&plan.phase);
    let values = [
        ("phase", &*phase),
        ("succeeded", &*succeeded),
        ("count", &*count),
        ("wall", &*wall),
        ("serial", &*serial),
    ];
    let mut lines = vec![context.say("stages.summary", &values)];
    for (index, why) in &outcome.reasons {
        let (group, why) = (table::plain(plan.id(*index)), table::plain(why));
        lines.push(context.say("stages.reason", &[("group", &group), ("why", &why)]));
    }
    if let Some(why) = &outcome.stopped {
        lines.push(context.say("stages.stopped", &[("why", &table::plain(&why.to_string()))]));
    }
    let rolled_back = match outcome.rolled_back {
        Some(true) => Some("stages.rolled_back"),
        Some(false) => Some("stages.rollback_failed"),
        None => outcome.rollback_wanted.then_some("stages.not_rolled_back"),
    };
    lines.extend(rolled_back.map(|key| context.say(key, &[])));
    lines.join("\n")
}

fn document(plan: &PhasePlan, outcome: &Outcome) -> Value {
    let groups: Vec<Value> = outcome
        .standings
        .iter()
        .enumerate()
        .map(|(index, standing)| {
            json!({ "group_id": plan.id(index), "status": word(*standing), "reason": outcome.reasons.get(&index) })
        })
        .collect();
    json!({
        "phase": plan.phase,
        "execution_id": outcome.execution,
        "mode": plan.plan.mode.as_str(),
        "success": outcome.is_success(),
        "groups": groups,
        "wall_ms": millis(outcome.wall),
        "serial_ms": millis(outcome.serial()),
        "waited_ms": millis(outcome.waited),
        "downgrades": outcome.downgrades,
        "stopped": outcome.stopped.as_ref().map(ToString::to_string),
        "rolled_back": outcome.rolled_back,
        "rollback_wanted": outcome.rollback_wanted,
    })
}

fn finish(context: &Context, documents: &[Value]) {
    if context.json {
        match documents {
            [only] => print::json(only),
            all => print::json(&json!({ "phases": all })),
        }
    }
}

/// The exit code: after a signal 128+n, as in a shell.
fn exit(outcome: &Outcome) -> Exit {
    match &outcome.stopped {
        Some(Stopped::Signal(signal)) => {
            Exit::Command(u8::try_from(128 + signal.as_raw()).unwrap_or(u8::MAX))
        }
        Some(Stopped::Rule(_)) | None => Exit::Failed,
    }
}

pub(super) fn word(state: GroupState) -> &'static str {
    match state {
        GroupState::Waiting => "WAITING",
        GroupState::Running => "RUNNING",
        GroupState::Succeeded => "SUCCESS",
        GroupState::Failed => "FAILED",
        GroupState::Skipped => "SKIPPED",
    }
}

fn millis(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
