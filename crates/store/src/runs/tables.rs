//! What can be done to the records within one transaction.

use std::path::Path;

use lockkeeper_core::id::{RequestId, RunId};
use lockkeeper_core::request::{Request, RequestStatus};
use lockkeeper_core::run::life::Moved;
use lockkeeper_core::run::{Event, Run, Stamp, Status};
use rusqlite::types::ToSql;
use rusqlite::{Connection, OptionalExtension, Row, named_params, params};

use super::requests::kept;
use super::rows::{COLUMNS, read_run, split};
use crate::StoreError;
use crate::sqlite::explain;

/// The records of one transaction.
pub struct Tables<'t> {
    connection: &'t Connection,
    path: &'t Path,
    now: Stamp,
}

impl<'t> Tables<'t> {
    pub(super) fn new(connection: &'t Connection, path: &'t Path, now: Stamp) -> Self {
        Self { connection, path, now }
    }

    /// When the transaction began, or what is written in it happened.
    pub fn now(&self) -> Stamp {
        self.now
    }

    /// The same records, for something that happened at another time.
    pub fn at(&self, at: Stamp) -> Self {
        Self { now: at, ..*self }
    }

    /// Puts in a new run of a request, with its first event.
    pub fn insert_run(&self, run: &Run, priority: i32, event: &Event) -> Result<(), StoreError> {
        run.check().map_err(|error| StoreError::Mismatch(error.to_string()))?;
        let request = self.request_seq(&run.request)?;
        let stored = self.request(&run.request)?.map(|stored| stored.request);
        let wish = stored.as_ref().map_or_else(String::new, Request::wish);
        // Who conducts it takes it by name; nobody else is to find it.
        let conducted = stored.is_some_and(|request| request.conductor().is_some());
        let row = split(run);
        self.execute(
            "INSERT INTO run (id, request, status, attempt, claim, worker, holder, pid, pid_started, lease, token,
                 priority, ready, wish, queued_at, queued_moment, give_up_at, started_at, started_moment, timeout, retry_at,
                 completed_at, completed_moment, exit_code, signal, reason, message, help, events)
             VALUES (:id, :request, :status, :attempt, :claim, NULL, NULL, NULL, NULL, NULL, NULL,
                 :priority, (SELECT unmet = 0 AND NOT :conducted FROM request WHERE seq = :request), :wish, :queued_at, :queued_moment,
                 :give_up_at, NULL, NULL, :timeout, NULL, :completed_at, :completed_moment,
                 NULL, NULL, :reason, :message, 0, 1)",
            named_params! {
                ":id": run.id.as_str(), ":request": request, ":status": row.status, ":attempt": run.attempt,
                ":claim": row.claim, ":priority": priority, ":wish": wish, ":conducted": conducted, ":queued_at": run.queued_at.unix_micros,
                ":queued_moment": run.queued_at.moment.as_micros(), ":give_up_at": row.give_up_at,
                ":timeout": row.timeout, ":completed_at": row.completed_at,
                ":completed_moment": row.completed_moment, ":reason": row.reason, ":message": run.message,
            },
        )?;
        let seq = self.connection.last_insert_rowid();
        self.append(run, event)?;
        // A run that was refused says nothing about a request that has others.
        if run.status == Status::Rejected {
            let sql = "UPDATE request SET status = ?1 WHERE seq = ?2 AND latest IS NULL";
            return self.execute(sql, params![RequestStatus::from(run).as_str(), request]);
        }
        self.execute("UPDATE request SET latest = ?1 WHERE seq = ?2", params![seq, request])?;
        self.set_request_status(request, RequestStatus::from(run))
    }

    /// Puts the next record of a run in the place of `before`, with its event; false when somebody else was first.
    ///
    /// This is the one compare-and-set that runs move by.
    pub fn advance(&self, before: &Run, moved: &Moved) -> Result<bool, StoreError> {
        moved.run.check().map_err(|error| StoreError::Mismatch(error.to_string()))?;
        if !self.replace(before, &moved.run, 1)? {
            return Ok(false);
        }
        self.append(&moved.run, &moved.event)?;
        let [was, is] = [before, &moved.run].map(RequestStatus::from);
        if kept(was) != kept(is)
            && let Some(request) = self.request_with_latest(&before.id)?
        {
            self.set_request_status(request, is)?;
        }
        Ok(true)
    }

    /// The same for a change that is no event: what was left of a run is known to be gone.
    pub fn settle(&self, before: &Run, after: &Run) -> Result<bool, StoreError> {
        self.replace(before, after, 0)
    }

    /// One run.
    pub fn run(&self, id: &RunId) -> Result<Option<Run>, StoreError> {
        self.one(
            &format!("SELECT {COLUMNS} FROM run JOIN request ON request.seq = run.request WHERE run.id = ?1"),
            [id.as_str()],
        )
    }

    /// The latest run of a request that was not refused.
    pub fn latest_run(&self, request: &RequestId) -> Result<Option<Run>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM request JOIN run ON run.seq = request.latest WHERE request.id = ?1"
        );
        self.one(&sql, [request.as_str()])
    }

    /// Whether the run was still as before. What it is now is not asked for with the same statement: SQLite makes a
    /// table for that at every move.
    fn replace(&self, before: &Run, after: &Run, events: u32) -> Result<bool, StoreError> {
        let row = split(after);
        let sql = "UPDATE run SET status = :status, attempt = :attempt, claim = :claim, worker = :worker,
                 holder = :holder, pid = :pid, pid_started = :pid_started, lease = :lease, token = :token,
                 give_up_at = :give_up_at, started_at = :started_at, started_moment = :started_moment,
                 retry_at = :retry_at, completed_at = :completed_at, completed_moment = :completed_moment,
                 exit_code = :exit_code, signal = :signal, reason = :reason, message = :message, help = :help,
                 events = events + :events
             WHERE id = :id AND status = :expected_status AND claim = :expected_claim
                 AND worker IS :expected_worker AND help = :expected_help";
        let values: &[(&str, &dyn ToSql)] = named_params! {
            ":status": row.status, ":attempt": after.attempt, ":claim": row.claim, ":worker": row.worker,
            ":holder": row.holder, ":pid": row.pid, ":pid_started": row.pid_started, ":lease": row.lease,
            ":token": row.token, ":give_up_at": row.give_up_at, ":started_at": row.started_at,
            ":started_moment": row.started_moment, ":retry_at": row.retry_at,
            ":completed_at": row.completed_at, ":completed_moment": row.completed_moment,
            ":exit_code": row.exit_code, ":signal": row.signal, ":reason": row.reason,
            ":message": after.message, ":help": after.help, ":events": events, ":id": before.id.as_str(),
            ":expected_status": before.status.as_str(), ":expected_claim": before.claim.cast_signed(),
            ":expected_worker": before.worker.as_ref().map(|worker| worker.as_str()), ":expected_help": before.help,
        };
        let mut statement = self.database(self.connection.prepare_cached(sql))?;
        self.database(statement.execute(values)).map(|replaced| replaced > 0)
    }

    /// Appends an event to a run, which counts it already.
    fn append(&self, after: &Run, event: &Event) -> Result<(), StoreError> {
        self.execute(
            "INSERT INTO event (run, seq, at, kind, from_status, to_status, attempt, claim, reason, message)
             SELECT seq, events, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9 FROM run WHERE id = ?1",
            params![
                after.id.as_str(),
                self.now.unix_micros,
                event.kind.as_str(),
                event.from.map(Status::as_str),
                event.to.as_str(),
                after.attempt,
                after.claim.cast_signed(),
                event.reason.map(|reason| reason.as_str()),
                event.message,
            ],
        )
    }

    /// The request whose latest run this is; none when it has a later one.
    fn request_with_latest(&self, id: &RunId) -> Result<Option<i64>, StoreError> {
        let sql = "SELECT request.seq FROM run JOIN request ON request.seq = run.request AND request.latest = run.seq
                   WHERE run.id = ?1";
        let mut statement = self.database(self.connection.prepare_cached(sql))?;
        self.database(statement.query_row([id.as_str()], |row| row.get(0)).optional())
    }

    pub(super) fn execute(&self, sql: &str, values: impl rusqlite::Params) -> Result<(), StoreError> {
        let done = self.connection.prepare_cached(sql).and_then(|mut statement| statement.execute(values));
        self.database(done).map(|_| ())
    }

    pub(super) fn number(&self, sql: &str, values: impl rusqlite::Params) -> Result<Option<i64>, StoreError> {
        let mut statement = self.database(self.connection.prepare_cached(sql))?;
        self.database(statement.query_row(values, |row| row.get(0)).optional()).map(Option::flatten)
    }

    pub(super) fn one(&self, sql: &str, values: impl rusqlite::Params) -> Result<Option<Run>, StoreError> {
        Ok(self.many(sql, values)?.pop())
    }

    pub(super) fn many(&self, sql: &str, values: impl rusqlite::Params) -> Result<Vec<Run>, StoreError> {
        self.rows(sql, values, read_run)
    }

    /// Reads rows that may be not what they should be.
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
            found.push(self.database(row)?.map_err(|what| self.damaged(what))?);
        }
        Ok(found)
    }

    pub(super) fn connection(&self) -> &Connection {
        self.connection
    }

    pub(super) fn database<T>(&self, result: rusqlite::Result<T>) -> Result<T, StoreError> {
        result.map_err(|error| explain(self.path, error))
    }

    pub(super) fn damaged(&self, what: String) -> StoreError {
        StoreError::Damaged { address: self.path.display().to_string(), what }
    }
}
