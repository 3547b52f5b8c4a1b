//! What became of a phase, and how things stand on the way there.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::{Duration, Instant};

use lockkeeper_core::plan::{GroupState, Plan, Progress};
use lockkeeper_core::tune::Bounds;

use lockkeeper_platform::signal::Signal;

/// Why everything was ended before its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Somebody asked for it.
    Signal(Signal),
    /// A rule of the file says so.
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

/// What became of a phase.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The id of the execution.
    pub execution: String,
    /// How each group ended, by its place in the plan.
    pub standings: Vec<GroupState>,
    /// Why groups did not end well, by their places.
    pub reasons: BTreeMap<usize, String>,
    /// How long it took.
    pub wall: Duration,
    /// How long the groups would have taken one after the other.
    pub work: Duration,
    /// How long groups waited for what others held.
    pub waited: Duration,
    /// How often something was done because things went badly.
    pub downgrades: u32,
    /// Why everything was ended before its time.
    pub stopped: Option<Stopped>,
    /// Whether things were put back, where that was asked for and needed.
    pub rolled_back: Option<bool>,
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
        }
    }

    /// Whether every group ended well.
    pub fn is_success(&self) -> bool {
        self.standings.iter().all(|standing| *standing == GroupState::Succeeded)
    }

    /// How long the groups would have taken one after the other, with nobody else around.
    pub fn serial(&self) -> Duration {
        self.work.saturating_sub(self.waited)
    }
}

/// How things stand while groups run.
pub(super) struct State<'p> {
    pub(super) progress: Progress<'p>,
    /// How many groups run at a time.
    pub(super) slots: usize,
    /// Between which numbers that may change, if at all.
    pub(super) tuned: Option<Bounds>,
    pub(super) failures: u64,
    /// How often each group met others.
    pub(super) met: HashMap<usize, u64>,
    pub(super) pause_until: Option<Instant>,
    pub(super) looked_at: Option<Instant>,
    pub(super) outcome: Outcome,
    /// The id of each group's lines in the log.
    pub(super) began: HashMap<usize, String>,
    pub(super) critical_failed: bool,
}

impl State<'_> {
    pub(super) fn running(&self) -> usize {
        let standings = self.progress.states().iter();
        standings.filter(|standing| **standing == GroupState::Running).count()
    }
}

/// Which groups the whole phase waits for: it takes longer when they do.
pub(super) fn critical(plan: &Plan) -> Vec<bool> {
    let steps = &plan.steps;
    let one_by_one = plan.slots.is_some_and(|slots| slots.get() == 1);
    let mut critical = vec![one_by_one; steps.len()];
    let mut latest_first: Vec<usize> = (0..steps.len()).collect();
    latest_first.sort_by_key(|place| std::cmp::Reverse(steps[*place].ends));
    for place in latest_first {
        let ends = steps[place].ends;
        let is_waited_for = steps.iter().enumerate().any(|(other, step)| {
            let mut bonds = step.after.iter().chain(&step.excludes);
            critical[other] && step.begins == ends && bonds.any(|bond| bond.group == place)
        });
        critical[place] |= ends == plan.length || is_waited_for;
    }
    critical
}
