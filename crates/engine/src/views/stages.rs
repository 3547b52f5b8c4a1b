//! Views of executions: phases of a STAGES.yml that were executed.

use std::time::Duration;

use lockkeeper_core::run::Run;
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_stages::PlanView;
use serde::Serialize;

use crate::stages::RefusedPhase;
use crate::stages::overview::{Detail, Entry, GroupView};
use crate::stages::report::{GroupBar, Session};

/// An execution of a phase.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Execution))]
pub struct ExecutionView {
    /// What its log says, as `stages report` shows it.
    #[serde(flatten)]
    pub session: SessionView,
    /// `running`, `succeeded`, `failed` or `interrupted`.
    pub status: String,
    /// The file that it executes.
    pub file: String,
    /// When it started.
    pub started_at: String,
    /// The plan that it started with, as `stages plan` shows it. Left out in lists, and where it was not kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanView>,
}

impl ExecutionView {
    /// Shows an execution in a list.
    pub fn listed(entry: &Entry) -> Self {
        Self {
            session: SessionView::new(&entry.session),
            status: entry.state.to_string(),
            file: entry.execution.file.clone(),
            started_at: WallTime::from_micros(entry.execution.started_at).to_string(),
            plan: None,
        }
    }

    /// Shows an execution with its plan, its runs, and groups that have not started.
    pub fn whole(detail: &Detail) -> Self {
        let mut shape = Self::listed(&detail.entry);
        shape.session.groups = detail.groups.iter().map(GroupRunView::whole).collect();
        shape.plan.clone_from(&detail.plan);
        shape
    }
}

/// What the log says about an execution.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Session))]
pub struct SessionView {
    /// Its id.
    pub execution_id: String,
    /// The phase.
    pub phase: String,
    /// How its groups ran.
    pub mode: Option<String>,
    /// Its groups, in the order in which they started.
    pub groups: Vec<GroupRunView>,
    /// How long it took, in milliseconds.
    pub wall_ms: Option<u64>,
    /// The sum of the times of its groups, in milliseconds.
    pub serial_ms: Option<u64>,
    /// How long groups waited for leases of others, in milliseconds.
    pub waited_ms: Option<u64>,
    /// How long the same commands took one by one, in milliseconds, if all of them were measured so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub one_by_one_ms: Option<u64>,
    /// `one_by_one_ms` divided by `wall_ms`; none for an execution that did not succeed.
    pub speed_up: Option<f64>,
    /// Downgrade rules that applied.
    pub downgrades: Vec<DowngradeView>,
    /// Why it was stopped early.
    pub stopped: Option<String>,
}

/// One group of an execution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ExecutedGroup))]
pub struct GroupRunView {
    /// Its id.
    pub group_id: String,
    /// `WAITING`, `STARTED`, `SUCCESS`, `FAILED`, `CANCELED`, `SKIPPED` or `INTERRUPTED`.
    pub status: String,
    /// When it was started.
    pub started_at: Option<String>,
    /// When it ended.
    pub completed_at: Option<String>,
    /// Why it did not succeed.
    pub reason: Option<String>,
    /// What it waits for; left out when it waits for nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// The latest run of each agent; left out in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs: Option<Vec<AgentRunView>>,
}

/// The run of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = AgentRun))]
pub struct AgentRunView {
    /// The name of the agent.
    pub agent: String,
    /// The run.
    pub run_id: String,
    /// Its request.
    pub request_id: String,
    /// The status of the run.
    pub status: String,
    /// The exit code of its command.
    pub exit_code: Option<u8>,
}

/// A phase that cannot be planned.
#[derive(Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = RefusedPhase))]
pub struct RefusedPhaseView {
    /// The name of the phase.
    pub phase: String,
    /// Why it has no plan.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl RefusedPhaseView {
    /// The view of a phase.
    pub fn of(refused: &RefusedPhase) -> Self {
        let RefusedPhase { phase, report } = refused;
        let (message, hint) = (report.to_string(), report.hint().map(str::to_owned));
        Self { phase: phase.clone(), message, hint }
    }
}

/// A downgrade rule that applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ExecutedDowngrade))]
pub struct DowngradeView {
    /// When it applied.
    pub timestamp: String,
    /// The name of the rule.
    pub rule: String,
    /// The mode that the execution was downgraded to.
    pub to: String,
}

impl SessionView {
    /// Shows what the log says.
    pub fn new(session: &Session) -> Self {
        let downgrades = session.downgrades.iter().map(|(at, rule, to)| DowngradeView {
            timestamp: at.to_string(),
            rule: rule.clone(),
            to: to.clone(),
        });
        Self {
            execution_id: session.id.clone(),
            phase: session.phase.clone(),
            mode: session.mode.clone(),
            groups: session.groups.iter().map(GroupRunView::new).collect(),
            wall_ms: millis(session.wall),
            serial_ms: millis(session.serial),
            waited_ms: millis(session.waited),
            one_by_one_ms: millis(session.one_by_one),
            speed_up: session.speed_up(),
            downgrades: downgrades.collect(),
            stopped: session.stopped.clone(),
        }
    }
}

impl GroupRunView {
    fn whole(view: &GroupView) -> Self {
        let bar = view.bar.as_ref().map_or_else(
            || Self {
                group_id: view.id.clone(),
                status: view.status().to_owned(),
                started_at: None,
                completed_at: None,
                reason: None,
                waits_for: None,
                runs: None,
            },
            Self::new,
        );
        let runs = view.runs.iter().map(|(agent, run)| AgentRunView::new(agent, run)).collect();
        Self { waits_for: view.waits_for.clone(), runs: Some(runs), ..bar }
    }

    fn new(bar: &GroupBar) -> Self {
        Self {
            group_id: bar.group.clone(),
            status: bar.status.clone(),
            started_at: Some(bar.began_at.to_string()),
            completed_at: bar.ended_at.map(|at| at.to_string()),
            reason: bar.reason.clone(),
            waits_for: None,
            runs: None,
        }
    }
}

impl AgentRunView {
    fn new(agent: &str, run: &Run) -> Self {
        Self {
            agent: agent.to_owned(),
            run_id: run.id.to_string(),
            request_id: run.request.to_string(),
            status: run.status().to_string(),
            exit_code: run.ending().map(|ending| ending.exit_code()),
        }
    }
}

fn millis(span: Option<Duration>) -> Option<u64> {
    span.map(|span| u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}
