//! Output of runs in a folder that other machines use: the database `output.db`. It is no part of `runs.db`, so that a piece of output
//! wakes nobody and keeps nobody waiting.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockkeeper_core::id::RunId;
use rusqlite::{Connection, Error, params};

use crate::StoreError;
use crate::runs::columns::number;
use crate::runs::{KeptOutput, OutputChange, Piece, Removed};
use crate::sqlite::{connect, explain, use_log};

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS output (
    run TEXT NOT NULL, attempt INTEGER NOT NULL, begin INTEGER NOT NULL, host TEXT NOT NULL, bytes BLOB NOT NULL,
    UNIQUE (run, attempt, begin)
) STRICT;";
/// How long a write of another process may take.
const LIMIT: Duration = Duration::from_secs(5);

/// What is kept of the output of runs.
pub(super) struct Outputs {
    path: PathBuf,
    /// Opened when it is used.
    connection: Mutex<Option<Connection>>,
}

impl Outputs {
    pub(super) fn beside(runs: &Path) -> Self {
        Self { path: runs.with_file_name("output.db"), connection: Mutex::default() }
    }

    /// Changes pieces, in one transaction. A crash of the machine may lose it.
    pub(super) fn change(
        &self,
        changes: &[OutputChange<'_>],
        is_there: impl Fn(&RunId) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        let mut there = Vec::new();
        for change in changes {
            // A run that was pruned meanwhile keeps nothing.
            if is_there(change.run)? {
                there.push(change);
            }
        }
        self.with(|connection| {
            let transaction = connection.transaction()?;
            for OutputChange { run, attempt, host, remove, add } in there {
                transaction.execute(
                    "DELETE FROM output WHERE run = ?1 AND attempt = ?2 AND begin >= ?3 AND begin < ?4",
                    params![run.as_str(), attempt, at(remove.start), at(remove.end)],
                )?;
                for piece in *add {
                    transaction.execute(
                        "INSERT OR IGNORE INTO output (run, attempt, begin, host, bytes) VALUES (?1, ?2, ?3, ?4, ?5)",
                        params![run.as_str(), attempt, at(piece.from), host, piece.bytes],
                    )?;
                }
            }
            transaction.commit()
        })
    }

    /// What is kept of an attempt, with the pieces that end after `from`.
    pub(super) fn of(&self, run: &RunId, attempt: u32, from: u64) -> Result<Option<KeptOutput>, StoreError> {
        let (about, pieces) = self.with(|connection| {
            let transaction = connection.transaction()?;
            let about = transaction.query_row(
                "SELECT max(host), max(begin + length(bytes)), max(length(bytes) = 0) FROM output
                 WHERE run = ?1 AND attempt = ?2",
                params![run.as_str(), attempt],
                |row| {
                    let host: Option<String> = row.get(0)?;
                    Ok((host, row.get::<_, Option<i64>>(1)?, row.get::<_, Option<bool>>(2)?))
                },
            )?;
            let mut statement = transaction.prepare(
                "SELECT begin, bytes FROM output
                 WHERE run = ?1 AND attempt = ?2 AND length(bytes) > 0 AND begin + length(bytes) > ?3
                 ORDER BY begin",
            )?;
            let values = params![run.as_str(), attempt, at(from)];
            let rows = statement.query_map(values, |row| Ok((row.get::<_, i64>(0)?, row.get(1)?)))?;
            Ok((about, rows.collect::<Result<Vec<(i64, Vec<u8>)>, Error>>()?))
        })?;
        let (Some(host), Some(size), Some(is_complete)) = about else { return Ok(None) };
        let offset = |at: i64| {
            let damaged = |what| StoreError::Damaged { address: self.path.display().to_string(), what };
            number(at, "offset").map_err(damaged)
        };
        let piece = |(from, bytes): (i64, Vec<u8>)| Ok(Piece { from: offset(from)?, bytes });
        let pieces = pieces.into_iter().map(piece).collect::<Result<_, StoreError>>()?;
        Ok(Some(KeptOutput { host, size: offset(size)?, is_complete, pieces }))
    }

    /// Removes what is kept of requests that were removed.
    pub(super) fn remove(&self, removed: &[Removed]) -> Result<(), StoreError> {
        if removed.is_empty() {
            return Ok(());
        }
        self.with(|connection| {
            let transaction = connection.transaction()?;
            for run in removed.iter().flat_map(|removed| &removed.runs) {
                transaction.execute("DELETE FROM output WHERE run = ?1", [run.as_str()])?;
            }
            transaction.commit()
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut Connection) -> Result<T, Error>) -> Result<T, StoreError> {
        let mut open = self.lock();
        let mut connection = match open.take() {
            Some(connection) => connection,
            None => self.open()?,
        };
        let done = work(&mut connection).map_err(|error| explain(&self.path, error));
        // After an error it is opened again: the file may have been replaced.
        *open = done.is_ok().then_some(connection);
        done
    }

    fn open(&self) -> Result<Connection, StoreError> {
        let connection = connect(&self.path)?;
        let failed = |error| explain(&self.path, error);
        connection.busy_timeout(LIMIT).map_err(failed)?;
        use_log(&connection, &self.path)?;
        connection.execute_batch("PRAGMA synchronous = NORMAL;").map_err(failed)?;
        connection.execute_batch(TABLES).map_err(failed)?;
        Ok(connection)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Connection>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn at(offset: u64) -> i64 {
    i64::try_from(offset).unwrap_or(i64::MAX)
}
