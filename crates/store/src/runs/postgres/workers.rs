//! The tables of workers and of the auto-run.

use std::collections::HashMap;

use lockkeeper_core::id::{HolderId, RunId, WorkerId};
use lockkeeper_core::liveness::{Origin, ProcessRef};
use lockkeeper_core::time::Moment;

use super::rows::param;
use super::snapshot::Snapshot;
use super::{MEMORY, PostgresRunStore};
use crate::StoreError;
use crate::postgres::no_row;
use crate::postgres::rows::get;
use crate::runs::columns::{number, parse, read_labels, session_from, write_labels};
use crate::runs::{AutoRun, AutoRunChange, Renewal, Worker};

impl Snapshot<'_> {
    pub(super) fn registered_workers(&self) -> Result<Vec<Worker>, StoreError> {
        // A server that was restored from a backup may have lost later heartbeats.
        let sql = "SELECT id, holder, host, boot, pid_namespace, pid, pid_started, jobs, started_at, session,
                       greatest(heartbeat, coalesce(lockkeeper.remembers_since($1), lockkeeper.moment($1))),
                       labels
                   FROM lockkeeper_runs.worker WHERE project = $1 ORDER BY started_at, id";
        let rows = self.query(sql, &[param(&self.project())])?;
        self.read_all(&rows, |row| {
            let unsigned = |index| get::<i64>(row, index).map(i64::cast_unsigned);
            let (id, pid, jobs): (&str, i64, i64) = (get(row, 0)?, get(row, 5)?, get(row, 7)?);
            let (host, boot, started_at): (String, String, i64) = (get(row, 2)?, get(row, 3)?, get(row, 8)?);
            let [holder, pid_namespace, started] = [unsigned(1)?, unsigned(4)?, unsigned(6)?];
            let (session, heartbeat): (Option<i64>, i64) = (get(row, 9)?, get(row, 10)?);
            let labels: &str = get(row, 11)?;
            let build = || {
                let session = session.map(session_from).transpose()?;
                Ok(Worker {
                    id: parse(id)?,
                    holder: HolderId(holder),
                    heartbeat_at: session.map(|_| Moment::from_micros(heartbeat)),
                    origin: Origin { host, boot, pid_namespace, session },
                    process: ProcessRef { pid: number(pid, "pid")?, started },
                    jobs: number(jobs, "number of jobs")?,
                    labels: read_labels(labels)?,
                    started_at,
                })
            };
            Ok(build())
        })
    }

    pub(super) fn hosts_of(&self, runs: &[&RunId]) -> Result<HashMap<RunId, String>, StoreError> {
        let sql = "SELECT id, host FROM lockkeeper_runs.run WHERE project = $1 AND id = ANY ($2) AND host IS NOT NULL";
        let ids: Vec<&str> = runs.iter().map(|id| id.as_str()).collect();
        let rows = self.query(sql, &[param(&self.project()), param(&ids)])?;
        let found = self.read_all(&rows, |row| {
            let (id, host): (&str, String) = (get(row, 0)?, get(row, 1)?);
            Ok(parse(id).map(|id| (id, host)))
        })?;
        Ok(found.into_iter().collect())
    }

    pub(super) fn last_auto_run(&self) -> Result<Option<AutoRun>, StoreError> {
        let sql = "SELECT worker, started_at, runs, current, stop, ended FROM lockkeeper_runs.auto_run WHERE project = $1";
        let rows = self.query(sql, &[param(&self.project())])?;
        let found = self.read_all(&rows, |row| {
            let (worker, current): (&str, Option<&str>) = (get(row, 0)?, get(row, 3)?);
            let (started_at, runs): (i64, i64) = (get(row, 1)?, get(row, 2)?);
            let (stop, ended) = (get(row, 4)?, get(row, 5)?);
            let build = || {
                let current = current.map(parse).transpose()?;
                Ok(AutoRun {
                    worker: parse(worker)?,
                    started_at,
                    runs: number(runs, "number of runs")?,
                    current,
                    stop,
                    ended,
                })
            };
            Ok(build())
        })?;
        Ok(found.into_iter().next())
    }
}

