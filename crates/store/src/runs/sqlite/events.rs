//! The table of events.

use lockkeeper_core::id::RunId;
use lockkeeper_core::run::EventId;
use rusqlite::params;

use super::tables::Tables;
use crate::StoreError;
use crate::runs::StoredEvent;
use crate::runs::columns::{limit_of, parse};

const SELECT: &str =
    "SELECT event.position, run.id, event.seq, request.id, event.at, event.kind, event.from_status, \
    event.to_status, event.attempt, event.claim, event.reason, event.message
    FROM event JOIN run ON run.seq = event.run JOIN request ON request.seq = run.request";

impl Tables<'_> {
    /// The events of one run after the one with this number.
    pub(super) fn events_of(
        &self,
        run: &RunId,
        after: u32,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, StoreError> {
        let sql = format!("{SELECT} WHERE run.id = ?1 AND event.seq > ?2 ORDER BY event.seq LIMIT ?3");
        self.events(&sql, params![run.as_str(), after, limit_of(limit)])
    }

    /// The events of all runs after this position.
    pub(super) fn events_after(&self, position: u64, limit: usize) -> Result<Vec<StoredEvent>, StoreError> {
        let sql = format!("{SELECT} WHERE event.position > ?1 ORDER BY event.position LIMIT ?2");
        self.events(&sql, params![position.cast_signed(), limit_of(limit)])
    }

    /// The position of the latest event; 0 if there is none.
    pub(super) fn last_position(&self) -> Result<u64, StoreError> {
        Ok(self.number("SELECT max(position) FROM event", [])?.unwrap_or(0).cast_unsigned())
    }

    fn events(&self, sql: &str, values: impl rusqlite::Params) -> Result<Vec<StoredEvent>, StoreError> {
        self.rows(sql, values, |row| {
            let (run, seq): (String, u32) = (row.get(1)?, row.get(2)?);
            let run = match parse(&run) {
                Ok(run) => run,
                Err(error) => return Ok(Err(error)),
            };
            Ok(Ok(StoredEvent {
                position: row.get::<_, i64>(0)?.cast_unsigned(),
                id: EventId { run, seq },
                request: row.get(3)?,
                at: row.get(4)?,
                kind: row.get(5)?,
                from: row.get(6)?,
                to: row.get(7)?,
                attempt: row.get(8)?,
                claim: row.get::<_, i64>(9)?.cast_unsigned(),
                reason: row.get(10)?,
                message: row.get(11)?,
            }))
        })
    }
}
