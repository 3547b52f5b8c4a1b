//! All executions of a project: what is kept of them, what their logs tell, and what is held for them now.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};

use lockkeeper_core::resource::Target;
use lockkeeper_core::run::Run;

use super::agents::request_id;
use super::record::{self, Execution, baton_name, group_owner};
use super::report::{GroupBar, Report, Session};
use super::{ExecutionLog, StageError};
use crate::Listing;
use crate::conflicts::ConflictLog;
use crate::runs::Runs;
use crate::work::why;
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_stages::PlanView;

/// So much of the end of a log is read, which is some ten thousand groups.
const LOG_BYTES: u64 = 8 * 1024 * 1024;

/// Where an execution is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecutionState {
    /// Somebody conducts it.
    Running,
    /// Every group succeeded.
    Succeeded,
    /// It came to an end, and not every group succeeded.
    Failed,
    /// Whoever conducted it is gone, and it did not come to an end.
    Interrupted,
}

impl ExecutionState {
    /// The name used in output.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
        }
    }
}

impl fmt::Display for ExecutionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One execution in a list.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What is kept of it.
    pub execution: Execution,
    /// Where it is.
    pub state: ExecutionState,
    /// What the log beside its file tells; empty when it is gone.
    pub session: Session,
}

impl Entry {
    /// Looks for one execution, and reads no log but its own.
    pub fn find(state: &Path, id: &str, listing: &Listing) -> Result<Option<Self>, StageError> {
        let Some(execution) = record::one(state, id)? else { return Ok(None) };
        let log = ExecutionLog::path_beside(Path::new(&execution.file));
        let told = Report::read_one(&log, LOG_BYTES, id).ok().flatten();
        Ok(Some(Self::new(execution, told, state, listing)))
    }

    fn new(execution: Execution, told: Option<Session>, state: &Path, listing: &Listing) -> Self {
        let mut session = told.unwrap_or_else(|| Session {
            id: execution.id.clone(),
            phase: execution.phase.clone(),
            ..Session::default()
        });
        // The log tells it only at the end.
        if session.mode.is_none() {
            session.mode = record::plan_of(state, &execution.id).map(|plan| plan.mode);
        }
        Self { state: judge(&execution, &session, listing), execution, session }
    }
}

/// All executions.
#[derive(Clone, Debug, Default)]
pub struct Overview {
    /// The latest first.
    pub entries: Vec<Entry>,
    /// The logs that were read.
    pub logs: Vec<(PathBuf, Report)>,
}

impl Overview {
    /// Reads what there is. A log that cannot be read is one that tells nothing.
    pub fn read(state: &Path, listing: &Listing) -> Result<Self, StageError> {
        let mut executions = record::all(state)?;
        executions.sort_unstable_by(|a, b| (b.started_at, &b.id).cmp(&(a.started_at, &a.id)));
        let mut logs: BTreeMap<PathBuf, Report> = BTreeMap::new();
        for execution in &executions {
            let path = ExecutionLog::path_beside(Path::new(&execution.file));
            if !logs.contains_key(&path)
                && let Ok(Some(report)) = Report::read_end(&path, LOG_BYTES)
            {
                logs.insert(path, report);
            }
        }
        let sessions = logs.values().flat_map(|report| &report.sessions);
        let sessions: HashMap<&str, &Session> =
            sessions.map(|session| (session.id.as_str(), session)).collect();
        let entries = executions.into_iter().map(|execution| {
            let told = sessions.get(execution.id.as_str()).map(|session| (*session).clone());
            Entry::new(execution, told, state, listing)
        });
        Ok(Self { entries: entries.collect(), logs: logs.into_iter().collect() })
    }

    /// How many downgrades there were since then.
    pub fn downgrades_since(&self, since: WallTime) -> usize {
        self.logs.iter().map(|(_, report)| report.downgrades_since(since)).sum()
    }

    /// How many lines of the logs are none.
    pub fn skipped(&self) -> u64 {
        self.logs.iter().map(|(_, report)| report.skipped).sum()
    }
}

