//! Events, in the order in which they happened.

use lockkeeper_core::id::RunId;
use lockkeeper_core::run::EventId;
use rusqlite::params;

use super::Tables;
use crate::StoreError;

/// An event as it was appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    /// Its place among all events of the store, from 1; there may be gaps.
    pub position: u64,
    /// Its place among those of its run, from 1 without gaps.
    pub id: EventId,
    /// The request of the run.
    pub request: String,
    /// When it happened, in microseconds since 1970.
    pub at: i64,
    /// What happened.
    pub kind: String,
    /// Where the run was before.
    pub from: Option<String>,
    /// Where the run was then.
    pub to: String,
    /// Which attempt it was.
    pub attempt: u32,
    /// Which claim it was.
    pub claim: u64,
    /// Why.
    pub reason: Option<String>,
    /// In words.
    pub message: Option<String>,
}

const SELECT: &str =
    "SELECT event.position, run.id, event.seq, request.id, event.at, event.kind, event.from_status, \
    event.to_status, event.attempt, event.claim, event.reason, event.message
    FROM event JOIN run ON run.seq = event.run JOIN request ON request.seq = run.request";

impl Tables<'_> {
    /// The events of one run after the one with this number.
    pub fn events_of(&self, run: &RunId, after: u32, limit: usize) -> Result<Vec<StoredEvent>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let sql = format!("{SELECT} WHERE run.id = ?1 AND event.seq > ?2 ORDER BY event.seq LIMIT ?3");
        self.events(&sql, params![run.as_str(), after, limit])
    }

    /// The events of all runs after this position.
    pub fn events_after(&self, position: u64, limit: usize) -> Result<Vec<StoredEvent>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let sql = format!("{SELECT} WHERE event.position > ?1 ORDER BY event.position LIMIT ?2");
        self.events(&sql, params![position.cast_signed(), limit])
    }

    /// The position of an event; none when there is no such event.
    pub fn position_of(&self, id: &EventId) -> Result<Option<u64>, StoreError> {
        let sql =
            "SELECT position FROM event JOIN run ON run.seq = event.run WHERE run.id = ?1 AND event.seq = ?2";
        Ok(self.number(sql, params![id.run.as_str(), id.seq])?.map(i64::cast_unsigned))
    }

    /// The position of the latest event; 0 when there is none.
    pub fn last_position(&self) -> Result<u64, StoreError> {
        Ok(self.number("SELECT max(position) FROM event", [])?.unwrap_or(0).cast_unsigned())
    }

    fn events(&self, sql: &str, values: impl rusqlite::Params) -> Result<Vec<StoredEvent>, StoreError> {
        self.rows(sql, values, |row| {
            let (run, seq): (String, u32) = (row.get(1)?, row.get(2)?);
            let run = match run.parse() {
                Ok(run) => run,
                Err(error) => return Ok(Err(format!("{error}"))),
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
