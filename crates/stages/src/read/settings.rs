//! Sections `conflict_resolution`, `autotune`, `monitoring` and `validation`.

use lockkeeper_formats::yaml::Node;

use super::fields::{Entry, Fields, items};
use super::rules::{action, known_action};
use super::{Diagnostics, tuning};
use crate::model::{ChecksOff, METRICS, Stages, Validation};
use crate::place::Placed;
use crate::problem::{Problem, UnknownKey};

/// Of the checks that a file can name: the problems that prevent a plan.
const NEEDED_BY_PLANS: [&str; 3] = ["BAD_PATTERN", "CYCLE", "BACKWARDS"];

/// Reads the sections with settings.
pub(super) fn read(fields: &mut Fields<'_>, stages: &mut Stages, diagnostics: &mut Diagnostics) {
    if let Some(entry) = fields.take(&["conflict_resolution", "resolution"]) {
        resolution(&entry, stages, diagnostics);
    }
    if let Some(entry) = fields.take(&["autotune", "auto_tune", "autotuning"]) {
        tuning::read(&entry, stages, diagnostics);
    }
    if let Some(entry) = fields.take(&["monitoring", "monitor"]) {
        monitoring(&entry, stages, diagnostics);
    }
    if let Some(entry) = fields.take(&["validation"]) {
        stages.validation = validation(&entry, diagnostics);
    }
}

fn resolution(entry: &Entry<'_>, stages: &mut Stages, diagnostics: &mut Diagnostics) {
    let Some(mut fields) = Fields::of(entry.node, &entry.path, diagnostics) else { return };
    let nested = fields.take(&["strategies"]);
    let resolution = &mut stages.resolution;
    if let Some(entry) = fields.take(&["default_strategy", "strategy", "default_action"]) {
        let place = entry.node.place;
        resolution.default_strategy = action(&entry, diagnostics).map(|action| Placed::new(action, place));
    }
    if let Some(entry) = fields.take(&["timeout", "timeout_seconds", "lock_timeout", "timeout_sec"]) {
        resolution.timeout = diagnostics.span(&entry).or(resolution.timeout);
    }
    if let Some(entry) = fields.take(&["retries", "max_retries", "retry_attempts", "retry_count"]) {
        resolution.retries = diagnostics.count(&entry).map_or(resolution.retries, |count| count.value);
    }
    if let Some(entry) = fields.take(&["queue_size", "max_queue_size", "max_queue"]) {
        resolution.queue_size = diagnostics.count(&entry).map_or(resolution.queue_size, |count| count.value);
    }
    fields.take(&["description"]);
    fields.finish(diagnostics);
    if let Some(entry) = nested {
        strategies(&entry, stages, diagnostics);
    }
}

/// Reads `conflict_resolution.strategies`: for each strategy its limits, and the rules that use it.
fn strategies(entry: &Entry<'_>, stages: &mut Stages, diagnostics: &mut Diagnostics) {
    let Some(mut all) = Fields::of(entry.node, &entry.path, diagnostics) else { return };
    for strategy in all.rest() {
        let Some(mut fields) = Fields::of(strategy.node, &strategy.path, diagnostics) else { continue };
        fields.take(&["description"]);
        let resolution = &mut stages.resolution;
        if let Some(entry) = fields.take(&["queue_size", "max_queue_size"]) {
            resolution.queue_size =
                diagnostics.count(&entry).map_or(resolution.queue_size, |count| count.value);
        }
        if let Some(entry) = fields.take(&["lock_timeout", "timeout", "timeout_seconds"]) {
            resolution.timeout = diagnostics.span(&entry).or(resolution.timeout);
        }
        if let Some(entry) = fields.take(&["initial_delay", "delay"]) {
            resolution.backoff.0 = diagnostics.span(&entry);
        }
        if let Some(entry) = fields.take(&["max_delay"]) {
            resolution.backoff.1 = diagnostics.span(&entry);
        }
        if let Some(entry) = fields.take(&["apply_to"]) {
            apply_to(&strategy.key, &entry, stages, diagnostics);
        }
        fields.finish(diagnostics);
    }
}

/// A rule without an action has the action of the strategy that names it. The action of a rule itself counts first.
fn apply_to(strategy: &str, entry: &Entry<'_>, stages: &mut Stages, diagnostics: &mut Diagnostics) {
    for name in diagnostics.texts(entry) {
        let rule = stages.rules.iter().position(|rule| rule.value.name == name.value);
        let downgrade = stages.downgrades.iter().any(|rule| rule.name.value == name.value);
        match (rule, known_action(strategy)) {
            (Some(at), Some(action)) if !stages.rule_details[at].says_action => {
                stages.rules[at].value.action = action;
            }
            (Some(_), _) => {}
            (None, _) if downgrade => {}
            (None, _) => {
                let value = name.value;
                diagnostics.unknown.push(UnknownKey { path: entry.path.clone(), place: name.place, value });
            }
        }
    }
}

