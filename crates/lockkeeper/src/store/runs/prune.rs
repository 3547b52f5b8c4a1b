//! Forgetting what ended long ago.

use std::collections::HashMap;

use lockkeeper_core::id::{RequestId, RunId};

use super::Tables;
use crate::store::StoreError;

impl Tables<'_> {
    /// Removes requests whose latest run ended before this time, with all their runs and events, unless something
    /// of them may live or an open request comes after them. Returns what is gone.
    pub fn prune(&self, before_unix_micros: i64) -> Result<Vec<(RequestId, Vec<RunId>)>, StoreError> {
        let sql = "SELECT request.seq, request.id, run.id FROM request JOIN run ON run.request = request.seq
                   WHERE request.status NOT IN ('QUEUED', 'RUNNING')
                     AND NOT EXISTS (SELECT 1 FROM run AS other WHERE other.request = request.seq AND
                         (other.completed_at IS NULL OR other.completed_at >= ?1 OR other.holder IS NOT NULL))
                     AND NOT EXISTS (SELECT 1 FROM dependency JOIN request AS later ON later.seq = dependency.request
                         WHERE dependency.after = request.seq AND later.status IN ('QUEUED', 'RUNNING'))
                   ORDER BY request.seq, run.seq";
        let found = self.rows(sql, [before_unix_micros], |row| {
            let (request, run): (String, String) = (row.get(1)?, row.get(2)?);
            let seq: i64 = row.get(0)?;
            let parse = || {
                let request = request.parse::<RequestId>().map_err(|error| format!("{error}"))?;
                Ok((seq, request, run.parse::<RunId>().map_err(|error| format!("{error}"))?))
            };
            Ok(parse())
        })?;
        let mut order = Vec::new();
        let mut gone: HashMap<i64, (RequestId, Vec<RunId>)> = HashMap::new();
        for (seq, request, run) in found {
            let entry = gone.entry(seq).or_insert_with(|| {
                order.push(seq);
                (request, Vec::new())
            });
            entry.1.push(run);
        }
        for seq in &order {
            self.execute("DELETE FROM event WHERE run IN (SELECT seq FROM run WHERE request = ?1)", [seq])?;
            self.execute("DELETE FROM run WHERE request = ?1", [seq])?;
            self.execute("DELETE FROM dependency WHERE request = ?1 OR after = ?1", [seq])?;
            self.execute("DELETE FROM request WHERE seq = ?1", [seq])?;
        }
        Ok(order.iter().filter_map(|seq| gone.remove(seq)).collect())
    }
}
