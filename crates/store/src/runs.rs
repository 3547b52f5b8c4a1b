//! Where requests, runs and their events are kept: a SQLite database beside the one of the leases.
//!
//! | file | what it is |
//! |---|---|
//! | `runs.db`, `-wal`, `-shm` | requests, runs, events, workers; it survives power cuts and boots |
//! | `runs.gate` | one writer at a time, in the order in which they came |
//!
//! What [`RunStore::write`] returned from is on the disk. The log is forced there after the gate is open again, so
//! that those who commit at the same time share the disk's work. Readers never wait for writers.

mod autorun;
mod events;
mod examine;
mod log;
mod matching;
mod prune;
mod queue;
mod requests;
mod rows;
mod schema;
mod spec;
mod tables;
mod version_0_1_0;
mod workers;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rusqlite::Connection;

pub use autorun::AutoRun;
pub use events::StoredEvent;
use log::Log;
pub use matching::{Match, RequestFilter};
pub use prune::Old;
pub use requests::StoredRequest;
pub use rows::{Filter, Timing};
pub use tables::Tables;
use version_0_1_0::StartIntents;
pub use workers::Worker;

use super::StoreError;
use super::sqlite::{Connections, Purpose, explain, make_folder};
use lockkeeper_core::request::RequestStatus;
use lockkeeper_core::run::Stamp;
use lockkeeper_platform::changes::Changes;
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_platform::{clock, fs as local, write_lock};

/// Requests and runs.
pub struct RunStore {
    path: PathBuf,
    boot: String,
    gate: write_lock::WriteLock,
    connections: Connections,
    log: Log,
    /// How many requests there were in each state, and when that was counted.
    counted: Mutex<Counted>,
}

/// Counts, and the number of changes that they are right for.
type Counted = Option<(Option<i64>, Vec<(RequestStatus, u64)>)>;

impl RunStore {
    /// Opens the store in `folder`, which is made if it is not there.
    pub fn open(folder: &Path, boot: &str) -> Result<Self, StoreError> {
        make_folder(folder)?;
        if let Some(kind) =
            local::network_file_system(folder).map_err(|error| failed("look at", folder, error))?
        {
            return Err(StoreError::NetworkFileSystem { address: folder.display().to_string(), kind });
        }
        let gate_path = folder.join("runs.gate");
        let gate =
            write_lock::WriteLock::open(&gate_path).map_err(|error| failed("open", &gate_path, error))?;
        let path = folder.join("runs.db");
        let connection = schema::connect(&path)?;
        // Somebody else may be at it just now: anything but a yes is looked at again alone.
        if !matches!(schema::is_set_up(&connection, &path), Ok(true)) {
            let _alone = gate.lock().map_err(|error| failed("lock", &gate_path, error))?;
            if !schema::is_set_up(&connection, &path)? {
                schema::set_up(&connection, &path, boot)?;
            }
        }
        schema::tune(&connection, &path)?;
        if !schema::is_complete(&connection, &path)? {
            let _alone = gate.lock().map_err(|error| failed("lock", &gate_path, error))?;
            schema::complete(&connection, &path)?;
        }
        let log = Log::of(&path);
        let store = Self {
            path,
            boot: boot.to_owned(),
            gate,
            connections: Connections::new(connection),
            log,
            counted: Mutex::new(None),
        };
        if store.read(|tables| tables.boot())? != boot {
            // Moments of another boot mean nothing on this one's clock.
            let intents = StartIntents::read(folder, boot)?;
            store.write(|tables| {
                if tables.rebase(boot)? {
                    intents.end_runs(tables)?;
                }
                Ok(())
            })?;
            intents.remove()?;
        }
        store.end_marked_runs()?;
        Ok(store)
    }

    /// Whether a store was ever made in `folder`. One that cannot be looked at may be there: opening it tells why.
    pub fn exists(folder: &Path) -> bool {
        folder.join("runs.db").try_exists().unwrap_or(true)
    }

    /// Where the database is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The boot that the moments in it belong to.
    pub fn boot(&self) -> &str {
        &self.boot
    }

    /// Reads and changes records in one transaction, of which all or nothing is kept. When this returns, what was
    /// changed survives a power cut.
    pub fn write<T>(&self, work: impl FnOnce(&Tables<'_>) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let (done, changed) = self.transact(work)?;
        if changed {
            self.force()?;
        }
        Ok(done)
    }

    /// As [`RunStore::write`], but what was changed may be lost in a power cut: for what every reader finds out by
    /// itself after one, or what [`RunStore::force`] is called for later.
    pub fn note<T>(&self, work: impl FnOnce(&Tables<'_>) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.transact(work).map(|(done, _)| done)
    }

    /// Forces everything that was changed so far to the disk.
    pub fn force(&self) -> Result<(), StoreError> {
        self.log.force()
    }

    /// Reads the records of one moment.
    pub fn read<T>(&self, work: impl FnOnce(&Tables<'_>) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.connected(Purpose::Read, |connection| {
            self.database(execute(connection, "BEGIN"))?;
            let read = work(&Tables::new(connection, &self.path, now()));
            let ended = self.database(execute(connection, "ROLLBACK"));
            read.and_then(|read| ended.map(|()| read))
        })
    }

    /// How many requests there are in each state that any is in. They are counted again only after something changed.
    pub fn request_counts(&self) -> Result<Vec<(RequestStatus, u64)>, StoreError> {
        let known = self.counted.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let counted = self.read(|tables| {
            let changes = tables.changes_so_far()?;
            match known {
                Some((then, counts)) if then == changes => Ok((changes, counts)),
                Some(_) | None => Ok((changes, tables.count_requests()?)),
            }
        })?;
        Ok(self.counted.lock().unwrap_or_else(PoisonError::into_inner).insert(counted).1.clone())
    }

    /// Listens to everything that anybody changes from now on.
    pub fn changes(&self) -> Result<Changes, StoreError> {
        let log = self.log.path();
        Changes::watch(log).map_err(|error| failed("listen to", log, error))
    }

    fn transact<T>(
        &self,
        work: impl FnOnce(&Tables<'_>) -> Result<T, StoreError>,
    ) -> Result<(T, bool), StoreError> {
        let _alone = self.gate.lock().map_err(|error| failed("lock", &self.path, error))?;
        self.connected(Purpose::Write, |connection| {
            self.database(execute(connection, "BEGIN IMMEDIATE"))?;
            let before = connection.total_changes();
            let done = work(&Tables::new(connection, &self.path, now()));
            let changed = connection.total_changes() != before;
            let end = if done.is_ok() && changed { "COMMIT" } else { "ROLLBACK" };
            if end == "COMMIT" {
                self.log.make_room();
            }
            let ended = self.database(execute(connection, end));
            if ended.is_err() && !connection.is_autocommit() {
                // What failed counts, not how the clearing up went.
                let _ = execute(connection, "ROLLBACK");
            }
            let done = done?;
            ended.map(|()| (done, changed))
        })
    }

    fn connected<T>(
        &self,
        purpose: Purpose,
        work: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let another = || {
            let connection = schema::connect(&self.path)?;
            schema::tune(&connection, &self.path)?;
            self.log.forget();
            Ok(connection)
        };
        self.connections.with(purpose, another, work)
    }

    fn database<T>(&self, result: rusqlite::Result<T>) -> Result<T, StoreError> {
        result.map_err(|error| explain(&self.path, error))
    }
}

/// The present on both clocks.
pub fn now() -> Stamp {
    Stamp { moment: clock::now(), unix_micros: WallTime::now().as_micros() }
}

fn execute(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(|_| ())
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> StoreError {
    StoreError::io(action, path, source)
}
