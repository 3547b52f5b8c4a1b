//! The records of one SQLite transaction, and the commit that ends it.

use std::collections::BTreeMap;

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::record::{Lease, Rank, Ticket};
use lockkeeper_core::records::{Change, Effect, Records, Scan};
use lockkeeper_core::resource::{Key, KeyRange};
use lockkeeper_core::time::Moment;
use rusqlite::{Params, Row};

use super::connections::Pooled;
use super::rows::Place;
use super::tokens::Drawing;
use super::{SqliteStore, execute, rows, schema};
use crate::{Commit, Granted, StoreError, Transaction};
use lockkeeper_platform::clock;
use lockkeeper_platform::write_lock::WriteLockGuard;

/// The records of one transaction. It holds the write lock, unless it is a snapshot.
pub(super) struct SqliteRecords<'s> {
    store: &'s SqliteStore,
    now: Moment,
    /// The numbers that this transaction has drawn.
    drawing: Option<Drawing<'s>>,
    /// The limit of numbers that `tokens` has and the database does not have yet.
    limit: Option<u64>,
    /// Whether the store has any ticket, once that is known.
    has_tickets: Option<bool>,
    /// Tickets of key ranges with more than one key. They are read as a whole, once.
    lines: Vec<(KeyRange, Vec<Ticket>)>,
    pub(super) connection: Pooled<'s>,
    write_lock: Option<WriteLockGuard<'s>>,
}

impl<'s> SqliteRecords<'s> {
    /// Starts a transaction. Without the write lock it is a snapshot.
    pub(super) fn begin(
        store: &'s SqliteStore,
        connection: Pooled<'s>,
        write_lock: Option<WriteLockGuard<'s>>,
    ) -> Result<Self, StoreError> {
        let begin = if write_lock.is_some() { "BEGIN IMMEDIATE" } else { "BEGIN" };
        store.database(execute(&connection, begin))?;
        let (drawing, limit, has_tickets, lines) = (None, None, None, Vec::new());
        Ok(Self { store, now: clock::now(), drawing, limit, has_tickets, lines, connection, write_lock })
    }

    /// Makes sure that the numbers that were drawn are never drawn again.
    fn keep_numbers(&mut self) -> Result<(), StoreError> {
        if let Some(mut drawing) = self.drawing.take() {
            self.limit = drawing.keep()?;
        }
        Ok(())
    }

    pub(super) fn query<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl Fn(&Row<'_>) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let mut statement = self.store.database(self.connection.prepare_cached(sql))?;
        let mut rows = self.store.database(statement.query(params))?;
        let mut found = Vec::new();
        while let Some(row) = self.store.database(rows.next())? {
            found.push(read(row)?);
        }
        Ok(found)
    }

    /// The tickets of one key in the order of a scan.
    fn line(&self, key: &Key, scan: Scan, limit: usize) -> Result<Vec<Ticket>, StoreError> {
        let start = |place: Rank| (place.at, i64::try_from(place.id.0).unwrap_or(i64::MAX));
        let (sql, (at, id)) = match scan {
            Scan::Forward(place) => (rows::LINE_FORWARD, place.map_or((i64::MIN, 0), start)),
            Scan::Backward(place) => (rows::LINE_BACKWARD, place.map_or((i64::MAX, i64::MAX), start)),
        };
        // SQLite takes a negative limit for none.
        let limit = i64::try_from(limit).unwrap_or(-1);
        self.query(sql, (key.as_str(), at, id, limit), rows::ticket_from)
    }

    /// All tickets of a key range, first to last. A ticket under several keys comes several times.
    fn whole_line(&self, range: &KeyRange) -> Result<Vec<Ticket>, StoreError> {
        let mut found = Vec::new();
        for key in &range.exact {
            found.extend(self.line(key, Scan::Forward(None), usize::MAX)?);
        }
        if let Some(bounds) = range.range_below() {
            found.extend(self.query(rows::TICKETS_BELOW, bounds, rows::ticket_from)?);
        }
        Ok(found)
    }

    fn has_tickets(&mut self) -> Result<bool, StoreError> {
        if self.has_tickets.is_none() {
            self.has_tickets = Some(self.exists(rows::ANY_TICKET, [])?);
        }
        Ok(self.has_tickets == Some(true))
    }

