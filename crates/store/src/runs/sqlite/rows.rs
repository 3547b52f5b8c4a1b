//! Rows of the table of runs: columns to a run and back, and lists of runs.

use lockkeeper_core::request::Request;
use lockkeeper_core::run::{Run, Status};
use rusqlite::Row;

use super::requests::read_stored;
use super::tables::Tables;
use crate::StoreError;
use crate::runs::columns::{Columns, limit_of};
use crate::runs::{RunFilter, StoredRequest, Timing, spec};

/// The columns that [`read_run`] reads, in its order.
pub(super) const COLUMNS: &str = "run.id, request.id, run.status, run.attempt, run.claim, run.worker, run.holder, \
    run.pid, run.pid_started, run.lease, run.token, run.queued_at, run.queued_moment, run.give_up_at, \
    run.started_at, run.started_moment, run.timeout, run.retry_at, run.completed_at, run.completed_moment, \
    run.exit_code, run.signal, run.reason, run.message, run.help, run.events";
/// How many columns these are.
const LENGTH: usize = 26;

/// Reads a run, or says why the row cannot be one. Its columns begin at `first`.
pub(super) fn read_run(row: &Row<'_>, first: usize) -> rusqlite::Result<Result<Run, String>> {
    let columns = Columns {
        id: row.get(first)?,
        request: row.get(first + 1)?,
        status: row.get(first + 2)?,
        attempt: row.get(first + 3)?,
        claim: row.get(first + 4)?,
        worker: row.get(first + 5)?,
        holder: row.get(first + 6)?,
        pid: row.get(first + 7)?,
        pid_started: row.get(first + 8)?,
        lease: row.get(first + 9)?,
        token: row.get(first + 10)?,
        queued_at: row.get(first + 11)?,
        queued_moment: row.get(first + 12)?,
        give_up_at: row.get(first + 13)?,
        started_at: row.get(first + 14)?,
        started_moment: row.get(first + 15)?,
        timeout: row.get(first + 16)?,
        retry_at: row.get(first + 17)?,
        completed_at: row.get(first + 18)?,
        completed_moment: row.get(first + 19)?,
        exit_code: row.get(first + 20)?,
        signal: row.get(first + 21)?,
        reason: row.get(first + 22)?,
        message: row.get(first + 23)?,
        help: row.get(first + 24)?,
        version: row.get(first + 25)?,
    };
    Ok(Run::try_from(columns))
}

/// Reads a run and its request; `request.spec` is the column after those of the run.
pub(super) fn read_run_and_request(row: &Row<'_>) -> rusqlite::Result<Result<(Run, Request), String>> {
    let spec: String = row.get("spec")?;
    Ok(read_run(row, 0)?.and_then(|run| Ok((run, spec::read(&spec)?))))
}

