//! The planner: in which mode the groups of a phase run, who waits for whom, and why.
//!
//! The mode is decided by the first of these that applies:
//!
//! 1. One group, or none: DIRECT.
//! 2. Conflicts: the strictest of what the rules say, ABORT before SERIAL before MUTEX before QUEUE. A group or
//!    phase that says `can_parallel: false` asks for SERIAL.
//! 3. The load is above its limit: SERIAL.
//! 4. Else PARALLEL.
//!
//! The mode names the strictest thing that happens; what it happens to is in the [`Step`]s. All groups of the phase
//! run one after the other only where somebody asked for that: a rule with `downgrade_to_serial`, `can_parallel:
//! false`, or the load. Everywhere else only the groups that conflict wait for each other: by turns in the order of
//! the file (`queue_execution`, `serialize_operations`, and SERIAL where no rule covers the conflict), or one at a
//! time in any order (`mutex_lock`).
//!
//! A [`Plan`] is followed with a [`Progress`], by starting, whenever something ends, the first group of its `order`
//! whose waits are over and that excludes nothing that runs. The order is chosen so that this takes little time, by what the groups are
//! estimated to take.

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

pub use cycle::{Cycle, find_cycle};
pub use progress::{Progress, Standing};

use crate::conflict::{Findings, Rule};

/// What the planner needs of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub id: String,
    /// How long it is thought to take.
    pub estimate: Duration,
    /// Whether it may run beside others.
    pub can_parallel: bool,
}

/// One group waits for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dependency {
    /// The place of the group that comes first.
    pub source: usize,
    /// The place of the group that waits.
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
    /// By how many cores the average is divided first; 1 for the average as it is.
    pub cores: NonZeroUsize,
}

impl Load {
    /// The limit where none is set.
    pub const LIMIT: f64 = 4.0;

    /// Returns what is compared with the limit.
    pub fn value(&self) -> f64 {
        self.average / self.cores.get() as f64
    }

    /// Says whether the limit is exceeded; a load that is the limit is not.
    pub fn is_high(&self) -> bool {
        self.value() > self.limit
    }
}

/// All that a plan depends on.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The groups, in the order of the file.
    pub groups: &'a [Member],
    /// Which of them wait for which.
    pub dependencies: &'a [Dependency],
    /// Which of them conflict.
    pub findings: &'a Findings,
    /// The rules that the findings speak of.
    pub rules: &'a [Rule],
    /// How busy the machine is; `None` where that is not to matter.
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

/// What a mode is about.
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
    /// They conflict; the number is the place among the conflicts.
    Conflict(usize),
    /// They share a folder that a rule covers; the number is the place among the shared folders.
    Folder(usize),
    /// All groups of the phase run one after the other.
    Phase,
}

/// Another group, and what is between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bond {
    /// The place of the other group.
    pub group: usize,
    /// What is between them.
    pub cause: Cause,
}

/// What holds for one group when a plan is followed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// It begins when these have ended, or begun where the cause is [`Cause::Beginning`].
    pub after: Vec<Bond>,
    /// It never runs beside these, whichever comes first.
    pub excludes: Vec<Bond>,
    /// When it begins, by the estimates.
    pub begins: Duration,
    /// When it ends, by the estimates.
    pub ends: Duration,
}

/// How a phase runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The strictest thing that happens.
    pub mode: Mode,
    /// What it happens to.
    pub scope: Scope,
    /// Why, in a sentence.
    pub reason: String,
    /// For each group, by its place, what holds for it. Empty when nothing runs.
    pub steps: Vec<Step>,
    /// The groups in the order of preference.
    pub order: Vec<usize>,
    /// Groups that can run together, one set after the other.
    pub waves: Vec<Vec<usize>>,
    /// How many groups may run at a time; `None` for any number.
    pub slots: Option<NonZeroUsize>,
    /// How long the whole phase takes, by the estimates.
    pub length: Duration,
    /// What no order can be shorter than.
    pub bound: Duration,
}

/// Plans the groups of a phase.
///
/// # Errors
///
/// A cycle of dependencies cannot be planned.
pub fn plan(question: &Question<'_>) -> Result<Plan, Cycle> {
    let order = cycle::topological(question.groups.len(), question.dependencies)?;
    let decision = decision::decide(question);
    let mut plan = Plan {
        mode: decision.mode,
        scope: decision.scope,
        reason: decision.reason,
        steps: Vec::new(),
        order: Vec::new(),
        waves: Vec::new(),
        slots: question.slots,
        length: Duration::ZERO,
        bound: Duration::ZERO,
    };
    if decision.mode == Mode::Abort {
        return Ok(plan);
    }
    let one_by_one = (decision.mode, decision.scope) == (Mode::Serial, Scope::Phase);
    plan.steps = constraints::steps(question, &order, one_by_one);
    if one_by_one {
        plan.slots = Some(NonZeroUsize::MIN);
    }
    let course = dispatch::Course::new(question.groups, &plan.steps, plan.slots);
    let found = search::shortest(&course, &order);
    for (step, (begins, ends)) in plan.steps.iter_mut().zip(found.schedule.times(&course)) {
        (step.begins, step.ends) = (begins, ends);
    }
    plan.length = Duration::from_micros(found.schedule.length);
    plan.bound = Duration::from_micros(found.bound);
    plan.waves = waves::waves(&course, &found.schedule, &order);
    plan.order = found.order;
    Ok(plan)
}
