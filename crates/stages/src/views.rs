//! JSON views of a plan: every interface returns them, logs store them, and pictures are drawn from them.

use lockkeeper_core::conflict::{Conflict, Ruling, Severity};
use lockkeeper_core::plan::{Bond, Cause};
use serde::{Deserialize, Serialize};

use super::plan::PhasePlan;

/// The type of a conflict that past commits predict.
const PREDICTED: &str = "PREDICTED";

/// The plan of a phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Plan))]
pub struct PlanView {
    /// The phase.
    pub phase: String,
    /// `DIRECT`, `PARALLEL`, `SERIAL`, `MUTEX`, `QUEUE` or `ABORT`.
    pub mode: String,
    /// `phase` if all groups of the phase take turns, `conflicts` if only those that conflict do.
    pub scope: String,
    /// Why the phase has this mode, in one sentence.
    pub reason: String,
    /// The groups, in the order of the file.
    pub groups: Vec<GroupView>,
    /// Sets of groups that can run together.
    pub waves: Vec<Vec<String>>,
    /// The order in which groups start.
    pub order: Vec<String>,
    /// The groups that conflict, a common path, and the action.
    pub conflicts: Vec<ConflictView>,
    /// The groups that share a folder.
    pub same_dir: Vec<FolderView>,
    /// Groups outside the plan that others wait for. They count as done.
    pub assumed_done: Vec<String>,
    /// Groups of the phase that say `enabled: false`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disabled: Vec<String>,
    /// The most groups that run at a time; no limit if it is missing.
    pub max_parallel_groups: Option<usize>,
    /// The estimated duration.
    pub estimated_seconds: f64,
    /// A lower bound of the duration, for any order.
    pub shortest_possible_seconds: f64,
}

/// One group of a plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = PlannedGroup))]
pub struct GroupView {
    /// Its id.
    pub group_id: String,
    /// Its name for people.
    pub name: Option<String>,
    /// Its agents.
    pub agents: Vec<String>,
    /// Whether it may run at the same time as other groups.
    pub can_parallel: bool,
    /// The most agents that work at a time.
    pub max_concurrent: usize,
    /// The paths that it may change.
    pub conflict_paths: Vec<String>,
    /// The command that is executed.
    pub command: Option<Vec<String>>,
    /// The estimated duration.
    pub estimated_seconds: f64,
    /// The wave in which it runs, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wave: Option<usize>,
    /// The groups that it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Vec<BondView>>,
    /// The groups that never run at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excludes: Option<Vec<BondView>>,
    /// The estimated start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begins_seconds: Option<f64>,
    /// The estimated end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_seconds: Option<f64>,
}

/// Why a group waits for another group, or excludes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Bond))]
pub struct BondView {
    /// The other group.
    pub group_id: String,
    /// The cause.
    pub cause: CauseView,
    /// The cause in a few words.
    pub reason: String,
}

/// Why one group waits for another, or excludes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Cause))]
#[serde(rename_all = "snake_case")]
pub enum CauseView {
    /// It waits for the end of the other group.
    Dependency,
    /// It waits for the start of the other group.
    DependencyBegun,
    /// Both match a common path.
    Conflict,
    /// Both have paths in a folder that a rule covers.
    SameDir,
    /// All groups of the phase take turns.
    Phase,
}

/// Two groups that can change the same path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = PlannedConflict))]
pub struct ConflictView {
    /// The first group.
    pub group1: String,
    /// The second group.
    pub group2: String,
    /// `EXACT`, `PARENT_CHILD` or `OVERLAP`; `PREDICTED` if past commits predict it.
    #[serde(rename = "type")]
    pub kind: String,
    /// The rule that applies; none for the default.
    pub rule: Option<String>,
    /// `FATAL`, `MAJOR` or `MINOR`.
    pub severity: String,
    /// The action of the rule; `advice` for a predicted conflict without one.
    pub action: String,
    /// A path that both groups match.
    pub witness: String,
    /// The pattern of the first group.
    pub path1: String,
    /// The pattern of the second group.
    pub path2: String,
    /// How likely it is, from 0 to 1, if it is predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probability: Option<f64>,
}

impl ConflictView {
    /// Creates the view of a conflict between two groups with these names, under this rule.
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
            probability: None,
        }
    }
}

/// Groups whose paths are in the same folder but do not overlap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = SameDir))]
pub struct FolderView {
    /// The folder.
    pub folder: String,
    /// The groups.
    pub groups: Vec<String>,
    /// The rule that covers the folder. Without a rule it is only advice.
    pub rule: Option<String>,
    /// The severity of the rule.
    #[serde(default)]
    pub severity: Option<String>,
    /// The action of the rule.
    pub action: Option<String>,
}

