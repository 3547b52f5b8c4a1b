//! Section `downgrade_rules`: what to do when problems occur while groups run.
//!
//! People write the trigger as a word (`trigger: lock_timeout` with `threshold: 30s`), as a condition
//! (`condition: "system_load > 8.0"`, `trigger: 可用内存<20%`), or only in the name. The reader searches all of them for known
//! words and for a number.

use std::time::Duration;

use lockkeeper_core::conflict::Action;
use lockkeeper_formats::yaml::{Node, Value};

use super::Diagnostics;
use super::fields::{Entry, Fields, items};
use super::rules::known_action;
use super::triggers::{Compared, trigger_of};
use crate::model::{Downgrade, Reduction, Response, Stages, Trigger};
use crate::place::Placed;
use crate::problem::{Problem, UnknownKey};

/// Reads a list of rules, or a mapping from name to rule.
pub(super) fn read(entry: &Entry<'_>, stages: &mut Stages, diagnostics: &mut Diagnostics) {
    if matches!(entry.node.value, Value::List(_)) {
        for (path, node) in items(entry) {
            let rule = one(node, &path, None, stages, diagnostics);
            stages.downgrades.extend(rule);
        }
        return;
    }
    let Some(mut fields) = Fields::of(entry.node, &entry.path, diagnostics) else { return };
    if let Some(rules) = fields.take(&["rules"]) {
        for (path, node) in items(&rules) {
            let rule = one(node, &path, None, stages, diagnostics);
            stages.downgrades.extend(rule);
        }
    }
    for named in fields.rest() {
        let name = Placed::new(named.key.clone(), named.key_place);
        let rule = one(named.node, &named.path, Some(name), stages, diagnostics);
        stages.downgrades.extend(rule);
    }
}

fn one(
    node: &Node,
    path: &str,
    known: Option<Placed<String>>,
    stages: &Stages,
    diagnostics: &mut Diagnostics,
) -> Option<Downgrade> {
    let mut fields = Fields::of(node, path, diagnostics)?;
    for key in ["description", "message", "severity"] {
        fields.take(&[key]);
    }
    let enabled = fields.take(&["enabled"]).and_then(|entry| diagnostics.truth(&entry));
    let notify = fields.take(&["notification", "notify"]).and_then(|entry| diagnostics.truth(&entry));
    let level = fields.take(&["log_level"]).and_then(|entry| diagnostics.text(&entry));
    let reason = fields.take(&["reason"]).and_then(|entry| diagnostics.text(&entry));
    check_from(&mut fields, diagnostics);
    let name = fields.take(&["name", "id", "rule"]).and_then(|entry| diagnostics.text(&entry)).or(known);
    let kind = fields.take(&["trigger", "kind", "type", "event"]).and_then(|entry| diagnostics.text(&entry));
    let condition = fields.take(&["condition", "when", "if"]).and_then(|entry| diagnostics.text(&entry));
    let threshold = fields.take(&["threshold", "value", "limit", "count", "above", "max"]);
    let threshold = threshold.and_then(|entry| diagnostics.text(&entry));
    let timeout =
        fields.take(&["timeout", "after", "timeout_seconds"]).and_then(|entry| diagnostics.span(&entry));
    let delay = fields.take(&["delay", "backoff", "initial_delay", "delay_seconds", "cooldown", "wait"]);
    let delay = delay.and_then(|entry| delay_of(&entry, diagnostics));
    let retries = fields.take(&["retries", "max_retries", "retry_count", "max_attempts"]);
    let retries = retries.and_then(|entry| diagnostics.count(&entry)).map(|count| count.value);
    let longest = fields.take(&["max_delay", "longest_delay"]).and_then(|entry| diagnostics.span(&entry));
    check_multiplier(&mut fields, diagnostics);
    let action = fields.take(&["action", "to", "strategy", "response", "downgrade_to", "fallback"]);
    let action = action.and_then(|entry| diagnostics.text(&entry));
    fields.finish(diagnostics);
    if enabled.is_some_and(|truth| !truth.value) {
        return None;
    }

    let words = [&kind, &condition, &name].into_iter().flatten();
    let said: Vec<String> = words.map(|word| word.value.to_lowercase()).collect();
    let number = threshold.and_then(|text| Compared::of_value(&text.value)).or_else(|| {
        let texts = [&condition, &kind].into_iter().flatten();
        texts.filter_map(|text| Compared::find(&text.value)).next()
    });
    let rules: Vec<&str> = stages.rules.iter().map(|rule| rule.value.name.as_str()).collect();
    let trigger = said.iter().find_map(|said| trigger_of(said, number.as_ref(), timeout, &rules));
    let Some(name) = name.or(condition).or(kind) else {
        diagnostics.problem(Problem::error(
            "BAD_DOWNGRADE",
            node.place,
            "this rule says neither its name nor when it applies",
        ));
        return None;
    };
    let trigger = trigger.unwrap_or_else(|| {
        let message = format!("`{}` names no trigger that is known here", name.value);
        diagnostics.problem(Problem::warning("UNKNOWN_TRIGGER", name.place, message).with_hint(
            "known are lock timeouts, failures, load, memory, repeated conflicts, the critical path, timeouts and the network",
        ));
        Trigger::Other
    });
    let response = action.as_ref().map_or(Response::Notify, |action| response(action, diagnostics));
    check_retry(&trigger, &response, action.as_ref(), diagnostics);
    Some(Downgrade {
        name,
        trigger,
        response,
        delay,
        retries,
        longest_delay: longest,
        reason: reason.map(|reason| reason.value),
        level: level.map(|level| level.value),
        notify: notify.is_none_or(|truth| truth.value),
    })
}

