//! Executions in the one shape that every interface gives them.

use std::time::Duration;

use lockkeeper_core::run::Run;
use serde::Serialize;

use super::overview::{Detail, Entry, GroupView};
use super::report::{GroupBar, Session};
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_stages::PlanView;

/// An execution: what is kept of it, and what the log tells.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Execution))]
pub struct ExecutionShape {
    /// What the log tells, as `stages report` shows it.
    #[serde(flatten)]
    pub session: SessionShape,
    /// `running`, `succeeded`, `failed` or `interrupted`.
    pub status: String,
    /// The file that it executes.
    pub file: String,
    /// When it began.
    pub started_at: String,
    /// The plan that it began with, as `stages plan` shows it; left out in lists, and where it was not kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanView>,
}

impl ExecutionShape {
    /// Shows an execution in a list.
    pub fn listed(entry: &Entry) -> Self {
        Self {
            session: SessionShape::of(&entry.session),
            status: entry.state.to_string(),
            file: entry.execution.file.clone(),
            started_at: WallTime::from_micros(entry.execution.started_at).to_string(),
            plan: None,
        }
    }

    /// Shows all of an execution: those of its groups that have not begun, runs, and the plan.
    pub fn whole(detail: &Detail) -> Self {
        let mut shape = Self::listed(&detail.entry);
        shape.session.groups = detail.groups.iter().map(BarShape::whole).collect();
        shape.plan.clone_from(&detail.plan);
        shape
    }
}

/// What the log tells about an execution.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Session))]
pub struct SessionShape {
    /// Its id.
    pub execution_id: String,
    /// The phase.
    pub phase: String,
    /// How its groups ran.
    pub mode: Option<String>,
    /// Its groups, as they began.
    pub groups: Vec<BarShape>,
    /// How long it took.
    pub wall_ms: Option<u64>,
    /// How long the groups took together.
    pub serial_ms: Option<u64>,
    /// How long groups waited for what others held.
    pub waited_ms: Option<u64>,
    /// How many times as long it would have taken one by one.
    pub speed_up: Option<f64>,
    /// Rules that answered, and what was done.
    pub downgrades: Vec<DowngradeShape>,
    /// Why it was ended before its time.
    pub stopped: Option<String>,
}

/// One group of an execution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ExecutedGroup))]
pub struct BarShape {
    /// Its id.
    pub group_id: String,
    /// `WAITING`, `STARTED`, `SUCCESS`, `FAILED`, `CANCELED`, `SKIPPED` or `INTERRUPTED`.
    pub status: String,
    /// When it was told to begin.
    pub started_at: Option<String>,
    /// When it ended.
    pub completed_at: Option<String>,
    /// Why it did not end well.
    pub reason: Option<String>,
    /// What it waits for now, held by others; left out where it waits for nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// The latest run of each of its agents; left out in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs: Option<Vec<AgentShape>>,
}

/// The run of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = AgentRun))]
pub struct AgentShape {
    /// Who works.
    pub agent: String,
    /// The run.
    pub run_id: String,
    /// Its request.
    pub request_id: String,
    /// Where it is.
    pub status: String,
    /// The exit code of its command.
    pub exit_code: Option<u8>,
}

/// A rule that answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ExecutedDowngrade))]
pub struct DowngradeShape {
    /// When.
    pub timestamp: String,
    /// Which rule.
    pub rule: String,
    /// What was done.
    pub to: String,
}

impl SessionShape {
    /// Shows what the log tells.
    pub fn of(session: &Session) -> Self {
        let downgrades = session.downgrades.iter().map(|(at, rule, to)| DowngradeShape {
            timestamp: at.to_string(),
            rule: rule.clone(),
            to: to.clone(),
        });
        Self {
            execution_id: session.id.clone(),
            phase: session.phase.clone(),
            mode: session.mode.clone(),
            groups: session.groups.iter().map(BarShape::of).collect(),
            wall_ms: millis(session.wall),
            serial_ms: millis(session.serial),
            waited_ms: millis(session.waited),
            speed_up: session.speed_up(),
            downgrades: downgrades.collect(),
            stopped: session.stopped.clone(),
        }
    }
}

impl BarShape {
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
            Self::of,
        );
        let runs = view.runs.iter().map(|(agent, run)| AgentShape::of(agent, run)).collect();
        Self { waits_for: view.waits_for.clone(), runs: Some(runs), ..bar }
    }

    fn of(bar: &GroupBar) -> Self {
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

impl AgentShape {
    fn of(agent: &str, run: &Run) -> Self {
        Self {
            agent: agent.to_owned(),
            run_id: run.id.to_string(),
            request_id: run.request.to_string(),
            status: run.status.to_string(),
            exit_code: run.ending.map(|ending| ending.exit_code()),
        }
    }
}

fn millis(span: Option<Duration>) -> Option<u64> {
    span.map(|span| u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}
