//! Checks of requests and runs: their store, runs without a process, processes without a run, folders without either.
//!
//! The full pass ends runs of which nothing lives, as a worker that takes over would. Processes are for a worker or a
//! person to end, and what a run wrote is for a person to throw away.

use std::collections::BTreeSet;
use std::time::Duration;

use lockkeeper_core::id::{HolderId, RunId};
use lockkeeper_core::liveness::LockState;
use lockkeeper_core::run::Run;

use super::finding::{Finding, Recovered, some_of, told};
use super::{Pass, Visit};
use crate::runs::{RunError, Runs};
use crate::work::RUN_ID;
use lockkeeper_platform::liveness_lock::LivenessFile;
use lockkeeper_platform::tree;
use lockkeeper_store::StoreError;

/// Nobody keeps more folders than this, and looks at the doctor's list.
const MOST_FOLDERS: usize = 100_000;
/// So long a worker may be at ending the processes of a run that is over.
const LINGERING: Duration = Duration::from_secs(30);
const NO_RUNS: &str = "there are no runs yet";

pub(super) fn store(visit: &Visit<'_>) -> Finding {
    let runs = match visit.runs() {
        Ok(Some(runs)) => runs,
        Ok(None) => return Finding::pass(NO_RUNS),
        Err(error) => return Finding::fail(told(error), error.hint()),
    };
    let counted = runs.store().examine(visit.pass == Pass::Full).and_then(|found| {
        let counts = runs.store().read(|tables| tables.counts())?;
        Ok((found, counts))
    });
    let (found, counts) = match counted {
        Ok(counted) => counted,
        Err(error) => return Finding::fail(told(&error), error.hint()),
    };
    if !found.flaws.is_empty() {
        let path = runs.store().path().display();
        let fix = format!("stop every worker, then restore {path} from a copy, or move {path}* away");
        return Finding::fail(some_of(found.flaws.into_iter(), "; "), fix);
    }
    let counts: Vec<String> = counts.iter().map(|(status, count)| format!("{count} {status}")).collect();
    Finding::pass(if counts.is_empty() { NO_RUNS.to_owned() } else { counts.join(", ") })
}

pub(super) fn without_process(visit: &Visit<'_>) -> Finding {
    // Why it does not open is told by its own check.
    let Ok(Some(runs)) = visit.runs() else { return Finding::pass(NO_RUNS) };
    let mut ended = Vec::new();
    let vanished = vanished(visit, runs).and_then(|vanished| {
        if visit.pass == Pass::Quick || vanished.is_empty() {
            return Ok(vanished);
        }
        for run in &vanished {
            ended.extend(runs.end_lost(run)?.map(|after| recovered(&after)));
        }
        self::vanished(visit, runs)
    });
    match vanished {
        Ok(vanished) if vanished.is_empty() => {
            Finding::pass("every run under way is looked after").with_recovered(ended)
        }
        Ok(vanished) => {
            let list =
                vanished.iter().map(|run| format!("{} of request {} ({})", run.id, run.request, run.status));
            let detail = format!("under way, but nothing of it lives: {}", some_of(list, ", "));
            let fix = "`lockkeeper doctor --full` or a worker (`lockkeeper work`) ends them as LOST, or has them tried again";
            Finding::warn(detail, fix).with_recovered(ended)
        }
        Err(error) => Finding::fail(told(&error), error.hint()).with_recovered(ended),
    }
}

fn recovered(after: &Run) -> Recovered {
    let what = format!("{} of request {}", after.id, after.request);
    let end =
        if after.waits_for_retry() { "it will be tried again".to_owned() } else { after.status.to_string() };
    Recovered::run(what, format!("nothing of it lives: {end}"))
}

/// Runs under way whose processes and worker are gone. A worker that lives looks after its runs itself, and who
/// executes without a kernel lock cannot be seen.
fn vanished(visit: &Visit<'_>, runs: &Runs) -> Result<Vec<Run>, RunError> {
    let (living, workers) = runs.store().read(|tables| Ok((tables.living()?, tables.workers()?)))?;
    let eyes = Eyes::open(visit);
    let is_gone = |run: &Run| {
        let worker = workers.iter().find(|worker| Some(&worker.id) == run.worker.as_ref());
        let works = worker.is_some_and(|worker| eyes.sees(worker.holder));
        run.process.is_some_and(|process| !eyes.sees(process.holder)) && !works
    };
    Ok(living.into_iter().filter(|run| run.status.is_active() && is_gone(run)).collect())
}

