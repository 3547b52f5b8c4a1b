//! PostgreSQL store: leases and tickets of many machines in one database.
//!
//! A decision reads without a lock and remembers the versions of what it read. One call of the function `lockkeeper.commit`
//! compares them. If they are unchanged, it makes the changes. Otherwise the decision runs again. Decisions about
//! different names commit concurrently. `tables.sql` has the tables,
//! `functions.sql` the function.
//!
//! | what | how |
//! |---|---|
//! | number | the timeline of the server, then a sequence. Each answer of the server has a block of 16 numbers |
//! | memory | a server that was started, promoted or restored is a new incarnation: see `lockkeeper.notice` |
//! | clock | the server's clock, which never goes back. Between two answers the time since the last one is added |
//! | wake-up | `NOTIFY` on the channel of the waker, after the commit and outside of it |
//!
//! Decisions about different records may commit in another order than their numbers were drawn in. On the same records the order
//! is the same, because a decision draws its numbers after it has read them.

mod address;
mod check;
pub(crate) mod connection;
mod records;
pub(crate) mod rows;
mod wakers;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockkeeper_core::id::WakerId;
use lockkeeper_core::records::{Change, Effect, Records};
use lockkeeper_core::time::Moment;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

pub use self::address::PostgresAddress;
pub use self::check::{LEAST_PRIVILEGES, ServerCheck};
use self::connection::{Failure, Server};
use self::records::PostgresMoment;
pub(crate) use super::optimistic::TRIES;
use super::optimistic::clock::StoreClock;
use super::optimistic::decision::Decision;
use super::optimistic::known::Known;
use super::optimistic::listener::wake_ups;
use super::optimistic::snapshot::Snapshot;
use super::optimistic::{in_doubt, random_number};
use super::{Examination, LeaseStore, StoreError, Transaction, Waker};

/// The version of the tables.
const VERSION: i32 = 2;
const SCHEMA: &str = concat!(
    include_str!("postgres/tables.sql"),
    include_str!("postgres/clock.sql"),
    include_str!("postgres/functions.sql")
);
/// What version 2 adds to version 1: functions that keep their plans.
const FUNCTIONS: &str = concat!(include_str!("postgres/clock.sql"), include_str!("postgres/functions.sql"));
/// How many numbers a block has: the increment of the sequence.
const BLOCK: u64 = 16;
/// The lock under which one program makes the tables.
const MIGRATION_LOCK: i64 = 0x6c6f_636b_6b65_6570;

/// Leases and tickets of one project in a PostgreSQL database.
pub struct PostgresStore {
    pub(crate) server: Server,
    pub(crate) project: i32,
    pub(crate) clock: StoreClock,
    /// The largest number that the server has drawn, as far as this process knows.
    drawn: AtomicU64,
    /// What the next decisions need not read.
    known: Known,
    /// Where the project was moved to before it was opened.
    was_moved_to: Option<String>,
}

/// What each answer of the server begins with.
struct Head {
    moment: i64,
    numbers: Range<u64>,
}

impl Head {
    /// Reads the columns `moment` and `numbers`, which begin at `index`.
    fn from_row(row: &Row, index: usize) -> Result<Self, StoreError> {
        let first = rows::get::<i64>(row, index + 1)?.cast_unsigned();
        Ok(Self { moment: rows::get(row, index)?, numbers: first..first + BLOCK })
    }
}

