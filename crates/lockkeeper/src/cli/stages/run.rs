//! `stages run`: execute phases as they are planned.

use std::path::PathBuf;
use std::sync::Arc;

use lockkeeper_core::plan::{GroupState, Mode};
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::runs::Runs;
use lockkeeper_engine::runs::template::Template;
use lockkeeper_engine::stages::{Conductor, Options, Outcome, Stopped};
use lockkeeper_engine::work::{Executor, Settings, Told};
use lockkeeper_formats::status::StatusLog;
use lockkeeper_platform::signal::{Signal, Signals};
use lockkeeper_stages::{File, PhasePlan};
use serde_json::{Value, json};

use super::live::Live;
use super::load_sound;
use super::plan::Machine;
use crate::cli::context::Context;
use crate::cli::group::Monitor;
use crate::cli::work::Place;
use crate::cli::{print, table};

/// What each agent is told of itself: what this process was told is about an agent that runs it.
const OWN_VARIABLES: [&str; 4] =
    ["LOCKKEEPER_PHASE", "LOCKKEEPER_GROUP", "LOCKKEEPER_AGENT", "LOCKKEEPER_TASK"];

#[derive(clap::Args)]
#[command(
    after_help = "An agent's command is its own `command:`, its group's, or the template, in which {agent}, {task}, \
    {group} and {phase} are filled in. It sees LOCKKEEPER_AGENT, LOCKKEEPER_TASK, LOCKKEEPER_GROUP and \
    LOCKKEEPER_PHASE.\nCtrl-C ends everything; --resume goes on with what was not done. Logs are written to logs/ \
    beside the file."
)]
pub(super) struct Args {
    /// The STAGES.yml
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The phase [default: all of them, one after the other]
    #[arg(value_name = "PHASE")]
    phase: Option<String>,
    /// Only these groups of it
    #[arg(value_name = "GROUP")]
    groups: Vec<String>,
    /// What agents without a command of their own do, such as 'tool --task {task} --agent {agent}'
    #[arg(long, value_name = "TEMPLATE")]
    agent_command: Option<String>,
    /// What puts things back when the phase was aborted or a group on the longest path failed
    #[arg(long, value_name = "TEMPLATE")]
    rollback: Option<String>,
    /// Go on with the latest execution that did not succeed
    #[arg(long, requires = "phase")]
    resume: bool,
    #[command(flatten)]
    machine: Machine,
    #[command(flatten)]
    place: Place,
}

pub(super) fn run(context: &Context, args: &Args) -> Result<Exit, Report> {
    let name = args.file.to_str().ok_or_else(|| Report::usage("the path of the file is no UTF-8"))?;
    if name == "-" {
        return Err(Report::usage("a file is needed, since logs are written beside it"));
    }
    let file = load_sound(context, name)?;
    let template = args.agent_command.as_deref().map(Template::parse).transpose()?;
    let rollback = args.rollback.as_deref().map(Template::parse).transpose()?;
    let phases: Vec<String> = match &args.phase {
        Some(phase) => vec![phase.clone()],
        None => file.stages.phases.iter().map(|phase| phase.name.value.clone()).collect(),
    };
    let signals = Signals::receive(&[Signal::INT, Signal::TERM, Signal::HUP])
        .map_err(lockkeeper::KeeperError::Machine)?;
    let executor = executor(context, &args.place)?;
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
        let outcome = conduct(context, &executor, &file, &plan, options, &signals)?;
        documents.push(document(&plan, &outcome));
        if !outcome.is_success() {
            finish(context, &documents);
            return Ok(exit(&outcome));
        }
    }
    finish(context, &documents);
    Ok(Exit::Done)
}

fn conduct(
    context: &Context,
    executor: &Arc<Executor>,
    file: &File,
    plan: &PhasePlan,
    options: Options,
    signals: &Signals,
) -> Result<Outcome, Report> {
    let conductor = Conductor::new(executor, &file.stages, plan, options)?;
    let mut live = Live::new(context.json, plan);
    let outcome = conductor.conduct(signals, &mut |news, standings| live.show(news, standings));
    live.end();
    let outcome = outcome?;
    if !context.json {
        print::talk(&sum(plan, &outcome));
    }
    Ok(outcome)
}

fn executor(context: &Context, place: &Place) -> Result<Arc<Executor>, Report> {
    let runs = Runs::open(&context.location.state)?;
    let leases = lockkeeper_engine::open::open_engine(&context.location.state)?;
    let status = StatusLog::open(&place.status_dir)?;
    // Agents work on behalf of whoever runs this, with all that is needed for that.
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| !OWN_VARIABLES.contains(&name.as_str()))
        .collect();
    let settings = Settings { variables, ..place.settings(context)? };
    let json = context.json;
    let teller = Box::new(move |told: &Told| {
        if let (Told::Trouble(what), false) = (told, json) {
            print::talk(&format!("warning: {}", table::plain(what)));
        }
    });
    Ok(Arc::new(Executor::begin(runs, leases, settings, 1, Some(status), teller)?))
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

fn sum(plan: &PhasePlan, outcome: &Outcome) -> String {
    let count = |standing| outcome.standings.iter().filter(|one| **one == standing).count();
    let mut text = format!(
        "{}: {} of {} groups succeeded in {}, {} one by one",
        table::plain(&plan.phase),
        count(GroupState::Succeeded),
        plan.groups.len(),
        lockkeeper_stages::span_in_words(outcome.wall),
        lockkeeper_stages::span_in_words(outcome.serial()),
    );
    for (place, why) in &outcome.reasons {
        text.push_str(&format!("\n{}: {}", table::plain(plan.id(*place)), table::plain(why)));
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
        .map(|(place, standing)| {
            json!({ "group_id": plan.id(place), "status": word(*standing), "reason": outcome.reasons.get(&place) })
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

/// As a shell tells of a command that a signal ended.
fn exit(outcome: &Outcome) -> Exit {
    match &outcome.stopped {
        Some(Stopped::Signal(signal)) => {
            Exit::Command(u8::try_from(128 + signal.as_raw()).unwrap_or(u8::MAX))
        }
        Some(Stopped::Rule(_)) | None => Exit::Failed,
    }
}

pub(super) fn word(standing: GroupState) -> &'static str {
    match standing {
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
