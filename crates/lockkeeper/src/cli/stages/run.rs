//! `stages run`: executes phases as planned.

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
use super::plan::Machine;
use crate::cli::context::Context;
use crate::cli::group::Monitor;
use crate::cli::work::Place;
use crate::cli::{print, table};

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
    file: PathBuf,
    /// The phase [default: all of them, one after the other]
    #[arg(value_name = "PHASE")]
    phase: Option<String>,
    /// Only these groups of the phase
    #[arg(value_name = "GROUP")]
    groups: Vec<String>,
    /// The command of agents that have none in the file, such as 'tool --task {task} --agent {agent}'
    #[arg(long, value_name = "TEMPLATE")]
    agent_command: Option<String>,
    /// The command to run after an abort, or after a group on the critical path failed
    #[arg(long, value_name = "TEMPLATE")]
    rollback: Option<String>,
    /// Continue the latest execution that did not succeed
    #[arg(long, requires = "phase")]
    resume: bool,
    #[command(flatten)]
    machine: Machine,
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
    let signals = Signals::receive(&[Signal::INT, Signal::TERM, Signal::HUP]).map_err(OpenError::Machine)?;
    let worker = begin_worker(context, &args.place)?;
    let _monitor = Monitor::begin();
    let mut documents = Vec::new();
    for phase in &phases {
        let plan = file.plan(phase, &args.groups, &args.machine.conditions()?)?;
        announce(context, &plan);
        let options = Options {
            file: std::fs::canonicalize(&args.file).unwrap_or_else(|_| args.file.clone()),
            dir: context.location.root.to_string_lossy().into_owned(),
            template: template.clone(),
            rollback: rollback.clone(),
            resume: args.resume,
            load: args.machine.load,
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
    let mut live = Live::new(context.json, plan);
    let outcome = executor.execute(signals, &mut |event, standings| live.show(event, standings));
    live.end();
    let outcome = outcome?;
    if !context.json {
        print::talk(&summary(plan, &outcome));
    }
    Ok(outcome)
}

fn begin_worker(context: &Context, place: &Place) -> Result<Arc<Worker>, Report> {
    let runs = Runs::open(&context.location.state)?;
    let leases = lockkeeper_engine::open::open_engine(&context.location.state)?;
    let status = StatusLog::open(place.status_dir(context))?;
    // Agents work for the user of this command, so they get its whole environment.
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| !AGENT_VARIABLES.contains(&name.as_str()))
        .collect();
    let settings = Settings { variables, ..place.settings(context)? };
    let json = context.json;
    let listener = Box::new(move |event: &WorkerEvent| {
        if let (WorkerEvent::Trouble(what), false) = (event, json) {
            print::talk(&format!("warning: {}", table::plain(what)));
        }
    });
    Ok(Arc::new(Worker::begin(runs, leases, settings, 0, Some(status), listener)?))
}

fn announce(context: &Context, plan: &PhasePlan) {
    if context.json {
        return;
    }
    print::talk(&format!(
        "{}: {}: {}",
        table::plain(&plan.phase),
        plan.plan.mode,
        table::plain(&plan.plan.reason)
    ));
    match plan.plan.mode {
        Mode::Abort => {}
        Mode::Direct => print::talk("Single group or no parallel config, executing normally"),
        Mode::Parallel | Mode::Serial | Mode::Mutex | Mode::Queue => {
            print::talk(&format!("Executing {} parallel groups...", plan.groups.len()));
        }
    }
}

fn summary(plan: &PhasePlan, outcome: &Outcome) -> String {
    let count = |standing| outcome.standings.iter().filter(|one| **one == standing).count();
    let mut text = format!(
        "{}: {} of {} groups succeeded in {}, {} one by one",
        table::plain(&plan.phase),
        count(GroupState::Succeeded),
        plan.groups.len(),
        lockkeeper_stages::span_in_words(outcome.wall),
        lockkeeper_stages::span_in_words(outcome.serial()),
    );
    for (index, why) in &outcome.reasons {
        text.push_str(&format!("\n{}: {}", table::plain(plan.id(*index)), table::plain(why)));
    }
    if let Some(why) = &outcome.stopped {
        text.push_str(&format!("\nended: {}", table::plain(&why.to_string())));
    }
    match outcome.rolled_back {
        Some(true) => text.push_str("\nrolled back"),
        Some(false) => text.push_str("\nthe rollback failed"),
        None => {}
    }
    text
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
