//! The records as one transaction sees them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use lockkeeper_core::draft::{Change, Walk};
use lockkeeper_core::id::LeaseId;
use lockkeeper_core::record::{Lease, Rank, Ticket};
use lockkeeper_core::resource::{Key, Reach};
use lockkeeper_core::time::Moment;
use rusqlite::Connection;

use super::tokens::Drawing;
use super::{SqliteStore, rows, schema};
use crate::platform::clock;
use crate::store::{Records, StoreError};

/// The records as one transaction sees them.
pub(super) struct Rows<'c> {
    store: &'c SqliteStore,
    connection: &'c Connection,
    now: Moment,
    pub(super) drawing: Option<Drawing<'c>>,
    pub(super) changed: bool,
    /// Whether anybody waits at all: mostly nobody does, and then no line need be looked at.
    anybody_waits: Option<bool>,
    /// How many were met in a line at the most.
    pub(super) met: usize,
    /// Whether somebody leaves the line, and is likely to be rung for it.
    pub(super) hands_on: bool,
}

impl<'c> Rows<'c> {
    pub(super) fn new(store: &'c SqliteStore, connection: &'c Connection) -> Self {
        // Where a decision met somebody, the next one will, too: it does not ask first.
        let anybody_waits = store.crowded.load(Ordering::Relaxed).then_some(true);
        let (now, drawing, changed, met, hands_on) = (clock::now(), None, false, 0, false);
        Self { store, connection, now, drawing, changed, anybody_waits, met, hands_on }
    }

    fn anybody_waits(&mut self) -> Result<bool, StoreError> {
        if let Some(known) = self.anybody_waits {
            return Ok(known);
        }
        let mut found = false;
        self.query("SELECT 1 FROM ticket LIMIT 1", [], |_| Ok(()), &mut |()| {
            found = true;
            ControlFlow::Break(())
        })?;
        self.anybody_waits = Some(found);
        Ok(found)
    }

