//! Opens the stores of a state folder: the one place that chooses a backend.

use std::io;
use std::path::Path;
use std::sync::Arc;
#[cfg(feature = "postgres")]
use std::sync::{Mutex, PoisonError, Weak};

use lockkeeper_core::id::Owner;
use lockkeeper_platform::{origin, random};
#[cfg(feature = "etcd")]
use lockkeeper_store::EtcdStore;
#[cfg(feature = "redis")]
use lockkeeper_store::RedisStore;
#[cfg(feature = "http")]
use lockkeeper_store::{HttpRunStore, HttpStore};
#[cfg(feature = "postgres")]
use lockkeeper_store::{PostgresAddress, PostgresRunStore, PostgresStore, ServerCheck};
use lockkeeper_store::{RunStore, SqliteRunStore, SqliteStore, StoreError};
use thiserror::Error;

use crate::location::Location;
#[cfg(any(feature = "http", feature = "postgres"))]
use crate::shared_store::RunsServer;
#[cfg(any(feature = "etcd", feature = "http", feature = "postgres", feature = "redis"))]
use crate::shared_store::Server;
use crate::shared_store::SharedStore;
use crate::{Engine, MachineProbe};

/// Why there is no engine.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system gave no information about this machine and process.
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

/// Opens the engine over the leases of this location, and creates what is missing. Fails if the store was moved to another one.
pub fn open_leases(location: &Location) -> Result<Engine, OpenError> {
    match &location.shared {
        Some(shared) => open_shared(shared),
        None => {
            SqliteRunStore::refuse_moved(&location.state)?;
            open_engine(&location.state)
        }
    }
}

fn open_shared(shared: &SharedStore) -> Result<Engine, OpenError> {
    match shared.server {
        #[cfg(feature = "etcd")]
        Server::Etcd(ref address) => {
            let store = EtcdStore::open(address.clone(), shared.project(), shared.connect_timeout)?;
            shared.engine(Arc::new(store))
        }
        #[cfg(feature = "http")]
        Server::Http(ref address) => {
            let store = HttpStore::open(address.clone(), shared.project(), shared.connect_timeout)?;
            shared.engine(Arc::new(store))
        }
        #[cfg(feature = "postgres")]
        Server::Postgres(ref server) => shared.engine(server.open_unless_moved(shared)?),
        #[cfg(feature = "redis")]
        Server::Redis(ref address) => {
            let store = RedisStore::open(address.clone(), shared.project(), shared.connect_timeout)?;
            shared.engine(Arc::new(store))
        }
    }
}

/// Both stores of a location.
pub(crate) type LeasesAndRuns = (Engine, Arc<dyn RunStore>);

/// Opens leases and runs of a location for a migration, also if they were moved already. Creates what is missing. None if no
/// server keeps both.
pub(crate) fn open_to_move(location: &Location) -> Result<Option<LeasesAndRuns>, OpenError> {
    if location.shared.is_none() {
        return Ok(Some((open_engine(&location.state)?, open_runs_in(&location.state)?)));
    }
    #[cfg(feature = "postgres")]
    if let Some(shared @ SharedStore { server: Server::Postgres(server), .. }) = &location.shared {
        let (store, runs) = server.open_both(shared)?;
        return Ok(Some((shared.engine(store)?, Arc::new(runs))));
    }
    Ok(None)
}

/// The project on a PostgreSQL server, if it is open already: leases and runs of one process share their connections.
#[cfg(feature = "postgres")]
#[derive(Clone, Debug)]
pub(crate) struct PostgresServer {
    pub(crate) address: PostgresAddress,
    open: Arc<Mutex<Weak<PostgresStore>>>,
}

#[cfg(feature = "postgres")]
impl PostgresServer {
    pub(crate) fn new(address: PostgresAddress) -> Self {
        Self { address, open: Arc::default() }
    }

