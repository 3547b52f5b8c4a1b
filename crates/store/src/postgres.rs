//! PostgreSQL store: leases and tickets of many machines in one database.
//!
//! A decision reads without a lock and remembers the versions of what it read. One call of the function `lockkeeper.commit`
//! compares them and makes the changes, or tells that something has changed, and the decision runs again. Decisions about
//! different names commit side by side. `schema.sql` has the tables and the function.
//!
//! | what | how |
//! |---|---|
//! | number | the timeline of the server, then a sequence. Each answer of the server brings a block of 16 numbers |
//! | clock | the server's clock, which never goes back. Between two answers the time since the last one is added |
//! | wake-up | `NOTIFY` on the channel of the waker, after the commit and outside of it |
//!
//! Decisions about different records may commit in another order than their numbers were drawn in. On the same records the order
//! is the same, because a decision draws its numbers after it has read them.

mod address;
pub(crate) mod connection;
mod records;
pub(crate) mod rows;
mod wakers;

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lockkeeper_core::id::WakerId;
use lockkeeper_core::records::{Effect, Records};
use lockkeeper_core::time::Moment;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

pub use self::address::PostgresAddress;
use self::connection::{Failure, Server};
use self::records::{PostgresRecords, PostgresSnapshot};
use super::{Examination, Granted, LeaseStore, StoreError, Transaction, Waker};
use crate::listener::payload;
use lockkeeper_platform::random;

/// The version of the tables.
const VERSION: i32 = 1;
const SCHEMA: &str = include_str!("postgres/schema.sql");
/// How many numbers a block has: the step of the sequence.
const BLOCK: u64 = 16;
/// The lock under which one program makes the tables.
const MIGRATION_LOCK: i64 = 0x6c6f_636b_6b65_6570;
/// How often a call is tried whose connection breaks.
pub(crate) const TRIES: usize = 3;
/// A moment in a record that is further ahead than this was not written by a decision of now.
const PLAUSIBLE: Duration = Duration::from_secs(60);

/// Leases and tickets of one project in a PostgreSQL database.
pub struct PostgresStore {
    pub(crate) server: Server,
    pub(crate) project: i32,
    clock: Mutex<Clock>,
}

/// What is known of the store's clock.
struct Clock {
    /// The moment of the last answer.
    moment: i64,
    /// When that answer came.
    at: Instant,
}

/// What each answer of the server brings along.
struct Answer {
    moment: i64,
    numbers: Range<u64>,
}