    fn query<T>(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
        read: impl Fn(&rusqlite::Row<'_>) -> Result<T, StoreError>,
        visit: &mut dyn FnMut(T) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let database = |error| schema::explain(&self.store.path, error);
        let mut statement = self.connection.prepare_cached(sql).map_err(database)?;
        let mut rows = statement.query(params).map_err(database)?;
        while let Some(row) = rows.next().map_err(database)? {
            if visit(read(row)?).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn execute(&self, sql: &str, params: impl rusqlite::Params) -> Result<usize, StoreError> {
        let run = || self.connection.prepare_cached(sql)?.execute(params);
        self.store.database(run())
    }

    fn expect_one(&self, changed: usize, what: &str, id: LeaseId) -> Result<(), StoreError> {
        if changed == 1 {
            Ok(())
        } else {
            Err(StoreError::Mismatch(format!("{what} {} changed meanwhile", id.0)))
        }
    }

    /// Whether a record that was changed is still filed where it can be found.
    fn expect_keys(
        &self,
        table: &str,
        keys: &[Key],
        rank: Option<i64>,
        id: LeaseId,
    ) -> Result<(), StoreError> {
        for key in keys {
            let (key, number) = (key.as_str(), id.0.cast_signed());
            let found = match rank {
                None => {
                    self.exists(&format!("SELECT 1 FROM {table} WHERE key = ? AND id = ?"), (key, number))
                }
                Some(rank) => {
                    let sql = format!("SELECT 1 FROM {table} WHERE key = ? AND rank = ? AND id = ?");
                    self.exists(&sql, (key, rank, number))
                }
            };
            self.expect_one(usize::from(found?), "record", id)?;
        }
        Ok(())
    }

    fn exists(&self, sql: &str, params: impl rusqlite::Params) -> Result<bool, StoreError> {
        self.store.database(self.connection.prepare_cached(sql).and_then(|mut found| found.exists(params)))
    }

    /// The tickets of one key along a walk, or of a range of keys in no order.
    fn walk_line(
        &self,
        keys: Keys<'_>,
        walk: Walk,
        visit: &mut dyn FnMut(Ticket) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let ids = |place: Rank| (place.at, i64::try_from(place.id.0).unwrap_or(i64::MAX));
        let ((at, id), up) = match walk {
            Walk::Up(place) => (place.map_or((i64::MIN, 0), ids), true),
            Walk::Down(place) => (place.map_or((i64::MAX, i64::MAX), ids), false),
        };
        match keys {
            Keys::At(key) => {
                let sql = if up { rows::LINE_UP_AT } else { rows::LINE_DOWN_AT };
                self.query(sql, (key.as_str(), at, id), rows::ticket_from, visit)
            }
            Keys::Below(from, to) => {
                let sql = if up { rows::LINES_UP_BELOW } else { rows::LINES_DOWN_BELOW };
                self.query(sql, (from, to, at, id), rows::ticket_from, visit)
            }
        }
    }
}

/// Where to look for tickets.
#[derive(Clone, Copy)]
enum Keys<'k> {
    At(&'k Key),
    Below(&'k str, &'k str),
}

impl Records for Rows<'_> {
    fn now(&self) -> Moment {
        self.now
    }

    fn draw(&mut self) -> Result<u64, StoreError> {
        if self.drawing.is_none() {
            let (store, connection) = (self.store, self.connection);
            let known = store.noted.load(Ordering::Relaxed);
            self.drawing = Some(store.tokens.draw(known, || store.noted_limit(connection))?);
        }
        Ok(self.drawing.as_mut().map_or(0, Drawing::next))
    }

    fn lease(&mut self, id: LeaseId) -> Result<Option<Lease>, StoreError> {
        first(|visit| self.query(rows::LEASE, [id.0.cast_signed()], rows::lease_from, visit))
    }

    fn leases(&mut self, reach: &Reach, visit: &mut dyn FnMut(Lease)) -> Result<(), StoreError> {
        let single = reach.exact.len() == 1 && reach.below.is_none();
        let mut seen = BTreeSet::new();
        let mut show = |lease: Lease| {
            if single || seen.insert(lease.id) {
                visit(lease);
            }
            ControlFlow::Continue(())
        };
        for key in &reach.exact {
            self.query(rows::LEASES_AT, [key.as_str()], rows::lease_from, &mut show)?;
        }
        if let Some((from, to)) = reach.range_below() {
            self.query(rows::LEASES_BELOW, [from, to], rows::lease_from, &mut show)?;
        }
        Ok(())
    }

    fn ticket(&mut self, id: LeaseId) -> Result<Option<Ticket>, StoreError> {
        first(|visit| self.query(rows::TICKET, [id.0.cast_signed()], rows::ticket_from, visit))
    }

    fn tickets(
        &mut self,
        reach: &Reach,
        walk: Walk,
        visit: &mut dyn FnMut(Ticket) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        if !self.anybody_waits()? {
            return Ok(());
        }
        if let (None, [key]) = (&reach.below, reach.exact.as_slice()) {
            let mut met = 0;
            self.walk_line(Keys::At(key), walk, &mut |ticket| {
                met += 1;
                visit(ticket)
            })?;
            self.met = self.met.max(met);
            return Ok(());
        }
        // Several keys have several lines: they are merged into one.
        let mut found = BTreeMap::new();
        let mut collect = |ticket: Ticket| {
            found.insert(ticket.rank, ticket);
            ControlFlow::Continue(())
        };
        for key in &reach.exact {
            self.walk_line(Keys::At(key), walk, &mut collect)?;
        }
        if let Some((from, to)) = reach.range_below() {
            self.walk_line(Keys::Below(&from, &to), walk, &mut collect)?;
        }
        self.met = self.met.max(found.len());
        let ordered: Box<dyn Iterator<Item = Ticket>> = match walk {
            Walk::Up(_) => Box::new(found.into_values()),
            Walk::Down(_) => Box::new(found.into_values().rev()),
        };
        for ticket in ordered {
            if visit(ticket).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn everything(&mut self) -> Result<(Vec<Lease>, Vec<Ticket>), StoreError> {
        let (mut leases, mut tickets) = (Vec::new(), Vec::new());
        self.query(rows::ALL_LEASES, [], rows::lease_from, &mut |lease| {
            leases.push(lease);
            ControlFlow::Continue(())
        })?;
        self.query(rows::ALL_TICKETS, [], rows::ticket_from, &mut |ticket| {
            tickets.push(ticket);
            ControlFlow::Continue(())
        })?;
        Ok((leases, tickets))
    }

    fn apply(&mut self, change: Change) -> Result<(), StoreError> {
        self.changed = true;
        if self.anybody_waits == Some(false) {
            self.anybody_waits = None;
        }
        match change {
            Change::AddLease(lease) => {
                let changed = self.execute(rows::INSERT_LEASE, rows::lease_values(&lease))?;
                self.expect_one(changed, "lease", lease.id)?;
                let id = lease.id.0.cast_signed();
                let keys = lease.keys();
                let (pairs, rest) = keys.as_chunks();
                for [one, other] in pairs {
                    self.execute(rows::FILE_LEASE_TWICE, (id, one.as_str(), other.as_str()))?;
                }
                for key in rest {
                    self.execute(rows::FILE_LEASE, (id, key.as_str()))?;
                }
                Ok(())
            }
            Change::UpdateLease(lease) => {
                let changed = self.execute(rows::UPDATE_LEASE, rows::lease_values(&lease))?;
                self.expect_one(changed, "lease", lease.id)?;
                self.expect_keys("lease_key", &lease.keys(), None, lease.id)
            }
            Change::RemoveLease(lease) => {
                let id = lease.id.0.cast_signed();
                for key in lease.keys() {
                    let sql = "DELETE FROM lease_key WHERE key = ? AND id = ?";
                    let removed = self.execute(sql, (key.as_str(), id))?;
                    self.expect_one(removed, "lease", lease.id)?;
                }
                let changed = self.execute("DELETE FROM lease WHERE id = ?", [id])?;
                self.expect_one(changed, "lease", lease.id)
            }
            Change::AddTicket(ticket) => {
                let changed = self.execute(rows::INSERT_TICKET, rows::ticket_values(&ticket))?;
                self.expect_one(changed, "ticket", ticket.id)?;
                let (id, rank) = (ticket.id.0.cast_signed(), ticket.rank.at);
                let keys = ticket.keys();
                let (pairs, rest) = keys.as_chunks();
                for [one, other] in pairs {
                    self.execute(rows::FILE_TICKET_TWICE, (rank, id, one.as_str(), other.as_str()))?;
                }
                for key in rest {
                    self.execute(rows::FILE_TICKET, (rank, id, key.as_str()))?;
                }
                Ok(())
            }
            Change::UpdateTicket(ticket) => {
                let changed = self.execute(rows::UPDATE_TICKET, rows::ticket_values(&ticket))?;
                self.expect_one(changed, "ticket", ticket.id)?;
                self.expect_keys("ticket_key", &ticket.keys(), Some(ticket.rank.at), ticket.id)
            }
            Change::RemoveTicket(ticket) => {
                self.hands_on = true;
                let (id, rank) = (ticket.id.0.cast_signed(), ticket.rank.at);
                for key in ticket.keys() {
                    let sql = "DELETE FROM ticket_key WHERE key = ? AND rank = ? AND id = ?";
                    let removed = self.execute(sql, (key.as_str(), rank, id))?;
                    self.expect_one(removed, "ticket", ticket.id)?;
                }
                let changed = self.execute("DELETE FROM ticket WHERE id = ?", [id])?;
                self.expect_one(changed, "ticket", ticket.id)
            }
        }
    }
}

fn first<T>(
    query: impl FnOnce(&mut dyn FnMut(T) -> ControlFlow<()>) -> Result<(), StoreError>,
) -> Result<Option<T>, StoreError> {
    let mut found = None;
    query(&mut |one| {
        found = Some(one);
        ControlFlow::Break(())
    })?;
    Ok(found)
}
