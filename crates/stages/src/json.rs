//! JSON encoding of files, problems and plans, the same in every interface.

use lockkeeper_core::conflict::Rule;
use serde_json::{Value, json};

use super::file::File;
use super::plan::PhasePlan;
use super::problem::{Problem, UnknownKey};
use super::views::PlanView;

/// The most problems in a refusal. `stages check` lists all of them.
const MAX_PROBLEMS: usize = 100;
/// The most characters of a source line in a refusal.
const MAX_SOURCE: usize = 500;

/// Encodes the result of a check: problems, unknown keys and an overview of the file.
pub fn check_to_json(file: &File) -> Value {
    let stages = &file.stages;
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
        "warnings": file.warnings().count(),
        "problems": problems_to_json(file),
        "unknown_keys": file.unknown.iter().map(unknown_to_json).collect::<Vec<_>>(),
        "phases": phases,
        "dependencies": stages.dependencies.len(),
        "rules": stages.rules.len(),
        "downgrade_rules": stages.downgrades.len(),
    })
}

/// Encodes every problem of a file, with its source line.
pub fn problems_to_json(file: &File) -> Value {
    file.problems.iter().map(|problem| problem_to_json(file, problem)).collect()
}

/// Encodes why a file cannot be planned: all problems or, if there are too many, the first ones that prevent a plan. Long
/// source lines are cut.
pub fn refusal_to_json(file: &File) -> Value {
    let problems: Vec<&Problem> = if file.problems.len() <= MAX_PROBLEMS {
        file.problems.iter().collect()
    } else {
        file.errors().take(MAX_PROBLEMS).collect()
    };
    let short = problems.into_iter().map(|problem| {
        let mut value = problem_to_json(file, problem);
        let line = file.source.line(problem.place.line);
        value["source"] = line.map(|line| line.chars().take(MAX_SOURCE).collect::<String>()).into();
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

/// Encodes a rule.
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

/// Encodes the plan of a phase.
pub fn plan_to_json(planned: &PhasePlan) -> Value {
    serde_json::to_value(PlanView::of(planned)).expect("texts and numbers can always be written")
}