impl Answer {
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
                (
                    "WITH made AS (
                        INSERT INTO lockkeeper.project (name) SELECT $1
                        WHERE NOT EXISTS (SELECT FROM lockkeeper.project WHERE name = $1)
                        ON CONFLICT DO NOTHING RETURNING id
                     ) INSERT INTO lockkeeper.clock SELECT id, lockkeeper.wall(), 0 FROM made",
                    &name,
                ),
                (
                    "SELECT id, (SELECT version FROM lockkeeper.about), lockkeeper.moment(id), lockkeeper.numbers()
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
        let answer = Answer::from_row(row, 2)?;
        let clock = Mutex::new(Clock { moment: answer.moment, at: Instant::now() });
        Ok(Self { project: rows::get(row, 0)?, server, clock })
    }

    /// Runs a call that may be made twice. If its connection breaks, tries again with a new one.
    pub(crate) fn call<T>(&self, call: impl Fn(&Server) -> Result<T, Failure>) -> Result<T, StoreError> {
        // A server that did not answer in time was waited for long enough.
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

    /// Asks for the moment and for numbers.
    fn ask(&self) -> Result<Answer, StoreError> {
        let project: [(&(dyn ToSql + Sync), Type); 1] = [(&self.project, Type::INT4)];
        let rows =
            self.call(|server| server.query("SELECT lockkeeper.moment($1), lockkeeper.numbers()", &project))?;
        Answer::from_row(rows.first().ok_or_else(no_row)?, 0)
    }

    /// Remembers the moment of an answer.
    fn note(&self, answer: &Answer) {
        self.move_clock_to(answer.moment);
    }

    /// The moment on the store's clock, or a little before it.
    pub(crate) fn estimated_now(&self) -> Moment {
        let clock = self.clock();
        Moment::from_micros(clock.moment).after(clock.at.elapsed())
    }

    /// Whether a moment that a record has is later than the clock was thought to be. Then the clock is put forward.
    fn is_later(&self, moment: i64) -> bool {
        let now = self.estimated_now();
        let is_plausible = Moment::from_micros(moment) < now.after(PLAUSIBLE);
        if is_plausible {
            self.move_clock_to(moment);
        }
        is_plausible
    }

    pub(crate) fn move_clock_to(&self, moment: i64) {
        let mut clock = self.clock();
        if Moment::from_micros(moment) > Moment::from_micros(clock.moment).after(clock.at.elapsed()) {
            *clock = Clock { moment, at: Instant::now() };
        }
    }

    fn clock(&self) -> MutexGuard<'_, Clock> {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the wake-ups of a decision that is committed.
    fn wake(&self, effects: &[Effect], granted: &[(WakerId, Granted)]) {
        for effect in effects {
            match effect {
                Effect::Wake(waker) => {
                    let message = granted.iter().find(|(to, _)| to == waker).map(|(_, granted)| *granted);
                    let params = vec![
                        (wakers::channel(self.project, *waker), Type::TEXT),
                        (payload(message), Type::TEXT),
                    ];
                    self.server.send("SELECT pg_notify($1, $2)", params);
                }
                // A waker ends with the connection of its process.
                Effect::RemoveWaker(_) => {}
            }
        }
    }

    /// A number of a call that no other call has.
    pub(crate) fn call_number(&self) -> Result<i64, StoreError> {
        random::number().map(u64::cast_signed).map_err(|source| StoreError::Io {
            action: "draw a number for",
            address: self.server.address().to_owned(),
            source,
        })
    }

    pub(crate) fn in_doubt(&self, failure: Failure) -> StoreError {
        let address = self.server.address().to_owned();
        match failure.explain(&address) {
            StoreError::Unreachable { address, source } => StoreError::InDoubt { address, source },
            other => other,
        }
    }
}

impl LeaseStore for PostgresStore {
    fn begin(&self) -> Result<Box<dyn Transaction + '_>, StoreError> {
        Ok(Box::new(PostgresRecords::new(self)))
    }

    fn snapshot(&self) -> Result<Box<dyn Records<StoreError> + '_>, StoreError> {
        Ok(Box::new(PostgresSnapshot::begin(self)?))
    }

    fn waker(&self) -> Result<Box<dyn Waker>, StoreError> {
        // One bit is left out so that the id is a signed integer.
        let id = random::number().map(|number| WakerId(number >> 1));
        let id = id.map_err(|source| StoreError::Io {
            action: "make a waker for",
            address: self.server.address().to_owned(),
            source,
        })?;
        self.waker_with_id(id)
    }

    fn waker_with_id(&self, id: WakerId) -> Result<Box<dyn Waker>, StoreError> {
        wakers::listen(&self.server, self.project, id)
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
            engine: rows::get(row, 0)?,
            schema: Some(rows::get(row, 1)?),
            flaws: [flaw(keys, "keys of no record"), flaw(records, "records without a key")]
                .into_iter()
                .flatten()
                .collect(),
        })
    }
}

/// The statements that make the tables of a schema, once, also if several programs do it at the same time.
pub(crate) fn set_up(schema: &str, version: i32, tables: &str) -> String {
    // The tables are looked up in the catalog: `to_regclass` may answer from a cache of before the wait for the lock.
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

pub(crate) fn no_row() -> StoreError {
    StoreError::Mismatch("the server returned no row".to_owned())
}
