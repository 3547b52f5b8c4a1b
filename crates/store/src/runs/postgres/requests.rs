//! Requests: lists and counts.

use std::collections::BTreeMap;

use lockkeeper_core::id::RequestId;
use lockkeeper_core::request::RequestStatus;
use lockkeeper_core::run::Status;
use tokio_postgres::Row;

use super::rows::{SELECT_STORED, param, stored_from};
use super::snapshot::Snapshot;
use crate::StoreError;
use crate::postgres::rows::get;
use crate::runs::columns::{limit_of, parse, pattern, read_status, stored_status};
use crate::runs::prunable::{self, Edge, Old, OldRow};
use crate::runs::{Match, RequestFilter, StoredRequest};

/// Requests whose runs all ended before `$2` and have no processes, one row for each run.
pub(super) const ENDED: &str = "
    SELECT request.seq, request.id, run.id, request.status = 'DONE'
    FROM lockkeeper_runs.request JOIN lockkeeper_runs.run ON run.project = $1 AND run.request = request.seq
    WHERE request.project = $1 AND request.status <> 'QUEUED' AND NOT EXISTS (
        SELECT FROM lockkeeper_runs.run AS other WHERE other.project = $1 AND other.request = request.seq
            AND (other.completed_at IS NULL OR other.completed_at >= $2 OR other.holder IS NOT NULL))
    ORDER BY request.seq, run.seq";
/// Dependencies: the request that comes before, the one that comes after, and whether that is open.
pub(super) const EDGES: &str = "
    SELECT dependency.after, dependency.request, later.status = 'QUEUED'
    FROM lockkeeper_runs.dependency
    JOIN lockkeeper_runs.request AS later ON later.project = $1 AND later.seq = dependency.request";