impl Tables<'_> {
    /// The timestamps of all runs that were submitted since then, the oldest first.
    pub(super) fn timings(&self, since_unix_micros: i64) -> Result<Vec<Timing>, StoreError> {
        let sql = "SELECT request.title, run.status, run.attempt, run.queued_at,
                       CASE WHEN run.attempt = 1 THEN run.started_at ELSE
                           (SELECT min(event.at) FROM event WHERE event.run = run.seq AND event.kind = 'claimed')
                       END,
                       run.completed_at
                   FROM run JOIN request ON request.seq = run.request
                   WHERE run.queued_at >= ?1 ORDER BY run.seq";
        self.rows(sql, [since_unix_micros], |row| {
            let status: String = row.get(1)?;
            let (title, attempts, queued_at) = (row.get(0)?, row.get(2)?, row.get(3)?);
            let (claimed_at, completed_at) = (row.get(4)?, row.get(5)?);
            let status = status.parse::<Status>().map_err(|error| error.to_string());
            Ok(status.map(|status| Timing { title, status, attempts, queued_at, claimed_at, completed_at }))
        })
    }

    /// The runs that match, the latest first.
    pub(super) fn runs(&self, filter: &RunFilter) -> Result<Vec<Run>, StoreError> {
        let (clause, values) = clause(filter);
        let sql = format!("SELECT {COLUMNS} FROM run JOIN request ON request.seq = run.request {clause}");
        self.many(&sql, rusqlite::params_from_iter(values))
    }

    /// The runs that match with their requests, the latest first.
    pub(super) fn runs_with_requests(
        &self,
        filter: &RunFilter,
    ) -> Result<Vec<(Run, StoredRequest)>, StoreError> {
        let (clause, values) = clause(filter);
        let sql = format!(
            "SELECT {COLUMNS}, request.spec, request.created_at, request.status, latest.id, request.unmet, latest.status
             FROM run JOIN request ON request.seq = run.request LEFT JOIN run AS latest ON latest.seq = request.latest
             {clause}"
        );
        self.rows(&sql, rusqlite::params_from_iter(values), |row| {
            let request = read_stored(row, LENGTH)?;
            Ok(read_run(row, 0)?.and_then(|run| Ok((run, request?))))
        })
    }

    /// Runs whose id ends with this text, or whose last part has ten letters and begins with it; two at most.
    pub(super) fn runs_by_part(&self, text: &str) -> Result<Vec<Run>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM run JOIN request ON request.seq = run.request
             WHERE substr(run.id, -length(?1)) = ?1
                OR (substr(run.id, -11, 1) = '-' AND substr(run.id, -10, length(?1)) = ?1 AND length(?1) <= 10)
             LIMIT 2"
        );
        self.many(&sql, [text])
    }

    /// How many runs have each status.
    pub(super) fn run_counts(&self) -> Result<Vec<(Status, u64)>, StoreError> {
        self.rows("SELECT status, count(*) FROM run GROUP BY status", [], |row| {
            let (status, count) = (row.get::<_, String>(0)?, row.get::<_, i64>(1)?.cast_unsigned());
            Ok(status.parse::<Status>().map(|status| (status, count)).map_err(|error| error.to_string()))
        })
    }
}

/// A filter as the end of a query, and its values.
fn clause(filter: &RunFilter) -> (String, Vec<Box<dyn rusqlite::ToSql>>) {
    let mut conditions = Vec::new();
    let mut values: Vec<Box<dyn rusqlite::ToSql>> = Vec::new();
    if let Some(request) = &filter.request {
        values.push(Box::new(request.as_str().to_owned()));
        conditions.push(format!("request.id = ?{}", values.len()));
    }
    if let Some(before) = &filter.before {
        values.push(Box::new(before.as_str().to_owned()));
        conditions.push(format!("run.seq < (SELECT seq FROM run WHERE id = ?{})", values.len()));
    }
    let words: Vec<String> = filter.statuses.iter().map(|status| format!("'{status}'")).collect();
    if words.len() > 1 && filter.request.is_none() {
        // Each status is looked up by itself, so that SQLite does not read all runs that have one of them.
        values.push(Box::new(limit_of(filter.limit)));
        let range = conditions.first().map_or("1", String::as_str);
        let each = words.iter().map(|word| {
            format!(
                "SELECT * FROM (SELECT seq FROM run WHERE {range} AND run.status = {word}
                 ORDER BY seq DESC LIMIT ?{})",
                values.len()
            )
        });
        conditions = vec![format!("run.seq IN ({})", each.collect::<Vec<_>>().join(" UNION ALL "))];
    } else if !words.is_empty() {
        conditions.push(format!("run.status IN ({})", words.join(", ")));
    }
    let condition =
        if conditions.is_empty() { String::new() } else { format!("WHERE {}", conditions.join(" AND ")) };
    values.push(Box::new(limit_of(filter.limit)));
    (format!("{condition} ORDER BY run.seq DESC LIMIT ?{}", values.len()), values)
}
