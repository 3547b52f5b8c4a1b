//! Planning: passes a phase of the file, or some of its groups, to the planner in `core`.

mod predicted;

use std::num::NonZeroUsize;
use std::time::Duration;

use lockkeeper_core::conflict::{self, Action, Conflict, Findings, Rule, Ruling};
use lockkeeper_core::plan::{self, Bond, Cause, Cycle, Dependency, Load, Member, Plan};
use thiserror::Error;

use self::predicted::predicted_conflicts;
use super::estimate::estimates;
use super::file::File;
use super::model::{Group, Phase, Stages, Trigger};
use super::resolve::{Dangling, Edge, GroupIndex, edges};

pub use self::predicted::{Forecast, Predicted};

/// What a plan depends on besides the file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Conditions {
    /// The one-minute load average of the machine; `None` to ignore the load.
    pub load: Option<f64>,
    /// The load above which groups run one by one; `None` for the limit of the file, or 4.0.
    pub max_load: Option<f64>,
    /// The number of cores to divide the load by; `None` for no division.
    pub cores: Option<NonZeroUsize>,
    /// The most groups that run at a time; `None` for the limit of the file.
    pub jobs: Option<NonZeroUsize>,
}

/// Why a phase cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SelectError {
    /// The file has no such phase.
    #[error("there is no phase `{name}`")]
    UnknownPhase {
        /// The name that the user gave.
        name: String,
        /// The phases of the file.
        known: Vec<String>,
    },
    /// The phase has no such group.
    #[error("there is no group `{name}` in {phase}")]
    UnknownGroup {
        /// The phase.
        phase: String,
        /// The name that the user gave.
        name: String,
        /// The groups of the phase.
        known: Vec<String>,
    },
    /// The file has `enabled: false` for the group.
    #[error("group `{name}` of {phase} says enabled: false")]
    Disabled {
        /// The phase.
        phase: String,
        /// The group.
        name: String,
    },
    /// A group waits for a group or phase that does not exist.
    #[error("`{name}` of {phase} cannot run: {problem} (line {line})")]
    Dangling {
        /// The phase.
        phase: String,
        /// The group.
        name: String,
        /// What is wrong.
        problem: String,
        /// Where it is in the file.
        line: usize,
        /// What the user can do about it.
        hint: String,
    },
    /// Its groups wait for each other.
    #[error(transparent)]
    Cycle(#[from] Cycle),
}

impl SelectError {
    /// What the user can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::UnknownPhase { known, .. } => format!("the phases are {}", known.join(", ")),
            Self::UnknownGroup { known, .. } => format!("its groups are {}", known.join(", ")),
            Self::Disabled { .. } => "leave it out, or set enabled: true".to_owned(),
            Self::Dangling { hint, .. } => hint.clone(),
            Self::Cycle(_) => "`lockkeeper stages check` shows the cycle".to_owned(),
        }
    }
}

/// The plan of one phase, with the groups, conflicts and rules that it refers to.
#[derive(Debug)]
pub struct PhasePlan {
    /// The phase.
    pub phase: String,
    /// The planned groups. The plan refers to them by their index in this list.
    pub groups: Vec<Group>,
    /// The estimated duration of each group.
    pub estimates: Vec<Duration>,
    /// The conflicts between them.
    pub findings: Findings,
    /// The rules that the findings refer to.
    pub rules: Vec<Rule>,
    /// Groups outside the plan that some of these wait for. They count as done.
    pub assumed: Vec<String>,
    /// Groups of the phase that say `enabled: false`.
    pub disabled: Vec<String>,
    /// Conflicts that past commits predict. Those with a ruling are also among the findings.
    pub predicted: Vec<Predicted>,
    /// The plan.
    pub plan: Plan,
}

impl File {
    /// Plans a phase, or only some of its groups.
    ///
    /// # Errors
    ///
    /// The file has no such phase or group, a group waits for something that does not exist, or groups wait for each other.
    pub fn plan(
        &self,
        phase: &str,
        groups: &[String],
        conditions: &Conditions,
    ) -> Result<PhasePlan, SelectError> {
        self.plan_with(phase, groups, conditions, &[])
    }

