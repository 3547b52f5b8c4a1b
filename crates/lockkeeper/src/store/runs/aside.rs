//! Runs that are set aside for a worker that will begin with them as soon as it has a free hand.
//!
//! Such a run is still queued. But the word of it is on the disk before its command begins, so that the claim need not
//! be: after a power cut a run that was set aside may have begun, and nobody takes it for one that has not.
//!
//! | `run.ready` | means |
//! |---|---|
//! | 0 | it waits for others |
//! | 1 | whoever comes may begin with it |
//! | above | it is set aside for whoever has the kernel lock of this number |
//! | below 0 | it was set aside on an earlier boot: it may have begun |

use lockkeeper_core::id::{HolderId, RunId};
use lockkeeper_core::run::Run;
use rusqlite::params;

use super::Tables;
use super::rows::COLUMNS;
use crate::store::StoreError;

/// A run that is set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aside {
    /// Which one.
    pub run: Run,
    /// For whom: whoever holds this kernel lock. None when it was on an earlier boot.
    pub holder: Option<HolderId>,
}

impl Tables<'_> {
    /// Sets a run aside that is ready; false when it is not.
    pub fn set_aside(&self, run: &RunId, holder: HolderId) -> Result<bool, StoreError> {
        // The first two numbers mean something else.
        let Some(number) = i64::try_from(holder.0).ok().filter(|number| *number > 1) else {
            return Ok(false);
        };
        let sql = "UPDATE run SET ready = ?2 WHERE id = ?1 AND status = 'queued' AND ready = 1";
        self.changes_one(sql, params![run.as_str(), number])
    }

    /// Lets anybody begin with it again; false when it is not set aside for this one any more.
    pub fn put_back(&self, run: &RunId, holder: HolderId) -> Result<bool, StoreError> {
        let sql = "UPDATE run SET ready = 1 WHERE id = ?1 AND status = 'queued' AND ready = ?2";
        self.changes_one(sql, params![run.as_str(), holder.0.cast_signed()])
    }

    /// The run, if it is still queued and set aside for this one.
    pub fn set_aside_for(&self, run: &RunId, holder: HolderId) -> Result<Option<Run>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM run JOIN request ON request.seq = run.request
             WHERE run.id = ?1 AND run.status = 'queued' AND run.ready = ?2"
        );
        self.one(&sql, params![run.as_str(), holder.0.cast_signed()])
    }

    /// All runs that are set aside.
    pub fn asides(&self) -> Result<Vec<Aside>, StoreError> {
        let sql = "SELECT id, ready FROM run INDEXED BY run_aside
                   WHERE status = 'queued' AND ready NOT IN (0, 1) ORDER BY ready";
        let found = self.rows(sql, [], |row| {
            let (id, ready): (String, i64) = (row.get(0)?, row.get(1)?);
            Ok(id.parse::<RunId>().map(|id| (id, ready)).map_err(|error| format!("{error}")))
        })?;
        let mut asides = Vec::new();
        for (id, ready) in found {
            let holder = u64::try_from(ready).ok().map(HolderId);
            asides.extend(self.run(&id)?.map(|run| Aside { run, holder }));
        }
        Ok(asides)
    }

    /// Whether more than so many runs can begin.
    pub fn more_ready_than(&self, count: u32) -> Result<bool, StoreError> {
        let sql = "SELECT 1 FROM run INDEXED BY run_queue WHERE status = 'queued' AND ready = 1
                   ORDER BY priority DESC, seq LIMIT 1 OFFSET ?1";
        Ok(self.number(sql, [count])?.is_some())
    }

    /// Nobody of another boot lives; what was set aside there may have begun.
    pub(super) fn doubt_asides(&self) -> Result<(), StoreError> {
        self.execute("UPDATE run SET ready = -ready WHERE status = 'queued' AND ready > 1", [])
    }

    fn changes_one(&self, sql: &str, values: impl rusqlite::Params) -> Result<bool, StoreError> {
        let changed =
            self.connection().prepare_cached(sql).and_then(|mut statement| statement.execute(values));
        self.database(changed).map(|changed| changed > 0)
    }
}