    pub(super) fn execute(&self, sql: &str, params: impl rusqlite::Params) -> Result<usize, StoreError> {
        let run = || self.connection.prepare_cached(sql)?.execute(params);
        self.store.database(run())
    }

    /// Executes a statement that has to change one row.
    fn execute_on(&self, id: LeaseId, sql: &str, params: impl rusqlite::Params) -> Result<(), StoreError> {
        let changed = self.execute(sql, params)?;
        self.expect_one(changed, rows::row_id(id))
    }

    fn expect_one(&self, changed: usize, id: i64) -> Result<(), StoreError> {
        if changed == 1 {
            Ok(())
        } else {
            Err(StoreError::Mismatch(format!("record {} changed meanwhile", id.unsigned_abs())))
        }
    }

    /// Inserts the keys of a record.
    fn insert_keys(&self, (waits, rank, id): Place, keys: &[Key]) -> Result<(), StoreError> {
        let (pairs, rest) = keys.as_chunks();
        for [one, other] in pairs {
            self.execute(rows::FILE_TWICE, (waits, rank, id, one.as_str(), other.as_str()))?;
        }
        for key in rest {
            self.execute(rows::FILE, (waits, rank, id, key.as_str()))?;
        }
        Ok(())
    }

    /// Deletes the keys of a record.
    fn delete_keys(&self, (waits, rank, id): Place, keys: &[Key]) -> Result<(), StoreError> {
        for key in keys {
            let removed = self.execute(rows::UNFILE, (waits, rank, id, key.as_str()))?;
            self.expect_one(removed, id)?;
        }
        Ok(())
    }

    /// Fails unless a record has exactly the index entries of these keys.
    fn expect_keys(&self, (waits, rank, id): Place, keys: &[Key]) -> Result<(), StoreError> {
        for key in keys {
            let found = self.exists(rows::IS_FILED, (waits, rank, id, key.as_str()))?;
            self.expect_one(usize::from(found), id)?;
        }
        Ok(())
    }

    fn exists(&self, sql: &str, params: impl rusqlite::Params) -> Result<bool, StoreError> {
        self.store.database(self.connection.prepare_cached(sql).and_then(|mut found| found.exists(params)))
    }

    fn apply(&self, change: Change) -> Result<(), StoreError> {
        match change {
            Change::AddLease(lease) => {
                self.execute_on(lease.id, rows::INSERT_LEASE, rows::lease_values(&lease))?;
                self.insert_keys(rows::place_of_lease(&lease), &lease.keys())
            }
            Change::UpdateLease(lease) => {
                self.execute_on(lease.id, rows::UPDATE_LEASE, rows::lease_values(&lease))?;
                self.expect_keys(rows::place_of_lease(&lease), &lease.keys())
            }
            Change::RemoveLease(lease) => {
                self.delete_keys(rows::place_of_lease(&lease), &lease.keys())?;
                self.execute_on(lease.id, rows::REMOVE, [rows::row_id(lease.id)])
            }
            Change::AddTicket(ticket) => {
                self.execute_on(ticket.id, rows::INSERT_TICKET, rows::ticket_values(&ticket))?;
                self.insert_keys(rows::place_of_ticket(&ticket), &ticket.keys())
            }
            Change::UpdateTicket(ticket) => {
                self.execute_on(ticket.id, rows::UPDATE_TICKET, rows::ticket_values(&ticket))?;
                self.expect_keys(rows::place_of_ticket(&ticket), &ticket.keys())
            }
            Change::RemoveTicket(ticket) => {
                self.delete_keys(rows::place_of_ticket(&ticket), &ticket.keys())?;
                self.execute_on(ticket.id, rows::REMOVE, [rows::row_id(ticket.id)])
            }
            Change::Grant(ticket, lease) => {
                self.delete_keys(rows::place_of_ticket(&ticket), &ticket.keys())?;
                self.insert_keys(rows::place_of_lease(&lease), &lease.keys())?;
                self.execute_on(lease.id, rows::GRANT, rows::grant_values(&ticket, &lease))
            }
        }
    }
}

