//! Executing a phase of a STAGES.yml: groups in the order of its plan, each under a lease on its name and paths.
//!
//! Agents are requests like any others, and their commands are executed by the same
//! [`Executor`](super::work::Executor); all that is here is who may begin when. A group's agents hold the group's
//! lease together, as one owner: when the program that conducts them dies, the group stays locked for as long as any
//! of them lives, and `--resume` goes on from there.

mod agents;
mod conductor;
mod downgrade;
mod finish;
mod group;
mod log;
mod outcome;
pub mod overview;
mod recent;
mod record;
pub mod report;
pub mod shape;
mod signs;

use std::time::Duration;

use lockkeeper_core::id::RequestId;
use lockkeeper_core::plan::GroupState;
use lockkeeper_core::run::Run;
use thiserror::Error;

pub use agents::{AgentCommand, NoCommand};
pub use conductor::{Conductor, Options};
pub use log::ExecutionLog;
pub use outcome::{Outcome, Stopped};
pub use record::{Execution, execution_of, files, folder, latest_unfinished, plan_of};

use super::runs::{Refused, RunError};
use crate::conflicts::ConflictsError;

/// What happens while a phase is executed, for those who watch.
#[derive(Clone, Debug)]
pub enum News {
    /// A group was told to begin, and waits for what others hold.
    Waits {
        /// Its place in the plan.
        group: usize,
        /// For what.
        why: String,
    },
    /// A group holds what it needs.
    Began {
        /// Its place in the plan.
        group: usize,
        /// How long it waited for that.
        waited: Duration,
    },
    /// An agent's command has ended.
    Agent {
        /// The group's place in the plan.
        group: usize,
        /// The agent's name.
        agent: String,
        /// Its run.
        run: Box<Run>,
    },
    /// A group has ended.
    Ended {
        /// Its place in the plan.
        group: usize,
        /// How.
        standing: GroupState,
        /// Why it did not end well.
        why: Option<String>,
    },
    /// Something was done because things went badly.
    Downgraded {
        /// The rule that says so.
        rule: String,
        /// What was done.
        what: String,
        /// Because of what.
        why: String,
    },
    /// So many groups run at a time from now on.
    Tuned {
        /// How many.
        slots: usize,
    },
    /// Everything is being ended.
    Stopping {
        /// Why.
        why: String,
    },
}

/// Why a phase was not executed.
#[derive(Debug, Error)]
pub enum StageError {
    /// A rule says that nothing may run.
    #[error("the plan is to abort: {0}")]
    Abort(String),
    /// More groups would wait in line than the file allows.
    #[error("{waiting} groups would wait in line, and the queue has {size} places")]
    QueueFull {
        /// How many would wait.
        waiting: u64,
        /// How many may.
        size: u64,
    },
    /// An agent has nothing to do.
    #[error(transparent)]
    NoCommand(#[from] NoCommand),
    /// A group's id cannot be the name of a lock.
    #[error("the group `{group}` cannot be locked")]
    GroupName {
        /// Which group.
        group: String,
        /// Why.
        source: lockkeeper_core::id::IdError,
    },
    /// There is nothing to go on from.
    #[error("there is no execution of {phase} to go on from")]
    NothingToResume {
        /// The phase.
        phase: String,
    },
    /// The groups are not those that the execution began with.
    #[error("the groups have changed since execution {execution} began")]
    Changed {
        /// Which execution.
        execution: String,
    },
    /// Somebody else is at it.
    #[error("execution {execution} is being conducted: {why}")]
    Conducted {
        /// Which execution.
        execution: String,
        /// By whom.
        why: String,
    },
    /// A request did not come in.
    #[error("the work of an agent was refused")]
    Refused(#[from] Refused),
    /// A request of another program is in the way.
    #[error("request {0} is not one of this execution")]
    NotOurs(RequestId),
    /// Runs or their store.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The log of conflicts.
    #[error(transparent)]
    Conflicts(#[from] ConflictsError),
    /// A file.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: std::path::PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

impl StageError {
    /// The way out.
    pub fn hint(&self) -> String {
        match self {
            Self::Abort(_) => "`lockkeeper stages plan` shows the conflict and its rule".to_owned(),
            Self::QueueFull { .. } => "name fewer groups, or raise conflict_resolution.queue_size".to_owned(),
            Self::NoCommand(_) => {
                "add `command:` to the group or agent, or --agent-command 'tool --task {task}'".to_owned()
            }
            Self::GroupName { source, .. } => source.hint().to_owned(),
            Self::NothingToResume { .. } => "leave out --resume".to_owned(),
            Self::Changed { .. } => {
                "name the same groups and restore the file, or begin anew without --resume".to_owned()
            }
            Self::Conducted { .. } => {
                "wait for its end, or leave out --resume to begin another one".to_owned()
            }
            Self::Refused(error) => error.hint(),
            Self::NotOurs(_) => "run it again; every execution has ids of its own".to_owned(),
            Self::Run(error) => error.hint(),
            Self::Conflicts(error) => error.hint(),
            Self::Io { .. } => "check the folder's permissions and free space".to_owned(),
        }
    }
}
