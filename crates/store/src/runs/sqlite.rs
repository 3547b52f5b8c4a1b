//! `SqliteRunStore`: the run store in a SQLite database, beside the database of the leases.
//!
//! | file | what it is |
//! |---|---|
//! | `runs.db`, `-wal`, `-shm` | requests, runs, events, workers; they survive power cuts and reboots |
//! | `runs.gate` | the write lock: one writer at a time, first come first served |
//! | `output.db`, `-wal`, `-shm` | output of runs, in a folder that other machines use |
//!
//! A commit only appends to the write-ahead log. [`RunStore::sync`] forces the log to the disk, without the write lock: threads
//! and processes that sync at the same time share the work of the disk. Readers never wait for writers.

mod autorun;
mod boot;
mod claim;
mod events;
mod examine;
mod import;
mod log;
mod machines;
mod matching;
mod output;
mod prune;
mod queue;
mod requests;
mod rows;
mod schema;
#[cfg(feature = "http")]
mod served;
mod snapshot;
mod submit;
mod tables;
mod version_0_1_0;
mod workers;

use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use lockkeeper_core::id::{RequestId, WorkerId};
use lockkeeper_core::record::Priority;
use lockkeeper_core::request::RequestStatus;
use lockkeeper_core::run::admission::{Refusal, Submission, Submitted};
use lockkeeper_core::run::transition::{self, Transition};
use lockkeeper_core::run::{Run, Stamp};
use lockkeeper_core::time::Ttl;
use lockkeeper_platform::changes::Changes;
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_platform::write_lock::WriteLock;
use lockkeeper_platform::{clock, fs as local};
use rusqlite::Connection;

use self::log::Log;
use self::output::Outputs;
#[cfg(feature = "http")]
pub(crate) use self::served::ServedRuns;
use self::snapshot::Snapshot;
use self::tables::Tables;
use self::version_0_1_0::StartIntents;
use super::{
    AutoRunChange, ChangeSignal, Claims, Import, Imported, MovedAndClaimed, OutputChange, Removed, Requeue,
    RunRecords, RunStore, Worker,
};
use crate::runs::import::fill;
use crate::sqlite::{Connections, Pooled, Purpose, explain, is_served, make_folder, moved, session_of};
use crate::{Examination, StoreError};

/// The file of the write lock.
const GATE: &str = "runs.gate";

/// Requests and runs in a SQLite database.
pub struct SqliteRunStore {
    path: PathBuf,
    boot: String,
    write_lock: WriteLock,
    connections: Connections,
    log: Log,
    request_counts: Mutex<Option<RequestCounts>>,
    is_read_only: bool,
    outputs: Outputs,
}

/// Counts of requests by status, and the position of the last event at that time. Every change of a status has an event.
struct RequestCounts {
    position: u64,
    counts: Vec<(RequestStatus, u64)>,
}

impl SqliteRunStore {
    /// Opens the store in `folder`, and creates both if they are missing.
    pub fn open(folder: &Path, boot: &str) -> Result<Self, StoreError> {
        make_folder(folder)?;
        if let Some(kind) =
            local::network_file_system(folder).map_err(|error| failed("look at", folder, error))?
        {
            return Err(StoreError::NetworkFileSystem { address: folder.display().to_string(), kind });
        }
        let lock_path = folder.join(GATE);
        let write_lock = WriteLock::open(&lock_path).map_err(|error| failed("open", &lock_path, error))?;
        let path = folder.join("runs.db");
        let connection = schema::connect(&path)?;
        // Another process may be creating the tables, so any other answer is checked again under the lock.
        if !matches!(schema::is_set_up(&connection, &path), Ok(true)) {
            let _alone = write_lock.lock().map_err(|error| StoreError::lock(&lock_path, error))?;
            if !schema::is_set_up(&connection, &path)? {
                schema::set_up(&connection, &path, boot)?;
            }
        }
        schema::tune(&connection, &path)?;
        if !schema::is_complete(&connection, &path)? {
            let _alone = write_lock.lock().map_err(|error| StoreError::lock(&lock_path, error))?;
            schema::complete(&connection, &path)?;
        }
        if is_served(&path) && !schema::is_served(&connection, &path)? {
            let _alone = write_lock.lock().map_err(|error| StoreError::lock(&lock_path, error))?;
            schema::serve(&connection, &path)?;
        }
        let log = Log::of(&path);
        let store = Self {
            outputs: Outputs::beside(&path),
            path,
            boot: boot.to_owned(),
            write_lock,
            connections: Connections::new(connection),
            log,
            request_counts: Mutex::new(None),
            is_read_only: false,
        };
        store.start_boot(folder)?;
        store.end_marked_runs()?;
        Ok(store)
    }

