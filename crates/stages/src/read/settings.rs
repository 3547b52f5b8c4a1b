//! Sections `conflict_resolution`, `autotune`, `monitoring` and `validation`.

use super::Diagnostics;
use super::fields::{Entry, Fields};
use super::rules::action;
use crate::model::{Autotune, Stages, Validation};
use crate::place::Placed;

/// Reads the sections with settings.
pub(super) fn read(fields: &mut Fields<'_>, stages: &mut Stages, diagnostics: &mut Diagnostics) {
    if let Some(entry) = fields.take(&["conflict_resolution", "resolution"]) {
        resolution(&entry, stages, diagnostics);
    }
    if let Some(entry) = fields.take(&["autotune", "auto_tune", "autotuning"]) {
        autotune(&entry, stages, diagnostics);
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
    let resolution = &mut stages.resolution;
    if let Some(entry) = fields.take(&["default_strategy", "strategy", "default_action"]) {
        let place = entry.node.place;
        resolution.default_strategy = action(&entry, diagnostics).map(|action| Placed::new(action, place));
    }
    if let Some(entry) = fields.take(&["timeout", "timeout_seconds", "lock_timeout", "timeout_sec"]) {
        resolution.timeout = diagnostics.span(&entry).unwrap_or(resolution.timeout);
    }
    if let Some(entry) = fields.take(&["retries", "max_retries", "retry_attempts", "retry_count"]) {
        resolution.retries = diagnostics.count(&entry).map_or(resolution.retries, |count| count.value);
    }
    if let Some(entry) = fields.take(&["queue_size", "max_queue_size", "max_queue"]) {
        resolution.queue_size = diagnostics.count(&entry).map_or(resolution.queue_size, |count| count.value);
    }
    fields.take(&["description"]);
    fields.finish(diagnostics);
}

fn autotune(entry: &Entry<'_>, stages: &mut Stages, diagnostics: &mut Diagnostics) {
    if let Some(enabled) = entry.node.truth() {
        let tune = Autotune { enabled, ..Autotune::default() };
        stages.autotune = Some(Placed::new(tune, entry.key_place));
        return;
    }
    let Some(mut fields) = Fields::of(entry.node, &entry.path, diagnostics) else { return };
    let mut tune = Autotune::default();
    if let Some(entry) = fields.take(&["enabled"]) {
        tune.enabled = diagnostics.truth(&entry).is_none_or(|truth| truth.value);
    }
    let mut number = |spellings: &[&str], fields: &mut Fields<'_>, value: &mut u64| {
        let count = fields.take(spellings).and_then(|entry| diagnostics.count(&entry));
        *value = count.map_or(*value, |count| count.value);
    };
    number(&["min", "min_parallel", "min_concurrent", "minimum"], &mut fields, &mut tune.min);
    number(&["max", "max_parallel", "max_concurrent", "maximum"], &mut fields, &mut tune.max);
    number(&["step", "step_size", "steps"], &mut fields, &mut tune.step);
    fields.take(&["description"]);
    fields.finish(diagnostics);
    stages.autotune = Some(Placed::new(tune, entry.key_place));
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
        monitoring.metrics = diagnostics.texts(&entry).into_iter().map(|text| text.value).collect();
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
    // These checks cannot be switched off.
    let always = [
        "enabled",
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
