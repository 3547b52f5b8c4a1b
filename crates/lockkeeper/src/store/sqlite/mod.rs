//! The embedded store: one SQLite database that every process opens.
//!
//! | file | what it is |
//! |---|---|
//! | `leases.db`, `-wal`, `-shm` | leases and tickets of this boot; made anew after another boot, when all are dead |
//! | `tokens` | the last number given, and a limit that survives a power cut |
//! | `gate` | one decision at a time: its kernel lock is fairer than SQLite's own waiting, and never sleeps |
//! | `wake/` | the bells of those who sleep now |
//!
//! A process that is killed leaves the database as it was before or after its decision, and nothing else but
//! perhaps its bell, which whoever buries its ticket or lease puts away, or else the next `locks cleanup`.

mod connections;
mod rows;
mod schema;
mod tokens;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lockkeeper_core::draft::{Change, Walk};
use lockkeeper_core::id::{BellId, LeaseId};
use lockkeeper_core::record::{Lease, Rank, Ticket};
use lockkeeper_core::resource::{Key, Reach};
use lockkeeper_core::time::Moment;
use rusqlite::Connection;

use super::{Bell, Decision, Records, Store, StoreError};
use crate::platform::{bell, clock, fs as local, gate};
use connections::Connections;
use tokens::{Drawing, Tokens};

/// How long a folder has to be left alone before its time of change is trusted.
const SETTLED: Duration = Duration::from_millis(100);

/// A folder's inode and time of change.
type Stamp = (u64, i64, i64);

/// The embedded store.
pub struct SqliteStore {
    folder: PathBuf,
    path: PathBuf,
    gate: gate::Gate,
    /// The files that are open here, by name and inode.
    files: Vec<(PathBuf, u64)>,
    /// The folder when the files were found to be in place, and since when it is so.
    seen: Mutex<Option<(Stamp, Moment)>>,
    tokens: Tokens,
    connections: Connections,
}

impl SqliteStore {
    /// Opens the store in `folder`, which is made if it is not there.
    pub fn open(folder: &Path, boot: &str) -> Result<Self, StoreError> {
        make_folder(folder)?;
        if let Some(kind) = local::refuse_network(folder).map_err(|error| failed("look at", folder, error))? {
            return Err(StoreError::NetworkFileSystem { path: folder.to_owned(), kind });
        }
        let gate_path = folder.join("gate");
        let gate = gate::Gate::open(&gate_path).map_err(|error| failed("open", &gate_path, error))?;
        let tokens = Tokens::open(folder, boot)?;
        let path = folder.join("leases.db");
        if tokens.boot()?.is_none_or(|last| last != boot) {
            let _alone = gate.lock().map_err(|error| failed("lock", &gate_path, error))?;
            start_boot(&tokens, &path, boot)?;
        }
        let connection = schema::connect(&path)?;
        // Somebody else may be at it just now: anything but a yes is looked at again alone.
        if !matches!(schema::is_set_up(&connection, &path), Ok(true)) {
            let _alone = gate.lock().map_err(|error| failed("lock", &gate_path, error))?;
            if !schema::is_set_up(&connection, &path)? {
                schema::set_up(&connection, &path, tokens.limit()?)?;
            }
        }
        schema::tune(&connection, &path)?;
        let mut files = Vec::new();
        for name in ["gate", "tokens", "leases.db", "leases.db-wal"] {
            let file = folder.join(name);
            let found = fs::metadata(&file).map_err(|error| failed("look at", &file, error))?;
            files.push((file, found.ino()));
        }
        let folder = folder.to_owned();
        let (seen, connections) = (Mutex::new(None), Connections::new(connection));
        Ok(Self { folder, path, gate, files, seen, tokens, connections })
    }

    /// Whether a store was ever made in `folder`. One that cannot be looked at may be there: opening it tells why.
    pub fn exists(folder: &Path) -> bool {
        folder.join("leases.db").try_exists().unwrap_or(true)
    }