    /// Plans a phase with predicted conflicts. Rules with `min_probability` act on them.
    ///
    /// # Errors
    ///
    /// As [`File::plan`].
    pub fn plan_with(
        &self,
        phase: &str,
        groups: &[String],
        conditions: &Conditions,
        forecasts: &[Forecast],
    ) -> Result<PhasePlan, SelectError> {
        let stages = &self.stages;
        let known = || stages.phases.iter().map(|phase| phase.name.value.clone()).collect();
        let found = stages.phase(phase);
        let phase =
            found.ok_or_else(|| SelectError::UnknownPhase { name: phase.to_owned(), known: known() })?;
        let chosen = choose(phase, groups)?;
        let (dependencies, assumed) = dependencies(stages, phase, &chosen)?;
        let detected: Vec<conflict::Group> =
            chosen.iter().map(|place| detected(&phase.groups[*place])).collect();
        let rules: Vec<Rule> = stages.rules.iter().map(|rule| rule.value.clone()).collect();
        let default = stages.resolution.default_strategy.as_ref();
        let default = default.map_or(Action::DowngradeToSerial, |action| action.value);
        let mut findings = match stages.detects_conflicts {
            true => conflict::detect(&detected, &rules, default),
            false => Findings::default(),
        };
        let predicted = predicted_conflicts(stages, &detected, forecasts);
        for found in &predicted {
            findings.conflicts.extend(found.as_conflict());
        }
        findings.conflicts.sort_by_key(|conflict| (conflict.group1, conflict.group2));
        let estimates = estimates(phase, &chosen);
        let groups: Vec<Group> = chosen.iter().map(|place| phase.groups[*place].clone()).collect();
        let members: Vec<Member> = groups
            .iter()
            .zip(&estimates)
            .map(|(group, estimate)| Member {
                id: group.id.value.clone(),
                estimate: *estimate,
                can_parallel: group.can_parallel.value,
            })
            .collect();
        let plan = plan::plan(&plan::PlanInput {
            groups: &members,
            dependencies: &dependencies,
            findings: &findings,
            rules: &rules,
            load: load(stages, conditions),
            slots: conditions.jobs.or_else(|| slots(stages, phase)),
            can_parallel: phase.can_parallel.as_ref().is_none_or(|truth| truth.value),
        })?;
        let disabled = phase.groups.iter().filter(|group| !group.enabled);
        let disabled = disabled.map(|group| group.id.value.clone()).collect();
        let phase = phase.name.value.clone();
        Ok(PhasePlan { phase, groups, estimates, findings, rules, assumed, disabled, predicted, plan })
    }
}

fn choose(phase: &Phase, groups: &[String]) -> Result<Vec<usize>, SelectError> {
    if groups.is_empty() {
        return Ok((0..phase.groups.len()).filter(|place| phase.groups[*place].enabled).collect());
    }
    let mut chosen = Vec::new();
    for name in groups {
        let place = phase.groups.iter().position(|group| group.id.value == *name);
        let place = place.ok_or_else(|| SelectError::UnknownGroup {
            phase: phase.name.value.clone(),
            name: name.clone(),
            known: phase.groups.iter().map(|group| group.id.value.clone()).collect(),
        })?;
        if !phase.groups[place].enabled {
            return Err(SelectError::Disabled { phase: phase.name.value.clone(), name: name.clone() });
        }
        chosen.push(place);
    }
    chosen.sort_unstable();
    chosen.dedup();
    Ok(chosen)
}

fn detected(group: &Group) -> conflict::Group {
    let paths = group.conflict_paths.iter().map(|path| path.value.clone()).collect();
    conflict::Group { id: group.id.value.clone(), paths }
}

/// Returns the dependencies between the chosen groups, and the other groups that they wait for.
fn dependencies(
    stages: &Stages,
    phase: &Phase,
    chosen: &[usize],
) -> Result<(Vec<Dependency>, Vec<String>), SelectError> {
    let mut places = vec![None; phase.groups.len()];
    chosen.iter().enumerate().for_each(|(place, group)| places[*group] = Some(place));
    let is_this = |at: usize| std::ptr::eq(&raw const stages.phases[at], phase);
    let (mut found, mut assumed) = (Vec::new(), Vec::new());
    let all = edges(stages);
    let is_chosen = |target: GroupIndex| is_this(target.phase) && places[target.group].is_some();
    if let Some(Dangling { target, problem }) = all.dangling.into_iter().find(|found| is_chosen(found.target))
    {
        return Err(SelectError::Dangling {
            phase: phase.name.value.clone(),
            name: phase.groups[target.group].id.value.clone(),
            problem: problem.message,
            line: problem.place.line,
            hint: problem.hint.unwrap_or_default(),
        });
    }
    let forward = |edge: &Edge| is_this(edge.target.phase) && edge.source.phase <= edge.target.phase;
    for edge in all.edges.into_iter().filter(forward) {
        let Some(target) = places[edge.target.group] else { continue };
        let source = if is_this(edge.source.phase) { places[edge.source.group] } else { None };
        match source {
            Some(source) => found.push(Dependency { source, target, completion: edge.completion }),
            None => {
                let group = &stages.phases[edge.source.phase].groups[edge.source.group].id.value;
                if !assumed.contains(group) {
                    assumed.push(group.clone());
                }
            }
        }
    }
    Ok((found, assumed))
}

