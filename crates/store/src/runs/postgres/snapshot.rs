//! A snapshot: a read-only transaction of the server that sees no later commit.

use std::collections::HashMap;

use lockkeeper_core::id::{HolderId, RequestId, RunId};
use lockkeeper_core::request::{Request, RequestStatus};
use lockkeeper_core::run::{Run, Stamp, Status};
use lockkeeper_core::time::Moment;
use tokio_postgres::Row;

use super::PostgresRunStore;
use super::rows::{COLUMNS, SELECT_STORED, event_from, param, run_from, stored_from};
use crate::StoreError;
use crate::postgres::connection::{Exclusive, Failure, Params};
use crate::postgres::no_row;
use crate::postgres::rows::get;
use crate::runs::columns::{limit_of, number, parse};
use crate::runs::{
    AutoRun, KeptOutput, Listing, Match, RequestFilter, RunFilter, RunRecords, StoredEvent, StoredRequest,
    Timing, Worker,
};

const SELECT_EVENTS: &str =
    "SELECT event.position, run.id, event.seq, request.id, event.at, event.kind, event.from_status, event.to_status, \
    event.attempt, event.claim, event.reason, event.message
    FROM lockkeeper_runs.event JOIN lockkeeper_runs.run ON run.project = $1 AND run.seq = event.run
    JOIN lockkeeper_runs.request ON request.project = $1 AND request.seq = run.request";

/// The records of one moment. Dropping it ends the transaction.
pub(super) struct Snapshot<'s> {
    store: &'s PostgresRunStore,
    pub(super) connection: Exclusive<'s>,
    now: Stamp,
}

impl<'s> Snapshot<'s> {
    pub(super) fn begin(store: &'s PostgresRunStore) -> Result<Self, StoreError> {
        Self::begin_as(store, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    }

    /// Begins a transaction that can also write, and that sees what it has written.
    pub(super) fn begin_to_write(store: &'s PostgresRunStore) -> Result<Self, StoreError> {
        Self::begin_as(store, "BEGIN")
    }

    fn begin_as(store: &'s PostgresRunStore, how: &str) -> Result<Self, StoreError> {
        let project = store.project();
        let begin = || -> Result<_, Failure> {
            let connection = store.leases.server.exclusive()?;
            let rows = connection.begin(
                how,
                "SELECT lockkeeper.moment($1), lockkeeper.wall()",
                &[param(&project)],
            )?;
            Ok((connection, rows))
        };
        // An idle connection may have been closed by the server meanwhile: the second try opens a new one.
        let begun = begin().or_else(|failure| if failure.is_broken() { begin() } else { Err(failure) });
        let (connection, rows) = begun.map_err(|failure| store.explain(failure))?;
        let now = store.note(rows.first().ok_or_else(no_row)?, 0)?;
        Ok(Self { store, connection, now })
    }

    pub(super) fn project(&self) -> i32 {
        self.store.project()
    }

    pub(super) fn moment(&self) -> i64 {
        self.now.moment.as_micros()
    }

    pub(super) fn query(&self, sql: &str, params: Params<'_>) -> Result<Vec<Row>, StoreError> {
        self.connection.query(sql, params).map_err(|failure| self.store.explain(failure))
    }

    /// Reads rows. A row that `read` rejects is damage.
    pub(super) fn read_all<'r, T>(
        &self,
        rows: &'r [Row],
        read: impl Fn(&'r Row) -> Result<Result<T, String>, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        rows.iter().map(|row| read(row)?.map_err(|what| self.damaged(what))).collect()
    }

    pub(super) fn damaged(&self, what: String) -> StoreError {
        self.store.damaged(what)
    }

    /// The runs that a condition leaves. `$1` is the project.
    pub(super) fn many(&self, rest: &str, params: Params<'_>) -> Result<Vec<Run>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM lockkeeper_runs.record WHERE project = $1 AND {rest}");
        self.read_all(&self.query(&sql, params)?, run_from)
    }

    fn events(&self, rest: &str, params: Params<'_>) -> Result<Vec<StoredEvent>, StoreError> {
        self.read_all(&self.query(&format!("{SELECT_EVENTS} {rest}"), params)?, event_from)
    }
}

impl RunRecords for Snapshot<'_> {
    fn now(&self) -> Stamp {
        self.now
    }

    fn run(&self, id: &RunId) -> Result<Option<Run>, StoreError> {
        Ok(self.many("id = $2", &[param(&self.project()), param(&id.as_str())])?.pop())
    }

