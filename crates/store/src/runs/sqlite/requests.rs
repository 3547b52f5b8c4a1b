//! Rows of the table of requests. What is searched for has columns; everything else is one JSON text.

use std::collections::BTreeMap;

use lockkeeper_core::id::RequestId;
use lockkeeper_core::record::Priority;
use lockkeeper_core::request::{Request, RequestStatus};
use lockkeeper_core::run::Status;
use rusqlite::{Row, params};

use super::tables::Tables;
use crate::StoreError;
use crate::runs::columns::{limit_of, parse, read_status, stored_status};
use crate::runs::{StoredRequest, spec};

/// The columns that [`read_stored`] reads, in its order.
pub(super) const COLUMNS: &str =
    "request.spec, request.created_at, request.status, run.id, request.unmet, run.status";
/// How many columns these are.
pub(super) const LENGTH: usize = 6;
pub(super) const SELECT: &str =
    "SELECT request.spec, request.created_at, request.status, run.id, request.unmet, run.status
    FROM request LEFT JOIN run ON run.seq = request.latest";
/// The requests whose latest run was claimed and has not ended.
pub(super) const ACTIVE: &str =
    "SELECT run.request FROM run INDEXED BY run_status JOIN request ON request.latest = run.seq
    WHERE run.status IN ('running', 'cancelling') AND request.seq = run.request";

