//! Checks of runs: the run store, runs without a process, processes without a run, and folders without a run.
//!
//! The full pass ends lost runs, as the rescuer of a worker does. It does not end processes: a worker or a person does.
//! It does not remove folders with the output of runs: only a person does.

use std::collections::BTreeSet;
use std::time::Duration;

use lockkeeper_core::id::{HolderId, RunId};
use lockkeeper_core::liveness::LockState;
use lockkeeper_core::run::Run;
use lockkeeper_core::run::transition::AttemptOutcome;
use lockkeeper_platform::liveness_lock::LivenessFile;
use lockkeeper_platform::tree;
use lockkeeper_store::StoreError;

use super::finding::{Finding, Recovered, first_few, with_causes};
use super::{Context, Pass};
use crate::runs::{RunError, Runs};
use crate::work::RUN_ID;

/// At most this many run folders are examined.
const MOST_FOLDERS: usize = 100_000;
/// How long a live worker may take to end the processes of an ended run.
const CLEANUP_TIME: Duration = Duration::from_secs(30);
const NO_RUNS: &str = "there are no runs yet";

pub(super) fn store(context: &Context<'_>) -> Finding {
    let runs = match context.runs() {
        Ok(Some(runs)) => runs,
        Ok(None) => return Finding::pass(NO_RUNS),
        Err(error) => return Finding::fail(with_causes(error), error.hint()),
    };
    let counted = runs.store().examine(context.pass == Pass::Full).and_then(|found| {
        let counts = runs.store().snapshot()?.run_counts()?;
        Ok((found, counts))
    });
    let (found, counts) = match counted {
        Ok(counted) => counted,
        Err(error) => return Finding::fail(with_causes(&error), error.hint()),
    };
    if !found.flaws.is_empty() {
        let path = runs.store().address();
        let fix = format!("stop every worker, then restore {path} from a copy, or move {path}* away");
        return Finding::fail(first_few(found.flaws.into_iter(), "; "), fix);
    }
    let counts: Vec<String> = counts.iter().map(|(status, count)| format!("{count} {status}")).collect();
    Finding::pass(if counts.is_empty() { NO_RUNS.to_owned() } else { counts.join(", ") })
}

pub(super) fn without_process(context: &Context<'_>) -> Finding {
    // The check `run-store` says why the store does not open.
    let Ok(Some(runs)) = context.runs() else { return Finding::pass(NO_RUNS) };
    let mut ended = Vec::new();
    let lost = lost_runs(context, runs).and_then(|lost| {
        if context.pass == Pass::Quick || lost.is_empty() {
            return Ok(lost);
        }
        for run in &lost {
            ended.extend(runs.end_lost(run, AttemptOutcome::Vanished)?.map(|after| recovered(&after)));
        }
        lost_runs(context, runs)
    });
    match lost {
        Ok(lost) if lost.is_empty() => {
            Finding::pass("every active run has a worker or a process").with_recovered(ended)
        }
        Ok(lost) => {
            let list =
                lost.iter().map(|run| format!("{} of request {} ({})", run.id, run.request, run.status()));
            let detail = format!("active, but without a worker and a process: {}", first_few(list, ", "));
            let fix = "`lockkeeper doctor --full` or a worker (`lockkeeper work`) ends them as LOST, or retries them";
            Finding::warn(detail, fix).with_recovered(ended)
        }
        Err(error) => Finding::fail(with_causes(&error), error.hint()).with_recovered(ended),
    }
}

fn recovered(after: &Run) -> Recovered {
    let what = format!("{} of request {}", after.id, after.request);
    let end =
        if after.waits_for_retry() { "it will be retried".to_owned() } else { after.status().to_string() };
    Recovered::run(what, format!("its worker and its processes are gone: {end}"))
}

/// The active runs whose worker and processes are gone. A live worker supervises its own runs. An executor without a
/// kernel lock cannot be observed, so its runs are never lost.
fn lost_runs(context: &Context<'_>, runs: &Runs) -> Result<Vec<Run>, RunError> {
    let records = runs.store().snapshot()?;
    let (active, workers) = (records.active_runs()?, records.workers()?);
    let probe = HolderProbe::open(context);
    let is_lost = |run: &Run| {
        let worker = workers.iter().find(|worker| Some(&worker.id) == run.worker());
        let has_worker = worker.is_some_and(|worker| probe.is_alive(worker.holder));
        run.process().is_some_and(|process| !probe.is_alive(process.holder)) && !has_worker
    };
    Ok(active.into_iter().filter(|run| run.status().is_active() && is_lost(run)).collect())
}