/// Fills in the delays of `conflict_resolution.strategies.retry_with_backoff`, which is read later.
pub(super) fn fill_delays(stages: &mut Stages) {
    let (initial, longest) = stages.resolution.backoff;
    for rule in stages.downgrades.iter_mut().filter(|rule| rule.response == Response::Retry) {
        rule.delay = rule.delay.or(initial);
        rule.longest_delay = rule.longest_delay.or(longest);
    }
}

/// Checks the word in `from`, the state in which a rule applies. The rule does not depend on it: its trigger happens in that
/// state anyway.
fn check_from(fields: &mut Fields<'_>, diagnostics: &mut Diagnostics) {
    let Some(entry) = fields.take(&["from"]) else { return };
    let Some(text) = diagnostics.text(&entry) else { return };
    let known = ["parallel", "max_parallel", "waiting", "running", "mutex", "queue", "serial", "any"];
    if !known.contains(&text.value.to_ascii_lowercase().as_str()) {
        diagnostics.unknown.push(UnknownKey { path: entry.path, place: entry.key_place, value: text.value });
    }
}

/// Warns about a multiplier other than 2, which has no effect: each wait is twice as long as the one before.
fn check_multiplier(fields: &mut Fields<'_>, diagnostics: &mut Diagnostics) {
    let Some(entry) = fields.take(&["backoff_multiplier", "multiplier", "backoff_factor"]) else { return };
    let Some(text) = diagnostics.text(&entry) else { return };
    if text.value.parse::<f64>().ok() != Some(2.0) {
        let message = format!("waits between retries double, and {} says `{}`", entry.path, text.value);
        let hint = "set the first and the longest wait with delay and max_delay";
        diagnostics.problem(Problem::warning("NO_EFFECT", text.place, message).with_hint(hint));
    }
}

/// Only agents that failed can be retried.
fn check_retry(
    trigger: &Trigger,
    response: &Response,
    action: Option<&Placed<String>>,
    diagnostics: &mut Diagnostics,
) {
    let Some(action) = action.filter(|_| *response == Response::Retry) else { return };
    let retries = match trigger {
        Trigger::Network { .. }
        | Trigger::Failures { .. }
        | Trigger::CriticalPath
        | Trigger::Timeout { .. }
        | Trigger::Other => true,
        Trigger::LockTimeout { .. }
        | Trigger::Load { .. }
        | Trigger::Memory { .. }
        | Trigger::Conflict { .. }
        | Trigger::RepeatedConflict { .. } => false,
    };
    if !retries {
        let message = format!("`{}` has no effect here: only agents that failed are retried", action.value);
        let hint = "a group that waits for its lock goes on waiting; name another response";
        diagnostics.problem(Problem::warning("NO_EFFECT", action.place, message).with_hint(hint));
    }
}

/// Reads a duration, a mapping with the duration of the first wait, or only `exponential`.
fn delay_of(entry: &Entry<'_>, diagnostics: &mut Diagnostics) -> Option<Duration> {
    match &entry.node.value {
        Value::Map(_) => {
            let mut fields = Fields::of(entry.node, &entry.path, diagnostics)?;
            let first = fields.take(&["initial", "base", "delay", "min", "initial_delay"]);
            let span = first.and_then(|entry| diagnostics.span(&entry));
            for key in ["max", "max_delay", "multiplier", "factor", "type", "strategy", "jitter"] {
                fields.take(&[key]);
            }
            fields.finish(diagnostics);
            span
        }
        Value::Scalar { text, .. } if matches!(text.as_str(), "exponential" | "linear" | "fixed") => None,
        Value::Scalar { .. } if entry.node.truth().is_some() => None,
        Value::Scalar { .. } | Value::List(_) => diagnostics.span(entry),
    }
}

fn response(action: &Placed<String>, diagnostics: &mut Diagnostics) -> Response {
    if let Some(action) = known_action(&action.value) {
        return Response::Act(action);
    }
    let text = action.value.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    match () {
        () if has(&["rollback", "roll_back"]) => Response::AbortWithRollback,
        () if has(&["serial"]) => Response::Act(Action::DowngradeToSerial),
        () if has(&["reduce", "limit", "fewer", "throttle"]) => Response::ReduceParallelism(reduction(&text)),
        () if has(&["retry", "backoff"]) => Response::Retry,
        () if has(&["pause", "delay", "wait"]) => Response::Pause,
        () if has(&["priorit", "first"]) => Response::Prioritize,
        () if has(&["notify", "warn", "alert", "log"]) => Response::Notify,
        () => {
            let message = format!("`{}` is not a response that is known here", action.value);
            diagnostics.problem(Problem::warning("UNKNOWN_RESPONSE", action.place, message).with_hint(
                "an action of a rule, or serial_with_delay, abort_with_rollback, reduce_parallel_by_2, retry_with_backoff, pause, prioritize or notify",
            ));
            Response::Other(action.value.clone())
        }
    }
}

/// Reads how many groups `reduce_parallel_by_2` or `reduce_parallel_by_half` removes.
fn reduction(text: &str) -> Reduction {
    let Some((_, amount)) = text.rsplit_once("by_") else { return Reduction::One };
    match amount.parse() {
        Ok(number) if number > 0 => Reduction::By(number),
        Ok(_) | Err(_) if amount == "half" => Reduction::Half,
        Ok(_) | Err(_) => Reduction::One,
    }
}
