//! Import: fills the tables with the records of another store.

use std::collections::HashMap;

use lockkeeper_core::id::{RequestId, RunId};
use lockkeeper_core::request::Request;
use lockkeeper_core::run::{Run, Stamp, Status};
use rusqlite::params;

use super::requests::SELECT;
use super::rows::COLUMNS;
use super::tables::Tables;
use crate::StoreError;
use crate::runs::columns::{limit_of, stored_status};
use crate::runs::import::Filling;
use crate::runs::{AutoRun, StoredEvent, StoredRequest, spec};

impl Tables<'_> {
    /// Requests in the order in which they were submitted.
    pub(super) fn requests_in_order(
        &self,
        after: Option<&RequestId>,
        limit: usize,
    ) -> Result<Vec<StoredRequest>, StoreError> {
        let sql = format!(
            "{SELECT} WHERE request.seq > coalesce((SELECT seq FROM request WHERE id = ?1), 0)
             ORDER BY request.seq LIMIT ?2"
        );
        self.stored(&sql, params![after.map(|id| id.as_str()), limit_of(limit)])
    }

    /// Runs in the order in which they were queued, with their requests.
    pub(super) fn runs_in_order(
        &self,
        after: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<(Run, Request)>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS}, request.spec FROM run JOIN request ON request.seq = run.request
             WHERE run.seq > coalesce((SELECT seq FROM run WHERE id = ?1), 0) ORDER BY run.seq LIMIT ?2"
        );
        self.many_with_requests(&sql, params![after.map(|id| id.as_str()), limit_of(limit)])
    }
}

impl Filling for Tables<'_> {
    const KEEPS_HOSTS: bool = false;

    fn now(&self) -> Stamp {
        Tables::now(self)
    }

    fn remove_all(&self) -> Result<(), StoreError> {
        ["event", "run", "dependency", "request", "auto_run"]
            .iter()
            .try_for_each(|table| self.execute(&format!("DELETE FROM {table}"), []))
    }

    fn add_requests(&self, requests: &[StoredRequest]) -> Result<(), StoreError> {
        requests.iter().try_for_each(|StoredRequest { request, created_at, status, .. }| {
            self.execute(
                "INSERT INTO request (id, title, spec, priority, key, created_at, status, unmet)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0)",
                params![
                    request.id.as_str(),
                    request.title,
                    spec::write(request),
                    request.priority.get(),
                    request.key,
                    created_at,
                    stored_status(*status).as_str(),
                ],
            )
        })
    }

    fn add_dependencies(&self, requests: &[StoredRequest]) -> Result<(), StoreError> {
        for StoredRequest { request, .. } in requests.iter().filter(|stored| !stored.request.after.is_empty())
        {
            let seq = self.request_seq(&request.id)?;
            for after in &request.after {
                let sql = "INSERT OR IGNORE INTO dependency (request, after) SELECT ?1, seq FROM request WHERE id = ?2";
                self.execute(sql, params![seq, after.as_str()])?;
            }
            self.count_unmet(seq)?;
        }
        Ok(())
    }

    fn add_runs(&self, runs: &[(Run, Request)], _hosts: &HashMap<RunId, String>) -> Result<(), StoreError> {
        for (run, request) in runs {
            let request_seq = self.request_seq(&request.id)?;
            let seq = self.insert_run_row(request_seq, request, run)?;
            if run.status() != Status::Rejected {
                self.execute("UPDATE request SET latest = ?1 WHERE seq = ?2", [seq, request_seq])?;
            }
        }
        Ok(())
    }

    fn add_events(&self, events: &[StoredEvent]) -> Result<(), StoreError> {
        events.iter().try_for_each(|event| {
            self.execute(
                "INSERT INTO event (position, run, seq, at, kind, from_status, to_status, attempt, claim, reason, message)
                 SELECT ?1, seq, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11 FROM run WHERE id = ?2",
                params![
                    event.position.cast_signed(),
                    event.id.run.as_str(),
                    event.id.seq,
                    event.at,
                    event.kind,
                    event.from,
                    event.to,
                    event.attempt,
                    event.claim.cast_signed(),
                    event.reason,
                    event.message,
                ],
            )
        })
    }

    fn set_auto_run(&self, auto_run: &AutoRun) -> Result<(), StoreError> {
        let AutoRun { worker, started_at, runs, current, stop, ended } = auto_run;
        let current = current.as_ref().map(|run| run.as_str());
        self.execute(
            "INSERT INTO auto_run (worker, started_at, runs, current, stop, ended) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![worker.as_str(), started_at, runs, current, stop, ended],
        )
    }

    fn set_last_position(&self, position: u64) -> Result<(), StoreError> {
        if Tables::last_position(self)? >= position {
            return Ok(());
        }
        // The same row that a prune leaves.
        self.execute(
            "INSERT INTO event (position, run, seq, at, kind, to_status, attempt, claim)
             VALUES (?1, 0, ?1, ?2, 'pruned', '', 0, 0)",
            [position.cast_signed(), Tables::now(self).unix_micros],
        )
    }

    fn requests_in_order(
        &self,
        after: Option<&RequestId>,
        limit: usize,
    ) -> Result<Vec<StoredRequest>, StoreError> {
        Tables::requests_in_order(self, after, limit)
    }

    fn runs_in_order(&self, after: Option<&RunId>, limit: usize) -> Result<Vec<(Run, Request)>, StoreError> {
        Tables::runs_in_order(self, after, limit)
    }

    fn hosts(&self, _runs: &[&RunId]) -> Result<HashMap<RunId, String>, StoreError> {
        Ok(HashMap::new())
    }

    fn events_after(&self, position: u64, limit: usize) -> Result<Vec<StoredEvent>, StoreError> {
        Tables::events_after(self, position, limit)
    }

    fn auto_run(&self) -> Result<Option<AutoRun>, StoreError> {
        Tables::auto_run(self)
    }

    fn last_position(&self) -> Result<u64, StoreError> {
        Tables::last_position(self)
    }

    fn queue_head(&self, limit: usize) -> Result<Vec<RunId>, StoreError> {
        Tables::queue_head(self, limit)
    }
}
