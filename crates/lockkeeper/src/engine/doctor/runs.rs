//! Checks of requests and runs: their store, runs without a process, processes without a run, folders without either.
//!
//! The doctor only tells of them. How an attempt ended is for the worker that takes over to find out, and what a run
//! wrote is for a person to throw away.

use std::collections::BTreeSet;

use lockkeeper_core::id::{HolderId, RunId};
use lockkeeper_core::liveness::LockSight;
use lockkeeper_core::run::Run;

use super::finding::{Finding, some_of, told};
use super::{Pass, Visit};
use crate::engine::runs::{RunError, Runs};
use crate::platform::life::LifeFile;
use crate::platform::tree;
use crate::store::StoreError;
use crate::store::runs::Worker;

/// The variable that every process of a run is started with.
const RUN_ID: &str = "LOCKKEEPER_RUN_ID";
/// Nobody keeps more folders than this, and looks at the doctor's list.
const MOST_FOLDERS: usize = 100_000;
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
    let (runs, workers) = match under_way(visit) {
        Ok(Some(found)) => found,
        Ok(None) => return Finding::pass(NO_RUNS),
        Err(error) => return Finding::fail(told(&error), error.hint()),
    };
    let eyes = Eyes::open(visit);
    let works = |run: &Run| {
        let worker = workers.iter().find(|worker| Some(&worker.id) == run.worker.as_ref());
        worker.is_some_and(|worker| eyes.sees(worker.holder))
    };
    let active = runs.iter().filter(|run| run.status.is_active());
    // A worker that lives looks after its runs itself; who executes without a kernel lock cannot be seen.
    let vanished: Vec<String> = active
        .filter(|run| run.process.is_some_and(|process| !eyes.sees(process.holder)) && !works(run))
        .map(|run| format!("{} of request {} ({})", run.id, run.request, run.status))
        .collect();
    if vanished.is_empty() {
        return Finding::pass("every run under way is looked after");
    }
    let list = some_of(vanished.into_iter(), ", ");
    let fix = "start a worker (`lockkeeper work`): it ends them as LOST, or tries again where it may";
    Finding::warn(format!("under way, but nothing of it lives: {list}"), fix)
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
        for run in tables.living()?.iter().filter(|run| run.status.is_terminal()) {
            if run.process.is_some_and(|process| eyes.sees(process.holder)) {
                found.push(format!("processes of {} ({})", run.id, run.status));
            }
        }
        for (process, mark) in marked {
            // What is not in this store is another repository's.
            let run = mark.parse::<RunId>().ok().map(|id| tables.run(&id)).transpose()?.flatten();
            if let Some(run) = run.filter(|run| run.status.is_terminal()) {
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

type UnderWay = (Vec<Run>, Vec<Worker>);

fn under_way(visit: &Visit<'_>) -> Result<Option<UnderWay>, StoreError> {
    // Why it does not open is told by its own check.
    let Ok(Some(runs)) = visit.runs() else { return Ok(None) };
    runs.store().read(|tables| Ok((tables.living()?, tables.workers()?))).map(Some)
}

/// The file on which workers and runs keep their locks; who never made one has none.
struct Eyes(Option<LifeFile>);

impl Eyes {
    fn open(visit: &Visit<'_>) -> Self {
        let state = &visit.site.location.state;
        Self(state.join("life").is_file().then(|| LifeFile::open(state).ok()).flatten())
    }

    /// Whether anything of a holder lives; what cannot be looked at may live.
    fn sees(&self, holder: HolderId) -> bool {
        match self.0.as_ref().map(|life| life.look(holder)) {
            Some(LockSight::Held | LockSight::Unreadable) => true,
            Some(LockSight::Free) | None => false,
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
