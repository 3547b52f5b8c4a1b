//! The table of workers.

use lockkeeper_core::id::{HolderId, WorkerId};
use lockkeeper_core::liveness::{Origin, ProcessRef};
use rusqlite::params;

use super::tables::Tables;
use crate::StoreError;
use crate::runs::Worker;
use crate::runs::columns::{parse, read_labels, write_labels};

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
        let sql = "SELECT id, holder, host, boot, pid_namespace, pid, pid_started, jobs, started_at, labels
                   FROM worker ORDER BY started_at, id";
        self.rows(sql, [], |row| {
            let (id, labels): (String, String) = (row.get(0)?, row.get(9)?);
            let (id, labels) = match parse(&id).and_then(|id| Ok((id, read_labels(&labels)?))) {
                Ok(read) => read,
                Err(error) => return Ok(Err(error)),
            };
            let pid_namespace = row.get::<_, i64>(4)?.cast_unsigned();
            Ok(Ok(Worker {
                id,
                holder: HolderId(row.get::<_, i64>(1)?.cast_unsigned()),
                origin: Origin { host: row.get(2)?, boot: row.get(3)?, pid_namespace, session: None },
                process: ProcessRef { pid: row.get(5)?, started: row.get::<_, i64>(6)?.cast_unsigned() },
                jobs: row.get(7)?,
                labels,
                started_at: row.get(8)?,
                heartbeat_at: None,
            }))
        })
    }
}
