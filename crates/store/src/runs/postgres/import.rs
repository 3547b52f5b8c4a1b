//! Import: fills a project with the records of another store, in one transaction.

use std::collections::HashMap;

use lockkeeper_core::id::{RequestId, RunId};
use lockkeeper_core::request::Request;
use lockkeeper_core::run::{Run, Stamp, Status};
use serde::Serialize;

use super::PostgresRunStore;
use super::remove::RECORDS;
use super::rows::{COLUMNS, NewEvent, SELECT_STORED, json, param, run_and_request_from, stored_from};
use super::snapshot::Snapshot;
use super::submit::OWN_REQUESTS;
use super::transaction::SYNC;
use crate::StoreError;
use crate::postgres::connection::Params;
use crate::postgres::rows::get;
use crate::postgres::{TRIES, no_row};
use crate::runs::columns::{Columns, limit_of, stored_status};
use crate::runs::import::{Filling, fill};
use crate::runs::{AutoRun, Import, Imported, RunRecords, StoredEvent, StoredRequest, spec};

/// Takes the lock of the log: no other transaction submits, moves or claims anything in the project until the commit.
const OWN_EVENTS: &str = "SELECT pg_advisory_xact_lock(hashtextextended($1::integer || ' events', 0))";
/// Planner settings: the server has no statistics yet of tables that were just filled.
const PLANS: &str = "SELECT set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)";

impl PostgresRunStore {
    /// Copies the records of another store into this project. Starts over if the connection breaks: nothing was committed.
    pub(super) fn import_records(&self, import: &Import<'_>) -> Result<Imported, StoreError> {
        let mut imported = self.try_import(import);
        for _ in 1..TRIES {
            if !matches!(imported, Err(StoreError::Unreachable { .. })) {
                break;
            }
            imported = self.try_import(import);
        }
        imported
    }

    fn try_import(&self, import: &Import<'_>) -> Result<Imported, StoreError> {
        let filling = Project(Snapshot::begin_to_write(self)?);
        let project = self.project();
        let of_project = [param(&project)];
        for sql in [OWN_REQUESTS, OWN_EVENTS] {
            filling.0.query(sql, &of_project)?;
        }
        filling.0.query(PLANS, &[])?;
        let id = filling.0.query("SELECT pg_current_xact_id()::text", &[])?;
        let id: String = get(id.first().ok_or_else(no_row)?, 0)?;
        let imported = fill(import, &filling, self.leases.server.address())?;
        let Project(Snapshot { connection, .. }) = filling;
        match connection.pipeline(&[("COMMIT", &[]), SYNC]) {
            Ok(_) => connection.give_back(),
            Err(failure) if failure.is_broken() => {
                drop(connection);
                match self.was_committed(&id) {
                    Ok(true) => {}
                    Ok(false) => return Err(self.explain(failure)),
                    Err(_) => return Err(self.leases.in_doubt(failure)),
                }
            }
            Err(failure) => return Err(self.explain(failure)),
        }
        self.announce();
        Ok(imported)
    }
}

impl Snapshot<'_> {
    /// Requests in the order in which they were submitted.
    pub(super) fn stored_in_order(
        &self,
        after: Option<&RequestId>,
        limit: usize,
    ) -> Result<Vec<StoredRequest>, StoreError> {
        let sql = format!(
            "{SELECT_STORED} WHERE request.project = $1 AND request.seq > coalesce(
                (SELECT seq FROM lockkeeper_runs.request WHERE project = $1 AND id = $2), 0)
             ORDER BY request.seq LIMIT $3"
        );
        let after = after.map(|id| id.as_str());
        let rows = self.query(&sql, &[param(&self.project()), param(&after), param(&limit_of(limit))])?;
        self.read_all(&rows, stored_from)
    }

    /// Runs in the order in which they were queued, with their requests.
    pub(super) fn with_requests_in_order(
        &self,
        after: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<(Run, Request)>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS}, spec FROM lockkeeper_runs.record WHERE project = $1 AND seq > coalesce(
                (SELECT seq FROM lockkeeper_runs.run WHERE project = $1 AND id = $2), 0)
             ORDER BY seq LIMIT $3"
        );
        let after = after.map(|id| id.as_str());
        let rows = self.query(&sql, &[param(&self.project()), param(&after), param(&limit_of(limit))])?;
        self.read_all(&rows, run_and_request_from)
    }
}

/// A request, with the names of `lockkeeper_runs.new_run`.
#[derive(Serialize)]
struct CopiedRequest<'r> {
    request: &'r str,
    title: &'r str,
    spec: String,
    priority: i32,
    key: Option<&'r str>,
    after: Vec<&'r str>,
    created_at: i64,
    request_status: &'static str,
}

