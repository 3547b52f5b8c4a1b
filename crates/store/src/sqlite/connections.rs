//! Connection pool: connections to one database, one for each thread that uses it at the same time.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::{Mutex, PoisonError};

use rusqlite::Connection;

use crate::StoreError;

/// How many idle connections stay open.
const MOST_IDLE: usize = 4;

/// The idle connections. The one that wrote last is at the end: the next writer finds the pages of the database in its
/// page cache. Every other connection has to read them again.
pub(crate) struct Connections {
    idle: Mutex<VecDeque<Connection>>,
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Reading. Takes the connection of the last writer only if there is no other one.
    Read,
    /// Writing.
    Write,
}

impl Connections {
    /// Starts with one connection.
    pub(crate) fn new(first: Connection) -> Self {
        Self { idle: Mutex::new(VecDeque::from([first])) }
    }

    /// Takes an idle connection, or opens another one.
    pub(crate) fn take(
        &self,
        purpose: Purpose,
        open: impl FnOnce() -> Result<Connection, StoreError>,
    ) -> Result<Pooled<'_>, StoreError> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let found = match purpose {
            Purpose::Read => idle.pop_front(),
            Purpose::Write => idle.pop_back(),
        };
        drop(idle);
        let connection = found.map_or_else(open, Ok)?;
        Ok(Pooled { pool: self, purpose, connection: Some(connection) })
    }
}

/// A connection that goes back to the pool when it is dropped. One that is inside a transaction is closed instead, which
/// rolls it back.
pub(crate) struct Pooled<'p> {
    pool: &'p Connections,
    purpose: Purpose,
    /// Taken by `drop` only.
    connection: Option<Connection>,
}

impl Deref for Pooled<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection.as_ref().expect("only drop takes the connection")
    }
}

impl Drop for Pooled<'_> {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take().filter(Connection::is_autocommit) else { return };
        let mut idle = self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MOST_IDLE {
            match self.purpose {
                Purpose::Read => idle.push_front(connection),
                Purpose::Write => idle.push_back(connection),
            }
        }
    }
}
