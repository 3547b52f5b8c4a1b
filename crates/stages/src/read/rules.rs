//! `conflict_detection`: the rules for groups whose paths overlap.

use lockkeeper_core::conflict::{Action, Rule, Severity};

use super::Notes;
use super::fields::{Entry, Fields, items};
use crate::model::Stages;
use crate::place::Placed;
use crate::problem::Problem;
use lockkeeper_formats::yaml::{Node, Value};

/// Reads the rules, in the order of the file.
pub(super) fn read(entry: &Entry<'_>, stages: &mut Stages, notes: &mut Notes) {
    // A bare list of rules is understood too.
    if matches!(entry.node.value, Value::List(_)) {
        list(entry, stages, notes);
        return;
    }
    let Some(mut fields) = Fields::of(entry.node, &entry.path, notes) else { return };
    for key in ["description", "enabled"] {
        fields.take(&[key]);
    }
    if let Some(rules) = fields.take(&["rules", "conflict_rules"]) {
        list(&rules, stages, notes);
    }
    fields.finish(notes);
}

fn list(entry: &Entry<'_>, stages: &mut Stages, notes: &mut Notes) {
    for (path, node) in items(entry) {
        if let Some(rule) = rule(node, &path, stages.rules.len(), notes) {
            stages.rules.push(rule);
        }
    }
}

fn rule(node: &Node, path: &str, before: usize, notes: &mut Notes) -> Option<Placed<Rule>> {
    let mut fields = Fields::of(node, path, notes)?;
    fields.take(&["description"]);
    let name = fields.take(&["name", "id", "rule"]).and_then(|entry| notes.text(&entry));
    let place = name.as_ref().map_or(node.place, |name| name.place);
    let name = name.map(|name| name.value).unwrap_or_else(|| {
        let problem = Problem::warning("NO_RULE_NAME", node.place, "this rule has no name");
        notes.problem(problem.with_hint("conflicts are told by the name of their rule"));
        format!("rule-{}", before + 1)
    });
    let severity = fields.take(&["severity", "level"]).and_then(|entry| severity(&entry, notes));
    let action = fields.take(&["action", "strategy"]).and_then(|entry| action(&entry, notes));
    let priority = fields.take(&["priority", "order"]).and_then(|entry| whole(&entry, notes));
    let paths = fields.take(&["paths", "patterns", "files", "conflict_paths"]);
    let paths = paths.map(|entry| notes.patterns(&entry)).unwrap_or_default();
    fields.finish(notes);
    let paths = paths.into_iter().map(|pattern| pattern.value).collect();
    let rule = Rule {
        name,
        severity: severity.unwrap_or(Severity::Major),
        action: action.unwrap_or(Action::DowngradeToSerial),
        priority: priority.unwrap_or(Rule::DEFAULT_PRIORITY),
        paths,
    };
    Some(Placed::new(rule, place))
}

fn whole(entry: &Entry<'_>, notes: &mut Notes) -> Option<i64> {
    let text = notes.text(entry)?;
    let number = text.value.parse().ok();
    if number.is_none() {
        notes.shape(entry.node, &entry.path, "a whole number");
    }
    number
}

fn severity(entry: &Entry<'_>, notes: &mut Notes) -> Option<Severity> {
    let text = notes.text(entry)?;
    let severity = text.value.to_ascii_uppercase().parse().ok();
    if severity.is_none() {
        let problem =
            Problem::error("UNKNOWN_SEVERITY", text.place, format!("`{}` is not a severity", text.value));
        notes.problem(problem.with_hint("it is FATAL, MAJOR or MINOR"));
    }
    severity
}

/// Reads an action, or the strategy that it leads to.
pub(super) fn action(entry: &Entry<'_>, notes: &mut Notes) -> Option<Action> {
    let text = notes.text(entry)?;
    let action = known_action(&text.value);
    if action.is_none() {
        let problem =
            Problem::error("UNKNOWN_ACTION", text.place, format!("`{}` is not an action", text.value));
        notes.problem(problem.with_hint(
            "it is downgrade_to_serial, mutex_lock, queue_execution, serialize_operations or abort",
        ));
    }
    action
}

/// The action behind a text, in any case; `SERIAL`, `MUTEX`, `QUEUE` and `ABORT` are understood too.
pub(super) fn known_action(text: &str) -> Option<Action> {
    match text.to_ascii_lowercase().replace('-', "_").as_str() {
        "serial" => Some(Action::DowngradeToSerial),
        "mutex" => Some(Action::MutexLock),
        "queue" => Some(Action::QueueExecution),
        "serialize" => Some(Action::SerializeOperations),
        other => other.parse().ok(),
    }
}
