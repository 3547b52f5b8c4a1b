//! The queue: which runs come next, which are overdue, and which are executed.

use lockkeeper_core::id::{HolderId, RunId};
use lockkeeper_core::request::Request;
use lockkeeper_core::run::Run;
use lockkeeper_core::time::Moment;

use super::rows::{COLUMNS, param, run_and_request_from};
use super::snapshot::Snapshot;
use crate::StoreError;
use crate::postgres::connection::Params;
use crate::postgres::rows::get;
use crate::runs::Listing;
use crate::runs::columns::limit_of;
use crate::runs::order::in_order;

impl Snapshot<'_> {
    /// Runs that can be claimed now, in the order of the queue.
    pub(super) fn listed(&self, listing: Listing, limit: usize) -> Result<Vec<(Run, Request)>, StoreError> {
        let (project, limit, now) = (self.project(), limit_of(limit), self.moment());
        let due = self.many_with_requests(
            "retry_at <= $2 AND ready = 1 ORDER BY rank, retry_at, seq LIMIT $3",
            &[param(&project), param(&now), param(&limit)],
        )?;
        let ready = match listing {
            Listing::EveryRun => "status = 'queued' AND ready = 1 ORDER BY rank, seq LIMIT $2",
            Listing::FirstOfEachLease => FIRSTS,
        };
        let ready = self.many_with_requests(ready, &[param(&project), param(&limit)])?;
        Ok(in_order(due, ready))
    }

    fn many_with_requests(&self, rest: &str, params: Params<'_>) -> Result<Vec<(Run, Request)>, StoreError> {
        let sql = format!("SELECT {COLUMNS}, spec FROM lockkeeper_runs.record WHERE project = $1 AND {rest}");
        self.read_all(&self.query(&sql, params)?, run_and_request_from)
    }

    /// How many queued runs are before this one.
    pub(super) fn position_of(&self, run: &RunId) -> Result<u64, StoreError> {
        let sql = "SELECT (
                       SELECT count(*) FROM lockkeeper_runs.run
                       WHERE project = $1 AND status = 'queued' AND ready = 1 AND (rank, seq) < (this.rank, this.seq))
                   FROM lockkeeper_runs.run AS this WHERE project = $1 AND id = $2";
        let rows = self.query(sql, &[param(&self.project()), param(&run.as_str())])?;
        Ok(rows.first().map_or(Ok(0), |row| get::<i64>(row, 0))?.cast_unsigned())
    }

    /// Queued runs that timed out, and runs of executors outside of Lockkeeper whose attempt timed out.
    pub(super) fn timed_out(&self, limit: usize) -> Result<Vec<Run>, StoreError> {
        let (project, now) = (self.project(), self.moment());
        let mut overdue = self.many(
            "status = 'queued' AND give_up_at <= $2 ORDER BY give_up_at LIMIT $3",
            &[param(&project), param(&now), param(&limit_of(limit))],
        )?;
        overdue.extend(self.many(
            "status = 'running' AND worker IS NOT NULL AND holder IS NULL AND started_moment + timeout <= $2",
            &[param(&project), param(&now)],
        )?);
        Ok(overdue)
    }

    /// The next moment at which something is due that was not due at `looked_at`.
    pub(super) fn due_after(&self, looked_at: Moment) -> Result<Option<Moment>, StoreError> {
        let sql = "SELECT least(
                (SELECT min(give_up_at) FROM lockkeeper_runs.run
                 WHERE project = $1 AND status = 'queued' AND give_up_at IS NOT NULL),
                (SELECT min(retry_at) FROM lockkeeper_runs.run WHERE project = $1 AND retry_at > $2 AND ready = 1),
                (SELECT min(started_moment + timeout) FROM lockkeeper_runs.run
                 WHERE project = $1 AND status = 'running' AND worker IS NOT NULL AND holder IS NULL))";
        let rows = self.query(sql, &[param(&self.project()), param(&looked_at.as_micros())])?;
        let due: Option<i64> = rows.first().map_or(Ok(None), |row| get(row, 0))?;
        Ok(due.map(Moment::from_micros))
    }

    /// Runs that a worker executes, and ended runs whose processes may live: all, or that with this liveness lock.
    pub(super) fn executed(&self, holder: Option<HolderId>) -> Result<Vec<Run>, StoreError> {
        let holder = holder.map(|holder| holder.0.cast_signed());
        self.many(
            "seq IN (
                SELECT seq FROM lockkeeper_runs.run WHERE project = $1 AND status IN ('running', 'cancelling')
                    AND (worker IS NOT NULL OR holder IS NOT NULL)
                UNION ALL
                SELECT seq FROM lockkeeper_runs.run
                WHERE project = $1 AND holder IS NOT NULL AND completed_at IS NOT NULL)
             AND ($2::bigint IS NULL OR holder = $2) ORDER BY seq",
            &[param(&self.project()), param(&holder)],
        )
    }
}

/// Of the queued runs that need the same lease, only the first. Its cost grows with the number of different leases, not with
/// the number of runs.
const FIRSTS: &str = "seq IN (
    WITH RECURSIVE keys (wish) AS (
        (SELECT wish FROM lockkeeper_runs.run WHERE project = $1 AND status = 'queued' AND ready = 1 ORDER BY wish LIMIT 1)
        UNION ALL
        SELECT (SELECT run.wish FROM lockkeeper_runs.run
                WHERE run.project = $1 AND run.status = 'queued' AND run.ready = 1 AND run.wish > keys.wish
                ORDER BY run.wish LIMIT 1)
        FROM keys WHERE keys.wish IS NOT NULL
    )
    SELECT (SELECT run.seq FROM lockkeeper_runs.run
            WHERE run.project = $1 AND run.status = 'queued' AND run.ready = 1 AND run.wish = keys.wish
            ORDER BY run.rank, run.seq LIMIT 1)
    FROM keys WHERE keys.wish IS NOT NULL
) ORDER BY rank, seq LIMIT $2";
