//! The queue: which runs come next, which are overdue, and which are executed.

use lockkeeper_core::id::{HolderId, RunId};
use lockkeeper_core::request::Request;
use lockkeeper_core::run::Run;
use lockkeeper_core::time::Moment;
use rusqlite::params;

use super::rows::COLUMNS;
use super::tables::Tables;
use crate::StoreError;
use crate::runs::columns::{limit_of, parse};

const FROM: &str = "FROM run JOIN request ON request.seq = run.request";
// The indexes are named: without statistics SQLite prefers the index of all statuses, and reads every queued run.
const FROM_QUEUE: &str = "FROM run INDEXED BY run_queue JOIN request ON request.seq = run.request";
const FROM_LEASES: &str = "FROM run INDEXED BY run_wish JOIN request ON request.seq = run.request";
const FROM_OUTSIDE: &str = "FROM run INDEXED BY run_outside JOIN request ON request.seq = run.request";
/// Runs that a worker executes, and ended runs whose processes may live.
const ACTIVE: &str = "SELECT seq FROM run INDEXED BY run_status
        WHERE status IN ('running', 'cancelling') AND (worker IS NOT NULL OR holder IS NOT NULL)
    UNION ALL
    SELECT seq FROM run INDEXED BY run_left WHERE holder IS NOT NULL AND completed_at IS NOT NULL";
const FROM_GIVE_UP: &str = "FROM run INDEXED BY run_give_up JOIN request ON request.seq = run.request";