impl<'r> From<&'r StoredRequest> for CopiedRequest<'r> {
    fn from(StoredRequest { request, created_at, status, .. }: &'r StoredRequest) -> Self {
        Self {
            request: request.id.as_str(),
            title: &request.title,
            spec: spec::write(request),
            priority: request.priority.get(),
            key: request.key.as_deref(),
            after: request.after.iter().map(|id| id.as_str()).collect(),
            created_at: *created_at,
            request_status: stored_status(*status).as_str(),
        }
    }
}

/// A run, with the names of `lockkeeper_runs.new_run` and `lockkeeper_runs.next`.
#[derive(Serialize)]
struct CopiedRun<'r> {
    #[serde(flatten)]
    columns: Columns<&'r str>,
    wish: String,
    by_id: bool,
    host: Option<&'r str>,
}

/// An event with its position in the other store.
#[derive(Serialize)]
struct CopiedEvent<'r> {
    position: i64,
    #[serde(flatten)]
    event: NewEvent<'r>,
}

impl<'r> From<&'r StoredEvent> for CopiedEvent<'r> {
    fn from(event: &'r StoredEvent) -> Self {
        Self { position: event.position.cast_signed(), event: event.into() }
    }
}

/// A project that is being filled. The snapshot is a transaction that also writes, and sees what it has written.
struct Project<'s>(Snapshot<'s>);

impl Project<'_> {
    /// Executes a statement whose first parameter is the project.
    fn execute<T: super::rows::Parameter>(&self, sql: &str, second: &T) -> Result<(), StoreError> {
        let project = self.0.project();
        let params: Params<'_> = &[param(&project), param(second)];
        self.0.query(sql, params).map(|_| ())
    }
}

