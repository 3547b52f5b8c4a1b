//! One-way migration of state folders that Lockkeeper 0.1.0 has used: start intents.
//!
//! A worker of 0.1.0 started commands before their claims were on the disk. Before that it named the runs in a file of
//! its own, `ahead/BOOT.WORKER`. So a run that is named in a file of an earlier boot and is still queued may have begun
//! before the power failed: it ends as LOST, or waits for its next attempt where there may be one. Between two steps of
//! that, 0.1.0 marked such a run by `ready = -1` and had the index `run_doubtful` for the mark.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use lockkeeper_core::id::RunId;
use lockkeeper_core::run::Status;
use lockkeeper_core::run::transition::{self, AttemptOutcome, Claimant, FinishPolicy};

use super::tables::Tables;
use super::{SqliteRunStore, failed};
use crate::StoreError;
use crate::runs::RunStore;
use crate::runs::columns::parse;

const START_INTENTS: &str = "ahead";
/// The worker that is named in the events of runs that are lost.
const WORKER: &str = "W-before-power-loss";

/// The start intents of earlier boots.
pub(super) struct StartIntents {
    runs: HashSet<RunId>,
    files: Vec<PathBuf>,
}

impl StartIntents {
    /// Reads them.
    pub(super) fn read(folder: &Path, boot: &str) -> Result<Self, StoreError> {
        let mut intents = Self { runs: HashSet::new(), files: Vec::new() };
        for path in entries(&folder.join(START_INTENTS))? {
            if is_of_boot(&path, boot) {
                continue;
            }
            let text = fs::read(&path).map_err(|error| failed("read", &path, error))?;
            // A line that was not finished names no run: no command had begun because of it.
            let text = String::from_utf8_lossy(&text);
            intents.runs.extend(text.lines().filter_map(|line| line.parse::<RunId>().ok()));
            intents.files.push(path);
        }
        Ok(intents)
    }

    /// Ends the runs that may have begun, in the transaction that is under way.
    pub(super) fn end_runs(&self, tables: &Tables<'_>) -> Result<(), StoreError> {
        self.runs.iter().try_for_each(|run| tables.end_as_lost(run))
    }

    /// Removes the files. The ends of their runs are on the disk before.
    pub(super) fn remove(self) -> Result<(), StoreError> {
        self.files.iter().try_for_each(|path| remove(path))
    }
}

impl SqliteRunStore {
    /// Ends the runs that 0.1.0 has marked, if it ever used this store.
    pub(super) fn end_marked_runs(&self) -> Result<(), StoreError> {
        let index = "SELECT 1 FROM sqlite_schema WHERE name = 'run_doubtful'";
        if self.read()?.tables().number(index, [])?.is_none() {
            return Ok(());
        }
        self.transact(|tables| {
            let marked = "SELECT id FROM run WHERE ready < 0";
            let marked = tables.rows(marked, [], |row| Ok(parse(&row.get::<_, String>(0)?)))?;
            marked.iter().try_for_each(|run| tables.end_as_lost(run))?;
            tables.execute("DROP INDEX IF EXISTS run_doubtful", [])
        })?;
        self.sync()
    }

    /// Removes the start intents of workers of this boot that are gone: what they have claimed is in the log of the store.
    pub(super) fn remove_start_intents(&self) -> Result<(), StoreError> {
        let folder = self.path.with_file_name(START_INTENTS);
        // Listed first: a worker is registered before it makes files.
        let files = entries(&folder)?;
        if files.is_empty() {
            return Ok(());
        }
        let workers = self.read()?.tables().workers()?;
        let is_known = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            workers.iter().any(|worker| name.ends_with(&format!(".{}", worker.id)))
        };
        // The claims are on the disk before the intents are removed.
        self.sync()?;
        for path in files.iter().filter(|path| is_of_boot(path, &self.boot) && !is_known(path)) {
            remove(path)?;
        }
        // It is removed only when it is empty.
        let _ = fs::remove_dir(folder);
        Ok(())
    }
}

impl Tables<'_> {
    /// Ends a run that may have begun before the power failed, if it is still queued.
    fn end_as_lost(&self, id: &RunId) -> Result<(), StoreError> {
        self.execute("UPDATE run SET ready = 1 WHERE id = ?1 AND ready < 0", [id.as_str()])?;
        let Some(run) = self.run(id)?.filter(|run| run.status() == Status::Queued) else { return Ok(()) };
        let Some(request) = self.request(&run.request)?.map(|stored| stored.request) else { return Ok(()) };
        let worker = WORKER.parse().expect("letters and dashes are an id");
        let claimant = Claimant { worker, holder: None, lease: None };
        let Ok(claimed) = transition::claim(&run, claimant, self.now()) else { return Ok(()) };
        self.apply(&claimed)?;
        let policy = FinishPolicy { success: &request.success, retry: &request.retry, random: 0 };
        let (run, outcome) = (&claimed.run, AttemptOutcome::Vanished);
        if let Ok(lost) = transition::finish(run, run.claim(), outcome, policy, self.now()) {
            self.apply(&lost)?;
        }
        Ok(())
    }
}

fn is_of_boot(path: &Path, boot: &str) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with(&format!("{boot}."))
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| failed("read", folder, error))?,
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    paths.collect::<Result<_, _>>().map_err(|error| failed("read", folder, error))
}

fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path, error)),
        Ok(()) | Err(_) => Ok(()),
    }
}
