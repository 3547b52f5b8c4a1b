//! Data model of a STAGES.yml.

use std::time::Duration;

use lockkeeper_core::conflict::{Action, Rule};
use lockkeeper_core::pattern::Pattern;
use lockkeeper_core::tune::Condition;

use super::place::{Place, Placed};

/// A whole file.
#[derive(Clone, Debug)]
pub struct Stages {
    /// The phases, in the order in which they run.
    pub phases: Vec<Phase>,
    /// Which groups wait for which.
    pub dependencies: Vec<Dependency>,
    /// The rules for conflicts.
    pub rules: Vec<Placed<Rule>>,
    /// The other fields of each rule, in the same order.
    pub rule_details: Vec<RuleDetails>,
    /// Whether conflicts are looked for: `conflict_detection.enabled`.
    pub detects_conflicts: bool,
    /// What to do when problems occur while groups run.
    pub downgrades: Vec<Downgrade>,
    /// The default for conflicts without a rule, and limits of waiting.
    pub resolution: Resolution,
    /// The bounds for automatic parallelism.
    pub autotune: Option<Placed<Autotune>>,
    /// What is logged while groups run.
    pub monitoring: Monitoring,
    /// What is checked before anything runs.
    pub validation: Validation,
}

impl Default for Stages {
    fn default() -> Self {
        Self {
            phases: Vec::new(),
            dependencies: Vec::new(),
            rules: Vec::new(),
            rule_details: Vec::new(),
            detects_conflicts: true,
            downgrades: Vec::new(),
            resolution: Resolution::default(),
            autotune: None,
            monitoring: Monitoring::default(),
            validation: Validation::default(),
        }
    }
}

/// The fields of a rule other than its name, action and paths.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RuleDetails {
    /// Whether the rule has an action of its own. Otherwise `conflict_resolution.strategies` may give it one.
    pub says_action: bool,
    /// It also applies to predicted conflicts that are at least this likely.
    pub min_probability: Option<f64>,
}

/// One phase, such as `P3`.
#[derive(Clone, Debug)]
pub struct Phase {
    /// Its name.
    pub name: Placed<String>,
    /// Its groups, in the order of the file.
    pub groups: Vec<Group>,
    /// Whether its groups may run at the same time, if the file says so for the whole phase.
    pub can_parallel: Option<Placed<bool>>,
    /// The most groups that run at a time, if the file says so.
    pub max_groups: Option<Placed<u64>>,
}

/// A set of agents that work on the same paths.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its id in commands, locks and logs.
    pub id: Placed<String>,
    /// Its name for people.
    pub name: Option<String>,
    /// Its agents.
    pub agents: Vec<Agent>,
    /// Whether it may run at the same time as other groups.
    pub can_parallel: Placed<bool>,
    /// The most agents that work at a time.
    pub max_concurrent: Option<Placed<u64>>,
    /// The paths that it may change.
    pub conflict_paths: Vec<Placed<Pattern>>,
    /// The command that is run for each agent, or once if there are none.
    pub command: Option<Vec<String>>,
    /// The duration of the whole group, if the file says so.
    pub estimated_time: Option<Duration>,
    /// Whether it runs at all: `enabled: false` leaves it out.
    pub enabled: bool,
    /// Whether another phase defines it, and this phase only names it.
    pub reference: bool,
}

/// An agent, which does a part of the work of a group.
#[derive(Clone, Debug)]
pub struct Agent {
    /// Its name.
    pub name: Placed<String>,
    /// Its task, in words.
    pub task: Option<String>,
    /// The duration of the task.
    pub estimated_time: Option<Duration>,
    /// The command that is run for it.
    pub command: Option<Vec<String>>,
}

/// One end of a dependency: a group, or a whole phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The phase, if the text has one.
    pub phase: Option<String>,
    /// The group or the phase.
    pub name: String,
    /// The whole text: a dot may also be part of an id.
    pub whole: String,
    /// Where it is in the file.
    pub place: Place,
}

/// The target waits for the source.
#[derive(Clone, Debug)]
pub struct Dependency {
    /// The group or phase that comes first.
    pub source: Endpoint,
    /// The group or phase that waits.
    pub target: Endpoint,
    /// Whether the target waits for the end of the source, and not only for its start.
    pub wait_for_completion: bool,
}

/// A downgrade rule: a trigger and a response.
#[derive(Clone, Debug)]
pub struct Downgrade {
    /// Its name, or the text of its condition.
    pub name: Placed<String>,
    /// When it applies.
    pub trigger: Trigger,
    /// What happens then.
    pub response: Response,
    /// How long to wait before going on, or between attempts.
    pub delay: Option<Duration>,
    /// The number of retries.
    pub retries: Option<u64>,
    /// The longest wait between retries.
    pub longest_delay: Option<Duration>,
    /// Why the rule exists, in the words of the file.
    pub reason: Option<String>,
    /// The `log_level`, which is written to the log.
    pub level: Option<String>,
    /// Whether the user is told when it applies: `notification: false` only logs it.
    pub notify: bool,
}

