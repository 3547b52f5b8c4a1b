//! The table of workers.

use lockkeeper_core::id::{HolderId, WorkerId};
use lockkeeper_core::liveness::{Origin, ProcessRef};
use lockkeeper_core::time::Moment;
use rusqlite::params;

use super::tables::Tables;
use crate::StoreError;
use crate::runs::Worker;
use crate::runs::columns::{parse, read_labels, session_from, write_labels};

impl Tables<'_> {
    /// Inserts a worker.
    pub(super) fn insert_worker(&self, worker: &Worker) -> Result<(), StoreError> {
        self.execute(
            "INSERT INTO worker (id, holder, host, boot, pid_namespace, pid, pid_started, jobs, started_at, labels)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            params![
                worker.id.as_str(),
                worker.holder.0.cast_signed(),
                worker.origin.host,
                worker.origin.boot,
                worker.origin.pid_namespace.cast_signed(),
                worker.process.pid,
                worker.process.started.cast_signed(),
                worker.jobs,
                worker.started_at,
                write_labels(&worker.labels),
            ],
        )
    }

    /// Removes a worker.
    pub(super) fn remove_worker(&self, id: &WorkerId) -> Result<(), StoreError> {
        self.execute("DELETE FROM worker WHERE id = ?1", [id.as_str()])
    }

    /// All workers, the oldest first.
    pub(super) fn workers(&self) -> Result<Vec<Worker>, StoreError> {
        let (span, heartbeat, sessions) = if self.is_served() {
            ("session.span", "session.heartbeat", "LEFT JOIN session ON session.worker = worker.id")
        } else {
            ("NULL", "NULL", "")
        };
        let sql = format!(
            "SELECT id, holder, host, boot, pid_namespace, pid, pid_started, jobs, started_at, labels, {span}, {heartbeat}
             FROM worker {sessions} ORDER BY started_at, id"
        );
        self.rows(&sql, [], |row| {
            let (id, labels, span): (String, String, Option<i64>) = (row.get(0)?, row.get(9)?, row.get(10)?);
            let (host, boot, jobs, started_at) = (row.get(2)?, row.get(3)?, row.get(7)?, row.get(8)?);
            let unsigned = |index| row.get::<_, i64>(index).map(i64::cast_unsigned);
            let [holder, pid_namespace, started] = [unsigned(1)?, unsigned(4)?, unsigned(6)?];
            let (pid, heartbeat) = (row.get(5)?, row.get::<_, Option<i64>>(11)?);
            let build = || {
                Ok(Worker {
                    id: parse(&id)?,
                    holder: HolderId(holder),
                    origin: Origin {
                        host,
                        boot,
                        pid_namespace,
                        session: span.map(session_from).transpose()?,
                    },
                    process: ProcessRef { pid, started },
                    jobs,
                    labels: read_labels(&labels)?,
                    started_at,
                    heartbeat_at: heartbeat.map(Moment::from_micros),
                })
            };
            Ok(build())
        })
    }
}
