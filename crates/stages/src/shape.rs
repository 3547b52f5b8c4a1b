//! A plan in the one shape that every interface gives it: what JSON shows, what is kept of it, and what pictures are of.

use lockkeeper_core::conflict::{Conflict, Ruling};
use lockkeeper_core::plan::{Bond, Cause};
use serde::{Deserialize, Serialize};

use super::plan::PhasePlan;

/// How a phase runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Plan))]
pub struct PlanShape {
    /// The phase.
    pub phase: String,
    /// `DIRECT`, `PARALLEL`, `SERIAL`, `MUTEX`, `QUEUE` or `ABORT`.
    pub mode: String,
    /// Whether the whole phase takes turns, or only the groups that conflict.
    pub scope: String,
    /// Why it is this mode, in a sentence.
    pub reason: String,
    /// The groups, in the order of the file.
    pub groups: Vec<GroupShape>,
    /// Which groups can run together.
    pub waves: Vec<Vec<String>>,
    /// The order in which groups begin.
    pub order: Vec<String>,
    /// Which groups collide, where, and what is done about it.
    pub conflicts: Vec<ConflictShape>,
    /// Which groups stand in one folder.
    pub same_dir: Vec<FolderShape>,
    /// Groups that others wait for, and that are taken as done.
    pub assumed_done: Vec<String>,
    /// How many groups run at a time; as many as can where it is not said.
    pub max_parallel_groups: Option<usize>,
    /// How long it takes, by the estimates.
    pub estimated_seconds: f64,
    /// How long it takes at least, in any order.
    pub shortest_possible_seconds: f64,
}

/// One group of a plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = PlannedGroup))]
pub struct GroupShape {
    /// Its id.
    pub group_id: String,
    /// Its name, for people.
    pub name: Option<String>,
    /// Who works in it.
    pub agents: Vec<String>,
    /// Whether it may run beside others.
    pub can_parallel: bool,
    /// How many of its agents work at a time.
    pub max_concurrent: usize,
    /// What it may touch.
    pub conflict_paths: Vec<String>,
    /// What is executed.
    pub command: Option<Vec<String>>,
    /// How long it takes, by the estimates.
    pub estimated_seconds: f64,
    /// In which wave it runs, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wave: Option<usize>,
    /// Whom it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Vec<BondShape>>,
    /// Beside whom it does not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excludes: Option<Vec<BondShape>>,
    /// When it begins, by the estimates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begins_seconds: Option<f64>,
    /// When it ends, by the estimates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_seconds: Option<f64>,
}

/// Why a group waits for another, or does not run beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Bond))]
pub struct BondShape {
    /// The other group.
    pub group_id: String,
    /// What binds them.
    pub cause: CauseShape,
    /// The same in a few words.
    pub reason: String,
}

/// What binds two groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Cause))]
#[serde(rename_all = "snake_case")]
pub enum CauseShape {
    /// It waits for the end of the other.
    Dependency,
    /// It waits for the beginning of the other.
    DependencyBegun,
    /// Both match one same path.
    Conflict,
    /// Both stand in one folder that a rule is about.
    SameDir,
    /// All groups of the phase take turns.
    Phase,
}

/// Two groups that can touch one same path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = PlannedConflict))]
pub struct ConflictShape {
    /// The group that comes first.
    pub group1: String,
    /// The other one.
    pub group2: String,
    /// `EXACT`, `PARENT_CHILD` or `OVERLAP`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The rule that counts; none for the default.
    pub rule: Option<String>,
    /// `FATAL`, `MAJOR` or `MINOR`.
    pub severity: String,
    /// What is done about it.
    pub action: String,
    /// A path that both match.
    pub witness: String,
    /// The pattern of the first.
    pub path1: String,
    /// The pattern of the other.
    pub path2: String,
}

impl ConflictShape {
    /// Shows a conflict between two groups with these names, under this rule.
    pub fn of(conflict: &Conflict, names: [&str; 2], rule: Option<&str>) -> Self {
        Self {
            group1: names[0].to_owned(),
            group2: names[1].to_owned(),
            kind: conflict.kind.as_str().to_owned(),
            rule: rule.map(ToOwned::to_owned),
            severity: conflict.ruling.severity.as_str().to_owned(),
            action: conflict.ruling.action.as_str().to_owned(),
            witness: conflict.witness.clone(),
            path1: conflict.path1.as_str().to_owned(),
            path2: conflict.path2.as_str().to_owned(),
        }
    }
}

/// Groups whose paths stand in one folder without meeting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = SameDir))]
pub struct FolderShape {
    /// The folder.
    pub folder: String,
    /// The groups.
    pub groups: Vec<String>,
    /// The rule that covers the folder; without one it is advice.
    pub rule: Option<String>,
    /// How bad the rule says that it is.
    #[serde(default)]
    pub severity: Option<String>,
    /// What the rule does about it.
    pub action: Option<String>,
}