    /// Opens the store in a folder that this process cannot write in. Everything but a snapshot fails.
    pub fn open_to_read(folder: &Path, boot: &str) -> Result<Self, StoreError> {
        let lock_path = folder.join(GATE);
        let write_lock =
            WriteLock::open_to_read(&lock_path).map_err(|error| failed("open", &lock_path, error))?;
        let path = folder.join("runs.db");
        // Without these files SQLite cannot read the log, and it cannot make them here.
        for name in ["runs.db-shm", "runs.db-wal"] {
            let file = folder.join(name);
            std::fs::metadata(&file).map_err(|error| failed("look at", &file, error))?;
        }
        let connection = schema::connect_to_read(&path)?;
        if !schema::is_set_up(&connection, &path)? {
            return Err(failed("read", &path, io::Error::other("it has no tables yet")));
        }
        let log = Log::of(&path);
        Ok(Self {
            outputs: Outputs::beside(&path),
            path,
            boot: boot.to_owned(),
            write_lock,
            connections: Connections::new(connection),
            log,
            request_counts: Mutex::new(None),
            is_read_only: true,
        })
    }

    /// Whether there is a store in `folder`. True if that cannot be read: opening the store then says why.
    pub fn exists(folder: &Path) -> bool {
        folder.join("runs.db").try_exists().unwrap_or(true)
    }

    /// Whether other machines use the store in this folder, or have used it.
    pub fn is_served(folder: &Path) -> bool {
        is_served(&folder.join("runs.db"))
    }

    /// Fails if the store in this folder was moved to another one.
    pub fn refuse_moved(folder: &Path) -> Result<(), StoreError> {
        moved::refuse(folder)
    }

    fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }

    fn lock_path(&self) -> PathBuf {
        self.path.with_file_name(GATE)
    }

    /// Moves the timestamps of another boot onto the clock of this one.
    fn start_boot(&self, folder: &Path) -> Result<(), StoreError> {
        if self.read()?.tables().boot()? == self.boot {
            return Ok(());
        }
        let intents = StartIntents::read(folder, &self.boot)?;
        self.transact(|tables| {
            if tables.rebase(&self.boot)? {
                intents.end_runs(tables)?;
            }
            Ok(())
        })?;
        self.sync()?;
        intents.remove()
    }

    /// Opens a snapshot.
    fn read(&self) -> Result<Snapshot<'_>, StoreError> {
        Snapshot::begin(self, self.connection(Purpose::Read)?)
    }

    /// Reads and changes records in one transaction, unless the store was moved.
    fn write<T>(&self, work: impl FnOnce(&Tables<'_>) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.transact(|tables| {
            moved::refuse(self.folder())?;
            work(tables)
        })
    }

    /// Reads and changes records in one transaction. All of it is committed, or nothing if `work` fails.
    fn transact<T>(&self, work: impl FnOnce(&Tables<'_>) -> Result<T, StoreError>) -> Result<T, StoreError> {
        if self.is_read_only {
            return Err(failed("write to", &self.path, io::ErrorKind::ReadOnlyFilesystem.into()));
        }
        let _alone = self.write_lock.lock().map_err(|error| StoreError::lock(&self.lock_path(), error))?;
        let connection = &*self.connection(Purpose::Write)?;
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
            // The first error counts, not that of the rollback.
            let _ = execute(connection, "ROLLBACK");
        }
        let done = done?;
        ended.map(|()| done)
    }

    /// A connection that no other thread uses now.
    fn connection(&self, purpose: Purpose) -> Result<Pooled<'_>, StoreError> {
        self.connections.take(purpose, || {
            if self.is_read_only {
                return schema::connect_to_read(&self.path);
            }
            let connection = schema::connect(&self.path)?;
            schema::tune(&connection, &self.path)?;
            self.log.forget();
            Ok(connection)
        })
    }

    /// Removes what is kept of the output of requests that were removed.
    fn remove_outputs(&self, removed: &[Removed]) -> Result<(), StoreError> {
        if is_served(&self.path) { self.outputs.remove(removed) } else { Ok(()) }
    }

    fn database<T>(&self, result: rusqlite::Result<T>) -> Result<T, StoreError> {
        result.map_err(|error| explain(&self.path, error))
    }
}

impl RunStore for SqliteRunStore {
    fn now(&self) -> Stamp {
        now()
    }