fn load(stages: &Stages, conditions: &Conditions) -> Option<Load> {
    let of_file = stages.downgrades.iter().find_map(|downgrade| match downgrade.trigger {
        Trigger::Load { above, per_core: false } => Some(above),
        // A percentage does not change the limit of the plan. It is compared with the load each time before groups start.
        Trigger::Load { per_core: true, .. }
        | Trigger::LockTimeout { .. }
        | Trigger::Failures { .. }
        | Trigger::Memory { .. }
        | Trigger::Conflict { .. }
        | Trigger::RepeatedConflict { .. }
        | Trigger::CriticalPath
        | Trigger::Network { .. }
        | Trigger::Timeout { .. }
        | Trigger::Other => None,
    });
    let limit = conditions.max_load.or(of_file).unwrap_or(Load::LIMIT);
    let cores = conditions.cores.unwrap_or(NonZeroUsize::MIN);
    Some(Load { average: conditions.load?, limit, cores })
}

/// Returns the most groups that the file allows at a time.
fn slots(stages: &Stages, phase: &Phase) -> Option<NonZeroUsize> {
    let of_phase = phase.max_groups.as_ref().map(|most| most.value);
    let tuned = stages.autotune.as_ref().filter(|tune| tune.value.enabled).map(|tune| tune.value.max);
    let most = of_phase.into_iter().chain(tuned).min()?;
    NonZeroUsize::new(usize::try_from(most).unwrap_or(usize::MAX))
}

impl PhasePlan {
    /// Returns the id of a planned group.
    pub fn id(&self, place: usize) -> &str {
        self.groups.get(place).map_or("", |group| group.id.value.as_str())
    }

    /// Returns how likely a conflict is, if it is predicted; `None` if both groups declare the path.
    pub fn probability(&self, conflict: &Conflict) -> Option<f64> {
        let is_same = |found: &&Predicted| {
            found.ruling.is_some()
                && (found.group1, found.group2) == (conflict.group1, conflict.group2)
                && found.path == conflict.witness
        };
        self.predicted.iter().find(is_same).map(|found| found.probability)
    }

    /// Returns the name of the rule of a ruling; `None` for the default.
    pub fn rule_name(&self, ruling: Ruling) -> Option<&str> {
        ruling.rule.and_then(|place| self.rules.get(place)).map(|rule| rule.name.as_str())
    }

    /// Explains in a few words why one group waits for another, or excludes it.
    pub fn explain(&self, bond: &Bond) -> String {
        let by = |ruling: Ruling| match self.rule_name(ruling) {
            Some(rule) => format!("rule {rule}"),
            None => "no rule".to_owned(),
        };
        match bond.cause {
            Cause::Completion => "depends on it".to_owned(),
            Cause::Beginning => "depends on its beginning".to_owned(),
            Cause::Phase => "all groups of the phase take turns".to_owned(),
            Cause::Conflict(place) => match self.findings.conflicts.get(place) {
                Some(conflict) => match self.probability(conflict) {
                    Some(share) => format!(
                        "both probably change {}, {:.0} % ({})",
                        conflict.witness,
                        share * 100.0,
                        by(conflict.ruling)
                    ),
                    None => format!("both match {} ({})", conflict.witness, by(conflict.ruling)),
                },
                None => String::new(),
            },
            Cause::Folder(place) => match self.findings.same_dir.get(place) {
                Some(found) => {
                    let rule = found.ruling.map_or_else(String::new, |ruling| format!(" ({})", by(ruling)));
                    format!("both stand in {}{rule}", found.folder)
                }
                None => String::new(),
            },
        }
    }

    /// Returns the estimated duration of all groups one after the other.
    pub fn work(&self) -> Duration {
        self.estimates.iter().fold(Duration::ZERO, |sum, span| sum.saturating_add(*span))
    }
}
