//! Files and plans as JSON, in the one shape that every interface gives them.

use lockkeeper_core::conflict::{Rule, Ruling};
use lockkeeper_core::plan::{Bond, Cause};
use serde_json::{Value, json};

use super::file::File;
use super::plan::PhasePlan;
use super::problem::{Problem, UnknownKey, Weight};

/// What is wrong with a file, and what it holds.
pub fn check_to_json(file: &File) -> Value {
    let stages = &file.stages;
    let warnings = file.problems.iter().filter(|problem| problem.weight == Weight::Warning).count();
    let phases: Vec<Value> = stages
        .phases
        .iter()
        .map(|phase| {
            let ids: Vec<&str> = phase.groups.iter().map(|group| group.id.value.as_str()).collect();
            let agents: usize = phase.groups.iter().map(|group| group.agents.len()).sum();
            json!({ "phase": phase.name.value, "groups": ids, "agents": agents })
        })
        .collect();
    json!({
        "file": file.name,
        "valid": file.errors().next().is_none(),
        "errors": file.errors().count(),
        "warnings": warnings,
        "problems": problems_to_json(file),
        "unknown_keys": file.unknown.iter().map(unknown_to_json).collect::<Vec<_>>(),
        "phases": phases,
        "dependencies": stages.dependencies.len(),
        "rules": stages.rules.len(),
        "downgrade_rules": stages.downgrades.len(),
    })
}

/// Every problem of a file, with its line.
pub fn problems_to_json(file: &File) -> Value {
    file.problems.iter().map(|problem| problem_to_json(file, problem)).collect()
}

fn problem_to_json(file: &File, problem: &Problem) -> Value {
    json!({
        "severity": problem.weight.as_str(),
        "code": problem.code,
        "line": problem.place.line,
        "column": problem.place.column,
        "message": problem.message,
        "hint": problem.hint,
        "source": file.source.line(problem.place.line),
    })
}

fn unknown_to_json(key: &UnknownKey) -> Value {
    json!({ "key": key.path, "line": key.place.line, "column": key.place.column, "value": key.value })
}

/// A rule as it is understood.
pub fn rule_to_json(rule: &Rule) -> Value {
    json!({
        "name": rule.name,
        "severity": rule.severity.as_str(),
        "action": rule.action.as_str(),
        "strategy": rule.action.strategy().as_str(),
        "priority": rule.priority,
        "paths": rule.paths.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

/// How a phase runs.
pub fn plan_to_json(planned: &PhasePlan) -> Value {
    let plan = &planned.plan;
    let ids = |groups: &[usize]| -> Vec<&str> { groups.iter().map(|group| planned.id(*group)).collect() };
    json!({
        "phase": planned.phase,
        "mode": plan.mode.as_str(),
        "scope": plan.scope.as_str(),
        "reason": plan.reason,
        "groups": (0..planned.groups.len()).map(|place| group_to_json(planned, place)).collect::<Vec<_>>(),
        "waves": plan.waves.iter().map(|wave| ids(wave)).collect::<Vec<_>>(),
        "order": ids(&plan.order),
        "conflicts": conflicts_to_json(planned),
        "same_dir": folders_to_json(planned),
        "assumed_done": planned.assumed,
        "max_parallel_groups": plan.slots.map(std::num::NonZeroUsize::get),
        "estimated_seconds": plan.length.as_secs_f64(),
        "shortest_possible_seconds": plan.bound.as_secs_f64(),
    })
}

fn group_to_json(planned: &PhasePlan, place: usize) -> Value {
    let group = &planned.groups[place];
    let paths: Vec<&str> = group.conflict_paths.iter().map(|path| path.value.as_str()).collect();
    let agents: Vec<&str> = group.agents.iter().map(|agent| agent.name.value.as_str()).collect();
    let mut value = json!({
        "group_id": group.id.value,
        "name": group.name,
        "agents": agents,
        "can_parallel": group.can_parallel.value,
        "max_concurrent": group.slots(),
        "conflict_paths": paths,
        "command": group.command,
        "estimated_seconds": planned.estimates[place].as_secs_f64(),
    });
    if let Some(step) = planned.plan.steps.get(place) {
        let bonds =
            |bonds: &[Bond]| -> Vec<Value> { bonds.iter().map(|bond| bond_to_json(planned, bond)).collect() };
        value["wave"] =
            planned.plan.waves.iter().position(|wave| wave.contains(&place)).map(|wave| wave + 1).into();
        value["after"] = bonds(&step.after).into();
        value["excludes"] = bonds(&step.excludes).into();
        value["begins_seconds"] = step.begins.as_secs_f64().into();
        value["ends_seconds"] = step.ends.as_secs_f64().into();
    }
    value
}

fn bond_to_json(planned: &PhasePlan, bond: &Bond) -> Value {
    let cause = match bond.cause {
        Cause::Completion => "dependency",
        Cause::Beginning => "dependency_begun",
        Cause::Conflict(_) => "conflict",
        Cause::Folder(_) => "same_dir",
        Cause::Phase => "phase",
    };
    json!({ "group_id": planned.id(bond.group), "cause": cause, "reason": planned.explain(bond) })
}

fn conflicts_to_json(planned: &PhasePlan) -> Vec<Value> {
    let findings = planned.findings.conflicts.iter();
    findings
        .map(|conflict| {
            json!({
                "group1": planned.id(conflict.group1),
                "group2": planned.id(conflict.group2),
                "type": conflict.kind.as_str(),
                "rule": planned.rule_name(conflict.ruling),
                "severity": conflict.ruling.severity.as_str(),
                "action": conflict.ruling.action.as_str(),
                "witness": conflict.witness,
                "path1": conflict.path1.as_str(),
                "path2": conflict.path2.as_str(),
            })
        })
        .collect()
}

fn folders_to_json(planned: &PhasePlan) -> Vec<Value> {
    let ruled = |ruling: Option<Ruling>| {
        let action = ruling.map(|ruling| ruling.action.as_str());
        (ruling.and_then(|ruling| planned.rule_name(ruling)), action)
    };
    let folders = planned.findings.same_dir.iter();
    folders
        .map(|found| {
            let ids: Vec<&str> = found.groups.iter().map(|group| planned.id(*group)).collect();
            let (rule, action) = ruled(found.ruling);
            json!({ "folder": found.folder, "groups": ids, "rule": rule, "action": action })
        })
        .collect()
}
