//! Overview of all executions of a project, from their records, their logs and the leases that are held now.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};

use lockkeeper_core::resource::Target;
use lockkeeper_core::run::Run;
use lockkeeper_platform::wall_clock::{ClockOffset, WallTime};
use lockkeeper_stages::PlanView;

use super::agents::request_id;
use super::record::{self, Execution};
use super::report::{GroupBar, Report, Session};
use super::{ExecutionLog, StageError};
use crate::Listing;
use crate::conflicts::ConflictLog;
use crate::runs::{RunError, Runs};
use crate::stage_names::{group_owner, lock_name};
use crate::work::why;

/// Reads at most this much from the end of a log: about ten thousand groups.
const LOG_BYTES: u64 = 8 * 1024 * 1024;

/// The state of an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecutionState {
    /// A process executes it.
    Running,
    /// Every group succeeded.
    Succeeded,
    /// It ended, and some group did not succeed.
    Failed,
    /// Its process is gone, and it did not end.
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
    /// Its record.
    pub execution: Execution,
    /// Its state.
    pub state: ExecutionState,
    /// What the log says about it; empty if the log is gone.
    pub session: Session,
}

impl Entry {
    /// Finds one execution. Reads only its own log.
    pub fn find(state: &Path, id: &str, listing: &Listing) -> Result<Option<Self>, StageError> {
        let Some(execution) = record::find(state, id)? else { return Ok(None) };
        let log = ExecutionLog::path_beside(Path::new(&execution.file));
        let logged = Report::read_one(&log, LOG_BYTES, id).ok().flatten();
        Ok(Some(Self::new(execution, logged, state, listing)))
    }

    fn new(execution: Execution, logged: Option<Session>, state: &Path, listing: &Listing) -> Self {
        let mut session = logged.unwrap_or_else(|| Session {
            id: execution.id.clone(),
            phase: execution.phase.clone(),
            ..Session::default()
        });
        // The log has the mode only at the end of an execution.
        if session.mode.is_none() {
            session.mode = record::plan_of(state, &execution.id).map(|plan| plan.mode);
        }
        Self { state: execution_state(&execution, &session, listing), execution, session }
    }
}

/// All executions.
#[derive(Clone, Debug, Default)]
pub struct Overview {
    /// The executions, the latest first.
    pub entries: Vec<Entry>,
    /// The logs that were read.
    pub logs: Vec<(PathBuf, Report)>,
}

impl Overview {
    /// Reads all records and their logs. A log that cannot be read counts as empty.
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
            let logged = sessions.get(execution.id.as_str()).map(|session| (*session).clone());
            Entry::new(execution, logged, state, listing)
        });
        Ok(Self { entries: entries.collect(), logs: logs.into_iter().collect() })
    }

    /// The number of downgrades since a time.
    pub fn downgrades_since(&self, since: WallTime) -> usize {
        self.logs.iter().map(|(_, report)| report.downgrades_since(since)).sum()
    }

    /// The number of log lines that could not be parsed.
    pub fn skipped(&self) -> u64 {
        self.logs.iter().map(|(_, report)| report.skipped).sum()
    }
}

fn execution_state(execution: &Execution, session: &Session, listing: &Listing) -> ExecutionState {
    let lock = lock_name(&execution.id);
    let is_lock = |target: &Target| matches!(target, Target::Name(name) if name.as_str() == lock);
    let mut held = listing.holders.iter().filter(|holder| !holder.verdict.is_free());
    if held.any(|holder| holder.lease.claim.targets().any(is_lock)) {
        return ExecutionState::Running;
    }
    if execution.finished {
        return ExecutionState::Succeeded;
    }
    let has_ended = session.wall.is_some() && session.groups.iter().all(|bar| bar.ended_at.is_some());
    if has_ended { ExecutionState::Failed } else { ExecutionState::Interrupted }
}