pub(super) fn without_run(visit: &Visit<'_>) -> Finding {
    let found = match visit.runs() {
        Ok(Some(runs)) => survivors(visit, runs),
        Ok(None) => return Finding::pass(NO_RUNS),
        // Its own check tells.
        Err(_) => return Finding::pass("the store of runs does not open"),
    };
    match found {
        Ok(survivors) if survivors.is_empty() => Finding::pass("nothing is left of runs that are over"),
        Ok(survivors) => {
            let list = some_of(survivors.into_iter(), ", ");
            let fix = "end them if nobody needs them: `kill PID`; a worker (`lockkeeper work`) does so too";
            Finding::warn(format!("still there although their run is over: {list}"), fix)
        }
        Err(error) => Finding::fail(told(&error), error.hint()),
    }
}

/// What lives although its run is over: by the kernel lock that it shares, and by the variable that it carries.
fn survivors(visit: &Visit<'_>, runs: &Runs) -> Result<Vec<String>, StoreError> {
    let eyes = Eyes::open(visit);
    let marked = tree::marked(RUN_ID).unwrap_or_default();
    runs.store().read(|tables| {
        let mut found = Vec::new();
        let somebody_works = tables.workers()?.iter().any(|worker| eyes.sees(worker.holder));
        let is_over = |run: &Run| {
            let since = run.completed_at.map(|at| tables.now().moment.since(at.moment));
            since.is_some_and(|since| since > LINGERING || !somebody_works)
        };
        for run in tables.living()?.iter().filter(|run| is_over(run)) {
            if run.process.is_some_and(|process| eyes.sees(process.holder)) {
                found.push(format!("processes of {} ({})", run.id, run.status));
            }
        }
        for (process, mark) in marked {
            // What is not in this store is another repository's.
            let run = mark.parse::<RunId>().ok().map(|id| tables.run(&id)).transpose()?.flatten();
            if let Some(run) = run.filter(is_over) {
                found.push(format!("process {} of {} ({})", process.pid, run.id, run.status));
            }
        }
        Ok(found)
    })
}

pub(super) fn folders(visit: &Visit<'_>) -> Finding {
    let Ok(Some(runs)) = visit.runs() else { return Finding::pass(NO_RUNS) };
    let folder = runs.folder().join("runs");
    let Ok(entries) = std::fs::read_dir(&folder) else { return Finding::pass("there are none yet") };
    let names: BTreeSet<RunId> = entries
        .take(MOST_FOLDERS)
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    let orphans = runs.store().read(|tables| {
        let mut orphans = Vec::new();
        for id in names {
            if tables.run(&id)?.is_none() {
                orphans.push(runs.folder_of(&id).path().display().to_string());
            }
        }
        Ok(orphans)
    });
    match orphans {
        Ok(orphans) if orphans.is_empty() => Finding::pass("each belongs to a run"),
        Ok(orphans) => {
            let list = some_of(orphans.into_iter(), ", ");
            Finding::warn(
                format!("of no run that is known: {list}"),
                "keep what you need of them, then remove them",
            )
        }
        Err(error) => Finding::fail(told(&error), error.hint()),
    }
}

/// The file on which workers and runs keep their locks; who never made one has none.
struct Eyes(Option<LivenessFile>);

impl Eyes {
    fn open(visit: &Visit<'_>) -> Self {
        let state = &visit.site.location.state;
        Self(state.join("life").is_file().then(|| LivenessFile::open(state).ok()).flatten())
    }

    /// Whether anything of a holder lives; what cannot be looked at may live.
    fn sees(&self, holder: HolderId) -> bool {
        match self.0.as_ref().map(|life| life.look(holder)) {
            Some(LockState::Held | LockState::Unreadable) => true,
            Some(LockState::Free) | None => false,
        }
    }
}

impl Visit<'_> {
    /// The store of runs, if there is one.
    fn runs(&self) -> Result<Option<&Runs>, &RunError> {
        let opened = self.runs.get_or_init(|| Runs::open_existing(&self.site.location.state));
        opened.as_ref().map(Option::as_ref)
    }
}