    /// Does something on a connection that no other thread uses meanwhile.
    fn connected<T>(&self, work: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let another = || {
            // By now the path may lead elsewhere.
            self.check_place()?;
            let connection = schema::connect(&self.path)?;
            schema::tune(&connection, &self.path)?;
            Ok(connection)
        };
        self.connections.with(another, work)
    }

    /// Whether the files are still those that were opened: others would not see what is written to them.
    fn check_place(&self) -> Result<(), StoreError> {
        let folder = fs::metadata(&self.folder).map_err(|error| self.gone_or(error, &self.folder))?;
        let stamp = (folder.ino(), folder.ctime(), folder.ctime_nsec());
        let now = clock::now();
        // Nothing is made, renamed or removed in a folder without its time of change moving on, once the tick
        // in which it last did is over.
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let since = seen.filter(|(known, _)| *known == stamp).map_or(now, |(_, since)| since);
        if now.since(since) > SETTLED {
            return Ok(());
        }
        for (path, inode) in &self.files {
            let found = fs::metadata(path).map_err(|error| self.gone_or(error, path))?;
            if found.ino() != *inode {
                return Err(StoreError::Removed { path: path.clone() });
            }
        }
        *seen = Some((stamp, since));
        Ok(())
    }

    fn gone_or(&self, error: io::Error, path: &Path) -> StoreError {
        match error.kind() {
            io::ErrorKind::NotFound => StoreError::Removed { path: path.to_owned() },
            _ => failed("look at", path, error),
        }
    }

    fn database<T>(&self, result: rusqlite::Result<T>) -> Result<T, StoreError> {
        result.map_err(|error| schema::explain(&self.path, error))
    }

    fn commit(&self, connection: &Connection, decide: Decision<'_>) -> Result<(), StoreError> {
        self.database(execute(connection, "BEGIN IMMEDIATE"))?;
        let mut rows = Rows::new(self, connection);
        let decided = decide(&mut rows);
        // Also the numbers of a decision that failed are never given again.
        let (limit, kept) = match rows.drawing.take().map_or(Ok(None), |mut drawing| drawing.keep()) {
            Ok(limit) => (limit, Ok(())),
            Err(error) => (None, Err(error)),
        };
        let changed = rows.changed;
        let ended = decided.and(kept).and_then(|()| {
            limit.map_or(Ok(()), |limit| self.note_limit(connection, limit))?;
            let end = if changed || limit.is_some() { "COMMIT" } else { "ROLLBACK" };
            self.database(execute(connection, end))
        });
        if ended.is_err() {
            // What failed counts, not how the clearing up went.
            if !connection.is_autocommit() {
                let _ = execute(connection, "ROLLBACK");
            }
            if let Some(limit) = limit {
                let _ = self.note_limit(connection, limit);
            }
        }
        ended
    }

    /// Notes the limit of numbers, for when the file of tokens is lost.
    fn note_limit(&self, connection: &Connection, limit: u64) -> Result<(), StoreError> {
        let noted = connection.execute("UPDATE numbers SET highest = ?1", [limit.cast_signed()]);
        self.database(noted).map(|_| ())
    }
}

impl Store for SqliteStore {
    fn transact(&self, decide: Decision<'_>) -> Result<(), StoreError> {
        let _alone = self.gate.lock().map_err(|error| failed("lock", &self.folder.join("gate"), error))?;
        self.check_place()?;
        self.connected(|connection| self.commit(connection, decide))
    }

    fn snapshot(&self, look: Decision<'_>) -> Result<(), StoreError> {
        self.connected(|connection| {
            self.database(execute(connection, "BEGIN"))?;
            let mut rows = Rows::new(self, connection);
            let looked = look(&mut rows);
            let ended = self.database(execute(connection, "ROLLBACK"));
            looked.and(ended)
        })
    }

    fn bell(&self) -> Result<Box<dyn Bell>, StoreError> {
        let made = bell::Bell::create(&self.folder)
            .map_err(|error| failed("make a bell in", &self.folder, error))?;
        Ok(Box::new(made))
    }