    fn open(&self, shared: &SharedStore) -> Result<Arc<PostgresStore>, StoreError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = open.upgrade() {
            return Ok(store);
        }
        let store = PostgresStore::open(self.address.clone(), shared.project(), shared.connect_timeout)?;
        let store = Arc::new(store);
        *open = Arc::downgrade(&store);
        Ok(store)
    }

    /// Fails if the project was moved to another store.
    fn open_unless_moved(&self, shared: &SharedStore) -> Result<Arc<PostgresStore>, StoreError> {
        let store = self.open(shared)?;
        store.refuse_moved()?;
        Ok(store)
    }

    /// Opens leases and runs, and makes the tables where they are missing.
    fn open_both(&self, shared: &SharedStore) -> Result<(Arc<PostgresStore>, PostgresRunStore), StoreError> {
        let store = self.open(shared)?;
        let runs = PostgresRunStore::beside(Arc::clone(&store))?;
        Ok((store, runs))
    }
}

/// Makes the tables and the project where they are missing, and checks the PostgreSQL server of the leases, else that of the runs.
/// Returns its address as well; none if there is no such server.
#[cfg(feature = "postgres")]
pub fn check_shared(shared: &SharedStore) -> Result<Option<(String, ServerCheck)>, StoreError> {
    let Some(server) = shared.postgres() else { return Ok(None) };
    let (store, _) = server.open_both(shared)?;
    Ok(Some((server.address.to_string(), store.check()?)))
}

/// Removes a project that nobody uses any more, with all its leases, requests and runs.
#[cfg(feature = "postgres")]
pub fn remove_project(shared: &SharedStore) -> Result<(), StoreError> {
    match shared.postgres() {
        Some(server) => server.open_both(shared)?.1.remove_project(),
        None => Ok(()),
    }
}

/// There is no server that has a project.
#[cfg(not(feature = "postgres"))]
pub fn remove_project(_shared: &SharedStore) -> Result<(), StoreError> {
    Ok(())
}

/// Opens the leases of this location for a command that only reads. None if there is no store yet.
pub fn open_leases_to_read(location: &Location) -> Result<Option<Engine>, OpenError> {
    match &location.shared {
        Some(shared) => open_shared(shared).map(Some),
        None if has_store(&location.state) => {
            SqliteRunStore::refuse_moved(&location.state)?;
            open_engine_to_read(&location.state).map(Some)
        }
        None => Ok(None),
    }
}

/// Opens the requests and runs that several machines share, and makes the tables where they are missing. None if they are in the
/// state folder of each machine.
pub(crate) fn open_shared_runs(shared: &SharedStore) -> Result<Option<Arc<dyn RunStore>>, OpenError> {
    let Some(runs) = &shared.runs else { return Ok(None) };
    match *runs {
        #[cfg(feature = "http")]
        RunsServer::Http(ref address) => {
            let store = HttpRunStore::open(address.clone(), shared.project(), shared.connect_timeout)?;
            Ok(Some(Arc::new(store.with_session(shared.session))))
        }
        #[cfg(feature = "postgres")]
        RunsServer::Postgres(ref server) => {
            let store = server.open_unless_moved(shared)?;
            Ok(Some(Arc::new(PostgresRunStore::beside(store)?.with_session(shared.session))))
        }
    }
}

/// Whether what is submitted at this location may be executed by another machine.
pub fn has_shared_runs(location: &Location) -> bool {
    match &location.shared {
        Some(shared) => shared.keeps_runs(),
        None => SqliteRunStore::is_served(&location.state),
    }
}

/// Opens the store of requests and runs in this folder, and creates the folder if it is missing.
pub(crate) fn open_run_store(folder: &Path) -> Result<Arc<dyn RunStore>, OpenError> {
    SqliteRunStore::refuse_moved(folder)?;
    open_runs_in(folder)
}

fn open_runs_in(folder: &Path) -> Result<Arc<dyn RunStore>, OpenError> {
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

/// Whether there was a lease store whose leases are gone: its database is missing or empty. The next lease begins a new one.
pub fn lost_store(folder: &Path) -> bool {
    origin::origin().is_ok_and(|here| SqliteStore::is_lost(folder, &here.boot))
}

/// Makes a unique owner: `kind:pid.random`, with 64 random bits. The pid is not enough: every container has a process 1.
pub fn unique_owner(kind: &str) -> io::Result<Owner> {
    let text = format!("{kind}:{}.{:016x}", std::process::id(), random::number()?);
    text.parse().map_err(io::Error::other)
}
