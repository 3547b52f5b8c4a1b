//! Section `conflict_detection`: the rules for groups whose paths overlap.

use lockkeeper_core::conflict::{Action, Rule, Severity};
use lockkeeper_formats::yaml::{Node, Value};

use super::Diagnostics;
use super::fields::{Entry, Fields, items};
use crate::model::{RuleDetails, Stages};
use crate::place::Placed;
use crate::problem::Problem;

/// Reads the rules, in the order of the file.
pub(super) fn read(entry: &Entry<'_>, stages: &mut Stages, diagnostics: &mut Diagnostics) {
    // A list of rules without `rules:` is accepted too.
    if matches!(entry.node.value, Value::List(_)) {
        list(entry, stages, diagnostics);
        return;
    }
    let Some(mut fields) = Fields::of(entry.node, &entry.path, diagnostics) else { return };
    fields.take(&["description"]);
    let enabled = fields.take(&["enabled"]).and_then(|entry| diagnostics.truth(&entry));
    if let Some(rules) = fields.take(&["rules", "conflict_rules"]) {
        list(&rules, stages, diagnostics);
    }
    stages.detects_conflicts = enabled.is_none_or(|truth| truth.value);
    fields.finish(diagnostics);
}

fn list(entry: &Entry<'_>, stages: &mut Stages, diagnostics: &mut Diagnostics) {
    for (path, node) in items(entry) {
        if let Some(rule) = rule(node, &path, stages, diagnostics) {
            stages.rules.push(rule);
        }
    }
}

fn rule(node: &Node, path: &str, stages: &mut Stages, diagnostics: &mut Diagnostics) -> Option<Placed<Rule>> {
    let mut fields = Fields::of(node, path, diagnostics)?;
    for key in ["description", "condition", "reason"] {
        fields.take(&[key]);
    }
    let enabled = fields.take(&["enabled"]).and_then(|entry| diagnostics.truth(&entry));
    let name = fields.take(&["name", "id", "rule"]).and_then(|entry| diagnostics.text(&entry));
    let place = name.as_ref().map_or(node.place, |name| name.place);
    let name = name.map(|name| name.value).unwrap_or_else(|| {
        let problem = Problem::warning("NO_RULE_NAME", node.place, "this rule has no name");
        diagnostics.problem(problem.with_hint("plans name the rule of each conflict: give it a name"));
        format!("rule-{}", stages.rules.len() + 1)
    });
    let severity = fields.take(&["severity", "level"]).and_then(|entry| severity(&entry, diagnostics));
    let action = fields.take(&["action", "strategy"]).and_then(|entry| action(&entry, diagnostics));
    let probability = fields.take(&["min_probability", "probability"]);
    let probability = probability.and_then(|entry| share(&entry, diagnostics));
    let priority = fields.take(&["priority", "order"]).and_then(|entry| whole(&entry, diagnostics));
    let paths = fields.take(&["paths", "patterns", "files", "conflict_paths"]);
    let paths = paths.map(|entry| diagnostics.patterns(&entry)).unwrap_or_default();
    fields.finish(diagnostics);
    if enabled.is_some_and(|truth| !truth.value) {
        return None;
    }
    let paths = paths.into_iter().map(|pattern| pattern.value).collect();
    stages.rule_details.push(RuleDetails { says_action: action.is_some(), min_probability: probability });
    let rule = Rule {
        name,
        severity: severity.unwrap_or(Severity::Major),
        action: action.unwrap_or(Action::DowngradeToSerial),
        priority: priority.unwrap_or(Rule::DEFAULT_PRIORITY),
        paths,
    };
    Some(Placed::new(rule, place))
}

/// Reads a probability: `0.6` or `60%`.
fn share(entry: &Entry<'_>, diagnostics: &mut Diagnostics) -> Option<f64> {
    let text = diagnostics.text(entry)?;
    let number = match text.value.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map(|percent| percent / 100.0),
        None => text.value.parse(),
    };
    let share = number.ok().filter(|share| (0.0..=1.0).contains(share));
    if share.is_none() {
        diagnostics.wrong_type(entry.node, &entry.path, "a probability such as 0.6 or 60%");
    }
    share
}

fn whole(entry: &Entry<'_>, diagnostics: &mut Diagnostics) -> Option<i64> {
    let text = diagnostics.text(entry)?;
    let number = text.value.parse().ok();
    if number.is_none() {
        diagnostics.wrong_type(entry.node, &entry.path, "a whole number");
    }
    number
}

fn severity(entry: &Entry<'_>, diagnostics: &mut Diagnostics) -> Option<Severity> {
    let text = diagnostics.text(entry)?;
    let severity = text.value.to_ascii_uppercase().parse().ok();
    if severity.is_none() {
        let problem =
            Problem::error("UNKNOWN_SEVERITY", text.place, format!("`{}` is not a severity", text.value));
        diagnostics.problem(problem.with_hint("it is FATAL, MAJOR or MINOR"));
    }
    severity
}

/// Reads an action, or the strategy of an action.
pub(super) fn action(entry: &Entry<'_>, diagnostics: &mut Diagnostics) -> Option<Action> {
    let text = diagnostics.text(entry)?;
    let action = known_action(&text.value);
    if action.is_none() {
        let problem =
            Problem::error("UNKNOWN_ACTION", text.place, format!("`{}` is not an action", text.value));
        diagnostics.problem(problem.with_hint(
            "it is downgrade_to_serial, mutex_lock, queue_execution, serialize_operations or abort",
        ));
    }
    action
}

/// Parses an action in any case. `SERIAL`, `MUTEX`, `QUEUE` and `ABORT` are accepted too.
pub(super) fn known_action(text: &str) -> Option<Action> {
    match text.to_ascii_lowercase().replace('-', "_").as_str() {
        "serial" => Some(Action::DowngradeToSerial),
        "mutex" => Some(Action::MutexLock),
        "queue" => Some(Action::QueueExecution),
        "serialize" => Some(Action::SerializeOperations),
        other => other.parse().ok(),
    }
}
