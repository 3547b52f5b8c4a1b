//! Section `downgrade_rules`: what to do when problems occur while groups run.
//!
//! People write the trigger as a word (`trigger: lock_timeout` with `threshold: 30s`), as a condition
//! (`condition: "system_load > 8.0"`), or only in the name. The reader searches all of them for known words and for a
//! number.

use std::time::Duration;

use lockkeeper_formats::yaml::{Node, Value};

use super::Diagnostics;
use super::fields::{Entry, Fields, items};
use super::rules::known_action;
use super::values::read_span;
use crate::model::{Downgrade, Response, Stages, Trigger};
use crate::place::Placed;
use crate::problem::Problem;

/// The number of failures before a downgrade, if the file has no number.
const FAILURES: u64 = 3;
/// The load above which groups run one by one, if the file has no number.
const LOAD: f64 = 4.0;
/// The share of memory in use, if the file has no number.
const MEMORY: f64 = 0.8;

/// Reads a list of rules, or a mapping from name to rule.
pub(super) fn read(entry: &Entry<'_>, stages: &mut Stages, diagnostics: &mut Diagnostics) {
    if matches!(entry.node.value, Value::List(_)) {
        for (path, node) in items(entry) {
            stages.downgrades.extend(one(node, &path, None, diagnostics));
        }
        return;
    }
    let Some(mut fields) = Fields::of(entry.node, &entry.path, diagnostics) else { return };
    if let Some(rules) = fields.take(&["rules"]) {
        for (path, node) in items(&rules) {
            stages.downgrades.extend(one(node, &path, None, diagnostics));
        }
    }
    for named in fields.rest() {
        let name = Placed::new(named.key.clone(), named.key_place);
        stages.downgrades.extend(one(named.node, &named.path, Some(name), diagnostics));
    }
}

fn one(
    node: &Node,
    path: &str,
    known: Option<Placed<String>>,
    diagnostics: &mut Diagnostics,
) -> Option<Downgrade> {
    let mut fields = Fields::of(node, path, diagnostics)?;
    for key in ["description", "enabled", "notify", "notification", "message", "severity", "log_level"] {
        fields.take(&[key]);
    }
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
    let action = fields.take(&["action", "strategy", "response", "downgrade_to", "fallback"]);
    let action = action.and_then(|entry| diagnostics.text(&entry));
    fields.finish(diagnostics);

    let words = [&kind, &condition, &name].into_iter().flatten();
    let said: Vec<String> = words.map(|word| word.value.to_ascii_lowercase()).collect();
    let number = threshold.map(|text| text.value).or_else(|| condition.as_ref().and_then(compared));
    let trigger = said.iter().find_map(|said| trigger_of(said, number.as_deref(), timeout));
    let Some(name) = name.or(condition).or(kind) else {
        diagnostics.problem(Problem::error(
            "BAD_DOWNGRADE",
            node.place,
            "this rule says neither its name nor when it applies",
        ));
        return None;
    };
    let trigger = trigger.unwrap_or_else(|| {
        let message = format!("`{}` speaks of nothing that is watched for", name.value);
        diagnostics.problem(Problem::warning("UNKNOWN_TRIGGER", name.place, message).with_hint(
            "lock timeouts, failures, load, memory, repeated conflicts, the critical path, timeouts and the network are",
        ));
        Trigger::Other
    });
    let response = action.map_or(Response::Notify, |action| response(&action, diagnostics));
    Some(Downgrade { name, trigger, response, delay, retries })
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

/// Returns the right side of a comparison.
fn compared(condition: &Placed<String>) -> Option<String> {
    let (_, right) = condition.value.rsplit_once(['>', '<', '='])?;
    Some(right.trim().to_owned())
}

/// Finds the trigger by words in a text. The order matters: `network_timeout` is about the network.
fn trigger_of(text: &str, number: Option<&str>, timeout: Option<Duration>) -> Option<Trigger> {
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let count = || number.and_then(|number| number.parse::<f64>().ok()).filter(|count| *count >= 1.0);
    let whole = |otherwise: u64| count().map_or(otherwise, |count| count.min(1e9) as u64);
    let span = || timeout.or_else(|| number.and_then(read_span));
    let trigger = match () {
        () if has(&["network", "connection", "connectivity"]) => Trigger::Network,
        () if has(&["memory", "mem_", "ram"]) => Trigger::Memory { above: share(number).unwrap_or(MEMORY) },
        () if has(&["load", "cpu"]) => Trigger::Load { above: count().unwrap_or(LOAD) },
        () if has(&["critical_path", "critical path", "critical"]) => Trigger::CriticalPath,
        () if has(&["conflict"]) => Trigger::RepeatedConflict { times: whole(FAILURES) },
        () if has(&["lock", "resource"]) => Trigger::LockTimeout { after: span() },
        () if has(&["fail", "error"]) => Trigger::Failures { count: whole(FAILURES) },
        () if has(&["timeout", "timed_out", "too_long", "duration"]) => Trigger::Timeout { after: span() },
        () => return None,
    };
    Some(trigger)
}

/// Parses `80%`, `80` or `0.8` as a share.
fn share(number: Option<&str>) -> Option<f64> {
    let value: f64 = number?.trim_end_matches('%').trim().parse().ok()?;
    let share = if value > 1.0 { value / 100.0 } else { value };
    (share > 0.0 && share <= 1.0).then_some(share)
}

fn response(action: &Placed<String>, diagnostics: &mut Diagnostics) -> Response {
    if let Some(action) = known_action(&action.value) {
        return Response::Act(action);
    }
    let text = action.value.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    match () {
        () if has(&["reduce", "limit", "fewer", "throttle"]) => Response::ReduceParallelism,
        () if has(&["retry", "backoff"]) => Response::Retry,
        () if has(&["pause", "delay", "wait"]) => Response::Pause,
        () if has(&["priorit", "first"]) => Response::Prioritize,
        () if has(&["notify", "warn", "alert", "log"]) => Response::Notify,
        () => {
            let message = format!("`{}` is not an answer that is known here", action.value);
            diagnostics.problem(Problem::warning("UNKNOWN_RESPONSE", action.place, message).with_hint(
                "an action of a rule, or reduce_parallelism, retry_with_backoff, pause, prioritize or notify",
            ));
            Response::Other(action.value.clone())
        }
    }
}
