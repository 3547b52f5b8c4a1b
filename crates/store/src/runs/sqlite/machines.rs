//! Tables of a folder that other machines use: sessions of their workers, machines of runs, answers of their calls.
//!
//! The file `served` says that such a folder is one. Triggers keep the tables, so changes of local processes count as well.

use std::collections::HashMap;
use std::path::Path;

use lockkeeper_core::id::RunId;
#[cfg(feature = "http")]
use lockkeeper_core::id::WorkerId;
use rusqlite::Connection;
#[cfg(feature = "http")]
use rusqlite::params;

use super::tables::Tables;
use crate::StoreError;
use crate::runs::columns::parse;
#[cfg(feature = "http")]
use crate::runs::{Renewal, Worker};
use crate::sqlite::explain;

/// A heartbeat is on the clock of this boot, a span in microseconds. `beat` is the number of the heartbeat.
const TABLES: &str = "
CREATE TABLE IF NOT EXISTS session (
    worker TEXT PRIMARY KEY, span INTEGER NOT NULL, heartbeat INTEGER NOT NULL, beat INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS host (run INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS call (place INTEGER PRIMARY KEY, number INTEGER NOT NULL UNIQUE, answer TEXT NOT NULL) STRICT;
CREATE TRIGGER IF NOT EXISTS session_ends AFTER DELETE ON worker
BEGIN DELETE FROM session WHERE worker = OLD.id; END;
CREATE TRIGGER IF NOT EXISTS run_moves_host AFTER UPDATE OF worker ON run
WHEN NEW.worker IS NOT NULL AND NEW.worker IS NOT OLD.worker
BEGIN INSERT OR REPLACE INTO host SELECT NEW.seq, worker.host FROM worker WHERE worker.id = NEW.worker; END;
CREATE TRIGGER IF NOT EXISTS run_leaves_host AFTER DELETE ON run
BEGIN DELETE FROM host WHERE run = OLD.seq; END;";

/// How many answers are kept.
#[cfg(feature = "http")]
const KEPT: i64 = 1024;

/// Makes the tables where they are missing. The caller holds the write lock.
pub(super) fn make_tables(connection: &Connection, path: &Path, version: i64) -> Result<(), StoreError> {
    let script = format!("BEGIN IMMEDIATE;{TABLES}PRAGMA user_version = {version};COMMIT;");
    connection.execute_batch(&script).map_err(|error| {
        // The first error counts, not that of the rollback.
        let _ = connection.execute_batch("ROLLBACK");
        explain(path, error)
    })
}

impl Tables<'_> {
    /// The machines of these runs, as far as they are known.
    pub(super) fn hosts(&self, runs: &[&RunId]) -> Result<HashMap<RunId, String>, StoreError> {
        if !self.is_served() {
            return Ok(HashMap::new());
        }
        let sql = "SELECT run.id, host.name FROM run JOIN host ON host.run = run.seq WHERE run.id = ?1";
        let mut found = HashMap::new();
        for run in runs {
            found.extend(self.rows(sql, [run.as_str()], |row| {
                let (id, host): (String, String) = (row.get(0)?, row.get(1)?);
                Ok(parse(&id).map(|id| (id, host)))
            })?);
        }
        Ok(found)
    }
}

#[cfg(feature = "http")]
impl Tables<'_> {
    /// Begins the session of a worker of another machine.
    pub(super) fn begin_session(&self, worker: &Worker) -> Result<(), StoreError> {
        let Some(session) = worker.origin.session else { return Ok(()) };
        let span = i64::try_from(session.get().as_micros()).unwrap_or(i64::MAX);
        self.execute(
            "INSERT OR REPLACE INTO session VALUES (?1, ?2, ?3, ?4)",
            params![worker.id.as_str(), span, self.now().moment.as_micros(), worker.started_at],
        )
    }

    /// Renews the session of a worker whose last heartbeat has one of the numbers `expected`.
    pub(super) fn renew_session(
        &self,
        id: &WorkerId,
        expected: &[i64],
        beat: i64,
    ) -> Result<Renewal, StoreError> {
        let Some(last) = self.number("SELECT beat FROM session WHERE worker = ?1", [id.as_str()])? else {
            return Ok(Renewal::Gone);
        };
        if !expected.contains(&last) {
            return Ok(Renewal::Taken);
        }
        let sql = "UPDATE session SET heartbeat = ?2, beat = ?3 WHERE worker = ?1";
        self.execute(sql, params![id.as_str(), self.now().moment.as_micros(), beat])?;
        Ok(Renewal::Renewed)
    }

    /// The answer of a call; none if it was not made.
    pub(super) fn answer_of(&self, number: i64) -> Result<Option<String>, StoreError> {
        let sql = "SELECT answer FROM call WHERE number = ?1";
        Ok(self.rows(sql, [number], |row| Ok(Ok(row.get(0)?)))?.pop())
    }

    /// Notes the answer of a call.
    pub(super) fn note_answer(&self, number: i64, answer: &str) -> Result<(), StoreError> {
        self.execute("INSERT INTO call (number, answer) VALUES (?1, ?2)", params![number, answer])?;
        self.execute("DELETE FROM call WHERE place <= ?1", [self.last_insert_rowid() - KEPT])
    }
}
