//! Outcome of a phase, and the state of the executor until then.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::time::{Duration, Instant};

use lockkeeper_core::plan::{GroupState, Plan, Progress};
use lockkeeper_core::tune::{Bounds, Sign};
use lockkeeper_platform::signal::Signal;

/// Why all groups were stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The process received a signal.
    Signal(Signal),
    /// A rule of the file aborted the phase.
    Rule(String),
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signal(_) => f.write_str("a signal came"),
            Self::Rule(rule) => write!(f, "rule {rule}"),
        }
    }
}

/// The outcome of a phase.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The id of the execution.
    pub execution: String,
    /// The final state of each group, by its index in the plan.
    pub standings: Vec<GroupState>,
    /// Why groups did not succeed, by their index.
    pub reasons: BTreeMap<usize, String>,
    /// How long the phase took.
    pub wall: Duration,
    /// The durations of all groups together, waits included.
    pub work: Duration,
    /// How long groups waited for their leases, together.
    pub waited: Duration,
    /// How many downgrade rules were applied.
    pub downgrades: u32,
    /// Why all groups were stopped; none if they were not.
    pub stopped: Option<Stopped>,
    /// Whether the rollback succeeded; none if there was none.
    pub rolled_back: Option<bool>,
    /// Whether a rule asked for a rollback.
    pub rollback_wanted: bool,
}

impl Outcome {
    pub(super) fn new(execution: &str) -> Self {
        Self {
            execution: execution.to_owned(),
            standings: Vec::new(),
            reasons: BTreeMap::new(),
            wall: Duration::ZERO,
            work: Duration::ZERO,
            waited: Duration::ZERO,
            downgrades: 0,
            stopped: None,
            rolled_back: None,
            rollback_wanted: false,
        }
    }

    /// Whether every group succeeded.
    pub fn is_success(&self) -> bool {
        self.standings.iter().all(|standing| *standing == GroupState::Succeeded)
    }

    /// How long all groups took together, without waits. Groups that run at the same time slow each other down, so one by one
    /// they may take less.
    pub fn serial(&self) -> Duration {
        self.work.saturating_sub(self.waited)
    }
}

/// State of the executor while groups run.
pub(super) struct State<'p> {
    pub(super) progress: Progress<'p>,
    /// How many groups run at a time.
    pub(super) slots: usize,
    /// The bounds of autotune; none if it is off.
    pub(super) tuned: Option<Bounds>,
    pub(super) failures: u64,
    /// Attempts of agents for which the network failed.
    pub(super) network_failures: u64,
    /// How often each group was blocked by others.
    pub(super) conflicts: HashMap<usize, u64>,
    /// How often groups had to wait for each name or path.
    pub(super) conflicts_at: HashMap<String, u64>,
    pub(super) pause_until: Option<Instant>,
    /// The pause after each group, once a rule makes them run one by one with a delay.
    pub(super) pause_between: Duration,
    /// How the last group went, and how many in a row went like it.
    pub(super) streak: (Sign, u64),
    /// How many conflicts there were when autotune last changed the number of groups.
    pub(super) tuned_at_conflicts: u64,
    pub(super) machine_checked_at: Option<Instant>,
    pub(super) outcome: Outcome,
    /// The log id of each running group.
    pub(super) execution_ids: HashMap<usize, String>,
    /// How long each group waited for its locks.
    pub(super) waits: HashMap<usize, Duration>,
    /// Groups that ran at the same time as another one.
    pub(super) overlapped: HashSet<usize>,
    pub(super) critical_failed: bool,
}

impl State<'_> {
    pub(super) fn running(&self) -> usize {
        let standings = self.progress.states().iter();
        standings.filter(|standing| **standing == GroupState::Running).count()
    }
}

/// Which groups are on the critical path: the phase takes longer when they do.
pub(super) fn critical(plan: &Plan) -> Vec<bool> {
    let steps = &plan.steps;
    let one_by_one = plan.slots.is_some_and(|slots| slots.get() == 1);
    let mut critical = vec![one_by_one; steps.len()];
    let mut latest_first: Vec<usize> = (0..steps.len()).collect();
    latest_first.sort_by_key(|index| std::cmp::Reverse(steps[*index].ends));
    for index in latest_first {
        let ends = steps[index].ends;
        let is_waited_for = steps.iter().enumerate().any(|(other, step)| {
            let mut bonds = step.after.iter().chain(&step.excludes);
            critical[other] && step.begins == ends && bonds.any(|bond| bond.group == index)
        });
        critical[index] |= ends == plan.length || is_waited_for;
    }
    critical
}
