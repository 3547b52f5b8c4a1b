//! Downgrade rules: which rules of the file an event triggers, and what each of them makes the executor do.

use std::fmt;
use std::time::Duration;

use lockkeeper_core::conflict::Action;
use lockkeeper_core::retry::RetryPolicy;
use lockkeeper_core::run::Ending;
use lockkeeper_core::time::format_span;
use lockkeeper_stages::{Downgrade, Reduction, Response, Trigger};

/// An event that may trigger rules.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TriggerEvent {
    /// A group has waited for its lease for this long and did not get it.
    LockTimeout(Duration),
    /// The number of failed agents.
    Failures(u64),
    /// The one-minute load average of the machine, and the number of its cores.
    Load(f64, usize),
    /// The share of memory in use, from 0 to 1.
    Memory(f64),
    /// The plan has a conflict, under the rule of this name if there is one.
    ConflictFound(Option<String>),
    /// How often groups had to wait because others held this name or path.
    Conflicts {
        /// The name or path.
        path: String,
        /// How often.
        count: u64,
    },
    /// A group on the critical path has failed.
    CriticalPath,
    /// An agent was stopped after this long.
    Timeout(Duration),
    /// The number of attempts of agents for which the network failed.
    Network(u64),
}

impl fmt::Display for TriggerEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LockTimeout(waited) => {
                write!(f, "a group has waited for its lease for {}", format_span(*waited))
            }
            Self::Failures(1) => f.write_str("an agent has failed"),
            Self::Failures(count) => write!(f, "{count} agents have failed"),
            Self::Load(load, cores) => {
                let share = load / (*cores).max(1) as f64 * 100.0;
                write!(f, "the load is {load:.2}, {share:.0} % of {cores} cores")
            }
            Self::Memory(share) => write!(f, "{:.0} % of memory are in use", share * 100.0),
            Self::ConflictFound(Some(rule)) => write!(f, "groups conflict under rule {rule}"),
            Self::ConflictFound(None) => f.write_str("groups conflict"),
            Self::Conflicts { path, count: 1 } => write!(f, "a group met others that held {path}"),
            Self::Conflicts { path, count } => {
                write!(f, "groups met others that held {path}, {count} times")
            }
            Self::CriticalPath => f.write_str("a group on the longest path failed"),
            Self::Timeout(limit) => write!(f, "an agent took more than {}", format_span(*limit)),
            Self::Network(1) => f.write_str("the network failed"),
            Self::Network(count) => write!(f, "the network failed {count} times"),
        }
    }
}

/// What a rule makes the executor do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuleAction {
    /// Run groups one by one from now on, with this pause before each.
    Serial(Duration),
    /// Run fewer groups at a time.
    ReduceParallelism(Reduction),
    /// Start no group for this long.
    Pause(Duration),
    /// Stop all groups.
    Abort,
    /// Stop all groups, and run the command for a rollback.
    AbortWithRollback,
    /// Only log it.
    Notify,
}

/// The rules that an event triggers, and their actions.
pub(super) fn triggered<'d>(
    rules: &'d [Downgrade],
    event: &TriggerEvent,
) -> Vec<(&'d Downgrade, RuleAction)> {
    let matching = rules.iter().filter(|rule| triggers(event, &rule.trigger) && !retries(rule));
    matching.filter_map(|rule| Some((rule, action(rule)?))).collect()
}

fn triggers(event: &TriggerEvent, trigger: &Trigger) -> bool {
    match (trigger, event) {
        (Trigger::LockTimeout { after }, TriggerEvent::LockTimeout(waited)) => {
            after.is_none_or(|after| *waited >= after)
        }
        (Trigger::Failures { count }, TriggerEvent::Failures(failed)) => failed >= count,
        (Trigger::Load { above, per_core }, TriggerEvent::Load(load, cores)) => {
            let load = if *per_core { load / (*cores).max(1) as f64 } else { *load };
            load > *above
        }
        (Trigger::Conflict { rule }, TriggerEvent::ConflictFound(found)) => rule.is_none() || rule == found,
        (Trigger::Memory { above }, TriggerEvent::Memory(share)) => share > above,
        (Trigger::RepeatedConflict { times }, TriggerEvent::Conflicts { count, .. }) => count >= times,
        (Trigger::CriticalPath, TriggerEvent::CriticalPath) => true,
        (Trigger::Timeout { after }, TriggerEvent::Timeout(took)) => after.is_none_or(|after| *took >= after),
        (Trigger::Network { count }, TriggerEvent::Network(failed)) => failed >= count,
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
        Response::AbortWithRollback => Some(RuleAction::AbortWithRollback),
        Response::ReduceParallelism(reduction) => Some(RuleAction::ReduceParallelism(*reduction)),
        Response::Pause => Some(RuleAction::Pause(delay)),
        Response::Notify | Response::Prioritize => Some(RuleAction::Notify),
        // Requests have their own retries. `stages check` reports unknown responses.
        Response::Retry | Response::Other(_) => None,
    }
}

/// Whether agents are retried by this rule.
fn retries(rule: &Downgrade) -> bool {
    matches!(
        (&rule.trigger, &rule.response),
        (Trigger::Network { .. }, Response::Retry | Response::Pause)
            | (Trigger::Failures { .. } | Trigger::CriticalPath | Trigger::Timeout { .. }, Response::Retry)
    )
}

fn is_about_the_network(rule: &Downgrade) -> bool {
    matches!(rule.trigger, Trigger::Network { .. })
}

/// The rule by which agents are retried. A rule about the network applies to the exit codes of network failures; other rules
/// apply to all failures, and come first.
pub(super) fn retry_rule(rules: &[Downgrade]) -> Option<&Downgrade> {
    let mut all = rules.iter().filter(|rule| retries(rule));
    all.clone().find(|rule| !is_about_the_network(rule)).or_else(|| all.next())
}

/// How agents are retried.
pub(super) fn retry_policy(rules: &[Downgrade]) -> RetryPolicy {
    let defaults = RetryPolicy::default();
    let Some(rule) = retry_rule(rules) else { return defaults };
    RetryPolicy {
        limit: u32::try_from(rule.retries.unwrap_or(3)).unwrap_or(u32::MAX),
        base: rule.delay.unwrap_or(Duration::from_secs(5)),
        longest: rule.longest_delay.unwrap_or(defaults.longest),
        codes: if is_about_the_network(rule) { NETWORK_CODES.to_vec() } else { Vec::new() },
    }
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

/// Whether a command ended as commands do when the network fails.
pub(super) fn is_network_failure(ending: Ending) -> bool {
    matches!(ending, Ending::Exited(code) if NETWORK_CODES.contains(&code))
}

/// The exit codes for network failures: of curl, of ssh, and of sysexits.
const NETWORK_CODES: [u8; 11] = [5, 6, 7, 28, 35, 52, 55, 56, 68, 69, 255];
