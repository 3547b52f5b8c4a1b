//! Checks of runs: the run store, runs without a worker, processes without a run, and folders without a run.
//!
//! The full pass ends lost runs, as the rescuer of a worker does, and commands without a worker whose run was canceled or
//! whose time is up. It ends no process of a run that has ended: a worker or a person does.
//! It does not remove folders with the output of runs: only a person does.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use lockkeeper_core::id::{HolderId, RunId};
use lockkeeper_core::liveness::LockState;
use lockkeeper_core::run::{Run, Status};
use lockkeeper_core::time::format_span;
use lockkeeper_platform::liveness_lock::LivenessFile;
use lockkeeper_platform::tree;
use lockkeeper_store::StoreError;

use super::finding::Status::Warn;
use super::finding::{Finding, Recovered, first_few, with_causes};
use super::{Context, Pass};
use crate::messages::{Language, Phrases, Sentence, said};
use crate::open::open_leases;
use crate::runs::{RunError, Runs};
use crate::work::{
    RUN_ID, STAGE_GONE, Settings, UnattendedFindings, Worker, mend_stage, remove_of_ended,
    unattended_findings, write_stage_end,
};

/// At most this many run folders are examined.
const MOST_FOLDERS: usize = 100_000;
/// How long a live worker may take to end the processes of an ended run.
const CLEANUP_TIME: Duration = Duration::from_secs(30);
/// How long an executor outside of Lockkeeper may be unseen without a warning.
const UNSEEN: Duration = Duration::from_secs(600);
/// How long killed processes may take to end. The doctor leaves what takes longer to the next worker.
const ENDED_WITHIN: Duration = Duration::from_secs(10);
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
        let fix = said("fix.restore_runs").with("file", path);
        return Finding::fail(first_few(found.flaws.into_iter(), "; "), fix);
    }
    let counts: Vec<String> = counts.iter().map(|(status, count)| format!("{count} {status}")).collect();
    Finding::pass(if counts.is_empty() { NO_RUNS.to_owned() } else { counts.join(", ") })
}

pub(super) fn without_worker(context: &Context<'_>) -> Finding {
    // The check `run-store` says why the store does not open.
    let Ok(Some(runs)) = context.runs() else { return Finding::pass(NO_RUNS) };
    let Some(leases) = context.engine() else {
        // No worker of ours has used this store. The check `store` says so if it does not open.
        return match outside(runs) {
            Ok(outside) => describe(&UnattendedFindings::default(), outside),
            Err(error) => Finding::fail(with_causes(&error), error.hint()),
        };
    };
    let mut ended = Vec::new();
    let found = unattended_findings(runs, leases).and_then(|found| {
        if context.pass == Pass::Quick || found.is_empty() {
            return Ok(found);
        }
        for (run, outcome) in &found.gone {
            if let Some(after) = runs.end_unattended(run, outcome)? {
                // The file is for people. A run that has ended has its end in the store.
                let _ = write_stage_end(&runs.folder_of(&run.id), &after);
                // If they stay, they expire; the check `aiflow` shows them then.
                let _ = remove_of_ended(&after, &runs.folder_of(&run.id));
                ended.push(recovered(&after));
            }
        }
        for run in &found.unmade {
            if let Some(after) = runs.abandon_retry(run, STAGE_GONE)? {
                let _ = write_stage_end(&runs.folder_of(&run.id), &after);
                let what = format!("{} of request {}", after.id, after.request);
                ended.push(Recovered::run(what, format!("its `stages run` is gone: {}", after.status())));
            }
        }
        let wrong = |run: &Run| {
            let is_overdue = run.times_out_at().is_some_and(|at| at <= runs.now().moment);
            run.status() == Status::Cancelling || is_overdue
        };
        ended.extend(end_commands(context, &found, wrong)?);
        unattended_findings(runs, leases)
    });
    let outside = found.as_ref().ok().map(|_| outside(runs)).transpose();
    match (found, outside) {
        (Ok(found), Ok(outside)) => describe(&found, outside.unwrap_or_default()).with_recovered(ended),
        (Err(error), _) => Finding::fail(with_causes(&error), error.hint()).with_recovered(ended),
        (_, Err(error)) => Finding::fail(with_causes(&error), error.hint()).with_recovered(ended),
    }
}

/// What to say about unattended runs, and about those that an executor outside of Lockkeeper executes.
fn describe(found: &UnattendedFindings, outside: Vec<(Run, Duration)>) -> Finding {
    let list = |key: &'static str, runs: &mut dyn Iterator<Item = &Run>| {
        let item = |run: &Run| {
            said("item.run").with("run", &run.id).with("request", &run.request).with("status", run.status())
        };
        said(key).with_list("list", runs.map(item))
    };
    let claimed = |(run, since): &(Run, Duration)| {
        let age = format_span(Duration::from_secs(since.as_secs()));
        let worker = run.worker().map_or("?", |worker| worker.as_str());
        said("item.claimed").with("run", &run.id).with("worker", worker).with("age", age)
    };
    let (long, short): (Vec<_>, Vec<_>) = outside.into_iter().partition(|(_, since)| *since >= UNSEEN);
    let mut text = "every active run has a worker or a process".to_owned();
    if !short.is_empty() {
        let english = Phrases::load(Language::En);
        let runs = said("seen.runs_outside").with_list("list", short.iter().map(claimed));
        text.push_str(&format!("; {}", english.put(&runs)));
    }
    let mut finding = Finding::pass(text);
    if !found.gone.is_empty() {
        let detail = list("seen.runs_gone", &mut found.gone.iter().map(|(run, _)| run));
        finding = finding.and(Warn, detail, said("fix.runs_gone"));
    }
    for (runs, seen, fix) in [
        (&found.alive, "seen.runs_alive", said("fix.runs_alive")),
        (&found.due, "seen.runs_due", said("fix.runs_due")),
        (&found.unmade, "seen.runs_unmade", said("fix.runs_unmade")),
        (&found.out_of_reach, "seen.runs_out_of_reach", said("fix.runs_out_of_reach")),
    ] {
        if !runs.is_empty() {
            finding = finding.and(Warn, list(seen, &mut runs.iter()), fix);
        }
    }
    if !found.of_others.is_empty() {
        let item = |(run, user): &(Run, u32)| {
            said("item.run_of_user").with("run", &run.id).with("request", &run.request).with("user", user)
        };
        let detail = said("seen.runs_of_others").with_list("list", found.of_others.iter().map(item));
        finding = finding.and(Warn, detail, said("fix.runs_of_others"));
    }
    if !long.is_empty() {
        let detail = said("seen.runs_outside").with_list("list", long.iter().map(claimed));
        finding = finding.and(Warn, detail, said("fix.runs_outside"));
    }
    finding
}