impl Tables<'_> {
    /// Inserts a request whose dependencies exist. Returns its row.
    pub(super) fn insert_request(&self, request: &Request) -> Result<i64, StoreError> {
        let inserted = self.change(
            "INSERT INTO request (id, title, spec, priority, key, created_at, status, unmet)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0) ON CONFLICT DO NOTHING",
            params![
                request.id.as_str(),
                request.title,
                spec::write(request),
                request.priority.get(),
                request.key,
                self.now().unix_micros,
                RequestStatus::Queued.as_str(),
            ],
        )?;
        if inserted == 0 {
            return Err(StoreError::Mismatch(format!("the id or key of request {} is taken", request.id)));
        }
        let seq = self.last_insert_rowid();
        if !request.after.is_empty() {
            self.insert_dependencies(seq, request)?;
        }
        Ok(seq)
    }

    /// Replaces the definition of a request that exists, as if it were submitted now. Returns its row.
    pub(super) fn redefine_request(&self, request: &Request) -> Result<i64, StoreError> {
        let seq = self.request_seq(&request.id)?;
        self.execute(
            "UPDATE request SET title = ?2, spec = ?3, priority = ?4, key = ?5, created_at = ?6 WHERE seq = ?1",
            params![
                seq,
                request.title,
                spec::write(request),
                request.priority.get(),
                request.key,
                self.now().unix_micros,
            ],
        )?;
        self.execute("DELETE FROM dependency WHERE request = ?1", [seq])?;
        self.insert_dependencies(seq, request).map(|()| seq)
    }

    /// Inserts the dependencies of a request, which exist.
    fn insert_dependencies(&self, seq: i64, request: &Request) -> Result<(), StoreError> {
        for after in &request.after {
            let after = self.request_seq(after)?;
            self.execute("INSERT OR IGNORE INTO dependency (request, after) VALUES (?1, ?2)", [seq, after])?;
        }
        self.count_unmet(seq)
    }

    /// One request.
    pub(super) fn request(&self, id: &RequestId) -> Result<Option<StoredRequest>, StoreError> {
        Ok(self.stored(&format!("{SELECT} WHERE request.id = ?1"), [id.as_str()])?.pop())
    }

    /// Whether there is a request with this id.
    pub(super) fn has_request(&self, id: &RequestId) -> Result<bool, StoreError> {
        Ok(self.number("SELECT seq FROM request WHERE id = ?1", [id.as_str()])?.is_some())
    }

    /// The request that was submitted with this key.
    pub(super) fn request_by_key(&self, key: &str) -> Result<Option<StoredRequest>, StoreError> {
        Ok(self.stored(&format!("{SELECT} WHERE request.key = ?1"), [key])?.pop())
    }

    /// Requests that are not done: first those that can run now, by priority, age and id; then the latest of each other
    /// status.
    pub(super) fn open_requests(&self, next: usize, others: usize) -> Result<Vec<StoredRequest>, StoreError> {
        let [next, others] = [next, others].map(limit_of);
        let active = format!("request.seq IN ({ACTIVE})");
        let mut open = Vec::new();
        for (index, condition, order, limit) in [
            (
                "request_next",
                "request.status = 'QUEUED' AND request.unmet = 0 AND run.status = 'queued' AND run.ready = 1",
                "request.priority DESC, request.created_at, request.id",
                next,
            ),
            ("", active.as_str(), "request.seq DESC", others),
            (
                "request_after",
                "request.status = 'QUEUED' AND request.unmet > 0 AND run.status = 'queued'",
                "request.seq DESC",
                others,
            ),
            ("request_status", "request.status = 'NEEDS_INPUT'", "request.seq DESC", others),
            ("request_status", "request.status = 'FAILED'", "request.seq DESC", others),
            ("request_status", "request.status = 'CANCELED'", "request.seq DESC", others),
        ] {
            let by = if index.is_empty() { String::new() } else { format!("INDEXED BY {index}") };
            let sql = format!(
                "SELECT {COLUMNS} FROM request {by} LEFT JOIN run ON run.seq = request.latest
                 WHERE {condition} ORDER BY {order} LIMIT ?1"
            );
            open.extend(self.stored(&sql, [limit])?);
        }
        Ok(open)
    }

    /// Changes the priority of a request and of its queued run. False if there is no such request.
    pub(super) fn set_priority(&self, id: &RequestId, priority: Priority) -> Result<bool, StoreError> {
        let Some(stored) = self.request(id)? else { return Ok(false) };
        let (seq, request) = (self.request_seq(id)?, Request { priority, ..stored.request });
        self.execute(
            "UPDATE request SET spec = ?2, priority = ?3 WHERE seq = ?1",
            params![seq, spec::write(&request), priority.get()],
        )?;
        self.execute(
            "UPDATE run SET priority = ?2 WHERE request = ?1 AND status = 'queued'",
            params![seq, priority.get()],
        )?;
        Ok(true)
    }

    /// The dependencies of a request that are not done.
    pub(super) fn unmet(&self, id: &RequestId) -> Result<Vec<RequestId>, StoreError> {
        let sql = "SELECT before.id FROM request JOIN dependency ON dependency.request = request.seq
                   JOIN request AS before ON before.seq = dependency.after
                   WHERE request.id = ?1 AND before.status <> 'DONE' ORDER BY before.seq";
        self.rows(sql, [id.as_str()], |row| Ok(parse(&row.get::<_, String>(0)?)))
    }

    /// How many requests have each status. It reads all of them, so that the store caches the result.
    pub(super) fn count_requests(&self) -> Result<Vec<(RequestStatus, u64)>, StoreError> {
        let kept = self.rows("SELECT status, count(*) FROM request GROUP BY status", [], |row| {
            let (status, count) = (row.get::<_, String>(0)?, row.get::<_, i64>(1)?.cast_unsigned());
            Ok(read_status(&status).map(|status| (status, count)))
        })?;
        let active =
            self.number(&format!("SELECT count(*) FROM ({ACTIVE})"), [])?.unwrap_or(0).cast_unsigned();
        let mut counts: BTreeMap<RequestStatus, u64> = kept.into_iter().collect();
        if let Some(queued) = counts.get_mut(&RequestStatus::Queued) {
            *queued = queued.saturating_sub(active);
        }
        counts.insert(RequestStatus::Running, active);
        Ok(counts.into_iter().filter(|(_, count)| *count > 0).collect())
    }

    /// Leaves an event without a run behind, so that no later event gets a position that was used before.
    pub(super) fn keep_position(&self) -> Result<(), StoreError> {
        self.execute(
            "INSERT INTO event (run, seq, at, kind, to_status, attempt, claim)
             VALUES (0, (SELECT max(position) + 1 FROM event), ?1, 'pruned', '', 0, 0)",
            [self.now().unix_micros],
        )?;
        let noted = self.last_insert_rowid();
        self.execute("DELETE FROM event WHERE run = 0 AND position < ?1", [noted])
    }

    pub(super) fn request_seq(&self, id: &RequestId) -> Result<i64, StoreError> {
        let found = self.number("SELECT seq FROM request WHERE id = ?1", [id.as_str()])?;
        found.ok_or_else(|| StoreError::Mismatch(format!("there is no request {id}")))
    }

    /// Writes the status of a request, and makes the requests ready that depend on it.
    pub(super) fn set_request_status(&self, seq: i64, status: RequestStatus) -> Result<(), StoreError> {
        let sql = "UPDATE request SET status = ?1 WHERE seq = ?2 AND status <> ?1";
        self.execute(sql, params![stored_status(status).as_str(), seq])?;
        let after = self.rows("SELECT request FROM dependency WHERE after = ?1", [seq], |row| {
            Ok(Ok(row.get::<_, i64>(0)?))
        })?;
        after.into_iter().try_for_each(|request| self.count_unmet(request))
    }

    pub(super) fn count_unmet(&self, seq: i64) -> Result<(), StoreError> {
        self.execute(
            "UPDATE request SET unmet = (
                 SELECT count(*) FROM dependency JOIN request AS before ON before.seq = dependency.after
                 WHERE dependency.request = ?1 AND before.status <> 'DONE')
             WHERE seq = ?1",
            [seq],
        )?;
        self.execute(
            "UPDATE run SET ready = (SELECT unmet = 0 FROM request WHERE seq = ?1)
             WHERE request = ?1 AND status = 'queued' AND ready >= 0",
            [seq],
        )
    }

    pub(super) fn stored(
        &self,
        sql: &str,
        values: impl rusqlite::Params,
    ) -> Result<Vec<StoredRequest>, StoreError> {
        self.rows(sql, values, |row| read_stored(row, 0))
    }
}

/// Reads a request, or says why the row cannot be one. Its columns begin at `first`.
pub(super) fn read_stored(row: &Row<'_>, first: usize) -> rusqlite::Result<Result<StoredRequest, String>> {
    let (spec, status): (String, String) = (row.get(first)?, row.get(first + 2)?);
    let (latest, run): (Option<String>, Option<String>) = (row.get(first + 3)?, row.get(first + 5)?);
    let (created_at, unmet) = (row.get(first + 1)?, row.get(first + 4)?);
    let build = || {
        let request = spec::read(&spec)?;
        let latest = latest.as_deref().map(parse).transpose()?;
        let run = run.as_deref().map(parse::<Status>).transpose()?;
        let status = match read_status(&status)? {
            RequestStatus::Queued if run.is_some_and(Status::is_active) => RequestStatus::Running,
            status => status,
        };
        Ok(StoredRequest { request, created_at, status, latest, unmet })
    };
    Ok(build())
}
