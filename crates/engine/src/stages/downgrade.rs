//! What is done when things go badly while groups run, as the file's rules say.

use std::fmt;
use std::time::Duration;

use lockkeeper_core::conflict::Action;
use lockkeeper_core::time::format_span;

use lockkeeper_stages::{Downgrade, Response, Trigger};

/// Something that a rule may answer to.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Sign {
    /// A group has waited for its lease in vain, for so long.
    LockTimeout(Duration),
    /// So many agents have failed by now.
    Failures(u64),
    /// The machine's one-minute average.
    Load(f64),
    /// The share of memory that is in use.
    Memory(f64),
    /// A group met others that held what it needs, for so many times by now.
    Conflicts(u64),
    /// A group on the longest path has failed.
    CriticalPath,
    /// An agent took too long.
    Timeout(Duration),
}

impl fmt::Display for Sign {
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

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Groups run one by one from now on, after this pause.
    Serial(Duration),
    /// Fewer groups run at a time.
    Fewer,
    /// Nothing new begins for so long.
    Pause(Duration),
    /// Everything is ended.
    Abort,
    /// It is only told.
    Tell,
}

/// The rules that answer to a sign, with what they say.
pub(super) fn answers<'d>(rules: &'d [Downgrade], sign: &Sign) -> Vec<(&'d str, Answer)> {
    let matching = rules.iter().filter(|rule| applies(&rule.trigger, sign));
    matching.filter_map(|rule| Some((rule.name.value.as_str(), answer(rule)?))).collect()
}

fn applies(trigger: &Trigger, sign: &Sign) -> bool {
    match (trigger, sign) {
        (Trigger::LockTimeout { after }, Sign::LockTimeout(waited)) => {
            after.is_none_or(|after| *waited >= after)
        }
        (Trigger::Failures { count }, Sign::Failures(failed)) => failed >= count,
        (Trigger::Load { above }, Sign::Load(load)) => load > above,
        (Trigger::Memory { above }, Sign::Memory(share)) => share > above,
        (Trigger::RepeatedConflict { times }, Sign::Conflicts(met)) => met >= times,
        (Trigger::CriticalPath, Sign::CriticalPath) => true,
        (Trigger::Timeout { after }, Sign::Timeout(took)) => after.is_none_or(|after| *took >= after),
        _ => false,
    }
}

fn answer(rule: &Downgrade) -> Option<Answer> {
    let delay = rule.delay.unwrap_or_default();
    match &rule.response {
        Response::Act(Action::Abort) => Some(Answer::Abort),
        Response::Act(
            Action::DowngradeToSerial
            | Action::SerializeOperations
            | Action::MutexLock
            | Action::QueueExecution,
        ) => Some(Answer::Serial(delay)),
        Response::ReduceParallelism => Some(Answer::Fewer),
        Response::Pause => Some(Answer::Pause(delay)),
        Response::Notify | Response::Prioritize => Some(Answer::Tell),
        // Requests are tried again by themselves; what is not known is listed by `stages check`.
        Response::Retry | Response::Other(_) => None,
    }
}

/// How often and after what pause an agent whose network failed is tried again, where a rule says so.
pub(super) fn network_retries(rules: &[Downgrade]) -> Option<(u32, Duration)> {
    let rule = rules.iter().find(|rule| {
        rule.trigger == Trigger::Network && matches!(rule.response, Response::Retry | Response::Pause)
    })?;
    let retries = u32::try_from(rule.retries.unwrap_or(3)).unwrap_or(u32::MAX);
    Some((retries, rule.delay.unwrap_or(Duration::from_secs(5))))
}

/// After how long of a wait for a lease some rule answers, the shortest first.
pub(super) fn lock_timeouts(rules: &[Downgrade]) -> Vec<Duration> {
    let mut spans: Vec<Duration> = rules
        .iter()
        .filter_map(|rule| if let Trigger::LockTimeout { after } = rule.trigger { after } else { None })
        .collect();
    spans.sort_unstable();
    spans.dedup();
    spans
}

/// The longest that an agent may take, where a rule says so.
pub(super) fn agent_timeout(rules: &[Downgrade]) -> Option<Duration> {
    rules.iter().find_map(|rule| if let Trigger::Timeout { after } = rule.trigger { after } else { None })
}

/// Exit codes by which programs tell that the network failed: curl's, ssh's, and those of sysexits.
pub(super) const NETWORK_CODES: [u8; 11] = [5, 6, 7, 28, 35, 52, 55, 56, 68, 69, 255];