    fn bell_with_id(&self, id: BellId) -> Result<Box<dyn Bell>, StoreError> {
        let made = bell::Bell::create_with_id(&self.folder, id);
        Ok(Box::new(made.map_err(|error| failed("make a bell in", &self.folder, error))?))
    }

    fn ring(&self, id: BellId) {
        // Whoever sleeps there looks again by itself after a while, so a ring that failed only delays.
        let _ = bell::ring(&self.folder, id);
    }

    fn dismantle(&self, id: BellId) {
        let _ = bell::remove(&self.folder, id);
    }

    fn sweep(&self) -> Result<(), StoreError> {
        bell::sweep(&self.folder).map_err(|error| failed("clear", &self.folder.join("wake"), error))
    }
}

impl Bell for bell::Bell {
    fn id(&self) -> BellId {
        self.id()
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        AsFd::as_fd(self)
    }

    fn quiet(&self) {
        let _ = self.drain();
    }
}

/// The records as one transaction sees them.
struct Rows<'c> {
    store: &'c SqliteStore,
    connection: &'c Connection,
    now: Moment,
    drawing: Option<Drawing<'c>>,
    changed: bool,
    /// Whether anybody waits at all: mostly nobody does, and then no line need be looked at.
    anybody_waits: Option<bool>,
}

impl<'c> Rows<'c> {
    fn new(store: &'c SqliteStore, connection: &'c Connection) -> Self {
        Self { store, connection, now: clock::now(), drawing: None, changed: false, anybody_waits: None }
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
            let highest = || {
                let mut statement = connection.prepare_cached("SELECT highest FROM numbers")?;
                statement.query_row([], |row| row.get::<_, i64>(0))
            };
            let highest = store.database(highest())?.cast_unsigned();
            self.drawing = Some(store.tokens.draw(highest)?);
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
            return self.walk_line(Keys::At(key), walk, visit);
        }
        // Several keys have several lines: they are merged into one.
        let mut found = std::collections::BTreeMap::new();
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
        self.anybody_waits = None;
        match change {
            Change::AddLease(lease) => {
                let changed = self.execute(rows::INSERT_LEASE, rows::lease_values(&lease))?;
                self.expect_one(changed, "lease", lease.id)?;
                let id = lease.id.0.cast_signed();
                for key in lease.keys() {
                    self.execute("INSERT INTO lease_key VALUES (?1, ?2)", (key.as_str(), id))?;
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
                for key in ticket.keys() {
                    self.execute("INSERT INTO ticket_key VALUES (?1, ?2, ?3)", (key.as_str(), rank, id))?;
                }
                Ok(())
            }
            Change::UpdateTicket(ticket) => {
                let changed = self.execute(rows::UPDATE_TICKET, rows::ticket_values(&ticket))?;
                self.expect_one(changed, "ticket", ticket.id)?;
                self.expect_keys("ticket_key", &ticket.keys(), Some(ticket.rank.at), ticket.id)
            }
            Change::RemoveTicket(ticket) => {
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

fn execute(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(|_| ())
}

fn make_folder(folder: &Path) -> Result<(), StoreError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| failed("make the folder", folder, error))
}

/// Makes the database anew after another boot: nobody who is in it lives. The caller is alone.
fn start_boot(tokens: &Tokens, path: &Path, boot: &str) -> Result<(), StoreError> {
    match tokens.boot()? {
        // Nothing is known of a file that lies there: whoever opens it will tell.
        None => return Ok(()),
        Some(last) if last == boot => return Ok(()),
        Some(_) => {}
    }
    // A power cut may have damaged it, which does not matter; what others made is none of ours.
    let known = schema::connect(path).and_then(|connection| schema::is_set_up(&connection, path));
    if let Err(error @ (StoreError::Foreign { .. } | StoreError::TooNew { .. })) = known {
        return Err(error);
    }
    for suffix in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        match fs::remove_file(&name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("remove", Path::new(&name), error));
            }
            Ok(()) | Err(_) => {}
        }
    }
    let mut drawing = tokens.draw(0)?;
    drawing.next();
    drawing.keep().map(|_| ())
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> StoreError {
    StoreError::Io { action, path: path.to_owned(), source }
}
