//! The auto-run of the queue: who works through it, how far it is, and whether it is asked to end.

use lockkeeper_core::id::{RunId, WorkerId};
use rusqlite::params;

use super::Tables;
use crate::StoreError;

/// An auto-run as it was last noted. Whether it still goes on, its lock tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutoRun {
    /// Who works.
    pub worker: WorkerId,
    /// When it began, in microseconds since 1970.
    pub started_at: i64,
    /// How many runs it has begun.
    pub runs: u32,
    /// The latest of them.
    pub current: Option<RunId>,
    /// Whether it is asked to end.
    pub stop: bool,
    /// Why it ended, once it has.
    pub ended: Option<String>,
}

impl Tables<'_> {
    /// Notes a new auto-run in the place of the last.
    pub fn begin_auto_run(&self, worker: &WorkerId) -> Result<(), StoreError> {
        self.execute("DELETE FROM auto_run", [])?;
        let sql = "INSERT INTO auto_run (worker, started_at, runs, stop) VALUES (?1, ?2, 0, 0)";
        self.execute(sql, params![worker.as_str(), self.now().unix_micros])
    }

    /// Notes which run it has come to.
    pub fn count_auto_run(&self, worker: &WorkerId, run: &RunId) -> Result<(), StoreError> {
        let sql = "UPDATE auto_run SET runs = runs + 1, current = ?2 WHERE worker = ?1";
        self.execute(sql, params![worker.as_str(), run.as_str()])
    }

    /// Asks whoever works through the queue to end after the present run.
    pub fn stop_auto_run(&self) -> Result<(), StoreError> {
        self.execute("UPDATE auto_run SET stop = 1 WHERE ended IS NULL", [])
    }

    /// Notes why it ended.
    pub fn end_auto_run(&self, worker: &WorkerId, why: &str) -> Result<(), StoreError> {
        self.execute("UPDATE auto_run SET ended = ?2 WHERE worker = ?1", params![worker.as_str(), why])
    }

    /// The last auto-run, if there was any.
    pub fn auto_run(&self) -> Result<Option<AutoRun>, StoreError> {
        let sql = "SELECT worker, started_at, runs, current, stop, ended FROM auto_run";
        let mut found = self.rows(sql, [], |row| {
            let (worker, current): (String, Option<String>) = (row.get(0)?, row.get(3)?);
            let (started_at, runs, stop, ended) = (row.get(1)?, row.get(2)?, row.get(4)?, row.get(5)?);
            let build = || {
                let worker = worker.parse().map_err(|error| format!("{error}"))?;
                let current = current.map(|id| id.parse()).transpose().map_err(|error| format!("{error}"))?;
                Ok(AutoRun { worker, started_at, runs, current, stop, ended })
            };
            Ok(build())
        })?;
        Ok(found.pop())
    }
}
