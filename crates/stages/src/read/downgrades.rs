//! `downgrade_rules`: what is done when things go badly while groups run.
//!
//! People write the trigger as a word (`trigger: lock_timeout` with `threshold: 30s`), as a condition
//! (`condition: "system_load > 8.0"`), or leave it to the name. All of them are read for what they speak of and for
//! the number in them.

use std::time::Duration;

use super::Notes;
use super::fields::{Entry, Fields, items};
use super::rules::known_action;
use super::values::read_span;
use crate::model::{Downgrade, Response, Stages, Trigger};
use crate::place::Placed;
use crate::problem::Problem;
use lockkeeper_formats::yaml::{Node, Value};

/// Failures before a downgrade, where the file says no number.
const FAILURES: u64 = 3;
/// The load above which groups run one by one, where the file says no number.
const LOAD: f64 = 4.0;
/// The share of memory in use, where the file says no number.
const MEMORY: f64 = 0.8;

/// Reads a list of rules, or rules by their names.
pub(super) fn read(entry: &Entry<'_>, stages: &mut Stages, notes: &mut Notes) {
    if matches!(entry.node.value, Value::List(_)) {
        for (path, node) in items(entry) {
            stages.downgrades.extend(one(node, &path, None, notes));
        }
        return;
    }
    let Some(mut fields) = Fields::of(entry.node, &entry.path, notes) else { return };
    if let Some(rules) = fields.take(&["rules"]) {
        for (path, node) in items(&rules) {
            stages.downgrades.extend(one(node, &path, None, notes));
        }
    }
    for named in fields.rest() {
        let name = Placed::new(named.key.clone(), named.key_place);
        stages.downgrades.extend(one(named.node, &named.path, Some(name), notes));
    }
}

fn one(node: &Node, path: &str, known: Option<Placed<String>>, notes: &mut Notes) -> Option<Downgrade> {
    let mut fields = Fields::of(node, path, notes)?;
    for key in ["description", "enabled", "notify", "notification", "message", "severity", "log_level"] {
        fields.take(&[key]);
    }
    let name = fields.take(&["name", "id", "rule"]).and_then(|entry| notes.text(&entry)).or(known);
    let kind = fields.take(&["trigger", "kind", "type", "event"]).and_then(|entry| notes.text(&entry));
    let condition = fields.take(&["condition", "when", "if"]).and_then(|entry| notes.text(&entry));
    let threshold = fields.take(&["threshold", "value", "limit", "count", "above", "max"]);
    let threshold = threshold.and_then(|entry| notes.text(&entry));
    let timeout = fields.take(&["timeout", "after", "timeout_seconds"]).and_then(|entry| notes.span(&entry));
    let delay = fields.take(&["delay", "backoff", "initial_delay", "delay_seconds", "cooldown", "wait"]);
    let delay = delay.and_then(|entry| delay_of(&entry, notes));
    let retries = fields.take(&["retries", "max_retries", "retry_count", "max_attempts"]);
    let retries = retries.and_then(|entry| notes.count(&entry)).map(|count| count.value);
    let action = fields.take(&["action", "strategy", "response", "downgrade_to", "fallback"]);
    let action = action.and_then(|entry| notes.text(&entry));
    fields.finish(notes);

    let words = [&kind, &condition, &name].into_iter().flatten();
    let said: Vec<String> = words.map(|word| word.value.to_ascii_lowercase()).collect();
    let number = threshold.map(|text| text.value).or_else(|| condition.as_ref().and_then(compared));
    let trigger = said.iter().find_map(|said| spoken_of(said, number.as_deref(), timeout));
    let Some(name) = name.or(condition).or(kind) else {
        notes.problem(Problem::error(
            "BAD_DOWNGRADE",
            node.place,
            "this rule says neither its name nor when it applies",
        ));
        return None;
    };
    let trigger = trigger.unwrap_or_else(|| {
        let message = format!("`{}` speaks of nothing that is watched for", name.value);
        notes.problem(Problem::warning("UNKNOWN_TRIGGER", name.place, message).with_hint(
            "lock timeouts, failures, load, memory, repeated conflicts, the critical path, timeouts and the network are",
        ));
        Trigger::Other
    });
    let response = action.map_or(Response::Notify, |action| response(&action, notes));
    Some(Downgrade { name, trigger, response, delay, retries })
}

/// A span, or a mapping that has one for the first attempt, or just `exponential`.
fn delay_of(entry: &Entry<'_>, notes: &mut Notes) -> Option<Duration> {
    match &entry.node.value {
        Value::Map(_) => {
            let mut fields = Fields::of(entry.node, &entry.path, notes)?;
            let first = fields.take(&["initial", "base", "delay", "min", "initial_delay"]);
            let span = first.and_then(|entry| notes.span(&entry));
            for key in ["max", "max_delay", "multiplier", "factor", "type", "strategy", "jitter"] {
                fields.take(&[key]);
            }
            fields.finish(notes);
            span
        }
        Value::Scalar { text, .. } if matches!(text.as_str(), "exponential" | "linear" | "fixed") => None,
        Value::Scalar { .. } if entry.node.truth().is_some() => None,
        Value::Scalar { .. } | Value::List(_) => notes.span(entry),
    }
}

/// The right side of a comparison.
fn compared(condition: &Placed<String>) -> Option<String> {
    let (_, right) = condition.value.rsplit_once(['>', '<', '='])?;
    Some(right.trim().to_owned())
}

/// What a text speaks of. The order matters: `network_timeout` is of the network.
fn spoken_of(text: &str, number: Option<&str>, timeout: Option<Duration>) -> Option<Trigger> {
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

/// `80%`, `80` or `0.8`, as a share.
fn share(number: Option<&str>) -> Option<f64> {
    let value: f64 = number?.trim_end_matches('%').trim().parse().ok()?;
    let share = if value > 1.0 { value / 100.0 } else { value };
    (share > 0.0 && share <= 1.0).then_some(share)
}

fn response(action: &Placed<String>, notes: &mut Notes) -> Response {
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
            notes.problem(Problem::warning("UNKNOWN_RESPONSE", action.place, message).with_hint(
                "an action of a rule, or reduce_parallelism, retry_with_backoff, pause, prioritize or notify",
            ));
            Response::Other(action.value.clone())
        }
    }
}
