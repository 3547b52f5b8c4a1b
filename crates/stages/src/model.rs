//! What a STAGES.yml says, in types.

use std::time::Duration;

use lockkeeper_core::conflict::{Action, Rule};
use lockkeeper_core::pattern::Pattern;

use super::place::{Place, Placed};

/// A whole file.
#[derive(Clone, Debug, Default)]
pub struct Stages {
    /// The phases, in the order in which they run.
    pub phases: Vec<Phase>,
    /// Which groups wait for which.
    pub dependencies: Vec<Dependency>,
    /// The rules for conflicts.
    pub rules: Vec<Placed<Rule>>,
    /// What to do when things go badly while groups run.
    pub downgrades: Vec<Downgrade>,
    /// How conflicts are resolved that no rule covers, and how long is waited.
    pub resolution: Resolution,
    /// Between which numbers of groups at a time parallelism may tune itself.
    pub autotune: Option<Placed<Autotune>>,
    /// What is written down while groups run.
    pub monitoring: Monitoring,
    /// What is checked before anything runs.
    pub validation: Validation,
}

/// One phase, such as `P3`.
#[derive(Clone, Debug)]
pub struct Phase {
    /// Its name.
    pub name: Placed<String>,
    /// Its groups, in the order of the file.
    pub groups: Vec<Group>,
    /// Whether its groups may run side by side, where the file says so for the whole phase.
    pub can_parallel: Option<Placed<bool>>,
    /// How many groups run at a time, where the file says so.
    pub max_groups: Option<Placed<u64>>,
}

/// A set of agents that work on the same paths.
#[derive(Clone, Debug)]
pub struct Group {
    /// What it is called in commands, locks and logs.
    pub id: Placed<String>,
    /// What people call it.
    pub name: Option<String>,
    /// Who works in it.
    pub agents: Vec<Agent>,
    /// Whether it may run beside other groups.
    pub can_parallel: Placed<bool>,
    /// How many of its agents work at a time.
    pub max_concurrent: Option<Placed<u64>>,
    /// What it may touch.
    pub conflict_paths: Vec<Placed<Pattern>>,
    /// What is run for each of its agents, or once if it has none.
    pub command: Option<Vec<String>>,
    /// How long the whole group takes, where the file says so.
    pub estimated_time: Option<Duration>,
}

/// Who does a part of a group's work.
#[derive(Clone, Debug)]
pub struct Agent {
    /// What it is called.
    pub name: Placed<String>,
    /// What it is to do, in words.
    pub task: Option<String>,
    /// How long that takes.
    pub estimated_time: Option<Duration>,
    /// What is run for it.
    pub command: Option<Vec<String>>,
}

/// One end of a dependency: a group, or a whole phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The phase, where it was named.
    pub phase: Option<String>,
    /// The group or the phase.
    pub name: String,
    /// The whole text; an id may have a dot in it that does not stand behind a phase.
    pub whole: String,
    /// Where it stands.
    pub place: Place,
}

/// The target waits for the source.
#[derive(Clone, Debug)]
pub struct Dependency {
    /// What comes first.
    pub source: Endpoint,
    /// What waits for it.
    pub target: Endpoint,
    /// Whether the source has to have ended, and not only begun.
    pub wait_for_completion: bool,
}

/// Something that may happen while groups run, and the answer to it.
#[derive(Clone, Debug)]
pub struct Downgrade {
    /// Its name, or the text of its condition.
    pub name: Placed<String>,
    /// What has to happen.
    pub trigger: Trigger,
    /// What is done then.
    pub response: Response,
    /// How long is waited before going on, or between attempts.
    pub delay: Option<Duration>,
    /// How often is tried again.
    pub retries: Option<u64>,
}

/// What makes a downgrade happen.
#[derive(Clone, Debug, PartialEq)]
pub enum Trigger {
    /// A lock was waited for in vain.
    LockTimeout {
        /// For how long.
        after: Option<Duration>,
    },
    /// Agents failed.
    Failures {
        /// How many.
        count: u64,
    },
    /// The machine's load is high.
    Load {
        /// Above which one-minute average.
        above: f64,
    },
    /// Memory is short.
    Memory {
        /// Above which share of it, from 0 to 1.
        above: f64,
    },
    /// The same groups met again and again.
    RepeatedConflict {
        /// How often.
        times: u64,
    },
    /// A group on the longest path is late or fails.
    CriticalPath,
    /// The network fails.
    Network,
    /// An agent takes too long.
    Timeout {
        /// Longer than this.
        after: Option<Duration>,
    },
    /// Something that this program does not watch for.
    Other,
}

/// What is done in answer to a trigger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// As for a conflict.
    Act(Action),
    /// Fewer groups run at a time.
    ReduceParallelism,
    /// The failed work is tried again.
    Retry,
    /// Nothing new begins for a while.
    Pause,
    /// It goes first.
    Prioritize,
    /// It is only told.
    Notify,
    /// Something that this program does not do.
    Other(String),
}

/// How conflicts are resolved.
#[derive(Clone, Debug)]
pub struct Resolution {
    /// What happens to groups that overlap where no rule covers it.
    pub default_strategy: Option<Placed<Action>>,
    /// How long a group waits for what another holds.
    pub timeout: Duration,
    /// How often a group that failed is tried again.
    pub retries: u64,
    /// How many groups may wait in line.
    pub queue_size: u64,
}

impl Default for Resolution {
    fn default() -> Self {
        Self { default_strategy: None, timeout: Duration::from_secs(30), retries: 2, queue_size: 10 }
    }
}

/// The bounds of parallelism that tunes itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Autotune {
    /// Whether it is on.
    pub enabled: bool,
    /// The fewest groups at a time.
    pub min: u64,
    /// The most groups at a time.
    pub max: u64,
    /// By how many it changes.
    pub step: u64,
}

impl Default for Autotune {
    fn default() -> Self {
        Self { enabled: true, min: 2, max: 8, step: 2 }
    }
}

/// What is written down while groups run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Monitoring {
    /// Whether it is on; without a word about it, when there is a file to write to.
    pub enabled: Option<bool>,
    /// The file of JSON Lines.
    pub output: Option<String>,
    /// What is measured.
    pub metrics: Vec<String>,
}

/// What is checked before anything runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validation {
    /// Whether warnings count as errors.
    pub strict: bool,
    /// The most groups of a phase.
    pub max_groups: Option<u64>,
    /// The most agents of a phase.
    pub max_agents: Option<u64>,
}

impl Stages {
    /// Finds a phase by its name; `P3`, `p3`, `Phase3` and `3` are the same.
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
    fn a_phase_goes_by_several_names() {
        for name in ["P3", "p3", "Phase3", "phase_3", "Phase 3", "3", "P03"] {
            assert!(same_phase("P3", name), "{name}");
        }
        for name in ["P4", "P", "Phase", "planning", "P30", ""] {
            assert!(!same_phase("P3", name), "{name}");
        }
        assert!(same_phase("Deploy", "deploy"));
    }
}
