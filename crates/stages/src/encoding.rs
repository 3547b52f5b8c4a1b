//! Files and plans as JSON, in the one shape that every interface gives them.

use lockkeeper_core::conflict::Rule;
use serde_json::{Value, json};

use super::file::File;
use super::plan::PhasePlan;
use super::problem::{Level, Problem, UnknownKey};
use super::shape::PlanShape;

/// So many problems go along with a refusal; `stages check` lists all of them.
const MOST_TOLD: usize = 100;
/// So much of a line goes along.
const MOST_LETTERS: usize = 500;

/// What is wrong with a file, and what it holds.
pub fn check_to_json(file: &File) -> Value {
    let stages = &file.stages;
    let warnings = file.problems.iter().filter(|problem| problem.level == Level::Warning).count();
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

/// Why a file cannot be planned: all that is wrong, or where that is much the first of what is in the way, and no more
/// of the lines than helps.
pub fn refusal_to_json(file: &File) -> Value {
    let told: Vec<&Problem> = if file.problems.len() <= MOST_TOLD {
        file.problems.iter().collect()
    } else {
        file.obstacles().take(MOST_TOLD).collect()
    };
    let short = told.into_iter().map(|problem| {
        let mut value = problem_to_json(file, problem);
        let line = file.source.line(problem.place.line);
        value["source"] = line.map(|line| line.chars().take(MOST_LETTERS).collect::<String>()).into();
        value
    });
    short.collect()
}

fn problem_to_json(file: &File, problem: &Problem) -> Value {
    json!({
        "severity": problem.level.as_str(),
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