impl Filling for Project<'_> {
    const KEEPS_HOSTS: bool = true;

    fn now(&self) -> Stamp {
        self.0.now()
    }

    fn remove_all(&self) -> Result<(), StoreError> {
        let project = self.0.project();
        RECORDS.iter().try_for_each(|sql| self.0.query(sql, &[param(&project)]).map(|_| ()))
    }

    fn add_requests(&self, requests: &[StoredRequest]) -> Result<(), StoreError> {
        self.execute(
            "INSERT INTO lockkeeper_runs.request (project, seq, id, title, spec, priority, key, created_at, status, unmet)
             SELECT $1, nextval('lockkeeper_runs.rows'), request, title, spec, priority, key, created_at, request_status, 0
             FROM (
                SELECT new.* FROM jsonb_array_elements($2::text::jsonb) WITH ORDINALITY AS item(value, place)
                CROSS JOIN LATERAL jsonb_populate_record(NULL::lockkeeper_runs.new_run, item.value) AS new
                ORDER BY item.place
             ) AS copied",
            &json(requests.iter().map(CopiedRequest::from)),
        )
    }

    fn add_dependencies(&self, requests: &[StoredRequest]) -> Result<(), StoreError> {
        let later = requests.iter().filter(|stored| !stored.request.after.is_empty());
        let ids: Vec<&str> = later.clone().map(|stored| stored.request.id.as_str()).collect();
        if ids.is_empty() {
            return Ok(());
        }
        self.execute(
            "INSERT INTO lockkeeper_runs.dependency
             SELECT later.seq, before.seq
             FROM jsonb_populate_recordset(NULL::lockkeeper_runs.new_run, $2::text::jsonb) AS new
             JOIN lockkeeper_runs.request AS later ON later.project = $1 AND later.id = new.request
             JOIN lockkeeper_runs.request AS before ON before.project = $1 AND before.id = ANY (new.after)
             ON CONFLICT DO NOTHING",
            &json(later.map(CopiedRequest::from)),
        )?;
        self.execute(
            "UPDATE lockkeeper_runs.request AS later SET unmet = (
                SELECT count(*) FROM lockkeeper_runs.dependency
                JOIN lockkeeper_runs.request AS before ON before.project = $1 AND before.seq = dependency.after
                WHERE dependency.request = later.seq AND before.status <> 'DONE')
             WHERE project = $1 AND id = ANY ($2)",
            &ids,
        )
    }

    fn add_runs(&self, runs: &[(Run, Request)], hosts: &HashMap<RunId, String>) -> Result<(), StoreError> {
        let copied = runs.iter().map(|(run, request)| CopiedRun {
            columns: Columns::from(run),
            wish: request.lease_key(),
            by_id: request.conductor().is_some(),
            host: hosts.get(&run.id).map(String::as_str),
        });
        self.execute(
            "INSERT INTO lockkeeper_runs.run (
                project, seq, id, request, status, attempt, claim, worker, holder, pid, pid_started, lease, token, rank, ready,
                wish, queued_at, queued_moment, give_up_at, started_at, started_moment, timeout, retry_at, completed_at,
                completed_moment, exit_code, signal, reason, message, help, version, host
             ) SELECT
                $1, nextval('lockkeeper_runs.rows'), copied.*
             FROM (
                SELECT new.id, request.seq, new.status, next.attempt, next.claim, next.worker, next.holder, next.pid,
                    next.pid_started, next.lease, next.token, -request.priority,
                    CASE WHEN new.by_id THEN -1 WHEN new.status = 'queued' THEN (request.unmet = 0)::integer ELSE 1 END,
                    new.wish, new.queued_at, new.queued_moment, new.give_up_at, next.started_at, next.started_moment,
                    new.timeout, next.retry_at, new.completed_at, new.completed_moment, next.exit_code, next.signal,
                    new.reason, new.message, next.help, new.version, item.value->>'host'
                FROM jsonb_array_elements($2::text::jsonb) WITH ORDINALITY AS item(value, place)
                CROSS JOIN LATERAL jsonb_populate_record(NULL::lockkeeper_runs.new_run, item.value) AS new
                CROSS JOIN LATERAL jsonb_populate_record(NULL::lockkeeper_runs.next, item.value) AS next
                JOIN lockkeeper_runs.request ON request.project = $1 AND request.id = new.request
                ORDER BY item.place
             ) AS copied",
            &json(copied),
        )?;
        let queued = runs.iter().filter(|(run, _)| run.status() != Status::Rejected);
        let ids: Vec<&str> = queued.map(|(run, _)| run.id.as_str()).collect();
        self.execute(
            "UPDATE lockkeeper_runs.request SET latest = newest.seq FROM (
                SELECT run.request, max(run.seq) AS seq FROM lockkeeper_runs.run
                WHERE run.project = $1 AND run.id = ANY ($2) GROUP BY run.request
             ) AS newest WHERE request.project = $1 AND request.seq = newest.request",
            &ids,
        )
    }

    fn add_events(&self, events: &[StoredEvent]) -> Result<(), StoreError> {
        self.execute(
            "INSERT INTO lockkeeper_runs.event (
                project, position, run, seq, call, at, kind, from_status, to_status, attempt, claim, reason, message
             ) SELECT $1, (item.value->>'position')::bigint, run.seq, new.seq, 0, new.at, new.kind, new.from_status,
                new.to_status, new.attempt, new.claim, new.reason, new.message
             FROM jsonb_array_elements($2::text::jsonb) AS item(value)
             CROSS JOIN LATERAL jsonb_populate_record(NULL::lockkeeper_runs.new_event, item.value) AS new
             JOIN lockkeeper_runs.run ON run.project = $1 AND run.id = new.run",
            &json(events.iter().map(CopiedEvent::from)),
        )
    }

    fn set_auto_run(&self, auto_run: &AutoRun) -> Result<(), StoreError> {
        let AutoRun { worker, started_at, runs, current, stop, ended } = auto_run;
        let sql = "INSERT INTO lockkeeper_runs.auto_run VALUES ($1, $2, $3, $4, $5, $6, $7)";
        let added = self.0.query(
            sql,
            &[
                param(&self.0.project()),
                param(&worker.as_str()),
                param(started_at),
                param(&i64::from(*runs)),
                param(&current.as_ref().map(|run| run.as_str())),
                param(stop),
                param(ended),
            ],
        );
        added.map(|_| ())
    }

    /// Adds a margin, because other projects draw positions at the same time.
    fn set_last_position(&self, position: u64) -> Result<(), StoreError> {
        let position = position.cast_signed();
        if position == 0 {
            return Ok(());
        }
        self.execute("INSERT INTO lockkeeper_runs.pruned VALUES ($1, $2)", &position)?;
        let sql = "SELECT setval('lockkeeper_runs.positions', $1 - (lockkeeper.timeline() << 40) + 1048576)
                   WHERE (lockkeeper.timeline() << 40) + nextval('lockkeeper_runs.positions') <= $1";
        self.0.query(sql, &[param(&position)]).map(|_| ())
    }

    fn requests_in_order(
        &self,
        after: Option<&RequestId>,
        limit: usize,
    ) -> Result<Vec<StoredRequest>, StoreError> {
        self.0.stored_in_order(after, limit)
    }

    fn runs_in_order(&self, after: Option<&RunId>, limit: usize) -> Result<Vec<(Run, Request)>, StoreError> {
        self.0.with_requests_in_order(after, limit)
    }

    fn hosts(&self, runs: &[&RunId]) -> Result<HashMap<RunId, String>, StoreError> {
        self.0.hosts_of(runs)
    }

    fn events_after(&self, position: u64, limit: usize) -> Result<Vec<StoredEvent>, StoreError> {
        self.0.events_after(position, limit)
    }

    fn auto_run(&self) -> Result<Option<AutoRun>, StoreError> {
        self.0.last_auto_run()
    }

    fn last_position(&self) -> Result<u64, StoreError> {
        self.0.last_position()
    }

    fn queue_head(&self, limit: usize) -> Result<Vec<RunId>, StoreError> {
        self.0.queue_head(limit)
    }
}