fn judge(execution: &Execution, session: &Session, listing: &Listing) -> ExecutionState {
    let baton = baton_name(&execution.id);
    let is_baton = |target: &Target| matches!(target, Target::Name(name) if name.as_str() == baton);
    let mut held = listing.holders.iter().filter(|holder| !holder.verdict.is_free());
    if held.any(|holder| holder.lease.claim.targets().any(is_baton)) {
        return ExecutionState::Running;
    }
    if execution.finished {
        return ExecutionState::Succeeded;
    }
    let is_over = session.wall.is_some() && session.groups.iter().all(|bar| bar.ended_at.is_some());
    if is_over { ExecutionState::Failed } else { ExecutionState::Interrupted }
}

/// The conflicts that the logs beside the executed files have.
pub fn conflicts_logged(overview: &Overview) -> Result<usize, StageError> {
    let files: BTreeSet<&str> = overview.entries.iter().map(|entry| entry.execution.file.as_str()).collect();
    let mut count = 0;
    for file in files {
        let summary = ConflictLog::beside(Path::new(file)).summary()?;
        count += summary.map_or(0, |summary| summary.pairs().iter().map(|(_, _, pair)| pair.lines).sum());
    }
    Ok(count)
}

/// One execution with its plan and its runs.
#[derive(Clone, Debug)]
pub struct Detail {
    /// The execution.
    pub entry: Entry,
    /// What it began with; none where that was not kept.
    pub plan: Option<PlanView>,
    /// Its groups in the order of the plan; one that began twice stands there twice.
    pub groups: Vec<GroupView>,
}

/// How a group of an execution stands.
#[derive(Clone, Debug)]
pub struct GroupView {
    /// Its id.
    pub id: String,
    /// When it began, how it ended and why; none as long as it has not begun.
    pub bar: Option<GroupBar>,
    /// What it waits for now, held by others.
    pub waits_for: Option<String>,
    /// The runs of its agents, with their names.
    pub runs: Vec<(String, Run)>,
}

impl GroupView {
    /// The word for how it stands.
    pub fn status(&self) -> &str {
        self.bar.as_ref().map_or("WAITING", |bar| &bar.status)
    }
}

impl Detail {
    /// Looks up what belongs to an execution.
    pub fn of(entry: Entry, runs: &Runs, listing: &Listing) -> Result<Self, StageError> {
        let plan = record::plan_of(runs.folder(), &entry.execution.id);
        let mut groups = Vec::new();
        for (place, id) in entry.execution.groups.iter().enumerate() {
            let mut bars: Vec<GroupBar> =
                entry.session.groups.iter().filter(|bar| bar.group == *id).cloned().collect();
            // Nobody is there any more who would write down its end.
            for bar in bars.iter_mut().filter(|bar| bar.ended_at.is_none()) {
                if entry.state != ExecutionState::Running {
                    bar.status = "INTERRUPTED".to_owned();
                }
            }
            let last = bars.pop();
            let view = |bar| GroupView { id: id.clone(), bar: Some(bar), waits_for: None, runs: Vec::new() };
            groups.extend(bars.into_iter().map(view));
            groups.push(GroupView {
                id: id.clone(),
                bar: last,
                waits_for: waits_for(&entry.execution, place, listing),
                runs: agent_runs(&entry.execution, place, plan.as_ref(), runs)?,
            });
        }
        Ok(Self { entry, plan, groups })
    }
}

fn waits_for(execution: &Execution, place: usize, listing: &Listing) -> Option<String> {
    let owner = group_owner(&execution.id, place);
    let mut waiters = listing.waiters.iter().filter(|waiter| !waiter.verdict.is_free());
    let waiter = waiters.find(|waiter| waiter.ticket.claim.owner.as_str() == owner)?;
    Some(why(&waiter.jams))
}

/// The latest run of each agent that has one.
fn agent_runs(
    execution: &Execution,
    place: usize,
    plan: Option<&PlanView>,
    runs: &Runs,
) -> Result<Vec<(String, Run)>, StageError> {
    let group = plan.and_then(|plan| plan.groups.get(place));
    // A group without agents does its work by itself.
    let names: Vec<String> = match group {
        Some(group) if !group.agents.is_empty() => group.agents.clone(),
        Some(_) | None => vec![execution.groups[place].clone()],
    };
    let found = runs.store().read(|tables| {
        let mut found = Vec::new();
        for (agent, name) in names.into_iter().enumerate() {
            if let Some(run) = tables.latest_run(&request_id(&execution.id, place, agent))? {
                found.push((name, run));
            }
        }
        Ok(found)
    });
    Ok(found.map_err(crate::runs::RunError::from)?)
}