impl PlanShape {
    /// Shows a plan.
    pub fn of(planned: &PhasePlan) -> Self {
        let plan = &planned.plan;
        let ids = |groups: &[usize]| groups.iter().map(|group| planned.id(*group).to_owned()).collect();
        Self {
            phase: planned.phase.clone(),
            mode: plan.mode.as_str().to_owned(),
            scope: plan.scope.as_str().to_owned(),
            reason: plan.reason.clone(),
            groups: (0..planned.groups.len()).map(|place| group(planned, place)).collect(),
            waves: plan.waves.iter().map(|wave| ids(wave)).collect(),
            order: ids(&plan.order),
            conflicts: conflicts(planned),
            same_dir: folders(planned),
            assumed_done: planned.assumed.clone(),
            max_parallel_groups: plan.slots.map(std::num::NonZeroUsize::get),
            estimated_seconds: plan.length.as_secs_f64(),
            shortest_possible_seconds: plan.bound.as_secs_f64(),
        }
    }

    /// Shows conflicts of which no phase is planned, so that they can be drawn in columns.
    pub fn of_conflicts(
        groups: Vec<GroupShape>,
        columns: Vec<Vec<String>>,
        conflicts: Vec<ConflictShape>,
    ) -> Self {
        Self { groups, waves: columns, conflicts, ..Self::default() }
    }

    /// How long all groups take one after the other, by the estimates.
    pub(crate) fn work_seconds(&self) -> f64 {
        self.groups.iter().map(|group| group.estimated_seconds).sum()
    }
}

impl GroupShape {
    /// Whom it waits for, if it runs at all.
    pub(crate) fn after(&self) -> &[BondShape] {
        self.after.as_deref().unwrap_or_default()
    }

    /// Beside whom it does not run.
    pub(crate) fn excludes(&self) -> &[BondShape] {
        self.excludes.as_deref().unwrap_or_default()
    }
}

fn group(planned: &PhasePlan, place: usize) -> GroupShape {
    let group = &planned.groups[place];
    let shape = GroupShape {
        group_id: group.id.value.clone(),
        name: group.name.clone(),
        agents: group.agents.iter().map(|agent| agent.name.value.clone()).collect(),
        can_parallel: group.can_parallel.value,
        max_concurrent: group.slots(),
        conflict_paths: group.conflict_paths.iter().map(|path| path.value.as_str().to_owned()).collect(),
        command: group.command.as_deref().map(lockkeeper_core::secret::shown_command),
        estimated_seconds: planned.estimates[place].as_secs_f64(),
        ..GroupShape::default()
    };
    let Some(step) = planned.plan.steps.get(place) else { return shape };
    let bonds = |bonds: &[Bond]| Some(bonds.iter().map(|found| bond(planned, found)).collect());
    GroupShape {
        wave: planned.plan.waves.iter().position(|wave| wave.contains(&place)).map(|wave| wave + 1),
        after: bonds(&step.after),
        excludes: bonds(&step.excludes),
        begins_seconds: Some(step.begins.as_secs_f64()),
        ends_seconds: Some(step.ends.as_secs_f64()),
        ..shape
    }
}

fn bond(planned: &PhasePlan, bond: &Bond) -> BondShape {
    let cause = match bond.cause {
        Cause::Completion => CauseShape::Dependency,
        Cause::Beginning => CauseShape::DependencyBegun,
        Cause::Conflict(_) => CauseShape::Conflict,
        Cause::Folder(_) => CauseShape::SameDir,
        Cause::Phase => CauseShape::Phase,
    };
    BondShape { group_id: planned.id(bond.group).to_owned(), cause, reason: planned.explain(bond) }
}

fn conflicts(planned: &PhasePlan) -> Vec<ConflictShape> {
    let found = planned.findings.conflicts.iter();
    found
        .map(|conflict| {
            let names = [planned.id(conflict.group1), planned.id(conflict.group2)];
            ConflictShape::of(conflict, names, planned.rule_name(conflict.ruling))
        })
        .collect()
}

fn folders(planned: &PhasePlan) -> Vec<FolderShape> {
    let rule = |ruling: Ruling| planned.rule_name(ruling).map(ToOwned::to_owned);
    let found = planned.findings.same_dir.iter();
    found
        .map(|found| FolderShape {
            folder: found.folder.clone(),
            groups: found.groups.iter().map(|group| planned.id(*group).to_owned()).collect(),
            rule: found.ruling.and_then(rule),
            severity: found.ruling.map(|ruling| ruling.severity.as_str().to_owned()),
            action: found.ruling.map(|ruling| ruling.action.as_str().to_owned()),
        })
        .collect()
}
