//! Section `autotune`: how many groups run at a time, and when this number changes.

use lockkeeper_core::tune::Condition;

use super::Diagnostics;
use super::fields::{Entry, Fields};
use super::triggers::{Compared, is_about_conflicts, load_share, memory_share};
use crate::model::{Autotune, Stages};
use crate::place::Placed;
use crate::problem::{Problem, UnknownKey};

/// Words of conditions that always hold, because autotune never exceeds its limits.
const ALWAYS: &[&str] = &["max_parallel", "min_parallel", "当前并行度", "current parallel"];
const FAILURES: &[&str] = &["fail", "失败", "失敗", "error"];
const SUCCESSES: &[&str] = &["green", "succe", "全绿", "成功", "pass"];

/// Reads the section: whether it is on, or a mapping.
pub(super) fn read(entry: &Entry<'_>, stages: &mut Stages, diagnostics: &mut Diagnostics) {
    let mut tune = Autotune::default();
    if let Some(enabled) = entry.node.truth() {
        tune.enabled = enabled;
        stages.autotune = Some(Placed::new(tune, entry.key_place));
        return;
    }
    let Some(mut fields) = Fields::of(entry.node, &entry.path, diagnostics) else { return };
    if let Some(entry) = fields.take(&["enabled"]) {
        tune.enabled = diagnostics.truth(&entry).is_none_or(|truth| truth.value);
    }
    bounds(&mut fields, &mut tune, diagnostics);
    if let Some(limits) = fields.take(&["limits"])
        && let Some(mut limits) = Fields::of(limits.node, &limits.path, diagnostics)
    {
        bounds(&mut limits, &mut tune, diagnostics);
        limits.finish(diagnostics);
    }
    number(&["step", "step_size", "steps"], &mut fields, &mut tune.step, diagnostics);
    tune.decrease_step = tune.step;
    number(&["increase_step", "step_up"], &mut fields, &mut tune.step, diagnostics);
    number(&["decrease_step", "step_down"], &mut fields, &mut tune.decrease_step, diagnostics);
    if let Some(entry) = fields.take(&["increase_conditions"]) {
        tune.increase = condition(&entry, SUCCESSES, diagnostics);
    }
    if let Some(entry) = fields.take(&["decrease_conditions"]) {
        tune.decrease = condition(&entry, FAILURES, diagnostics);
    }
    if let Some(entry) = fields.take(&["strategy"]) {
        strategy(&entry, diagnostics);
    }
    fields.take(&["description"]);
    fields.finish(diagnostics);
    stages.autotune = Some(Placed::new(tune, entry.key_place));
}

fn bounds(fields: &mut Fields<'_>, tune: &mut Autotune, diagnostics: &mut Diagnostics) {
    number(&["min", "min_parallel", "min_concurrent", "minimum"], fields, &mut tune.min, diagnostics);
    number(&["max", "max_parallel", "max_concurrent", "maximum"], fields, &mut tune.max, diagnostics);
}

fn number(spellings: &[&str], fields: &mut Fields<'_>, value: &mut u64, diagnostics: &mut Diagnostics) {
    let count = fields.take(spellings).and_then(|entry| diagnostics.count(&entry));
    *value = count.map_or(*value, |count| count.value);
}

/// Reads conditions in words. All of them have to hold to add groups, one is enough to remove some.
fn condition(entry: &Entry<'_>, results: &[&str], diagnostics: &mut Diagnostics) -> Condition {
    let mut condition = Condition::default();
    for text in diagnostics.texts(entry) {
        let said = text.value.to_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
        let count = || Compared::find(&said).and_then(|number| number.count());
        if has(ALWAYS) {
            continue;
        } else if let Some(share) = load_share(&said) {
            condition.load = Some(share);
        } else if let Some(share) = memory_share(&said) {
            condition.memory = Some(share);
        } else if has(results) {
            condition.streak = count().unwrap_or(1);
        } else if is_about_conflicts(&said) {
            condition.conflicts = Some(count().unwrap_or(1));
        } else {
            let message = format!("`{}` names no condition that is known here", text.value);
            let hint = "known are groups that succeed or fail in a row, conflicts, the load and the memory in percent";
            diagnostics.problem(Problem::warning("UNKNOWN_CONDITION", text.place, message).with_hint(hint));
        }
    }
    condition
}

/// Reads the strategy. Only `quality_first` exists: it starts with few groups and adds some while all goes well.
fn strategy(entry: &Entry<'_>, diagnostics: &mut Diagnostics) {
    let Some(text) = diagnostics.text(entry) else { return };
    if !matches!(text.value.as_str(), "quality_first" | "conservative") {
        let (path, place) = (entry.path.clone(), entry.key_place);
        diagnostics.unknown.push(UnknownKey { path, place, value: text.value });
    }
}