impl PostgresStore {
    /// Opens the leases of a project, and makes the tables and the project where they are missing.
    pub fn open(
        address: impl Into<PostgresAddress>,
        project: &str,
        connect_timeout: Duration,
    ) -> Result<Self, StoreError> {
        let server = Server::new(address.into(), connect_timeout)?;
        let explain = |failure: Failure| failure.explain(server.address());
        let found = server.query("SELECT to_regclass('lockkeeper.about') IS NOT NULL", &[]);
        let has_tables: bool = found.map_err(explain)?.first().map_or(Ok(false), |row| rows::get(row, 0))?;
        if !has_tables {
            server.execute(&set_up("lockkeeper", VERSION, SCHEMA)).map_err(explain)?;
        }
        let name: [(&(dyn ToSql + Sync), Type); 1] = [(&project, Type::TEXT)];
        // The second statement sees what the first one has made.
        let [_, found] = server
            .query_two(
                ("SELECT lockkeeper.make_project($1)", &name),
                (
                    "SELECT id, (SELECT version FROM lockkeeper.about), lockkeeper.moment(id), lockkeeper.numbers(),
                         (SELECT other FROM lockkeeper.moved WHERE moved.project = project.id)
                     FROM lockkeeper.project WHERE name = $1",
                    &name,
                ),
            )
            .map_err(explain)?;
        let row = found.first().ok_or_else(no_row)?;
        let version: i32 = rows::get(row, 1)?;
        if version > VERSION {
            let address = server.address().to_owned();
            return Err(StoreError::TooNew { address, found: version.into(), known: VERSION.into() });
        }
        if version < VERSION {
            server.execute(&upgrade("lockkeeper", version, FUNCTIONS)).map_err(explain)?;
        }
        let answer = Head::from_row(row, 2)?;
        let (clock, drawn) = (StoreClock::new(answer.moment), AtomicU64::new(answer.numbers.start));
        let was_moved_to = rows::get(row, 4)?;
        Ok(Self { project: rows::get(row, 0)?, server, clock, drawn, known: Known::default(), was_moved_to })
    }

    /// Fails if the project had been moved to another store when it was opened.
    pub fn refuse_moved(&self) -> Result<(), StoreError> {
        match &self.was_moved_to {
            Some(to) => Err(StoreError::Moved { address: self.server.address().to_owned(), to: to.clone() }),
            None => Ok(()),
        }
    }

    /// Where the project was moved to.
    pub(crate) fn moved_to(&self) -> Result<Option<String>, StoreError> {
        let project: [(&(dyn ToSql + Sync), Type); 1] = [(&self.project, Type::INT4)];
        let sql = "SELECT other FROM lockkeeper.moved WHERE project = $1";
        let found = self.call(|server| server.query(sql, &project))?;
        found.first().map(|row| rows::get(row, 0)).transpose()
    }

    /// Marks the project as moved to another store, or not.
    pub(crate) fn set_moved_to(&self, to: Option<&str>) -> Result<(), StoreError> {
        let params: [(&(dyn ToSql + Sync), Type); 2] = [(&self.project, Type::INT4), (&to, Type::TEXT)];
        self.call(|server| server.query("SELECT lockkeeper.set_moved($1, $2)", &params)).map(|_| ())
    }

    /// Runs a call that may be made twice. If its connection breaks, tries again with a new one.
    pub(crate) fn call<T>(&self, call: impl Fn(&Server) -> Result<T, Failure>) -> Result<T, StoreError> {
        // After a timeout there is no second try: this call has waited long enough.
        let is_closed = |failure: &Failure| failure.is_broken() && !matches!(failure, Failure::NoAnswer(_));
        let mut called = call(&self.server);
        for _ in 1..TRIES {
            if !called.as_ref().is_err_and(is_closed) {
                break;
            }
            called = call(&self.server);
        }
        called.map_err(|failure| failure.explain(self.server.address()))
    }

    /// Remembers the moment and the numbers of an answer.
    fn note(&self, answer: &Head) {
        self.drawn.fetch_max(answer.numbers.start, Ordering::Relaxed);
        self.clock.move_to(answer.moment);
    }

    /// Lets the server note that it is a new incarnation, or has lost something. Returns since when it has lost nothing.
    pub(crate) fn notice(&self, has_forgotten: bool) -> Result<Moment, StoreError> {
        let params: [(&(dyn ToSql + Sync), Type); 2] =
            [(&self.project, Type::INT4), (&has_forgotten, Type::BOOL)];
        let noticed = self.call(|server| server.query("SELECT lockkeeper.notice($1, $2)", &params))?;
        if has_forgotten {
            self.drawn.store(0, Ordering::Relaxed);
        }
        rows::get(noticed.first().ok_or_else(no_row)?, 0).map(Moment::from_micros)
    }

    /// Sends the wake-ups of a decision that is committed.
    fn wake(&self, changes: &[Change], effects: &[Effect]) {
        for (waker, message) in wake_ups(changes, effects) {
            let params = vec![(wakers::channel(self.project, waker), Type::TEXT), (message, Type::TEXT)];
            self.server.send("SELECT pg_notify($1, $2)", params);
        }
    }