/// Ends the commands of those unattended runs that have to end.
fn end_commands(
    context: &Context<'_>,
    found: &UnattendedFindings,
    has_to_end: impl Fn(&Run) -> bool,
) -> Result<Vec<Recovered>, RunError> {
    let wrong: Vec<&Run> = found.alive.iter().filter(|run| has_to_end(run)).collect();
    if wrong.is_empty() {
        return Ok(Vec::new());
    }
    let location = context.inputs.location;
    let (runs, leases) = (Runs::at(location)?, open_leases(location)?);
    let worker = Worker::begin(runs, leases, Settings::default(), 0, None, Box::new(|_| {}))?;
    worker.set_deadline(Instant::now() + worker.grace() + ENDED_WITHIN);
    let adopted = worker.rescuer().rescue(|run| wrong.iter().any(|one| one.id == run.id))?;
    let mut ended = Vec::new();
    for (id, thread) in adopted {
        // A cancellation from before the adoption.
        worker.forward()?;
        let _ = thread.join();
        ended.push(recovered(&worker.runs().show(&id)?.run));
    }
    Ok(ended)
}

/// Runs that an executor outside of Lockkeeper has claimed, and how long ago.
fn outside(runs: &Runs) -> Result<Vec<(Run, Duration)>, RunError> {
    let records = runs.store().snapshot()?;
    let now = records.now().moment;
    let active = records.active_runs()?.into_iter().filter(|run| run.status().is_active());
    let outside = active.filter(|run| run.worker().is_some() && run.process().is_none());
    Ok(outside
        .filter_map(|run| run.started_at().map(|at| (now.since(at.moment), run)))
        .map(|(since, run)| (run, since))
        .collect())
}

fn recovered(after: &Run) -> Recovered {
    let what = format!("{} of request {}", after.id, after.request);
    let end =
        if after.waits_for_retry() { "it will be retried".to_owned() } else { after.status().to_string() };
    Recovered::run(what, format!("its worker and its processes are gone: {end}"))
}

pub(super) fn without_run(context: &Context<'_>) -> Finding {
    let found = match context.runs() {
        Ok(Some(runs)) => surviving_processes(runs),
        Ok(None) => return Finding::pass(NO_RUNS),
        // The check `run-store` says why.
        Err(_) => return Finding::pass("the run store does not open"),
    };
    match found {
        Ok(found) if found.is_empty() => Finding::pass("no process of an ended run is left"),
        Ok(found) => Finding::warn(said("seen.survivors").with_list("list", found), said("fix.survivors")),
        Err(error) => Finding::fail(with_causes(&error), error.hint()),
    }
}

/// The live processes of ended runs. They share the liveness lock of the run, or have its id in their environment.
fn surviving_processes(runs: &Runs) -> Result<Vec<Sentence>, StoreError> {
    let probe = HolderProbe(runs.liveness_file());
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
            found.push(said("item.processes").with("run", &run.id).with("status", run.status()));
        }
    }
    for (process, mark) in marked {
        // A run that is not in this store belongs to another repository.
        let run = mark.parse::<RunId>().ok().map(|id| records.run(&id)).transpose()?.flatten();
        if let Some(run) = run.filter(has_ended) {
            let item = said("item.process").with("pid", process.pid);
            found.push(item.with("run", &run.id).with("status", run.status()));
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
            match records.run(&id)? {
                None => orphans.push(runs.folder_of(&id).path().display().to_string()),
                // The file is for people: what cannot be written stays.
                Some(run) if context.pass == Pass::Full => drop(mend_stage(&runs.folder_of(&id), &run)),
                Some(_) => {}
            }
        }
        Ok(orphans)
    });
    match orphans {
        Ok(orphans) if orphans.is_empty() => Finding::pass("each folder belongs to a run"),
        Ok(orphans) => {
            let list = orphans.into_iter().map(Sentence::Literal);
            Finding::warn(said("seen.orphan_folders").with_list("list", list), said("fix.orphan_folders"))
        }
        Err(error) => Finding::fail(with_causes(&error), error.hint()),
    }
}

/// Liveness probe for workers and runs: reads their liveness locks. None if the liveness file does not exist yet.
struct HolderProbe(Option<LivenessFile>);

impl HolderProbe {
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
        let opened = self.runs.get_or_init(|| Runs::existing_at(self.inputs.location));
        opened.as_ref().map(Option::as_ref)
    }
}
