//! The tables within one transaction: reading runs, and the compare-and-set that changes them.

use std::path::Path;

use lockkeeper_core::id::{RequestId, RunId};
use lockkeeper_core::request::{Request, RequestStatus};
use lockkeeper_core::run::transition::Transition;
use lockkeeper_core::run::{Event, Run, Stamp, Status};
use rusqlite::types::ToSql;
use rusqlite::{Connection, OptionalExtension, Row, named_params, params};

use super::rows::{COLUMNS, read_run, read_run_and_request};
use crate::StoreError;
use crate::runs::Moved;
use crate::runs::columns::Columns;
use crate::sqlite::{explain, is_served};

/// The tables within one transaction.
pub(super) struct Tables<'t> {
    connection: &'t Connection,
    path: &'t Path,
    now: Stamp,
}

impl<'t> Tables<'t> {
    pub(super) fn new(connection: &'t Connection, path: &'t Path, now: Stamp) -> Self {
        Self { connection, path, now }
    }

    /// When the transaction began.
    pub(super) fn now(&self) -> Stamp {
        self.now
    }

    /// Whether other machines use the folder.
    pub(super) fn is_served(&self) -> bool {
        is_served(self.path)
    }

    /// One run.
    pub(super) fn run(&self, id: &RunId) -> Result<Option<Run>, StoreError> {
        self.one(
            &format!("SELECT {COLUMNS} FROM run JOIN request ON request.seq = run.request WHERE run.id = ?1"),
            [id.as_str()],
        )
    }

