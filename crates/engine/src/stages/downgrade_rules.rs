//! Downgrade rules: which rules of the file an event triggers, and what each of them makes the executor do.

use std::fmt;
use std::time::Duration;

use lockkeeper_core::conflict::Action;
use lockkeeper_core::time::format_span;
use lockkeeper_stages::{Downgrade, Response, Trigger};

/// An event that may trigger rules.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TriggerEvent {
    /// A group has waited for its lease for this long and did not get it.
    LockTimeout(Duration),
    /// The number of failed agents.
    Failures(u64),
    /// The one-minute load average of the machine.
    Load(f64),
    /// The share of memory in use, from 0 to 1.
    Memory(f64),
    /// How often a group had to wait because others held what it needs.
    Conflicts(u64),
    /// A group on the critical path has failed.
    CriticalPath,
    /// An agent was stopped after this long.
    Timeout(Duration),
}

impl fmt::Display for TriggerEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LockTimeout(waited) => {
                write!(f, "a group has waited for its lease for {}", format_span(*waited))
            }
            Self::Failures(1) => f.write_str("an agent has failed"),
            Self::Failures(count) => write!(f, "{count} agents have failed"),
            Self::Load(load) => write!(f, "the load is {load:.2}"),
            Self::Memory(share) => write!(f, "{:.0} % of memory are in use", share * 100.0),
            Self::Conflicts(1) => f.write_str("a group met others that held what it needs"),
            Self::Conflicts(count) => write!(f, "groups met others that held what they need, {count} times"),
            Self::CriticalPath => f.write_str("a group on the longest path failed"),
            Self::Timeout(limit) => write!(f, "an agent took more than {}", format_span(*limit)),
        }
    }
}

/// What a rule makes the executor do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuleAction {
    /// Run groups one by one from now on, after this pause.
    Serial(Duration),
    /// Run fewer groups at a time.
    ReduceParallelism,
    /// Start no group for this long.
    Pause(Duration),
    /// Stop all groups.
    Abort,
    /// Only log it.
    Notify,
}

/// The names and actions of the rules that an event triggers.
pub(super) fn triggered<'d>(rules: &'d [Downgrade], event: &TriggerEvent) -> Vec<(&'d str, RuleAction)> {
    let matching = rules.iter().filter(|rule| triggers(event, &rule.trigger));
    matching.filter_map(|rule| Some((rule.name.value.as_str(), action(rule)?))).collect()
}

fn triggers(event: &TriggerEvent, trigger: &Trigger) -> bool {
    match (trigger, event) {
        (Trigger::LockTimeout { after }, TriggerEvent::LockTimeout(waited)) => {
            after.is_none_or(|after| *waited >= after)
        }
        (Trigger::Failures { count }, TriggerEvent::Failures(failed)) => failed >= count,
        (Trigger::Load { above }, TriggerEvent::Load(load)) => load > above,
        (Trigger::Memory { above }, TriggerEvent::Memory(share)) => share > above,
        (Trigger::RepeatedConflict { times }, TriggerEvent::Conflicts(met)) => met >= times,
        (Trigger::CriticalPath, TriggerEvent::CriticalPath) => true,
        (Trigger::Timeout { after }, TriggerEvent::Timeout(took)) => after.is_none_or(|after| *took >= after),
        _ => false,
    }
}

fn action(rule: &Downgrade) -> Option<RuleAction> {
    let delay = rule.delay.unwrap_or_default();
    match &rule.response {
        Response::Act(Action::Abort) => Some(RuleAction::Abort),
        Response::Act(
            Action::DowngradeToSerial
            | Action::SerializeOperations
            | Action::MutexLock
            | Action::QueueExecution,
        ) => Some(RuleAction::Serial(delay)),
        Response::ReduceParallelism => Some(RuleAction::ReduceParallelism),
        Response::Pause => Some(RuleAction::Pause(delay)),
        Response::Notify | Response::Prioritize => Some(RuleAction::Notify),
        // Requests have their own retries. `stages check` reports unknown responses.
        Response::Retry | Response::Other(_) => None,
    }
}

/// How often to retry an agent after a network failure, and the first pause; none without such a rule.
pub(super) fn network_retries(rules: &[Downgrade]) -> Option<(u32, Duration)> {
    let rule = rules.iter().find(|rule| {
        rule.trigger == Trigger::Network && matches!(rule.response, Response::Retry | Response::Pause)
    })?;
    let retries = u32::try_from(rule.retries.unwrap_or(3)).unwrap_or(u32::MAX);
    Some((retries, rule.delay.unwrap_or(Duration::from_secs(5))))
}

/// The waits for a lease after which a rule may apply, the shortest first.
pub(super) fn lock_timeouts(rules: &[Downgrade]) -> Vec<Duration> {
    let mut spans: Vec<Duration> = rules
        .iter()
        .filter_map(|rule| if let Trigger::LockTimeout { after } = rule.trigger { after } else { None })
        .collect();
    spans.sort_unstable();
    spans.dedup();
    spans
}

/// How long an agent may take; none without such a rule.
pub(super) fn agent_timeout(rules: &[Downgrade]) -> Option<Duration> {
    rules.iter().find_map(|rule| if let Trigger::Timeout { after } = rule.trigger { after } else { None })
}

/// The exit codes for network failures: of curl, of ssh, and of sysexits.
pub(super) const NETWORK_CODES: [u8; 11] = [5, 6, 7, 28, 35, 52, 55, 56, 68, 69, 255];
