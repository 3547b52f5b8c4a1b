//! Connections to one database: one for each thread that uses it at the same time, hence mostly one.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use rusqlite::Connection;

use crate::StoreError;

/// After a crowd of threads has gone, so many connections stay open.
const MOST_IDLE: usize = 4;

/// The connections that nobody uses now. What was written last is at the end: who writes next finds the pages of the
/// database in its memory. Any other connection has to read them again.
pub(crate) struct Connections {
    idle: Mutex<VecDeque<Connection>>,
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Reading, for which none is taken from those who write as long as there is another.
    Read,
    /// Writing.
    Write,
}

impl Connections {
    /// Begins with one.
    pub(crate) fn new(first: Connection) -> Self {
        Self { idle: Mutex::new(VecDeque::from([first])) }
    }

    /// Does something on a connection of its own, which is made by `another` when all are in use.
    ///
    /// A connection on which something panicked or was left half done is closed, which rolls it back.
    pub(crate) fn with<T>(
        &self,
        purpose: Purpose,
        another: impl FnOnce() -> Result<Connection, StoreError>,
        work: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let found = match purpose {
            Purpose::Read => idle.pop_front(),
            Purpose::Write => idle.pop_back(),
        };
        drop(idle);
        let connection = found.map_or_else(another, Ok)?;
        let done = work(&connection);
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if connection.is_autocommit() && idle.len() < MOST_IDLE {
            match purpose {
                Purpose::Read => idle.push_front(connection),
                Purpose::Write => idle.push_back(connection),
            }
        }
        done
    }
}