/// The number of conflicts in the logs beside the executed files.
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
    /// The plan that it started with; none if it was not saved.
    pub plan: Option<PlanView>,
    /// Its groups in the order of the plan. A group that was started twice is listed twice.
    pub groups: Vec<GroupView>,
}

/// One group of an execution.
#[derive(Clone, Debug)]
pub struct GroupView {
    /// Its id.
    pub id: String,
    /// When it started, and how it ended; none before it starts.
    pub bar: Option<GroupBar>,
    /// Who holds what it waits for.
    pub waits_for: Option<String>,
    /// The runs of its agents, with their names.
    pub runs: Vec<(String, Run)>,
}

impl GroupView {
    /// The status, as in the log.
    pub fn status(&self) -> &str {
        self.bar.as_ref().map_or("WAITING", |bar| &bar.status)
    }
}

impl Detail {
    /// Reads the plan, the groups and the runs of an execution.
    pub fn of(mut entry: Entry, runs: &Runs, listing: &Listing) -> Result<Self, StageError> {
        let plan = record::plan_of(runs.folder(), &entry.execution.id);
        if entry.state == ExecutionState::Running {
            set_waits(&mut entry, listing);
        }
        let mut groups = Vec::new();
        for (index, id) in entry.execution.groups.iter().enumerate() {
            let mut bars: Vec<GroupBar> =
                entry.session.groups.iter().filter(|bar| bar.group == *id).cloned().collect();
            // The process is gone, so the end of the group will never be logged.
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
                waits_for: waits_for(&entry.execution, index, listing),
                runs: agent_runs(&entry.execution, index, plan.as_ref(), runs)?,
            });
        }
        Ok(Self { entry, plan, groups })
    }
}

/// Sets how long groups that have not ended wait or waited: until now, or until they got their lease.
fn set_waits(entry: &mut Entry, listing: &Listing) {
    let dial = ClockOffset::at(listing.now);
    for (index, id) in entry.execution.groups.iter().enumerate() {
        let owner = group_owner(&entry.execution.id, index);
        let waits = waits_for(&entry.execution, index, listing).is_some();
        let mut held = listing.holders.iter().map(|holder| &holder.lease);
        let lease = held.find(|lease| lease.claim.owner.as_str() == owner);
        let until = lease.map_or(listing.now, |lease| lease.acquired_at);
        if !waits && lease.is_none() {
            continue;
        }
        let open = entry.session.groups.iter_mut().filter(|bar| bar.group == *id && bar.ended_at.is_none());
        for bar in open {
            let until = WallTime::from_micros(dial.unix_millis(until).saturating_mul(1_000));
            bar.waited = Some(until.since(bar.began_at));
        }
    }
}

fn waits_for(execution: &Execution, index: usize, listing: &Listing) -> Option<String> {
    let owner = group_owner(&execution.id, index);
    let mut waiters = listing.waiters.iter().filter(|waiter| !waiter.verdict.is_free());
    let waiter = waiters.find(|waiter| waiter.ticket.claim.owner.as_str() == owner)?;
    Some(why(&waiter.blockers))
}

/// The latest run of each agent that has one.
fn agent_runs(
    execution: &Execution,
    index: usize,
    plan: Option<&PlanView>,
    runs: &Runs,
) -> Result<Vec<(String, Run)>, StageError> {
    let group = plan.and_then(|plan| plan.groups.get(index));
    // A group without agents has one command, under its own name.
    let names: Vec<String> = match group {
        Some(group) if !group.agents.is_empty() => group.agents.clone(),
        Some(_) | None => vec![execution.groups[index].clone()],
    };
    let records = runs.store().snapshot().map_err(RunError::from)?;
    let mut found = Vec::new();
    for (agent, name) in names.into_iter().enumerate() {
        let latest = records.latest_run(&request_id(&execution.id, index, agent));
        found.extend(latest.map_err(RunError::from)?.map(|run| (name, run)));
    }
    Ok(found)
}
