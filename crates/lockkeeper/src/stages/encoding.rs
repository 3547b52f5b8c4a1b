//! Files and plans as JSON, in the one shape that every interface gives them.

use lockkeeper_core::conflict::Rule;
use serde_json::{Value, json};

use super::file::File;
use super::plan::PhasePlan;
use super::problem::{Problem, UnknownKey, Weight};
use super::shape::PlanShape;

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
    serde_json::to_value(PlanShape::of(planned)).expect("texts and numbers can always be written")
}
