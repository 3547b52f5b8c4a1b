//! Connections to one database: one for each thread that uses it at the same time, hence mostly one.

use std::sync::{Mutex, PoisonError};

use rusqlite::Connection;

use crate::store::StoreError;

/// After a crowd of threads has gone, so many connections stay open.
const MOST_IDLE: usize = 4;

/// The connections that nobody uses now.
pub(in crate::store) struct Connections {
    idle: Mutex<Vec<Connection>>,
}

impl Connections {
    /// Begins with one.
    pub(in crate::store) fn new(first: Connection) -> Self {
        Self { idle: Mutex::new(vec![first]) }
    }

    /// Does something on a connection of its own, which is made by `another` when all are in use.
    ///
    /// A connection on which something panicked or was left half done is closed, which rolls it back.
    pub(in crate::store) fn with<T>(
        &self,
        another: impl FnOnce() -> Result<Connection, StoreError>,
        work: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = idle.map_or_else(another, Ok)?;
        let done = work(&connection);
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if connection.is_autocommit() && idle.len() < MOST_IDLE {
            idle.push(connection);
        }
        done
    }
}