    /// The latest run of a request that was not rejected.
    pub(super) fn latest_run(&self, request: &RequestId) -> Result<Option<Run>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM request JOIN run ON run.seq = request.latest WHERE request.id = ?1"
        );
        self.one(&sql, [request.as_str()])
    }

    /// Writes a transition, or returns the current record.
    pub(super) fn move_run(&self, transition: &Transition) -> Result<Moved, StoreError> {
        if self.apply(transition)? {
            return Ok(Moved::Applied);
        }
        Ok(Moved::Conflict(self.run(&transition.run.id)?.map(Box::new)))
    }

    /// Writes a transition. False if the run has another version.
    pub(super) fn apply(&self, transition: &Transition) -> Result<bool, StoreError> {
        let Transition { run, event } = transition;
        if !self.replace(run, run.version - 1)? {
            return Ok(false);
        }
        self.append(run, event)?;
        // Until its run has ended, a request stays `QUEUED` in the table.
        if run.status().is_terminal()
            && let Some(request) = self.request_with_latest(&run.id)?
        {
            self.set_request_status(request, RequestStatus::from(run))?;
        }
        Ok(true)
    }

    /// Replaces the record of a run if it has this version (compare-and-set). False if it has another one.
    ///
    /// `RETURNING` would return the current record, but SQLite creates a table for it at every change.
    pub(super) fn replace(&self, after: &Run, expected: u32) -> Result<bool, StoreError> {
        let row = Columns::from(after);
        let sql = "UPDATE run SET status = :status, attempt = :attempt, claim = :claim, worker = :worker,
                 holder = :holder, pid = :pid, pid_started = :pid_started, lease = :lease, token = :token,
                 give_up_at = :give_up_at, started_at = :started_at, started_moment = :started_moment,
                 retry_at = :retry_at, completed_at = :completed_at, completed_moment = :completed_moment,
                 exit_code = :exit_code, signal = :signal, reason = :reason, message = :message, help = :help,
                 events = :version
             WHERE id = :id AND events = :expected";
        let values: &[(&str, &dyn ToSql)] = named_params! {
            ":status": after.status().as_str(), ":attempt": after.attempt(),
            ":claim": after.claim().cast_signed(), ":worker": after.worker().map(|worker| worker.as_str()),
            ":holder": row.holder, ":pid": row.pid, ":pid_started": row.pid_started, ":lease": row.lease,
            ":token": row.token, ":give_up_at": row.give_up_at, ":started_at": row.started_at,
            ":started_moment": row.started_moment, ":retry_at": row.retry_at,
            ":completed_at": row.completed_at, ":completed_moment": row.completed_moment,
            ":exit_code": row.exit_code, ":signal": row.signal, ":reason": row.reason,
            ":message": after.message(), ":help": after.help(), ":version": after.version,
            ":id": after.id.as_str(), ":expected": expected,
        };
        let mut statement = self.database(self.connection.prepare_cached(sql))?;
        self.database(statement.execute(values)).map(|replaced| replaced > 0)
    }

    /// Appends an event to a run whose record is written.
    pub(super) fn append(&self, after: &Run, event: &Event) -> Result<(), StoreError> {
        self.execute(
            "INSERT INTO event (run, seq, at, kind, from_status, to_status, attempt, claim, reason, message)
             SELECT seq, events, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9 FROM run WHERE id = ?1",
            params![
                after.id.as_str(),
                event.at.unix_micros,
                event.kind.as_str(),
                event.from.map(Status::as_str),
                event.to.as_str(),
                after.attempt(),
                after.claim().cast_signed(),
                event.reason.map(|reason| reason.as_str()),
                event.message,
            ],
        )
    }

    /// The request whose latest run this is; none if it has a later one.
    fn request_with_latest(&self, id: &RunId) -> Result<Option<i64>, StoreError> {
        let sql = "SELECT request.seq FROM run JOIN request ON request.seq = run.request AND request.latest = run.seq
                   WHERE run.id = ?1";
        let mut statement = self.database(self.connection.prepare_cached(sql))?;
        self.database(statement.query_row([id.as_str()], |row| row.get(0)).optional())
    }

    /// Executes a statement. Returns how many rows it changed.
    pub(super) fn change(&self, sql: &str, values: impl rusqlite::Params) -> Result<usize, StoreError> {
        let done = self.connection.prepare_cached(sql).and_then(|mut statement| statement.execute(values));
        self.database(done)
    }

    pub(super) fn execute(&self, sql: &str, values: impl rusqlite::Params) -> Result<(), StoreError> {
        self.change(sql, values).map(|_| ())
    }

    /// The number in the only column of the first row.
    pub(super) fn number(&self, sql: &str, values: impl rusqlite::Params) -> Result<Option<i64>, StoreError> {
        let mut statement = self.database(self.connection.prepare_cached(sql))?;
        self.database(statement.query_row(values, |row| row.get(0)).optional()).map(Option::flatten)
    }

    pub(super) fn one(&self, sql: &str, values: impl rusqlite::Params) -> Result<Option<Run>, StoreError> {
        Ok(self.many(sql, values)?.pop())
    }

    pub(super) fn many(&self, sql: &str, values: impl rusqlite::Params) -> Result<Vec<Run>, StoreError> {
        self.rows(sql, values, |row| read_run(row, 0))
    }

    /// Runs with their requests; the statement selects `request.spec` as well.
    pub(super) fn many_with_requests(
        &self,
        sql: &str,
        values: impl rusqlite::Params,
    ) -> Result<Vec<(Run, Request)>, StoreError> {
        self.rows(sql, values, read_run_and_request)
    }

    /// Reads rows. A row that `read` rejects is damage.
    pub(super) fn rows<T>(
        &self,
        sql: &str,
        values: impl rusqlite::Params,
        read: impl Fn(&Row<'_>) -> rusqlite::Result<Result<T, String>>,
    ) -> Result<Vec<T>, StoreError> {
        let mut statement = self.database(self.connection.prepare_cached(sql))?;
        let rows = self.database(statement.query_map(values, read))?;
        let mut found = Vec::new();
        for row in rows {
            let row = self.database(row)?;
            found.push(row.map_err(|what| self.damaged(what))?);
        }
        Ok(found)
    }

    pub(super) fn damaged(&self, what: String) -> StoreError {
        StoreError::Damaged { address: self.path.display().to_string(), what }
    }

    /// How many rows this connection has changed so far.
    #[cfg(feature = "http")]
    pub(super) fn changes(&self) -> u64 {
        self.connection.total_changes()
    }

    pub(super) fn last_insert_rowid(&self) -> i64 {
        self.connection.last_insert_rowid()
    }

    pub(super) fn database<T>(&self, result: rusqlite::Result<T>) -> Result<T, StoreError> {
        result.map_err(|error| explain(self.path, error))
    }
}
