//! Pruning: removes requests that ended long ago.

use std::collections::{BTreeMap, HashMap, HashSet};

use lockkeeper_core::id::{RequestId, RunId};

use super::rows::parse;
use super::tables::Tables;
use crate::StoreError;
use crate::runs::Removed;

/// A request that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Old {
    /// Its row.
    seq: i64,
    /// Its id.
    pub(super) request: RequestId,
    /// All its runs.
    runs: Vec<RunId>,
    /// Whether it is done.
    done: bool,
}

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

    /// Requests whose runs all ended before this time, and that no request needs that stays: an open request needs its
    /// dependencies; any other would wait for a dependency that is not done, if it were run again.
    pub(super) fn prunable(&self, before_unix_micros: i64) -> Result<Vec<Old>, StoreError> {
        let mut old = self.ended_before(before_unix_micros)?;
        // Pairs of a dependency and a request that depends on it.
        let edges = self.rows(
            "SELECT dependency.after, dependency.request, later.status = 'QUEUED'
             FROM dependency JOIN request AS later ON later.seq = dependency.request",
            [],
            |row| Ok(Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, bool>(2)?))),
        )?;
        let mut later: HashMap<i64, Vec<(i64, bool)>> = HashMap::new();
        for (before, after, open) in edges {
            later.entry(before).or_default().push((after, open));
        }
        // A request that stays keeps its dependencies, and those keep theirs.
        loop {
            let gone: HashSet<i64> = old.iter().map(|old| old.seq).collect();
            let before = old.len();
            old.retain(|old| {
                let after = later.get(&old.seq).into_iter().flatten();
                after.clone().all(|(later, open)| !open && (old.done || gone.contains(later)))
            });
            if old.len() == before {
                return Ok(old);
            }
        }
    }

    fn ended_before(&self, before_unix_micros: i64) -> Result<Vec<Old>, StoreError> {
        let sql = "SELECT request.seq, request.id, run.id, request.status = 'DONE'
                   FROM request JOIN run ON run.request = request.seq
                   WHERE request.status <> 'QUEUED'
                     AND NOT EXISTS (SELECT 1 FROM run AS other WHERE other.request = request.seq AND
                         (other.completed_at IS NULL OR other.completed_at >= ?1 OR other.holder IS NOT NULL))
                   ORDER BY request.seq, run.seq";
        let found = self.rows(sql, [before_unix_micros], |row| {
            let (seq, request, run): (i64, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let done: bool = row.get(3)?;
            let parse = || Ok((seq, parse::<RequestId>(&request)?, parse::<RunId>(&run)?, done));
            Ok(parse())
        })?;
        let mut old: BTreeMap<i64, Old> = BTreeMap::new();
        for (seq, request, run, done) in found {
            old.entry(seq).or_insert(Old { seq, request, runs: Vec::new(), done }).runs.push(run);
        }
        Ok(old.into_values().collect())
    }
}