fn monitoring(entry: &Entry<'_>, stages: &mut Stages, diagnostics: &mut Diagnostics) {
    let Some(mut fields) = Fields::of(entry.node, &entry.path, diagnostics) else { return };
    let monitoring = &mut stages.monitoring;
    if let Some(entry) = fields.take(&["enabled"]) {
        monitoring.enabled = diagnostics.truth(&entry).map(|truth| truth.value);
    }
    if let Some(entry) = fields.take(&["output_file", "output", "log_file", "file"]) {
        monitoring.output = diagnostics.text(&entry).map(|text| text.value);
    }
    if let Some(entry) = fields.take(&["metrics", "track"]) {
        let known = |name: &str| METRICS.contains(&name);
        for name in diagnostics.texts(&entry).into_iter().filter(|name| !known(&name.value)) {
            let (path, value) = (entry.path.clone(), name.value);
            diagnostics.unknown.push(UnknownKey { path, place: name.place, value });
        }
    }
    for key in ["description", "format"] {
        fields.take(&[key]);
    }
    fields.finish(diagnostics);
}

fn validation(entry: &Entry<'_>, diagnostics: &mut Diagnostics) -> Validation {
    let mut validation = Validation::default();
    let Some(mut fields) = Fields::of(entry.node, &entry.path, diagnostics) else { return validation };
    if let Some(entry) = fields.take(&["strict", "strict_mode", "fail_on_warning"]) {
        validation.strict = diagnostics.truth(&entry).is_some_and(|truth| truth.value);
    }
    if let Some(entry) = fields.take(&["max_groups_per_phase", "max_groups"]) {
        validation.max_groups = diagnostics.count(&entry).map(|count| count.value);
    }
    if let Some(entry) = fields.take(&["max_agents_per_phase", "max_agents"]) {
        validation.max_agents = diagnostics.count(&entry).map(|count| count.value);
    }
    if let Some(entry) = fields.take(&["enabled"])
        && diagnostics.truth(&entry).is_some_and(|truth| !truth.value)
    {
        validation.off = ChecksOff::All;
    }
    if let Some(entry) = fields.take(&["checks"]) {
        checks(&entry, &mut validation, diagnostics);
    }
    // These checks cannot be switched off.
    let always = [
        "check_cycles",
        "check_circular_dependencies",
        "check_globs",
        "check_paths",
        "check_actions",
        "check_conflicts",
        "check_agents",
        "description",
    ];
    for key in always {
        fields.take(&[key]);
    }
    fields.finish(diagnostics);
    validation
}

/// Reads a list of checks. A check that is switched off, or that is only a warning, does not refuse a file. The checks that a
/// plan needs are always made, and always errors.
fn checks(entry: &Entry<'_>, validation: &mut Validation, diagnostics: &mut Diagnostics) {
    for (path, node) in items(entry) {
        if let Some(name) = node.text() {
            codes_of(name, entry, node, diagnostics);
            continue;
        }
        let Some(mut fields) = Fields::of(node, &path, diagnostics) else { continue };
        for key in ["description", "action"] {
            fields.take(&[key]);
        }
        let severity = fields.take(&["severity"]);
        let only_warns = severity.is_some_and(|entry| is_warning(&entry, diagnostics));
        let enabled = fields.take(&["enabled"]).and_then(|entry| diagnostics.truth(&entry));
        let name = fields.take(&["name", "id"]).and_then(|entry| diagnostics.text(&entry));
        fields.finish(diagnostics);
        let codes =
            name.as_ref().map(|name| codes_of(&name.value, entry, node, diagnostics)).unwrap_or_default();
        if only_warns {
            validation.only_warn.extend(codes);
            if let Some(name) = name.filter(|_| codes.iter().any(|code| NEEDED_BY_PLANS.contains(code))) {
                let message = format!(
                    "{} finds what makes a plan impossible, so its severity has no effect",
                    name.value
                );
                diagnostics.problem(Problem::warning("NO_EFFECT", name.place, message));
            }
        }
        if enabled.is_some_and(|truth| !truth.value) {
            match &mut validation.off {
                ChecksOff::All => {}
                ChecksOff::Some(off) => off.extend(codes),
                off @ ChecksOff::None => *off = ChecksOff::Some(codes.to_vec()),
            }
        }
    }
}

/// Whether what a check finds is only a warning. Other severities leave it as it is.
fn is_warning(entry: &Entry<'_>, diagnostics: &mut Diagnostics) -> bool {
    let Some(severity) = diagnostics.text(entry) else { return false };
    match severity.value.to_ascii_uppercase().as_str() {
        "WARNING" | "WARN" | "MINOR" | "INFO" => true,
        "FATAL" | "CRITICAL" | "ERROR" | "MAJOR" => false,
        _ => {
            let (path, value) = (entry.path.clone(), severity.value);
            diagnostics.unknown.push(UnknownKey { path, place: severity.place, value });
            false
        }
    }
}

/// The problem codes of a check.
fn codes_of(
    name: &str,
    entry: &Entry<'_>,
    node: &Node,
    diagnostics: &mut Diagnostics,
) -> &'static [&'static str] {
    match name {
        // There is no list of agents to compare with: an agent is a name that is passed to its command.
        "parallel_group_agents_exist" => &[],
        "conflict_paths_valid" => &["BAD_PATTERN", "NO_PATHS"],
        "no_circular_dependencies" => &["CYCLE", "BACKWARDS"],
        "downgrade_actions_defined" => &["UNKNOWN_RESPONSE"],
        "max_concurrent_valid" => &["MORE_THAN_AGENTS"],
        other => {
            let (path, value) = (entry.path.clone(), other.to_owned());
            diagnostics.unknown.push(UnknownKey { path, place: node.place, value });
            &[]
        }
    }
}
