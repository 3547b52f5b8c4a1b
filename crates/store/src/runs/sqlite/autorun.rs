//! The table of the auto-run. It has one row at most.

use rusqlite::params;

use super::tables::Tables;
use crate::StoreError;
use crate::runs::columns::parse;
use crate::runs::{AutoRun, AutoRunChange};

impl Tables<'_> {
    /// Changes the record of the auto-run.
    pub(super) fn change_auto_run(&self, change: &AutoRunChange<'_>) -> Result<(), StoreError> {
        match *change {
            AutoRunChange::Start { worker } => {
                self.execute("DELETE FROM auto_run", [])?;
                let sql = "INSERT INTO auto_run (worker, started_at, runs, stop) VALUES (?1, ?2, 0, 0)";
                self.execute(sql, params![worker.as_str(), self.now().unix_micros])
            }
            AutoRunChange::CountRun { worker, run } => {
                let sql = "UPDATE auto_run SET runs = runs + 1, current = ?2 WHERE worker = ?1";
                self.execute(sql, params![worker.as_str(), run.as_str()])
            }
            AutoRunChange::RequestStop { worker } => {
                let sql =
                    "UPDATE auto_run SET stop = 1 WHERE ended IS NULL AND worker = coalesce(?1, worker)";
                self.execute(sql, [worker.map(|worker| worker.as_str())])
            }
            AutoRunChange::End { worker, why } => {
                let sql = "UPDATE auto_run SET ended = ?2 WHERE worker = ?1";
                self.execute(sql, params![worker.as_str(), why])
            }
        }
    }

    /// The last auto-run.
    pub(super) fn auto_run(&self) -> Result<Option<AutoRun>, StoreError> {
        let sql = "SELECT worker, started_at, runs, current, stop, ended FROM auto_run";
        let mut found = self.rows(sql, [], |row| {
            let (worker, current): (String, Option<String>) = (row.get(0)?, row.get(3)?);
            let (started_at, runs, stop, ended) = (row.get(1)?, row.get(2)?, row.get(4)?, row.get(5)?);
            let build = || {
                let worker = parse(&worker)?;
                let current = current.as_deref().map(parse).transpose()?;
                Ok(AutoRun { worker, started_at, runs, current, stop, ended })
            };
            Ok(build())
        })?;
        Ok(found.pop())
    }
}