impl Records<StoreError> for SqliteRecords<'_> {
    fn now(&self) -> Moment {
        self.now
    }

    fn silent_until(&self) -> Option<Moment> {
        self.store.silent_until
    }

    fn next_number(&mut self) -> Result<u64, StoreError> {
        if self.write_lock.is_none() {
            return Err(StoreError::Mismatch("a snapshot gives no numbers".to_owned()));
        }
        if self.drawing.is_none() {
            let noted = self.store.noted_limit(&self.connection)?;
            self.drawing = Some(self.store.tokens.draw(noted, &self.store.write_lock)?);
        }
        Ok(self.drawing.as_mut().map_or(0, Drawing::next))
    }

    fn lease(&mut self, id: LeaseId) -> Result<Option<Lease>, StoreError> {
        Ok(self.query(rows::LEASE, [rows::row_id(id)], rows::lease_from)?.pop())
    }

    fn leases(&mut self, range: &KeyRange) -> Result<Vec<Lease>, StoreError> {
        if let (None, [key]) = (&range.below, range.exact.as_slice()) {
            return self.query(rows::LEASES_AT, [key.as_str()], rows::lease_from);
        }
        let mut found = Vec::new();
        for key in &range.exact {
            found.extend(self.query(rows::LEASES_AT, [key.as_str()], rows::lease_from)?);
        }
        if let Some(bounds) = range.range_below() {
            found.extend(self.query(rows::LEASES_BELOW, bounds, rows::lease_from)?);
        }
        // A lease under several keys was found several times.
        let by_id: BTreeMap<LeaseId, Lease> = found.into_iter().map(|lease| (lease.id, lease)).collect();
        Ok(by_id.into_values().collect())
    }

    fn ticket(&mut self, id: LeaseId) -> Result<Option<Ticket>, StoreError> {
        Ok(self.query(rows::TICKET, [rows::row_id(id)], rows::ticket_from)?.pop())
    }

    fn tickets(&mut self, range: &KeyRange, scan: Scan, limit: usize) -> Result<Vec<Ticket>, StoreError> {
        // Most commands find no waiter; one cheap query shows that.
        if !self.has_tickets()? {
            return Ok(Vec::new());
        }
        if let (None, [key]) = (&range.below, range.exact.as_slice()) {
            return self.line(key, scan, limit);
        }
        // The order over several keys costs a read of all of them, so it is read once.
        if self.lines.iter().all(|(known, _)| known != range) {
            self.lines.push((range.clone(), self.whole_line(range)?));
        }
        let line = self.lines.iter().find(|(known, _)| known == range).map(|(_, line)| line);
        Ok(scan.order(line.into_iter().flatten().cloned(), limit))
    }

    fn all(&mut self) -> Result<(Vec<Lease>, Vec<Ticket>), StoreError> {
        let leases = self.query(rows::ALL_LEASES, [], rows::lease_from)?;
        Ok((leases, self.query(rows::ALL_TICKETS, [], rows::ticket_from)?))
    }
}

impl Transaction for SqliteRecords<'_> {
    fn commit(mut self: Box<Self>, changes: Vec<Change>, effects: &[Effect]) -> Result<Commit, StoreError> {
        let (store, granted, changed) = (self.store, Granted::among(&changes), !changes.is_empty());
        for change in changes {
            self.apply(change)?;
        }
        self.keep_numbers()?;
        if let Some(limit) = self.limit {
            store.note_limit(&self.connection, limit)?;
        }
        let end = if changed || self.limit.is_some() { "COMMIT" } else { "ROLLBACK" };
        store.database(execute(&self.connection, end))?;
        self.limit = None;
        if changed {
            // It is committed. If the log cannot be shortened now, the next commit tries again.
            let _ = schema::shorten_log(&self.connection, &store.log);
        }
        drop(self);
        store.carry_out(effects, &granted);
        Ok(Commit::Committed)
    }
}

/// Rolls back what was not committed. The numbers that were drawn stay drawn.
impl Drop for SqliteRecords<'_> {
    fn drop(&mut self) {
        // What failed before this counts, so failures here are not reported.
        let _ = self.keep_numbers();
        if !self.connection.is_autocommit() {
            let _ = execute(&self.connection, "ROLLBACK");
        }
        if let Some(limit) = self.limit {
            let _ = self.store.note_limit(&self.connection, limit);
        }
    }
}
