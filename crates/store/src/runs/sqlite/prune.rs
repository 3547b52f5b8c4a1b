//! Pruning: removes requests that ended long ago.

use super::tables::Tables;
use crate::StoreError;
use crate::runs::Removed;
use crate::runs::prunable::{self, Edge, Old, OldRow};

impl Tables<'_> {
    /// Removes what [`Tables::prunable`] lists, with all runs and events. Returns what was removed.
    pub(super) fn prune(&self, before_unix_micros: i64) -> Result<Vec<Removed>, StoreError> {
        let old = self.prunable(before_unix_micros)?;
        if !old.is_empty() {
            self.keep_position()?;
        }
        for Old { seq, .. } in &old {
            self.execute("DELETE FROM event WHERE run IN (SELECT seq FROM run WHERE request = ?1)", [seq])?;
            self.execute("DELETE FROM run WHERE request = ?1", [seq])?;
            self.execute("DELETE FROM dependency WHERE request = ?1 OR after = ?1", [seq])?;
            self.execute("DELETE FROM request WHERE seq = ?1", [seq])?;
        }
        Ok(old.into_iter().map(|old| Removed { request: old.request, runs: old.runs }).collect())
    }

    /// Requests whose runs all ended before this time, and that no remaining request needs.
    pub(super) fn prunable(&self, before_unix_micros: i64) -> Result<Vec<Old>, StoreError> {
        let sql = "SELECT request.seq, request.id, run.id, request.status = 'DONE'
                   FROM request JOIN run ON run.request = request.seq
                   WHERE request.status <> 'QUEUED'
                     AND NOT EXISTS (SELECT 1 FROM run AS other WHERE other.request = request.seq AND
                         (other.completed_at IS NULL OR other.completed_at >= ?1 OR other.holder IS NOT NULL))
                   ORDER BY request.seq, run.seq";
        let rows = self.rows(sql, [before_unix_micros], |row| {
            Ok(Ok(OldRow { seq: row.get(0)?, request: row.get(1)?, run: row.get(2)?, done: row.get(3)? }))
        })?;
        let edges = self.rows(
            "SELECT dependency.after, dependency.request, later.status = 'QUEUED'
             FROM dependency JOIN request AS later ON later.seq = dependency.request",
            [],
            |row| Ok(Ok(Edge { before: row.get(0)?, after: row.get(1)?, is_open: row.get(2)? })),
        )?;
        let old = prunable::collect(rows).map_err(|what| self.damaged(what))?;
        Ok(prunable::not_needed(old, &edges))
    }
}
