//! `stages plan`: shows how a phase would run, and why.

use std::num::NonZeroUsize;

use anstyle::AnsiColor;
use lockkeeper_core::plan::{Bond, Mode};
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_platform::load;
use lockkeeper_stages::json::plan_to_json;
use lockkeeper_stages::{Conditions, File, PhasePlan, picture, span_in_words};
use serde_json::json;

use super::load_valid;
use crate::cli::context::Context;
use crate::cli::{print, table};

#[derive(clap::Args)]
#[command(
    after_help = "Modes: DIRECT, PARALLEL, SERIAL, MUTEX, QUEUE, ABORT. Groups of one wave can run together.\n\
    Without PHASE, every phase is planned; P3, Phase3 and 3 are the same."
)]
pub(super) struct Args {
    /// The STAGES.yml, or - for stdin
    #[arg(value_name = "FILE")]
    file: String,
    /// The phase [default: all of them]
    #[arg(value_name = "PHASE")]
    phase: Option<String>,
    /// Only these groups of the phase
    #[arg(value_name = "GROUP")]
    groups: Vec<String>,
    /// Print the plan as a graph for Graphviz
    #[arg(long, conflicts_with_all = ["svg", "json"])]
    dot: bool,
    /// Print the plan as an SVG picture
    #[arg(long, conflicts_with = "json")]
    svg: bool,
    #[command(flatten)]
    machine: Machine,
}

/// Load and cores of the machine, and flags that replace them.
#[derive(clap::Args)]
pub(super) struct Machine {
    /// Plan for this load [default: the machine's one-minute average]
    #[arg(long, value_name = "N")]
    pub(super) load: Option<f64>,
    /// Run groups one by one when the load is above this [default: what the file says, else 4.0]
    #[arg(long, value_name = "N", env = "LOCKKEEPER_MAX_LOAD")]
    max_load: Option<f64>,
    /// The same, for the load divided by the number of cores
    #[arg(long, value_name = "N", env = "LOCKKEEPER_MAX_LOAD_PER_CORE", conflicts_with = "max_load")]
    max_load_per_core: Option<f64>,
    /// Plan for this many cores [default: those of the machine]
    #[arg(long, value_name = "N")]
    cores: Option<NonZeroUsize>,
    /// Run at most N groups at a time [default: what the file says]
    #[arg(long, short, value_name = "N")]
    jobs: Option<NonZeroUsize>,
}

impl Machine {
    pub(super) fn conditions(&self) -> Result<Conditions, Report> {
        for number in [self.load, self.max_load, self.max_load_per_core].into_iter().flatten() {
            if !number.is_finite() || number < 0.0 {
                return Err(
                    Report::usage(format!("`{number}` is not a load")).with_hint("give a number such as 4.0")
                );
            }
        }
        let cores = self.cores.unwrap_or_else(load::cores);
        Ok(Conditions {
            load: self.load.or_else(load::average),
            max_load: self.max_load_per_core.or(self.max_load),
            cores: self.max_load_per_core.map(|_| cores),
            jobs: self.jobs,
        })
    }
}

pub(super) fn run(context: &Context, args: &Args) -> Result<Exit, Report> {
    let file = load_valid(context, &args.file)?;
    let plans = plans(&file, args)?;
    if args.dot {
        print::out(&picture::dot(&plans));
    } else if args.svg {
        print::out(&picture::svg(&plans));
    } else if context.json {
        match plans.as_slice() {
            [only] => print::json(&plan_to_json(only)),
            all => print::json(&json!({ "phases": all.iter().map(plan_to_json).collect::<Vec<_>>() })),
        }
    } else {
        let texts: Vec<String> = plans.iter().map(text).collect();
        print::out(&texts.join("\n"));
    }
    Ok(Exit::Done)
}

fn plans(file: &File, args: &Args) -> Result<Vec<PhasePlan>, Report> {
    let conditions = args.machine.conditions()?;
    let one = |phase: &str| file.plan(phase, &args.groups, &conditions).map_err(Report::from);
    match &args.phase {
        Some(phase) => Ok(vec![one(phase)?]),
        None => file.stages.phases.iter().map(|phase| one(&phase.name.value)).collect(),
    }
}

fn text(planned: &PhasePlan) -> String {
    let plan = &planned.plan;
    let color = match plan.mode {
        Mode::Direct | Mode::Parallel => AnsiColor::Green,
        Mode::Mutex | Mode::Queue | Mode::Serial => AnsiColor::Yellow,
        Mode::Abort => AnsiColor::Red,
    };
    let style = color.on_default().bold();
    let mut text = format!("{}  {style}{}{style:#}\n", table::plain(&planned.phase), plan.mode);
    text.push_str(&format!("{}\n", table::plain(&plan.reason)));
    if !planned.assumed.is_empty() {
        text.push_str(&format!("taken as done: {}\n", table::plain(&planned.assumed.join(", "))));
    }
    if !plan.waves.is_empty() {
        text.push_str(&format!("\n{}", waves(planned)));
        let (length, work) = (span_in_words(plan.length), span_in_words(planned.work()));
        text.push_str(&format!("about {length} in all, {work} one by one\n"));
    }
    if !planned.findings.conflicts.is_empty() {
        text.push_str(&format!("\n{}", conflicts(planned)));
    }
    for found in planned.findings.same_dir.iter().filter(|found| found.ruling.is_none()) {
        let ids: Vec<&str> = found.groups.iter().map(|group| planned.id(*group)).collect();
        let line = format!("SAME_DIR (advice): {} are in {}", ids.join(", "), found.folder);
        text.push_str(&format!("{}\n", table::plain(&line)));
    }
    text
}

fn waves(planned: &PhasePlan) -> String {
    let mut rows = Vec::new();
    for (wave, members) in planned.plan.waves.iter().enumerate() {
        for index in members {
            let (group, step) = (&planned.groups[*index], &planned.plan.steps[*index]);
            let reasons = |bonds: &[Bond], how: &str| -> Vec<String> {
                bonds
                    .iter()
                    .map(|bond| format!("{how} {}: {}", planned.id(bond.group), planned.explain(bond)))
                    .collect()
            };
            let why =
                [reasons(&step.after, "after"), reasons(&step.excludes, "not beside")].concat().join("; ");
            rows.push(vec![
                (wave + 1).to_string(),
                table::plain(planned.id(*index)),
                group.agents.len().to_string(),
                span_in_words(step.begins),
                span_in_words(planned.estimates[*index]),
                table::plain(&why),
            ]);
        }
    }
    table::table(&["WAVE", "GROUP", "AGENTS", "BEGINS", "TAKES", "WAITS"], &rows)
}

fn conflicts(planned: &PhasePlan) -> String {
    let rows: Vec<Vec<String>> = planned
        .findings
        .conflicts
        .iter()
        .map(|conflict| {
            let groups = format!("{} and {}", planned.id(conflict.group1), planned.id(conflict.group2));
            vec![
                conflict.kind.to_string(),
                table::plain(&groups),
                table::plain(&conflict.witness),
                table::plain(planned.rule_name(conflict.ruling).unwrap_or("(no rule)")),
                conflict.ruling.severity.to_string(),
                conflict.ruling.action.to_string(),
            ]
        })
        .collect();
    table::table(&["CONFLICT", "GROUPS", "BOTH MATCH", "RULE", "SEVERITY", "ACTION"], &rows)
}