pub(super) fn without_run(context: &Context<'_>) -> Finding {
    let found = match context.runs() {
        Ok(Some(runs)) => surviving_processes(context, runs),
        Ok(None) => return Finding::pass(NO_RUNS),
        // The check `run-store` says why.
        Err(_) => return Finding::pass("the run store does not open"),
    };
    match found {
        Ok(found) if found.is_empty() => Finding::pass("no process of an ended run is left"),
        Ok(found) => {
            let list = first_few(found.into_iter(), ", ");
            let fix = "end them if nobody needs them: `kill PID`; a worker (`lockkeeper work`) does so too";
            Finding::warn(format!("still running although their run has ended: {list}"), fix)
        }
        Err(error) => Finding::fail(with_causes(&error), error.hint()),
    }
}

/// The live processes of ended runs. They share the kernel lock of the run, or have its id in their environment.
fn surviving_processes(context: &Context<'_>, runs: &Runs) -> Result<Vec<String>, StoreError> {
    let probe = HolderProbe::open(context);
    let marked = tree::marked(RUN_ID).unwrap_or_default();
    let records = runs.store().snapshot()?;
    let mut found = Vec::new();
    let has_live_worker = records.workers()?.iter().any(|worker| probe.is_alive(worker.holder));
    let has_ended = |run: &Run| {
        let since = run.completed_at().map(|at| records.now().moment.since(at.moment));
        since.is_some_and(|since| since > CLEANUP_TIME || !has_live_worker)
    };
    for run in records.active_runs()?.iter().filter(|run| has_ended(run)) {
        if run.process().is_some_and(|process| probe.is_alive(process.holder)) {
            found.push(format!("processes of {} ({})", run.id, run.status()));
        }
    }
    for (process, mark) in marked {
        // A run that is not in this store belongs to another repository.
        let run = mark.parse::<RunId>().ok().map(|id| records.run(&id)).transpose()?.flatten();
        if let Some(run) = run.filter(has_ended) {
            found.push(format!("process {} of {} ({})", process.pid, run.id, run.status()));
        }
    }
    Ok(found)
}

pub(super) fn folders(context: &Context<'_>) -> Finding {
    let Ok(Some(runs)) = context.runs() else { return Finding::pass(NO_RUNS) };
    let folder = runs.folder().join("runs");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        return Finding::pass("there are no run folders yet");
    };
    let names: BTreeSet<RunId> = entries
        .take(MOST_FOLDERS)
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    let orphans = runs.store().snapshot().and_then(|records| {
        let mut orphans = Vec::new();
        for id in names {
            if records.run(&id)?.is_none() {
                orphans.push(runs.folder_of(&id).path().display().to_string());
            }
        }
        Ok(orphans)
    });
    match orphans {
        Ok(orphans) if orphans.is_empty() => Finding::pass("each folder belongs to a run"),
        Ok(orphans) => {
            let list = first_few(orphans.into_iter(), ", ");
            Finding::warn(
                format!("folders without a known run: {list}"),
                "keep what you need of them, then remove them",
            )
        }
        Err(error) => Finding::fail(with_causes(&error), error.hint()),
    }
}

/// Liveness probe for workers and runs: reads their kernel locks. None if the liveness file does not exist yet.
struct HolderProbe(Option<LivenessFile>);

impl HolderProbe {
    fn open(context: &Context<'_>) -> Self {
        let state = &context.inputs.location.state;
        Self(state.join("life").is_file().then(|| LivenessFile::open(state).ok()).flatten())
    }

    /// Whether a process of the holder lives. A lock that cannot be read counts as alive.
    fn is_alive(&self, holder: HolderId) -> bool {
        match self.0.as_ref().map(|file| file.look(holder)) {
            Some(LockState::Held | LockState::Unreadable) => true,
            Some(LockState::Free) | None => false,
        }
    }
}

impl Context<'_> {
    /// The run store, if it exists.
    fn runs(&self) -> Result<Option<&Runs>, &RunError> {
        let opened = self.runs.get_or_init(|| Runs::open_existing(&self.inputs.location.state));
        opened.as_ref().map(Option::as_ref)
    }
}