impl PostgresRunStore {
    pub(super) fn insert_worker(&self, worker: &Worker) -> Result<(), StoreError> {
        let session = worker.origin.session.map(|session| session.get().as_micros());
        let session = session.map(|micros| i64::try_from(micros).unwrap_or(i64::MAX));
        // The same worker is inserted twice only if the connection broke.
        self.change(
            "INSERT INTO lockkeeper_runs.worker VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, lockkeeper.moment($1), $10, $12)
             ON CONFLICT DO NOTHING",
            &[
                param(&self.project()),
                param(&worker.id.as_str()),
                param(&worker.holder.0.cast_signed()),
                param(&worker.origin.host),
                param(&worker.origin.boot),
                param(&worker.origin.pid_namespace.cast_signed()),
                param(&i64::from(worker.process.pid)),
                param(&worker.process.started.cast_signed()),
                param(&i64::from(worker.jobs)),
                param(&worker.started_at),
                param(&session),
                param(&write_labels(&worker.labels)),
            ],
        )
    }

    /// Sends no notification: other processes look at a worker when its session is due to end.
    pub(super) fn renew_session(
        &self,
        id: &WorkerId,
        expected: &[i64],
        beat: i64,
    ) -> Result<Renewal, StoreError> {
        // A heartbeat that is older than what the server remembers may be followed by others that it has lost.
        let sql = format!(
            "WITH memory AS MATERIALIZED (SELECT {MEMORY} AS since), renewed AS (
                UPDATE lockkeeper_runs.worker SET heartbeat = lockkeeper.moment($1), beat = $4
                WHERE project = $1 AND id = $2
                    AND (beat = ANY ($3) OR heartbeat < (SELECT since FROM memory)) RETURNING 1
             ) SELECT EXISTS (SELECT FROM renewed),
                EXISTS (SELECT FROM lockkeeper_runs.worker WHERE project = $1 AND id = $2),
                (SELECT since FROM memory)"
        );
        // Made once: after a break in the connection the number of the last heartbeat is not known.
        let found = self.leases.server.query(
            &sql,
            &[param(&self.project()), param(&id.as_str()), param(&expected.to_vec()), param(&beat)],
        );
        let found = found.map_err(|failure| self.leases.in_doubt(failure))?;
        let row = found.first().ok_or_else(no_row)?;
        let (is_renewed, is_there): (bool, bool) = (get(row, 0)?, get(row, 1)?);
        self.remember(get(row, 2)?);
        Ok(match (is_renewed, is_there) {
            (true, _) => Renewal::Renewed,
            (false, true) => Renewal::Taken,
            (false, false) => Renewal::Gone,
        })
    }

    pub(super) fn update_auto_run(&self, change: &AutoRunChange<'_>) -> Result<(), StoreError> {
        let project = self.project();
        match *change {
            AutoRunChange::Start { worker } => self.change(
                "INSERT INTO lockkeeper_runs.auto_run VALUES ($1, $2, lockkeeper.wall(), 0, NULL, false, NULL)
                 ON CONFLICT (project) DO UPDATE SET worker = excluded.worker, started_at = excluded.started_at, runs = 0,
                     current = NULL, stop = false, ended = NULL",
                &[param(&project), param(&worker.as_str())],
            ),
            AutoRunChange::CountRun { worker, run } => {
                // A call that is made again after a broken connection counts once.
                let call = self.leases.call_number()?;
                self.change(
                    "UPDATE lockkeeper_runs.auto_run SET runs = runs + 1, current = $3, call = $4
                     WHERE project = $1 AND worker = $2 AND call IS DISTINCT FROM $4",
                    &[param(&project), param(&worker.as_str()), param(&run.as_str()), param(&call)],
                )
            }
            AutoRunChange::RequestStop { worker } => self.change(
                "UPDATE lockkeeper_runs.auto_run SET stop = true
                 WHERE project = $1 AND ended IS NULL AND worker = coalesce($2, worker)",
                &[param(&project), param(&worker.map(|worker| worker.as_str()))],
            ),
            AutoRunChange::End { worker, why } => self.change(
                "UPDATE lockkeeper_runs.auto_run SET ended = $3 WHERE project = $1 AND worker = $2",
                &[param(&project), param(&worker.as_str()), param(&why)],
            ),
        }
    }
}
