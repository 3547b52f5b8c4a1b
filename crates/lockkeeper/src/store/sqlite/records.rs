//! The records as one transaction sees them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::overlay::{Change, Scan};
use lockkeeper_core::record::{Lease, Rank, Ticket};
use lockkeeper_core::resource::{Key, KeyRange};
use lockkeeper_core::time::Moment;
use rusqlite::Connection;

use super::rows::Place;
use super::tokens::Drawing;
use super::{SqliteStore, rows, schema};
use crate::platform::clock;
use crate::store::{Records, StoreError};

/// So many keys of tickets are read at once, before their lines are looked at one by one.
const FEW: usize = 8;

/// The records as one transaction sees them.
pub(super) struct Rows<'c> {
    store: &'c SqliteStore,
    connection: &'c Connection,
    now: Moment,
    pub(super) drawing: Option<Drawing<'c>>,
    pub(super) changed: bool,
    waiting: Waiting,
    /// How many were met in a line at the most.
    pub(super) met: usize,
    /// Whether somebody leaves the line, and is likely to be woken for it.
    pub(super) hands_on: bool,
}

/// What is known of those who wait.
enum Waiting {
    /// Nothing yet.
    Unknown,
    /// These are all.
    Few(Vec<Ticket>),
    /// More than are read at once: each line is looked at for itself.
    Many,
}

impl<'c> Rows<'c> {
    pub(super) fn new(store: &'c SqliteStore, connection: &'c Connection) -> Self {
        // Where several waited, the next decision meets them, too: it does not ask first.
        let waiting = if store.pace.several() { Waiting::Many } else { Waiting::Unknown };
        let (now, drawing, changed, met, hands_on) = (clock::now(), None, false, 0, false);
        Self { store, connection, now, drawing, changed, waiting, met, hands_on }
    }

