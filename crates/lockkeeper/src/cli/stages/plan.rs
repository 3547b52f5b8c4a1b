//! `stages plan`: shows how a phase would run, and why.

use std::num::NonZeroUsize;
use std::path::Path;

use anstyle::AnsiColor;
use lockkeeper_core::plan::{Bond, Mode};
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::stages::{forecast, plan_phases};
use lockkeeper_engine::views::RefusedPhaseView;
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
    #[command(flatten)]
    prediction: Prediction,
}

impl Args {
    /// The path of the file.
    pub(super) fn path(&self) -> &Path {
        Path::new(&self.file)
    }
}

/// Whether conflicts are predicted from the git history.
#[derive(clap::Args)]
pub(super) struct Prediction {
    /// Also predict from the git history which paths two groups will both change. Predictions are advice from a probability of
    /// 0.5; a rule with `min_probability` acts on them
    #[arg(long)]
    predict: bool,
}

impl Prediction {
    /// Plans a phase, with predicted conflicts if they are asked for.
    pub(super) fn plan(
        &self,
        context: &Context,
        file: &File,
        phase: &str,
        groups: &[String],
        conditions: &Conditions,
    ) -> Result<PhasePlan, Report> {
        let plan = file.plan(phase, groups, conditions)?;
        if !self.predict {
            return Ok(plan);
        }
        let forecasts = forecast(&context.location.root, file, &plan)?;
        Ok(file.plan_with(phase, groups, conditions, &forecasts)?)
    }
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
    let conditions = args.machine.conditions()?;
    let one = |phase: &str| args.prediction.plan(context, &file, phase, &args.groups, &conditions);
    let (plans, refused) = plan_phases(&file, args.phase.as_deref(), one)?;
    if args.dot {
        print::out(&picture::dot(&plans));
    } else if args.svg {
        print::out(&picture::svg(&plans));
    } else if context.json {
        let all: Vec<_> = plans.iter().map(plan_to_json).collect();
        match (all.as_slice(), refused.is_empty()) {
            ([only], true) => print::json(only),
            (all, true) => print::json(&json!({ "phases": all })),
            (all, false) => {
                let refused: Vec<_> = refused.iter().map(RefusedPhaseView::of).collect();
                print::json(&json!({ "phases": all, "refused": refused }));
            }
        }
    } else {
        let texts: Vec<String> = plans.iter().map(text).collect();
        print::out(&table::wrap_terminal(&texts.join("\n"), 2));
    }
    for phase in &refused {
        print::report(&phase.report, false, context.language());
    }
    Ok(if refused.is_empty() { Exit::Done } else { Exit::Usage })
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
    if !planned.disabled.is_empty() {
        text.push_str(&format!("left out, enabled: false: {}\n", table::plain(&planned.disabled.join(", "))));
    }
    if !plan.waves.is_empty() {
        text.push_str(&format!("\n{}", waves(planned)));
        let (length, work) = (span_in_words(plan.length), span_in_words(planned.work()));
        text.push_str(&format!("about {length} in all, {work} one by one\n"));
    }
    if !planned.findings.conflicts.is_empty() {
        text.push_str(&format!("\n{}", conflicts(planned)));
    }
    for found in planned.predicted.iter().filter(|found| found.ruling.is_none()) {
        let line = format!(
            "PREDICTED {:.0} % (advice): {} and {} will probably both change {}",
            found.probability * 100.0,
            planned.id(found.group1),
            planned.id(found.group2),
            found.path
        );
        text.push_str(&format!("{}\n", table::plain(&line)));
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
    table::list(&["WAVE", "GROUP", "AGENTS", "BEGINS", "TAKES", "WAITS"], &rows)
}

fn conflicts(planned: &PhasePlan) -> String {
    let rows: Vec<Vec<String>> = planned
        .findings
        .conflicts
        .iter()
        .map(|conflict| {
            let groups = format!("{} and {}", planned.id(conflict.group1), planned.id(conflict.group2));
            let kind = match planned.probability(conflict) {
                Some(share) => format!("PREDICTED {:.0} %", share * 100.0),
                None => conflict.kind.to_string(),
            };
            vec![
                kind,
                table::plain(&groups),
                table::plain(&conflict.witness),
                table::plain(planned.rule_name(conflict.ruling).unwrap_or("(no rule)")),
                conflict.ruling.severity.to_string(),
                conflict.ruling.action.to_string(),
            ]
        })
        .collect();
    table::list(&["CONFLICT", "GROUPS", "BOTH MATCH", "RULE", "SEVERITY", "ACTION"], &rows)
}
