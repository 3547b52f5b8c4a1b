//! Execution of the phases of a STAGES.yml. Each group runs under a lease on its name and paths, in the order of the plan.
//!
//! An agent is a normal request, and a [`Worker`](crate::work::Worker) executes its command. This module decides when each
//! group starts. All agents of a group share its lease, as one owner. If the executing process dies, the group stays locked
//! while one of its agents lives, and `--resume` continues from there.

mod agents;
mod all_phases;
mod downgrade_rules;
mod executor;
mod forecast;
mod group;
mod log;
mod outcome;
pub mod overview;
mod patience;
mod phase_control;
mod recent;
mod record;
pub mod report;

use std::time::Duration;

use lockkeeper_core::id::RequestId;
use lockkeeper_core::plan::GroupState;
use lockkeeper_core::run::Run;
use thiserror::Error;

use crate::conflicts::ConflictsError;
use crate::runs::{RunError, SubmitError};
pub use crate::stage_names::execution_of;
pub use agents::{AgentCommand, NoCommand};
pub use all_phases::{RefusedPhase, plan_phases};
pub use executor::{GroupLocks, Options, PhaseExecutor};
pub use forecast::{ADVICE, forecast};
pub use log::ExecutionLog;
pub use outcome::{Outcome, Stopped};
pub use record::{Execution, files, folder, latest_unfinished, plan_of};

/// An event of a phase that is being executed.
#[derive(Clone, Debug)]
pub enum PhaseEvent {
    /// A group waits for its lease.
    GroupWaiting {
        /// The group's index in the plan.
        group: usize,
        /// Who holds what it needs.
        why: String,
        /// How long it waits at most; none for as long as it takes.
        limit: Option<Duration>,
    },
    /// A group has its lease and starts its agents.
    GroupStarted {
        /// The group's index in the plan.
        group: usize,
        /// How long it waited for the lease.
        waited: Duration,
    },
    /// The command of an agent has ended.
    AgentEnded {
        /// The group's index in the plan.
        group: usize,
        /// The agent's name.
        agent: String,
        /// The run of the command.
        run: Box<Run>,
    },
    /// A group has ended, or was skipped.
    GroupEnded {
        /// The group's index in the plan.
        group: usize,
        /// The final state.
        state: GroupState,
        /// Why it did not succeed.
        why: Option<String>,
    },
    /// A downgrade rule was applied.
    Downgraded {
        /// The name of the rule.
        rule: String,
        /// What the executor did.
        what: String,
        /// What triggered the rule.
        why: String,
    },
    /// Autotune changed how many groups run at a time.
    Tuned {
        /// The new number.
        slots: usize,
    },
    /// The executor stops all groups.
    Stopping {
        /// The reason.
        why: String,
    },
}

/// Why a phase was not executed.
#[derive(Debug, Error)]
pub enum StageError {
    /// A rule says that nothing may run.
    #[error("the plan is to abort: {0}")]
    Abort(String),
    /// More groups would be queued than the file allows.
    #[error("{waiting} groups would wait in line, and the queue has {size} places")]
    QueueFull {
        /// How many groups would be queued.
        waiting: u64,
        /// The limit.
        size: u64,
    },
    /// An agent has no command.
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
    /// A group's id cannot be the name of a file in the lock folder.
    #[error("the group `{group}` cannot be locked in the lock folder")]
    GroupLockName {
        /// Which group.
        group: String,
        /// Why.
        source: lockkeeper_formats::group::GroupIdError,
    },
    /// The lock of a group failed.
    #[error(transparent)]
    GroupLock(#[from] lockkeeper_formats::group::GroupError),
    /// There is no execution to resume.
    #[error("there is no execution of {phase} to resume")]
    NothingToResume {
        /// The phase.
        phase: String,
    },
    /// The groups are not the ones that the execution started with.
    #[error("the groups have changed since execution {execution} began")]
    Changed {
        /// Which execution.
        execution: String,
    },
    /// Another process executes it.
    #[error("another process executes {execution}: {why}")]
    AlreadyRunning {
        /// Which execution.
        execution: String,
        /// The holder of its lease.
        why: String,
    },
    /// The request of an agent was refused.
    #[error("the request of an agent was refused")]
    Refused(#[from] SubmitError),
    /// Another program has used the request id of an agent.
    #[error("request {0} is not one of this execution")]
    NotOurs(RequestId),
    /// A run or the run store failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The conflict log failed.
    #[error(transparent)]
    Conflicts(#[from] ConflictsError),
    /// A file operation failed.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What failed, as a verb.
        action: &'static str,
        /// The file or folder.
        path: std::path::PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

impl StageError {
    /// What the user can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Abort(_) => "`lockkeeper stages plan` shows the conflict and its rule".to_owned(),
            Self::QueueFull { .. } => "name fewer groups, or raise conflict_resolution.queue_size".to_owned(),
            Self::NoCommand(_) => {
                "add `command:` to the group or agent, or --agent-command 'tool --task {task}'".to_owned()
            }
            Self::GroupName { source, .. } => source.hint().to_owned(),
            Self::GroupLockName { source, .. } => source.hint().to_owned(),
            Self::GroupLock(error) => error.hint(),
            Self::NothingToResume { .. } => "leave out --resume".to_owned(),
            Self::Changed { .. } => {
                "name the same groups and restore the file, or start a new execution without --resume"
                    .to_owned()
            }
            Self::AlreadyRunning { .. } => {
                "wait for its end, or leave out --resume to start another execution".to_owned()
            }
            Self::Refused(error) => error.hint(),
            Self::NotOurs(_) => "run it again: every execution has its own request ids".to_owned(),
            Self::Run(error) => error.hint(),
            Self::Conflicts(error) => error.hint(),
            Self::Io { .. } => "check the folder's permissions and free space".to_owned(),
        }
    }
}