    fn snapshot(&self) -> Result<Box<dyn RunRecords + '_>, StoreError> {
        Ok(Box::new(self.read()?))
    }

    fn submit(&self, submission: &Submission<'_>) -> Result<Result<Vec<Submitted>, Refusal>, StoreError> {
        self.write(|tables| tables.submit(submission))
    }

    fn replace(&self, submission: &Submission<'_>) -> Result<Result<Vec<Submitted>, Refusal>, StoreError> {
        self.write(|tables| tables.replace_requests(submission))
    }

    fn requeue(&self, runs: &[Requeue]) -> Result<Vec<bool>, StoreError> {
        self.write(|tables| runs.iter().map(|run| tables.requeue(run)).collect())
    }

    fn move_and_claim(
        &self,
        transitions: &[Transition],
        claims: Option<&Claims<'_>>,
    ) -> Result<MovedAndClaimed, StoreError> {
        self.write(|tables| {
            let moved = transitions.iter().map(|transition| tables.move_run(transition));
            let moved = moved.collect::<Result<_, _>>()?;
            let claimed = claims.map_or_else(|| Ok(Vec::new()), |claims| tables.claim(claims))?;
            Ok(MovedAndClaimed { moved, claimed })
        })
    }

    fn clear_processes(&self, run: &Run) -> Result<(), StoreError> {
        let cleared = transition::clear_processes(run);
        self.write(|tables| tables.replace(&cleared, cleared.version).map(|_| ()))
    }

    fn register_worker(&self, worker: &Worker) -> Result<(), StoreError> {
        self.write(|tables| tables.insert_worker(worker))?;
        self.remove_start_intents()
    }

    fn remove_worker(&self, id: &WorkerId) -> Result<(), StoreError> {
        self.write(|tables| tables.remove_worker(id))
    }

    fn change_auto_run(&self, change: &AutoRunChange<'_>) -> Result<(), StoreError> {
        self.write(|tables| tables.change_auto_run(change))
    }

    fn set_priority(&self, request: &RequestId, priority: Priority) -> Result<bool, StoreError> {
        self.write(|tables| tables.set_priority(request, priority))
    }

    fn prune(&self, before_unix_micros: i64) -> Result<Vec<Removed>, StoreError> {
        let removed = self.write(|tables| tables.prune(before_unix_micros))?;
        self.remove_outputs(&removed)?;
        Ok(removed)
    }

    fn import(&self, import: &Import<'_>) -> Result<Imported, StoreError> {
        let imported = self.transact(|tables| fill(import, tables, &self.address()))?;
        self.sync().map(|()| imported)
    }

    fn moved_to(&self) -> Result<Option<String>, StoreError> {
        moved::moved_to(self.folder())
    }

    fn set_moved_to(&self, to: Option<&str>) -> Result<(), StoreError> {
        let _alone = self.write_lock.lock().map_err(|error| StoreError::lock(&self.lock_path(), error))?;
        moved::set_moved_to(self.folder(), to)
    }

    fn session(&self) -> Option<Ttl> {
        session_of(self.folder())
    }

    fn keep_output(&self, changes: &[OutputChange<'_>]) -> Result<(), StoreError> {
        if !is_served(&self.path) {
            return Ok(());
        }
        let records = self.read()?;
        self.outputs.change(changes, |run| Ok(records.tables().run(run)?.is_some()))
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.log.force()
    }

    fn subscribe(&self) -> Result<Box<dyn ChangeSignal>, StoreError> {
        let log = self.log.path();
        let changes = Changes::watch(log).map_err(|error| failed("listen to", log, error))?;
        Ok(Box::new(changes))
    }

    fn examine(&self, thorough: bool) -> Result<Examination, StoreError> {
        if let Some(holder) = self.write_lock.stopped_holder() {
            return Err(StoreError::kept(&self.lock_path(), Some(holder), Duration::ZERO));
        }
        examine::examine(self, &*self.connection(Purpose::Read)?, thorough)
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn address(&self) -> String {
        self.path.display().to_string()
    }
}

/// SQLite itself notifies nobody: the system reports that the write-ahead log was written to.
impl ChangeSignal for Changes {
    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Self::as_fd(self)
    }

    fn drain(&self) {
        Self::drain(self);
    }
}

/// The clock of this machine is the clock of the store: all its users are on this machine.
fn now() -> Stamp {
    Stamp { moment: clock::now(), unix_micros: WallTime::now().as_micros() }
}

fn execute(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(|_| ())
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> StoreError {
    StoreError::io(action, path, source)
}