    fn latest_run(&self, request: &RequestId) -> Result<Option<Run>, StoreError> {
        let latest = "seq = (SELECT latest FROM lockkeeper_runs.request WHERE project = $1 AND id = $2)";
        Ok(self.many(latest, &[param(&self.project()), param(&request.as_str())])?.pop())
    }

    fn runs_by_part(&self, text: &str) -> Result<Vec<Run>, StoreError> {
        self.many(
            "(right(id, length($2)) = $2
              OR (left(right(id, 11), 1) = '-' AND left(right(id, 10), length($2)) = $2 AND length($2) <= 10)) LIMIT 2",
            &[param(&self.project()), param(&text)],
        )
    }

    fn runs(&self, filter: &RunFilter) -> Result<Vec<Run>, StoreError> {
        let statuses: Vec<&'static str> = filter.statuses.iter().map(|status| status.as_str()).collect();
        let statuses = (!statuses.is_empty()).then_some(statuses);
        let request = filter.request.as_ref().map(|id| id.as_str());
        let before = filter.before.as_ref().map(|id| id.as_str());
        self.many(
            "($2::text[] IS NULL OR status = ANY ($2)) AND ($3::text IS NULL OR request = $3)
             AND ($4::text IS NULL OR seq < (SELECT seq FROM lockkeeper_runs.run WHERE project = $1 AND id = $4))
             ORDER BY seq DESC LIMIT $5",
            &[
                param(&self.project()),
                param(&statuses),
                param(&request),
                param(&before),
                param(&limit_of(filter.limit)),
            ],
        )
    }

    fn run_counts(&self) -> Result<Vec<(Status, u64)>, StoreError> {
        let sql = "SELECT status, count(*) FROM lockkeeper_runs.run WHERE project = $1
                   GROUP BY status ORDER BY status COLLATE \"C\"";
        let rows = self.query(sql, &[param(&self.project())])?;
        self.read_all(&rows, |row| {
            let (status, count): (&str, i64) = (get(row, 0)?, get(row, 1)?);
            Ok(parse(status).map(|status| (status, count.cast_unsigned())))
        })
    }

    fn timings(&self, since_unix_micros: i64) -> Result<Vec<Timing>, StoreError> {
        let sql = "SELECT title, status, attempt, queued_at,
                       CASE WHEN attempt = 1 THEN started_at ELSE (
                           SELECT min(event.at) FROM lockkeeper_runs.event
                           WHERE event.run = record.seq AND event.kind = 'claimed') END,
                       completed_at
                   FROM lockkeeper_runs.record WHERE project = $1 AND queued_at >= $2 ORDER BY seq";
        let rows = self.query(sql, &[param(&self.project()), param(&since_unix_micros)])?;
        self.read_all(&rows, |row| {
            let (title, status, attempts): (String, &str, i64) = (get(row, 0)?, get(row, 1)?, get(row, 2)?);
            let (queued_at, claimed_at, completed_at) = (get(row, 3)?, get(row, 4)?, get(row, 5)?);
            let build = || {
                let (status, attempts) = (parse(status)?, number(attempts, "attempt")?);
                Ok(Timing { title, status, attempts, queued_at, claimed_at, completed_at })
            };
            Ok(build())
        })
    }

    fn request(&self, id: &RequestId) -> Result<Option<StoredRequest>, StoreError> {
        let sql = format!("{SELECT_STORED} WHERE request.project = $1 AND request.id = $2");
        let rows = self.query(&sql, &[param(&self.project()), param(&id.as_str())])?;
        Ok(self.read_all(&rows, stored_from)?.pop())
    }

    fn requests(&self, filter: &RequestFilter) -> Result<Vec<StoredRequest>, StoreError> {
        self.requests_matching(filter)
    }

    fn requests_in_order(
        &self,
        after: Option<&RequestId>,
        limit: usize,
    ) -> Result<Vec<StoredRequest>, StoreError> {
        self.stored_in_order(after, limit)
    }

    fn runs_in_order(&self, after: Option<&RunId>, limit: usize) -> Result<Vec<(Run, Request)>, StoreError> {
        self.with_requests_in_order(after, limit)
    }

    fn matching(&self, filter: &RequestFilter) -> Result<Vec<Match>, StoreError> {
        self.ids_matching(filter)
    }

    fn count_matching(&self, filter: &RequestFilter) -> Result<Vec<(Option<Status>, u64)>, StoreError> {
        self.counts_matching(filter)
    }

    fn request_counts(&self) -> Result<Vec<(RequestStatus, u64)>, StoreError> {
        self.counts_by_status()
    }

    fn open_requests(&self, next: usize, others: usize) -> Result<Vec<StoredRequest>, StoreError> {
        self.open(next, others)
    }

    fn unmet(&self, id: &RequestId) -> Result<Vec<RequestId>, StoreError> {
        self.unmet_of(id)
    }

    fn prunable(&self, before_unix_micros: i64) -> Result<Vec<RequestId>, StoreError> {
        Ok(self.old(before_unix_micros)?.into_iter().map(|old| old.request).collect())
    }

    fn claimable(&self, listing: Listing, limit: usize) -> Result<Vec<(Run, Request)>, StoreError> {
        self.listed(listing, limit)
    }

    fn has_work(&self) -> Result<bool, StoreError> {
        let sql = "SELECT EXISTS (SELECT FROM lockkeeper_runs.run WHERE project = $1 AND status = 'queued' AND ready = 1)
                       OR EXISTS (SELECT FROM lockkeeper_runs.run WHERE project = $1 AND retry_at IS NOT NULL AND ready = 1)";
        let rows = self.query(sql, &[param(&self.project())])?;
        get(rows.first().ok_or_else(no_row)?, 0)
    }

    fn queue_head(&self, limit: usize) -> Result<Vec<RunId>, StoreError> {
        let sql = "SELECT id FROM lockkeeper_runs.run WHERE project = $1 AND status = 'queued' AND ready = 1
                   ORDER BY rank, seq LIMIT $2";
        let rows = self.query(sql, &[param(&self.project()), param(&limit_of(limit))])?;
        self.read_all(&rows, |row| Ok(parse(get(row, 0)?)))
    }

    fn queue_position(&self, run: &RunId) -> Result<u64, StoreError> {
        self.position_of(run)
    }

    fn overdue(&self, limit: usize) -> Result<Vec<Run>, StoreError> {
        self.timed_out(limit)
    }

    fn next_due(&self, looked_at: Moment) -> Result<Option<Moment>, StoreError> {
        self.due_after(looked_at)
    }

    fn queued_in_stages(&self) -> Result<Vec<Run>, StoreError> {
        self.many("status = 'queued' AND ready = -1 ORDER BY seq", &[param(&self.project())])
    }

    fn active_runs(&self) -> Result<Vec<Run>, StoreError> {
        self.executed(None)
    }

    fn run_with_lock(&self, holder: HolderId) -> Result<Option<Run>, StoreError> {
        Ok(self.executed(Some(holder))?.pop())
    }

    fn workers(&self) -> Result<Vec<Worker>, StoreError> {
        self.registered_workers()
    }

    fn hosts(&self, runs: &[&RunId]) -> Result<HashMap<RunId, String>, StoreError> {
        self.hosts_of(runs)
    }

    fn output(&self, run: &RunId, attempt: u32, from: u64) -> Result<Option<KeptOutput>, StoreError> {
        self.kept_output(run, attempt, from)
    }

    fn auto_run(&self) -> Result<Option<AutoRun>, StoreError> {
        self.last_auto_run()
    }

    fn events_of(&self, run: &RunId, after: u32, limit: usize) -> Result<Vec<StoredEvent>, StoreError> {
        let (run, after, limit) = (run.as_str(), i64::from(after), limit_of(limit));
        self.events(
            "WHERE run.id = $2 AND event.seq > $3 ORDER BY event.seq LIMIT $4",
            &[param(&self.project()), param(&run), param(&after), param(&limit)],
        )
    }

    fn events_after(&self, position: u64, limit: usize) -> Result<Vec<StoredEvent>, StoreError> {
        let (position, limit) = (position.cast_signed(), limit_of(limit));
        self.events(
            "WHERE event.project = $1 AND event.position > $2 ORDER BY event.position LIMIT $3",
            &[param(&self.project()), param(&position), param(&limit)],
        )
    }

    fn last_position(&self) -> Result<u64, StoreError> {
        let sql = "SELECT greatest(
                       (SELECT max(position) FROM lockkeeper_runs.event WHERE project = $1),
                       (SELECT position FROM lockkeeper_runs.pruned WHERE project = $1), 0)";
        let rows = self.query(sql, &[param(&self.project())])?;
        get::<i64>(rows.first().ok_or_else(no_row)?, 0).map(i64::cast_unsigned)
    }
}