impl Tables<'_> {
    /// Queued runs that can be claimed, with their requests, in the order of the queue.
    pub(super) fn ready(&self, limit: usize) -> Result<Vec<(Run, Request)>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS}, request.spec {FROM_QUEUE} WHERE run.status = 'queued' AND run.ready = 1
             ORDER BY run.priority DESC, run.seq LIMIT ?1"
        );
        self.many_with_requests(&sql, [limit_of(limit)])
    }

    /// Those of them that need neither a lease nor a lock file.
    pub(super) fn ready_without_lease(&self, limit: usize) -> Result<Vec<(Run, Request)>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS}, request.spec {FROM_LEASES}
             WHERE run.status = 'queued' AND run.ready = 1 AND run.wish = ''
             ORDER BY run.priority DESC, run.seq LIMIT ?1"
        );
        self.many_with_requests(&sql, [limit_of(limit)])
    }

    /// Of the queued runs that need the same lease, only the first. Its cost grows with the number of different leases, not
    /// with the number of runs.
    pub(super) fn ready_by_lease(&self, limit: usize) -> Result<Vec<(Run, Request)>, StoreError> {
        let sql = format!(
            "WITH RECURSIVE keys (wish) AS (
                 SELECT min(wish) FROM run INDEXED BY run_wish WHERE status = 'queued' AND ready = 1
                 UNION ALL
                 SELECT (SELECT min(run.wish) FROM run INDEXED BY run_wish
                         WHERE run.status = 'queued' AND run.ready = 1 AND run.wish > keys.wish)
                 FROM keys WHERE keys.wish IS NOT NULL
             ), firsts (seq) AS (
                 SELECT (SELECT run.seq FROM run INDEXED BY run_wish
                         WHERE run.status = 'queued' AND run.ready = 1 AND run.wish = keys.wish
                         ORDER BY run.priority DESC, run.seq LIMIT 1)
                 FROM keys WHERE keys.wish IS NOT NULL
             )
             SELECT {COLUMNS}, request.spec FROM firsts JOIN run ON run.seq = firsts.seq
                 JOIN request ON request.seq = run.request
             ORDER BY run.priority DESC, run.seq LIMIT ?1"
        );
        self.many_with_requests(&sql, [limit_of(limit)])
    }

    /// Runs whose next attempt is due, with their requests, by priority.
    pub(super) fn due_retries(&self, now: Moment, limit: usize) -> Result<Vec<(Run, Request)>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS}, request.spec {FROM} WHERE run.retry_at <= ?1 AND run.ready = 1
             ORDER BY run.priority DESC, run.retry_at, run.seq LIMIT ?2"
        );
        self.many_with_requests(&sql, params![now.as_micros(), limit_of(limit)])
    }

    /// Queued runs that timed out, and runs of executors outside of Lockkeeper whose attempt timed out.
    pub(super) fn overdue(&self, limit: usize) -> Result<Vec<Run>, StoreError> {
        let now = self.now().moment.as_micros();
        let sql = format!(
            "SELECT {COLUMNS} {FROM_GIVE_UP} WHERE run.status = 'queued' AND run.give_up_at <= ?1
             ORDER BY run.give_up_at LIMIT ?2"
        );
        let mut overdue = self.many(&sql, params![now, limit_of(limit)])?;
        let sql = format!(
            "SELECT {COLUMNS} {FROM_OUTSIDE} WHERE run.worker IS NOT NULL AND run.holder IS NULL
                 AND run.status = 'running' AND run.started_moment + run.timeout <= ?1"
        );
        overdue.extend(self.many(&sql, [now])?);
        Ok(overdue)
    }

    /// When the next queued run times out, an attempt becomes due, or an attempt of an executor outside of Lockkeeper times
    /// out. Attempts that were due at `looked_at` are left out.
    pub(super) fn next_due(&self, looked_at: Moment) -> Result<Option<Moment>, StoreError> {
        let give_up = self.number(
            "SELECT min(give_up_at) FROM run INDEXED BY run_give_up
             WHERE status = 'queued' AND give_up_at IS NOT NULL",
            [],
        )?;
        let retry = self.number(
            "SELECT min(retry_at) FROM run WHERE retry_at > ?1 AND ready = 1",
            [looked_at.as_micros()],
        )?;
        let outside = self.number(
            "SELECT min(started_moment + timeout) FROM run INDEXED BY run_outside
             WHERE worker IS NOT NULL AND holder IS NULL AND status = 'running'",
            [],
        )?;
        Ok([give_up, retry, outside].into_iter().flatten().min().map(Moment::from_micros))
    }

    /// Queued runs of stages.
    pub(super) fn queued_in_stages(&self) -> Result<Vec<Run>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} {FROM} WHERE run.seq IN (SELECT seq FROM run INDEXED BY run_stage WHERE status = 'queued' AND ready = -1)
             ORDER BY run.seq"
        );
        self.many(&sql, [])
    }

    /// Runs that a worker executes, and ended runs whose processes may live.
    pub(super) fn active_runs(&self) -> Result<Vec<Run>, StoreError> {
        let sql = format!("SELECT {COLUMNS} {FROM} WHERE run.seq IN ({ACTIVE}) ORDER BY run.seq");
        self.many(&sql, [])
    }

    /// The run whose processes share this liveness lock.
    pub(super) fn run_with_lock(&self, holder: HolderId) -> Result<Option<Run>, StoreError> {
        let sql = format!("SELECT {COLUMNS} {FROM} WHERE run.seq IN ({ACTIVE}) AND run.holder = ?1");
        self.one(&sql, [holder.0.cast_signed()])
    }

    /// The ids of the first queued runs that can be claimed.
    pub(super) fn queue_head(&self, limit: usize) -> Result<Vec<RunId>, StoreError> {
        let sql = "SELECT id FROM run INDEXED BY run_queue WHERE status = 'queued' AND ready = 1
                   ORDER BY priority DESC, seq LIMIT ?1";
        self.rows(sql, [limit_of(limit)], |row| Ok(parse(&row.get::<_, String>(0)?)))
    }

    /// How many queued runs are before this one.
    pub(super) fn queue_position(&self, run: &RunId) -> Result<u64, StoreError> {
        let sql = "SELECT (SELECT count(*) FROM run INDEXED BY run_queue
                           WHERE status = 'queued' AND ready = 1 AND priority > this.priority)
                        + (SELECT count(*) FROM run INDEXED BY run_queue
                           WHERE status = 'queued' AND ready = 1 AND priority = this.priority AND seq < this.seq)
                   FROM run AS this WHERE this.id = ?1";
        Ok(self.number(sql, [run.as_str()])?.unwrap_or(0).cast_unsigned())
    }

    /// When the oldest queued run entered the queue.
    pub(super) fn oldest_queued_at(&self) -> Result<Option<i64>, StoreError> {
        let sql =
            "SELECT queued_at FROM run INDEXED BY run_status WHERE status = 'queued' ORDER BY seq LIMIT 1";
        self.number(sql, [])
    }

    /// How many runs are queued.
    pub(super) fn queue_length(&self) -> Result<u64, StoreError> {
        Ok(self.number("SELECT count(*) FROM run WHERE status = 'queued'", [])?.unwrap_or(0).cast_unsigned())
    }
}