/// What requests a filter leaves: the conditions of a statement with the parameters of [`Filter`].
const MATCHES: &str = "
    request.project = $1
    AND ($2::text[] IS NULL OR CASE
        WHEN request.status = 'QUEUED' AND run.status <> 'queued' THEN 'RUNNING' ELSE request.status END = ANY ($2))
    AND ($2::text[] IS NULL OR request.status = ANY ($3))
    AND ($4::text[] IS NULL OR run.status = ANY ($4))
    AND ($5::text[] IS NULL OR request.id = ANY ($5))
    AND ($6::text IS NULL OR request.title COLLATE \"C\" ILIKE $6 OR request.id ILIKE $6)
    AND ($7::text IS NULL OR run.worker = $7)
    AND ($8::text IS NULL OR request.seq < (SELECT seq FROM lockkeeper_runs.request WHERE project = $1 AND id = $8))
    AND ($9::text IS NULL OR request.seq <= (SELECT seq FROM lockkeeper_runs.request WHERE project = $1 AND id = $9))";

/// A filter as the parameters of a statement. None leaves nothing out.
struct Filter {
    statuses: Option<Vec<&'static str>>,
    stored_statuses: Option<Vec<&'static str>>,
    run_statuses: Option<Vec<&'static str>>,
    ids: Option<Vec<String>>,
    text: Option<String>,
    worker: Option<String>,
    before: Option<String>,
    newest: Option<String>,
}

impl Filter {
    fn new(filter: &RequestFilter) -> Self {
        fn listed<T>(list: Vec<T>) -> Option<Vec<T>> {
            (!list.is_empty()).then_some(list)
        }
        let statuses = filter.statuses.iter();
        let stored = statuses.clone().map(|status| stored_status(*status).as_str());
        Self {
            statuses: listed(statuses.map(|status| status.as_str()).collect()),
            stored_statuses: listed(stored.collect()),
            run_statuses: listed(filter.run_statuses.iter().map(|status| status.as_str()).collect()),
            ids: listed(filter.ids.iter().map(ToString::to_string).collect()),
            text: filter.text.as_deref().map(pattern),
            worker: filter.worker.as_ref().map(ToString::to_string),
            before: filter.before.as_ref().map(ToString::to_string),
            newest: filter.newest.as_ref().map(ToString::to_string),
        }
    }
}

impl Snapshot<'_> {
    /// Runs a statement whose conditions are [`MATCHES`].
    fn matching_rows(
        &self,
        filter: &RequestFilter,
        sql: &str,
        limit: Option<i64>,
    ) -> Result<Vec<Row>, StoreError> {
        let (project, filter) = (self.project(), Filter::new(filter));
        let mut params = vec![
            param(&project),
            param(&filter.statuses),
            param(&filter.stored_statuses),
            param(&filter.run_statuses),
            param(&filter.ids),
            param(&filter.text),
            param(&filter.worker),
            param(&filter.before),
            param(&filter.newest),
        ];
        params.extend(limit.as_ref().map(param));
        self.query(sql, &params)
    }

    pub(super) fn requests_matching(&self, filter: &RequestFilter) -> Result<Vec<StoredRequest>, StoreError> {
        let sql = format!("{SELECT_STORED} WHERE {MATCHES} ORDER BY request.seq DESC LIMIT $10");
        let rows = self.matching_rows(filter, &sql, Some(limit_of(filter.limit)))?;
        self.read_all(&rows, stored_from)
    }

    pub(super) fn ids_matching(&self, filter: &RequestFilter) -> Result<Vec<Match>, StoreError> {
        let sql = format!(
            "SELECT request.id, run.id FROM lockkeeper_runs.request
             LEFT JOIN lockkeeper_runs.run ON run.project = request.project AND run.seq = request.latest
             WHERE {MATCHES} ORDER BY request.seq DESC LIMIT $10"
        );
        let rows = self.matching_rows(filter, &sql, Some(limit_of(filter.limit)))?;
        self.read_all(&rows, |row| {
            let (request, run): (&str, Option<&str>) = (get(row, 0)?, get(row, 1)?);
            let build = || Ok(Match { request: parse(request)?, run: run.map(parse).transpose()? });
            Ok(build())
        })
    }

    pub(super) fn counts_matching(
        &self,
        filter: &RequestFilter,
    ) -> Result<Vec<(Option<Status>, u64)>, StoreError> {
        let sql = format!(
            "SELECT run.status, count(*) FROM lockkeeper_runs.request
             LEFT JOIN lockkeeper_runs.run ON run.project = request.project AND run.seq = request.latest
             WHERE {MATCHES} GROUP BY run.status ORDER BY run.status COLLATE \"C\" NULLS FIRST"
        );
        let rows = self.matching_rows(filter, &sql, None)?;
        self.read_all(&rows, |row| {
            let (status, count): (Option<&str>, i64) = (get(row, 0)?, get(row, 1)?);
            Ok(status.map(parse).transpose().map(|status| (status, count.cast_unsigned())))
        })
    }

    pub(super) fn counts_by_status(&self) -> Result<Vec<(RequestStatus, u64)>, StoreError> {
        let sql = "
            SELECT status, count(*) FROM lockkeeper_runs.request WHERE project = $1 GROUP BY status
            UNION ALL
            SELECT 'RUNNING', count(*) FROM lockkeeper_runs.run
            JOIN lockkeeper_runs.request ON request.project = $1 AND request.seq = run.request AND request.latest = run.seq
            WHERE run.project = $1 AND run.status IN ('running', 'cancelling')";
        let rows = self.query(sql, &[param(&self.project())])?;
        let counted = self.read_all(&rows, |row| {
            let (status, count): (&str, i64) = (get(row, 0)?, get(row, 1)?);
            Ok(read_status(status).map(|status| (status, count.cast_unsigned())))
        })?;
        // The table has QUEUED for both.
        let mut counts: BTreeMap<RequestStatus, u64> = counted.into_iter().collect();
        let running = counts.get(&RequestStatus::Running).copied().unwrap_or(0);
        if let Some(queued) = counts.get_mut(&RequestStatus::Queued) {
            *queued = queued.saturating_sub(running);
        }
        Ok(counts.into_iter().filter(|(_, count)| *count > 0).collect())
    }

    pub(super) fn open(&self, next: usize, others: usize) -> Result<Vec<StoredRequest>, StoreError> {
        let [next, others] = [next, others].map(limit_of);
        let mut open = Vec::new();
        for (condition, order, limit) in [
            (
                "request.status = 'QUEUED' AND request.unmet = 0 AND run.status = 'queued' AND run.ready = 1",
                "request.priority DESC, request.created_at, request.id",
                next,
            ),
            ("run.status IN ('running', 'cancelling')", "request.seq DESC", others),
            (
                "request.status = 'QUEUED' AND request.unmet > 0 AND run.status = 'queued'",
                "request.seq DESC",
                others,
            ),
            ("request.status = 'NEEDS_INPUT'", "request.seq DESC", others),
            ("request.status = 'FAILED'", "request.seq DESC", others),
            ("request.status = 'CANCELED'", "request.seq DESC", others),
        ] {
            let sql = format!(
                "{SELECT_STORED} WHERE request.project = $1 AND {condition} ORDER BY {order} LIMIT $2"
            );
            let rows = self.query(&sql, &[param(&self.project()), param(&limit)])?;
            open.extend(self.read_all(&rows, stored_from)?);
        }
        Ok(open)
    }

    pub(super) fn unmet_of(&self, id: &RequestId) -> Result<Vec<RequestId>, StoreError> {
        let sql = "SELECT before.id FROM lockkeeper_runs.request
                   JOIN lockkeeper_runs.dependency ON dependency.request = request.seq
                   JOIN lockkeeper_runs.request AS before ON before.project = $1 AND before.seq = dependency.after
                   WHERE request.project = $1 AND request.id = $2 AND before.status <> 'DONE' ORDER BY before.seq";
        let rows = self.query(sql, &[param(&self.project()), param(&id.as_str())])?;
        self.read_all(&rows, |row| Ok(parse(get(row, 0)?)))
    }

    pub(super) fn old(&self, before_unix_micros: i64) -> Result<Vec<Old>, StoreError> {
        let ended = self.query(ENDED, &[param(&self.project()), param(&before_unix_micros)])?;
        let edges = self.query(EDGES, &[param(&self.project())])?;
        old_from(&ended, &edges)?.map_err(|what| self.damaged(what))
    }
}

/// Old requests of the rows of [`ENDED`] and [`EDGES`].
pub(super) fn old_from(ended: &[Row], edges: &[Row]) -> Result<Result<Vec<Old>, String>, StoreError> {
    let ended = ended.iter().map(|row| {
        Ok(OldRow { seq: get(row, 0)?, request: get(row, 1)?, run: get(row, 2)?, done: get(row, 3)? })
    });
    let edges =
        edges.iter().map(|row| Ok(Edge { before: get(row, 0)?, after: get(row, 1)?, is_open: get(row, 2)? }));
    let ended: Vec<OldRow> = ended.collect::<Result<_, StoreError>>()?;
    let edges: Vec<Edge> = edges.collect::<Result<_, StoreError>>()?;
    Ok(prunable::collect(ended).map(|old| prunable::not_needed(old, &edges)))
}