/// When a downgrade rule applies.
#[derive(Clone, Debug, PartialEq)]
pub enum Trigger {
    /// The wait for a lock timed out.
    LockTimeout {
        /// After this time.
        after: Option<Duration>,
    },
    /// Agents failed.
    Failures {
        /// The number of failures.
        count: u64,
    },
    /// The load of the machine is high.
    Load {
        /// The one-minute average must be above this.
        above: f64,
        /// Whether the average is divided by the number of cores first: the file gives a percentage.
        per_core: bool,
    },
    /// Memory is short.
    Memory {
        /// The share in use, from 0 to 1, must be above this.
        above: f64,
    },
    /// The plan has a conflict.
    Conflict {
        /// Only conflicts under this rule.
        rule: Option<String>,
    },
    /// The same groups conflict repeatedly.
    RepeatedConflict {
        /// The number of conflicts.
        times: u64,
    },
    /// A group on the longest path is late or fails.
    CriticalPath,
    /// The network failed for agents.
    Network {
        /// The number of attempts that failed.
        count: u64,
    },
    /// An agent takes too long.
    Timeout {
        /// Longer than this.
        after: Option<Duration>,
    },
    /// This program does not detect it.
    Other,
}

/// What happens when a downgrade rule applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// The action of a conflict rule.
    Act(Action),
    /// Everything is stopped, and the command for a rollback runs.
    AbortWithRollback,
    /// Fewer groups run at a time.
    ReduceParallelism(Reduction),
    /// The failed work is tried again.
    Retry,
    /// No group starts for a while.
    Pause,
    /// The group goes first.
    Prioritize,
    /// It is only reported.
    Notify,
    /// This program does not know it.
    Other(String),
}

/// How many groups fewer run at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// One fewer than run now.
    One,
    /// This number fewer than may run now.
    By(u64),
    /// Half of those that may run now.
    Half,
}

/// The default for conflicts, and limits of waiting.
#[derive(Clone, Debug)]
pub struct Resolution {
    /// The action for groups that overlap without a rule.
    pub default_strategy: Option<Placed<Action>>,
    /// How long a group waits for a lock, if the file says so.
    pub timeout: Option<Duration>,
    /// How many more times a group waits for its lock after `timeout`.
    pub retries: u64,
    /// How many groups may wait in the queue.
    pub queue_size: u64,
    /// The first and the longest wait between retries, if the file says so.
    pub backoff: (Option<Duration>, Option<Duration>),
}

impl Default for Resolution {
    fn default() -> Self {
        Self { default_strategy: None, timeout: None, retries: 2, queue_size: 10, backoff: (None, None) }
    }
}

/// The bounds for automatic parallelism.
#[derive(Clone, Debug, PartialEq)]
pub struct Autotune {
    /// Whether it is on.
    pub enabled: bool,
    /// The fewest groups at a time.
    pub min: u64,
    /// The most groups at a time.
    pub max: u64,
    /// How many groups are added at a time.
    pub step: u64,
    /// How many groups are removed at a time.
    pub decrease_step: u64,
    /// When groups are added.
    pub increase: Condition,
    /// When groups are removed.
    pub decrease: Condition,
}

impl Default for Autotune {
    fn default() -> Self {
        let (increase, decrease) = (Condition::default(), Condition::default());
        Self { enabled: true, min: 2, max: 8, step: 2, decrease_step: 2, increase, decrease }
    }
}

/// What is logged while groups run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Monitoring {
    /// Whether it is on. If the file does not say so, it is on when there is an output file.
    pub enabled: Option<bool>,
    /// The output file, in JSON Lines. All [`METRICS`] are written.
    pub output: Option<String>,
}

/// The metrics of an execution.
pub const METRICS: [&str; 7] =
    ["groups", "succeeded", "failed", "skipped", "wall_seconds", "lock_wait_seconds", "downgrades"];

/// What is checked before anything runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validation {
    /// The checks that are switched off: all that do not prevent a plan, or those of these names.
    pub off: ChecksOff,
    /// The problem codes of the checks that are only warnings.
    pub only_warn: Vec<&'static str>,
    /// Whether warnings count as errors.
    pub strict: bool,
    /// The most groups of a phase.
    pub max_groups: Option<u64>,
    /// The most agents of a phase.
    pub max_agents: Option<u64>,
}

/// Which checks a file switches off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ChecksOff {
    /// None.
    #[default]
    None,
    /// The checks with these problem codes.
    Some(Vec<&'static str>),
    /// All of them.
    All,
}

impl Stages {
    /// Finds a phase by its name. `P3`, `p3`, `Phase3` and `3` are the same name.
    pub fn phase(&self, name: &str) -> Option<&Phase> {
        let exact = self.phases.iter().find(|phase| phase.name.value == name);
        exact.or_else(|| self.phases.iter().find(|phase| same_phase(&phase.name.value, name)))
    }
}

/// Says whether two names mean the same phase: `P3`, `p3`, `Phase3`, `phase_3` and `3` do.
pub(super) fn same_phase(a: &str, b: &str) -> bool {
    fn bare(name: &str) -> String {
        let lower = name.to_ascii_lowercase();
        let rest = lower.strip_prefix("phase").or_else(|| lower.strip_prefix('p'));
        let number = rest.unwrap_or(&lower).trim_start_matches(['_', '-', ' ']);
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        if is_number { number.trim_start_matches('0').to_owned() } else { lower }
    }
    bare(a) == bare(b)
}

#[cfg(test)]
mod tests {
    use super::same_phase;

    #[test]
    fn a_phase_has_several_spellings() {
        for name in ["P3", "p3", "Phase3", "phase_3", "Phase 3", "3", "P03"] {
            assert!(same_phase("P3", name), "{name}");
        }
        for name in ["P4", "P", "Phase", "planning", "P30", ""] {
            assert!(!same_phase("P3", name), "{name}");
        }
        assert!(same_phase("Deploy", "deploy"));
    }
}