    /// A unique number for a call.
    pub(crate) fn call_number(&self) -> Result<i64, StoreError> {
        random_number("draw a number for", self.server.address()).map(u64::cast_signed)
    }

    pub(crate) fn in_doubt(&self, failure: Failure) -> StoreError {
        in_doubt(failure.explain(self.server.address()))
    }
}

impl LeaseStore for PostgresStore {
    fn begin(&self) -> Result<Box<dyn Transaction + '_>, StoreError> {
        Ok(Box::new(Decision::new(self)))
    }

    fn snapshot(&self) -> Result<Box<dyn Records<StoreError> + '_>, StoreError> {
        Ok(Box::new(Snapshot(PostgresMoment::begin(self)?)))
    }

    fn waker(&self) -> Result<Box<dyn Waker>, StoreError> {
        // One bit is left out so that the id is a signed integer.
        let number = random_number("make a waker for", self.server.address())?;
        self.waker_with_id(WakerId(number >> 1))
    }

    fn waker_with_id(&self, id: WakerId) -> Result<Box<dyn Waker>, StoreError> {
        wakers::listen(&self.server, self.project, id)
    }

    fn raise_numbers(&self, above: u64) -> Result<bool, StoreError> {
        let above: [(&(dyn ToSql + Sync), Type); 1] = [(&above.cast_signed(), Type::INT8)];
        self.call(|server| server.query("SELECT lockkeeper.raise_numbers($1)", &above)).map(|_| true)
    }

    fn examine(&self, _thorough: bool) -> Result<Examination, StoreError> {
        let project: [(&(dyn ToSql + Sync), Type); 1] = [(&self.project, Type::INT4)];
        let found = self.call(|server| {
            server.query(
                "SELECT 'PostgreSQL ' || current_setting('server_version'), (SELECT version::bigint FROM lockkeeper.about),
                    (SELECT count(*) FROM lockkeeper.key AS k WHERE project = $1 AND NOT EXISTS (
                        SELECT FROM lockkeeper.record AS r WHERE r.project = $1 AND r.id = k.id)),
                    (SELECT count(*) FROM lockkeeper.record AS r WHERE project = $1 AND NOT EXISTS (
                        SELECT FROM lockkeeper.key AS k WHERE k.project = $1 AND k.id = r.id))",
                &project,
            )
        })?;
        let row = found.first().ok_or_else(no_row)?;
        let (keys, records): (i64, i64) = (rows::get(row, 2)?, rows::get(row, 3)?);
        let flaw = |count: i64, what: &str| (count > 0).then(|| format!("{count} {what}"));
        Ok(Examination {
            backend: rows::get(row, 0)?,
            schema: Some(rows::get(row, 1)?),
            flaws: [flaw(keys, "keys of no record"), flaw(records, "records without a key")]
                .into_iter()
                .flatten()
                .collect(),
            risks: Vec::new(),
        })
    }
}

/// The statements that make the tables of a schema, once, also if several programs do it at the same time.
pub(crate) fn set_up(schema: &str, version: i32, tables: &str) -> String {
    // The tables are looked up in the catalog: `to_regclass` may answer from a cache that is older than the lock.
    format!(
        "BEGIN;
         SELECT pg_advisory_xact_lock({MIGRATION_LOCK});
         DO $migrate$ BEGIN
            IF NOT EXISTS (
                SELECT FROM pg_catalog.pg_tables WHERE schemaname = '{schema}' AND tablename = 'about'
            ) THEN
                EXECUTE $tables${tables}$tables$;
                INSERT INTO {schema}.about VALUES ({version});
            END IF;
         END $migrate$;
         COMMIT"
    )
}

/// The statements that bring the tables of a schema from this version to the next, once.
pub(crate) fn upgrade(schema: &str, version: i32, script: &str) -> String {
    format!(
        "BEGIN;
         SELECT pg_advisory_xact_lock({MIGRATION_LOCK});
         DO $migrate$ BEGIN
            IF (SELECT version FROM {schema}.about) = {version} THEN
                EXECUTE $script${script}$script$;
                UPDATE {schema}.about SET version = {version} + 1;
            END IF;
         END $migrate$;
         COMMIT"
    )
}

pub(crate) fn no_row() -> StoreError {
    StoreError::Mismatch("the server returned no row".to_owned())
}