impl PlanView {
    /// Creates the view of a plan.
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
            disabled: planned.disabled.clone(),
            max_parallel_groups: plan.slots.map(std::num::NonZeroUsize::get),
            estimated_seconds: plan.length.as_secs_f64(),
            shortest_possible_seconds: plan.bound.as_secs_f64(),
        }
    }

    /// Creates a view of conflicts without a planned phase, to draw them in columns.
    pub fn of_conflicts(
        groups: Vec<GroupView>,
        columns: Vec<Vec<String>>,
        conflicts: Vec<ConflictView>,
    ) -> Self {
        Self { groups, waves: columns, conflicts, ..Self::default() }
    }

    /// Returns the estimated duration of all groups one after the other.
    pub(crate) fn work_seconds(&self) -> f64 {
        self.groups.iter().map(|group| group.estimated_seconds).sum()
    }
}

impl GroupView {
    /// Returns the groups that it waits for.
    pub(crate) fn after(&self) -> &[BondView] {
        self.after.as_deref().unwrap_or_default()
    }

    /// Returns the groups that never run at the same time.
    pub(crate) fn excludes(&self) -> &[BondView] {
        self.excludes.as_deref().unwrap_or_default()
    }
}

fn group(planned: &PhasePlan, place: usize) -> GroupView {
    let group = &planned.groups[place];
    let view = GroupView {
        group_id: group.id.value.clone(),
        name: group.name.clone(),
        agents: group.agents.iter().map(|agent| agent.name.value.clone()).collect(),
        can_parallel: group.can_parallel.value,
        max_concurrent: group.slots(),
        conflict_paths: group.conflict_paths.iter().map(|path| path.value.as_str().to_owned()).collect(),
        command: group.command.as_deref().map(lockkeeper_core::secret::shown_command),
        estimated_seconds: planned.estimates[place].as_secs_f64(),
        ..GroupView::default()
    };
    let Some(step) = planned.plan.steps.get(place) else { return view };
    let bonds = |bonds: &[Bond]| Some(bonds.iter().map(|found| bond(planned, found)).collect());
    GroupView {
        wave: planned.plan.waves.iter().position(|wave| wave.contains(&place)).map(|wave| wave + 1),
        after: bonds(&step.after),
        excludes: bonds(&step.excludes),
        begins_seconds: Some(step.begins.as_secs_f64()),
        ends_seconds: Some(step.ends.as_secs_f64()),
        ..view
    }
}

fn bond(planned: &PhasePlan, bond: &Bond) -> BondView {
    let cause = match bond.cause {
        Cause::Completion => CauseView::Dependency,
        Cause::Beginning => CauseView::DependencyBegun,
        Cause::Conflict(_) => CauseView::Conflict,
        Cause::Folder(_) => CauseView::SameDir,
        Cause::Phase => CauseView::Phase,
    };
    BondView { group_id: planned.id(bond.group).to_owned(), cause, reason: planned.explain(bond) }
}

fn conflicts(planned: &PhasePlan) -> Vec<ConflictView> {
    let found = planned.findings.conflicts.iter().map(|conflict| {
        let names = [planned.id(conflict.group1), planned.id(conflict.group2)];
        let view = ConflictView::of(conflict, names, planned.rule_name(conflict.ruling));
        match planned.probability(conflict) {
            Some(probability) => {
                ConflictView { kind: PREDICTED.to_owned(), probability: Some(probability), ..view }
            }
            None => view,
        }
    });
    let advice = planned.predicted.iter().filter(|found| found.ruling.is_none()).map(|found| ConflictView {
        group1: planned.id(found.group1).to_owned(),
        group2: planned.id(found.group2).to_owned(),
        kind: PREDICTED.to_owned(),
        rule: None,
        severity: Severity::Minor.as_str().to_owned(),
        action: "advice".to_owned(),
        witness: found.path.clone(),
        path1: found.path.clone(),
        path2: found.path.clone(),
        probability: Some(found.probability),
    });
    found.chain(advice).collect()
}

fn folders(planned: &PhasePlan) -> Vec<FolderView> {
    let rule = |ruling: Ruling| planned.rule_name(ruling).map(ToOwned::to_owned);
    let found = planned.findings.same_dir.iter();
    found
        .map(|found| FolderView {
            folder: found.folder.clone(),
            groups: found.groups.iter().map(|group| planned.id(*group).to_owned()).collect(),
            rule: found.ruling.and_then(rule),
            severity: found.ruling.map(|ruling| ruling.severity.as_str().to_owned()),
            action: found.ruling.map(|ruling| ruling.action.as_str().to_owned()),
        })
        .collect()
}