    /// Looks who waits, unless that is known. Mostly nobody does, or one, and then no line need be looked at.
    fn look_who_waits(&mut self) -> Result<(), StoreError> {
        if !matches!(self.waiting, Waiting::Unknown) {
            return Ok(());
        }
        // Short commands mostly meet nobody: they do not compile more than this to find that out.
        if !self.store.pace.anybody() && !self.exists(rows::ANY_TICKET, [])? {
            self.waiting = Waiting::Few(Vec::new());
            return Ok(());
        }
        let (mut few, mut read): (Vec<Ticket>, usize) = (Vec::new(), 0);
        self.query(rows::FILED_TICKETS, [], rows::ticket_from, &mut |ticket| {
            read += 1;
            if few.iter().all(|known| known.id != ticket.id) {
                few.push(ticket);
            }
            if read > FEW { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        self.waiting = if read > FEW { Waiting::Many } else { Waiting::Few(few) };
        Ok(())
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

    /// Changes one row, or fails.
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

    /// Files a record under its keys.
    fn file(&self, (waits, rank, id): Place, keys: &[Key]) -> Result<(), StoreError> {
        let (pairs, rest) = keys.as_chunks();
        for [one, other] in pairs {
            self.execute(rows::FILE_TWICE, (waits, rank, id, one.as_str(), other.as_str()))?;
        }
        for key in rest {
            self.execute(rows::FILE, (waits, rank, id, key.as_str()))?;
        }
        Ok(())
    }

    /// Takes a record out from under its keys.
    fn unfile(&self, (waits, rank, id): Place, keys: &[Key]) -> Result<(), StoreError> {
        for key in keys {
            let removed = self.execute(rows::UNFILE, (waits, rank, id, key.as_str()))?;
            self.expect_one(removed, id)?;
        }
        Ok(())
    }

    /// Whether a record that was changed is still filed where it can be found.
    fn expect_filed(&self, (waits, rank, id): Place, keys: &[Key]) -> Result<(), StoreError> {
        for key in keys {
            let found = self.exists(rows::IS_FILED, (waits, rank, id, key.as_str()))?;
            self.expect_one(usize::from(found), id)?;
        }
        Ok(())
    }

    fn exists(&self, sql: &str, params: impl rusqlite::Params) -> Result<bool, StoreError> {
        self.store.database(self.connection.prepare_cached(sql).and_then(|mut found| found.exists(params)))
    }

    /// The tickets of one key along a scan, or of a range of keys in no order.
    fn walk_line(
        &self,
        keys: Keys<'_>,
        scan: Scan,
        visit: &mut dyn FnMut(Ticket) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let ids = |place: Rank| (place.at, i64::try_from(place.id.0).unwrap_or(i64::MAX));
        let ((at, id), up) = match scan {
            Scan::Forward(place) => (place.map_or((i64::MIN, 0), ids), true),
            Scan::Backward(place) => (place.map_or((i64::MAX, i64::MAX), ids), false),
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
            let highest = || {
                let mut statement = connection.prepare_cached("SELECT highest FROM numbers")?;
                statement.query_row([], |row| row.get::<_, i64>(0))
            };
            // A database that lost its log knows an old limit; the gate knows the last.
            let highest = store.database(highest())?.cast_unsigned().max(store.gate.noted().unwrap_or(0));
            self.drawing = Some(store.tokens.draw(highest)?);
        }
        Ok(self.drawing.as_mut().map_or(0, Drawing::next))
    }

    fn lease(&mut self, id: LeaseId) -> Result<Option<Lease>, StoreError> {
        first(|visit| self.query(rows::LEASE, [rows::row_id(id)], rows::lease_from, visit))
    }

    fn leases(&mut self, range: &KeyRange, visit: &mut dyn FnMut(Lease)) -> Result<(), StoreError> {
        let single = range.exact.len() == 1 && range.below.is_none();
        let mut seen = BTreeSet::new();
        let mut show = |lease: Lease| {
            if single || seen.insert(lease.id) {
                visit(lease);
            }
            ControlFlow::Continue(())
        };
        for key in &range.exact {
            self.query(rows::LEASES_AT, [key.as_str()], rows::lease_from, &mut show)?;
        }
        if let Some((from, to)) = range.range_below() {
            self.query(rows::LEASES_BELOW, [from, to], rows::lease_from, &mut show)?;
        }
        Ok(())
    }

    fn ticket(&mut self, id: LeaseId) -> Result<Option<Ticket>, StoreError> {
        first(|visit| self.query(rows::TICKET, [rows::row_id(id)], rows::ticket_from, visit))
    }

    fn tickets(
        &mut self,
        range: &KeyRange,
        scan: Scan,
        visit: &mut dyn FnMut(Ticket) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        self.look_who_waits()?;
        if let Waiting::Few(few) = &self.waiting {
            let mut met = 0;
            for ticket in scan.through(few.iter(), range) {
                met += 1;
                if visit(ticket.clone()).is_break() {
                    break;
                }
            }
            self.met = self.met.max(met);
            return Ok(());
        }
        if let (None, [key]) = (&range.below, range.exact.as_slice()) {
            let mut met = 0;
            self.walk_line(Keys::At(key), scan, &mut |ticket| {
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
        for key in &range.exact {
            self.walk_line(Keys::At(key), scan, &mut collect)?;
        }
        if let Some((from, to)) = range.range_below() {
            self.walk_line(Keys::Below(&from, &to), scan, &mut collect)?;
        }
        self.met = self.met.max(found.len());
        let ordered: Box<dyn Iterator<Item = Ticket>> = match scan {
            Scan::Forward(_) => Box::new(found.into_values()),
            Scan::Backward(_) => Box::new(found.into_values().rev()),
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
        // What was read of the lines may be so no more.
        if matches!(self.waiting, Waiting::Few(_)) {
            self.waiting = Waiting::Unknown;
        }
        match change {
            Change::AddLease(lease) => {
                self.execute_on(lease.id, rows::INSERT_LEASE, rows::lease_values(&lease))?;
                self.file(rows::place_of_lease(&lease), &lease.keys())
            }
            Change::UpdateLease(lease) => {
                self.execute_on(lease.id, rows::UPDATE_LEASE, rows::lease_values(&lease))?;
                self.expect_filed(rows::place_of_lease(&lease), &lease.keys())
            }
            Change::RemoveLease(lease) => {
                self.unfile(rows::place_of_lease(&lease), &lease.keys())?;
                self.execute_on(lease.id, rows::REMOVE, [rows::row_id(lease.id)])
            }
            Change::AddTicket(ticket) => {
                self.execute_on(ticket.id, rows::INSERT_TICKET, rows::ticket_values(&ticket))?;
                self.file(rows::place_of_ticket(&ticket), &ticket.keys())
            }
            Change::UpdateTicket(ticket) => {
                self.execute_on(ticket.id, rows::UPDATE_TICKET, rows::ticket_values(&ticket))?;
                self.expect_filed(rows::place_of_ticket(&ticket), &ticket.keys())
            }
            Change::RemoveTicket(ticket) => {
                self.hands_on = true;
                self.unfile(rows::place_of_ticket(&ticket), &ticket.keys())?;
                self.execute_on(ticket.id, rows::REMOVE, [rows::row_id(ticket.id)])
            }
            Change::Grant(ticket, lease) => {
                self.hands_on = true;
                self.unfile(rows::place_of_ticket(&ticket), &ticket.keys())?;
                self.file(rows::place_of_lease(&lease), &lease.keys())?;
                self.execute_on(lease.id, rows::GRANT, rows::grant_values(&ticket, &lease))
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
