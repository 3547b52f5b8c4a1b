//! Opens the stores of a state folder: the one place that chooses a backend.

use std::io;
use std::path::Path;
use std::sync::Arc;

use lockkeeper_core::id::Owner;
use lockkeeper_platform::{origin, random};
#[cfg(feature = "postgres")]
use lockkeeper_store::{PostgresStore, ServerCheck};
use lockkeeper_store::{RunStore, SqliteRunStore, SqliteStore, StoreError};
use thiserror::Error;

use crate::location::Location;
#[cfg(feature = "postgres")]
use crate::shared_store::Server;
use crate::shared_store::SharedStore;
use crate::{Engine, MachineProbe};

/// Why there is no engine.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system did not tell which machine and process this is.
    #[error("cannot find out about this process or machine")]
    Machine(#[source] io::Error),
}

/// Opens the engine over the store in this folder, and creates the folder if it is missing.
pub fn open_engine(folder: &Path) -> Result<Engine, OpenError> {
    let here = origin::origin().map_err(OpenError::Machine)?;
    let store = SqliteStore::open(folder, &here.boot)?;
    let probe = MachineProbe::new(folder, here)
        .map_err(|source| StoreError::io("open the locks in", folder, source))?;
    Ok(Engine::new(Arc::new(store), probe))
}

/// Opens the engine over the leases of this location, and creates what is missing.
pub fn open_leases(location: &Location) -> Result<Engine, OpenError> {
    match &location.shared {
        Some(shared) => open_shared(shared),
        None => open_engine(&location.state),
    }
}

fn open_shared(shared: &SharedStore) -> Result<Engine, OpenError> {
    match shared.server {
        #[cfg(feature = "postgres")]
        Server::Postgres(ref address) => {
            let store = PostgresStore::open(address.clone(), shared.project(), shared.connect_timeout)?;
            shared.engine(Arc::new(store))
        }
    }
}

/// Makes the tables and the project where they are missing, and looks at the server.
#[cfg(feature = "postgres")]
pub fn check_shared(shared: &SharedStore) -> Result<ServerCheck, StoreError> {
    let Server::Postgres(address) = &shared.server;
    PostgresStore::open(address.clone(), shared.project(), shared.connect_timeout)?.check()
}

/// Opens the leases of this location for a command that only reads. None if there is no store yet.
pub fn open_leases_to_read(location: &Location) -> Result<Option<Engine>, OpenError> {
    match &location.shared {
        Some(shared) => open_shared(shared).map(Some),
        None if has_store(&location.state) => open_engine_to_read(&location.state).map(Some),
        None => Ok(None),
    }
}

/// Opens the store of requests and runs in this folder, and creates the folder if it is missing.
pub(crate) fn open_run_store(folder: &Path) -> Result<Arc<dyn RunStore>, OpenError> {
    let here = origin::origin().map_err(OpenError::Machine)?;
    Ok(Arc::new(SqliteRunStore::open(folder, &here.boot)?))
}

/// Opens the existing store of requests and runs. Where this process cannot write in the folder, it can only be read.
pub(crate) fn open_run_store_to_read(folder: &Path) -> Result<Arc<dyn RunStore>, OpenError> {
    match open_run_store(folder) {
        Err(OpenError::Store(error)) if error.is_write_refused() => {}
        opened => return opened,
    }
    let here = origin::origin().map_err(OpenError::Machine)?;
    Ok(Arc::new(SqliteRunStore::open_to_read(folder, &here.boot)?))
}

/// Whether this folder has a store of requests and runs.
pub(crate) fn has_run_store(folder: &Path) -> bool {
    SqliteRunStore::exists(folder)
}

/// Opens the engine for a command that only reads. It also works where this process cannot write in the folder.
pub fn open_engine_to_read(folder: &Path) -> Result<Engine, OpenError> {
    match open_engine(folder) {
        Err(OpenError::Store(error)) if error.is_write_refused() => {}
        opened => return opened,
    }
    let here = origin::origin().map_err(OpenError::Machine)?;
    let store = SqliteStore::open_to_read(folder, &here.boot)?;
    let probe = MachineProbe::to_read(folder, here)
        .map_err(|source| StoreError::io("open the locks in", folder, source))?;
    Ok(Engine::new(Arc::new(store), probe))
}

/// Whether this folder has a store.
pub fn has_store(folder: &Path) -> bool {
    SqliteStore::exists(folder)
}

/// Makes an owner that nobody else has: `kind:pid.random`, with 64 random bits. Every container has a process 1.
pub fn unique_owner(kind: &str) -> io::Result<Owner> {
    let text = format!("{kind}:{}.{:016x}", std::process::id(), random::number()?);
    text.parse().map_err(io::Error::other)
}
