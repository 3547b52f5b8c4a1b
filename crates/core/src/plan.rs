//! Planner: in which mode the groups of a phase run, which groups wait for which, and why.
//!
//! The mode is decided by the first of these that applies:
//!
//! 1. One group, or none: DIRECT.
//! 2. Conflicts: the strictest strategy of the rules, ABORT before SERIAL before MUTEX before QUEUE. A group or phase
//!    with `can_parallel: false` asks for SERIAL.
//! 3. The load is above its limit: SERIAL.
//! 4. Otherwise PARALLEL.
//!
//! The mode is the strictest strategy in the plan. The [`Step`]s say which groups it affects. All groups of the phase run
//! one after the other only if the file or the load asks for that: a rule with `downgrade_to_serial`, or `can_parallel:
//! false`. Otherwise only the groups that conflict wait for each other: in turns, in the order of the file
//! (`queue_execution`, `serialize_operations`, and SERIAL if no rule covers the conflict), or one at a time in any order
//! (`mutex_lock`).
//!
//! [`Progress`] follows a [`Plan`]. Whenever a group ends, the caller starts the first group of `order` that waits for
//! nothing and excludes no running group. The order is chosen to keep the total estimated time short.

mod constraints;
mod cycle;
mod decision;
mod dispatch;
mod progress;
mod search;
mod waves;

use std::fmt;
use std::num::NonZeroUsize;
use std::time::Duration;

use crate::conflict::{Findings, Rule};

pub use cycle::{Cycle, find_cycle};
pub use progress::{GroupState, Progress};

/// What the planner needs of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub id: String,
    /// The estimated duration.
    pub estimate: Duration,
    /// Whether it may run at the same time as others.
    pub can_parallel: bool,
}

/// One group waits for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dependency {
    /// The index of the group that comes first.
    pub source: usize,
    /// The index of the group that waits.
    pub target: usize,
    /// Whether the source has to have ended, and not only begun.
    pub completion: bool,
}

/// How busy the machine is, and how busy it may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// The average number of processes that wanted to run.
    pub average: f64,
    /// Above this, groups run one by one.
    pub limit: f64,
    /// The number of cores by which the average is divided; 1 to compare the average itself.
    pub cores: NonZeroUsize,
}

impl Load {
    /// The default limit.
    pub const LIMIT: f64 = 4.0;

    /// Returns the load that is compared with the limit.
    pub fn value(&self) -> f64 {
        self.average / self.cores.get() as f64
    }

    /// Says whether the limit is exceeded; a load that is the limit is not.
    pub fn is_high(&self) -> bool {
        self.value() > self.limit
    }
}

/// The input of the planner.
#[derive(Clone, Copy, Debug)]
pub struct PlanInput<'a> {
    /// The groups, in the order of the file.
    pub groups: &'a [Member],
    /// Which of them wait for which.
    pub dependencies: &'a [Dependency],
    /// Which of them conflict.
    pub findings: &'a Findings,
    /// The rules that the findings refer to.
    pub rules: &'a [Rule],
    /// The load of the machine; `None` to ignore it.
    pub load: Option<Load>,
    /// How many groups may run at a time; `None` for any number.
    pub slots: Option<NonZeroUsize>,
    /// Whether the phase as a whole may run in parallel.
    pub can_parallel: bool,
}

/// How the groups of a phase run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// There is one group, or none.
    Direct,
    /// All groups run side by side.
    Parallel,
    /// Groups run one after the other.
    Serial,
    /// Groups that conflict run one at a time.
    Mutex,
    /// Groups that conflict run by turns, in the order of the file.
    Queue,
    /// Nothing runs.
    Abort,
}

impl Mode {
    /// Returns the name used in output.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Direct => "DIRECT",
            Self::Parallel => "PARALLEL",
            Self::Serial => "SERIAL",
            Self::Mutex => "MUTEX",
            Self::Queue => "QUEUE",
            Self::Abort => "ABORT",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

/// Which groups a mode affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// All groups of the phase.
    Phase,
    /// Those groups that conflict; the others are free.
    Conflicts,
}

impl Scope {
    /// Returns the name used in output.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Phase => "phase",
            Self::Conflicts => "conflicts",
        }
    }
}

/// Why one group waits for another, or excludes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// It depends on the other's end.
    Completion,
    /// It depends on the other's beginning.
    Beginning,
    /// They conflict; the number is the index of the conflict in the findings.
    Conflict(usize),
    /// They share a folder that a rule covers; the number is the index of the folder in the findings.
    Folder(usize),
    /// All groups of the phase run one after the other.
    Phase,
}

/// A constraint between a group and another group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bond {
    /// The index of the other group.
    pub group: usize,
    /// Why.
    pub cause: Cause,
}

/// The constraints and the estimated times of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// It starts when these have ended, or have started if the cause is [`Cause::Beginning`].
    pub after: Vec<Bond>,
    /// It never runs at the same time as these, in any order.
    pub excludes: Vec<Bond>,
    /// The estimated start.
    pub begins: Duration,
    /// The estimated end.
    pub ends: Duration,
}

/// How a phase runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The strictest strategy.
    pub mode: Mode,
    /// The groups that it affects.
    pub scope: Scope,
    /// Why, in one sentence.
    pub reason: String,
    /// The constraints of each group. Empty when nothing runs.
    pub steps: Vec<Step>,
    /// The groups in the order of preference.
    pub order: Vec<usize>,
    /// Groups that can run together, one set after the other.
    pub waves: Vec<Vec<usize>>,
    /// How many groups may run at a time; `None` for any number.
    pub slots: Option<NonZeroUsize>,
    /// The estimated duration of the whole phase.
    pub length: Duration,
    /// A lower bound of the duration, for any order.
    pub bound: Duration,
}

/// Plans the groups of a phase.
///
/// # Errors
///
/// A cycle of dependencies cannot be planned.
pub fn plan(input: &PlanInput<'_>) -> Result<Plan, Cycle> {
    let order = cycle::topological(input.groups.len(), input.dependencies)?;
    let decision = decision::decide(input);
    let mut plan = Plan {
        mode: decision.mode,
        scope: decision.scope,
        reason: decision.reason,
        steps: Vec::new(),
        order: Vec::new(),
        waves: Vec::new(),
        slots: input.slots,
        length: Duration::ZERO,
        bound: Duration::ZERO,
    };
    if decision.mode == Mode::Abort {
        return Ok(plan);
    }
    let one_by_one = (decision.mode, decision.scope) == (Mode::Serial, Scope::Phase);
    plan.steps = constraints::steps(input, &order, one_by_one);
    if one_by_one {
        plan.slots = Some(NonZeroUsize::MIN);
    }
    let problem = dispatch::SchedulingProblem::new(input.groups, &plan.steps, plan.slots);
    let found = search::shortest(&problem, &order);
    for (step, (begins, ends)) in plan.steps.iter_mut().zip(found.schedule.times(&problem)) {
        (step.begins, step.ends) = (begins, ends);
    }
    plan.length = Duration::from_micros(found.schedule.length);
    plan.bound = Duration::from_micros(found.bound);
    plan.waves = waves::waves(&problem, &found.schedule, &order);
    plan.order = found.order;
    Ok(plan)
}
