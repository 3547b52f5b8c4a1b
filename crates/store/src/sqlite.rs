//! SQLite store: one database that every process opens. A write lock lets one transaction run at a time, so a commit never
//! finds a change.
//!
//! | file | what it is |
//! |---|---|
//! | `leases.db`, `-wal`, `-shm` | leases and tickets of this boot. After another boot all holders are dead, so it is created anew |
//! | `tokens` | the last number given, and a limit that survives a power cut |
//! | `gate` | the write lock; also a copy of the limit of numbers |
//! | `wake/` | one FIFO for each process that sleeps |
//!
//! A process that is killed leaves the database as it was before or after its transaction, and perhaps its FIFO. The process
//! that reaps its record removes the FIFO, or else the next `locks cleanup`.

#[cfg(feature = "http")]
mod change_log;
mod connections;
mod examine;
pub(super) mod moved;
mod records;
mod rows;
mod schema;
#[cfg(feature = "http")]
pub mod served;
mod silence;
mod tokens;

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lockkeeper_core::id::{LeaseId, Token, WakerId};
use lockkeeper_core::records::{Effect, Records};
use lockkeeper_core::time::Moment;
use rusqlite::Connection;

use super::{Examination, Granted, LeaseStore, StoreError, Transaction, Waker};
pub(super) use connections::{Connections, Pooled, Purpose};
pub(super) use examine::pages;
use lockkeeper_platform::liveness_lock::LivenessFile;
use lockkeeper_platform::write_lock::WriteLock;
use lockkeeper_platform::{access, clock, fs as local, waker};
use records::SqliteRecords;
pub(super) use schema::{Format, connect, connect_to_read, explain, use_log, version};
pub(super) use silence::{is_served, session_of};
use tokens::Tokens;

/// How long the change time of a folder has to be the same before it is trusted.
const SETTLED: Duration = Duration::from_millis(100);

/// Inode and change time of a folder.
type Stamp = (u64, i64, i64);

/// Leases and tickets in one SQLite database.
pub struct SqliteStore {
    folder: PathBuf,
    path: PathBuf,
    write_lock: WriteLock,
    /// The write-ahead log, open to read its length.
    log: fs::File,
    /// The files that are open here, by name and inode.
    files: Vec<(PathBuf, u64)>,
    /// The folder when the files were last found in place, and since when it is unchanged.
    seen: Mutex<Option<(Stamp, Moment)>>,
    tokens: Tokens,
    connections: Connections,
    wake_sender: waker::WakeSender,
    /// Whether this process cannot write in the folder.
    is_read_only: bool,
    /// Until when nothing is granted, because holders on other machines may come back.
    silent_until: Option<Moment>,
}

impl SqliteStore {
    /// Opens the store in `folder`, which is made if it is not there.
    pub fn open(folder: &Path, boot: &str) -> Result<Self, StoreError> {
        make_folder(folder)?;
        if let Some(kind) =
            local::network_file_system(folder).map_err(|error| failed("look at", folder, error))?
        {
            return Err(StoreError::NetworkFileSystem { address: folder.display().to_string(), kind });
        }
        let lock_path = folder.join("gate");
        let write_lock = WriteLock::open(&lock_path).map_err(|error| failed("open", &lock_path, error))?;
        let tokens = Tokens::open(folder, boot)?;
        let path = folder.join("leases.db");
        if tokens.boot()?.is_none_or(|last| last != boot) {
            let _alone = write_lock.lock().map_err(|error| StoreError::lock(&lock_path, error))?;
            start_boot(&tokens, &write_lock, &path, boot)?;
        }
        let connection = schema::connect(&path)?;
        // Another process may be creating the tables, so any other answer is checked again under the lock.
        if !matches!(schema::is_set_up(&connection, &path), Ok(true)) {
            let _alone = write_lock.lock().map_err(|error| StoreError::lock(&lock_path, error))?;
            if !schema::is_set_up(&connection, &path)? {
                // If both `tokens` and the database are lost, the lock file still has the limit.
                let (noted, _) = write_lock.noted().map_err(|error| failed("read", &lock_path, error))?;
                schema::set_up(&connection, &path, tokens.limit()?.max(noted))?;
            }
        }
        schema::tune(&connection, &path)?;
        let mut files = Vec::new();
        for name in ["gate", "tokens", "leases.db", "leases.db-wal"] {
            let file = folder.join(name);
            let found = fs::metadata(&file).map_err(|error| failed("look at", &file, error))?;
            files.push((file, found.ino()));
        }
        let log_path = folder.join("leases.db-wal");
        let log = fs::File::open(&log_path).map_err(|error| failed("open", &log_path, error))?;
        let folder = folder.to_owned();
        let (seen, connections) = (Mutex::new(None), Connections::new(connection));
        let wake_sender = waker::WakeSender::new(&folder);
        let is_read_only = false;
        let silent_until = silence::silent_until(&folder, boot);
        Ok(Self {
            folder,
            path,
            write_lock,
            log,
            files,
            seen,
            tokens,
            connections,
            wake_sender,
            is_read_only,
            silent_until,
        })
    }

    /// Opens the store in a folder that this process cannot write in. Every transaction but a snapshot fails.
    pub fn open_to_read(folder: &Path, boot: &str) -> Result<Self, StoreError> {
        let lock_path = folder.join("gate");
        let write_lock =
            WriteLock::open_to_read(&lock_path).map_err(|error| failed("open", &lock_path, error))?;
        let tokens = Tokens::open_to_read(folder, boot)?;
        let path = folder.join("leases.db");
        // Without this file SQLite cannot read the log, and it cannot make the file here.
        let index = folder.join("leases.db-shm");
        fs::metadata(&index).map_err(|error| failed("look at", &index, error))?;
        let log_path = folder.join("leases.db-wal");
        let log = fs::File::open(&log_path).map_err(|error| failed("open", &log_path, error))?;
        let connection = schema::connect_to_read(&path)?;
        if !schema::is_set_up(&connection, &path)? {
            return Err(failed("read", &path, io::Error::other("it has no tables yet")));
        }
        Ok(Self {
            folder: folder.to_owned(),
            path,
            write_lock,
            log,
            files: Vec::new(),
            seen: Mutex::new(None),
            tokens,
            connections: Connections::new(connection),
            wake_sender: waker::WakeSender::new(folder),
            is_read_only: true,
            silent_until: silence::silent_until(folder, boot),
        })
    }

    /// Whether there is a store in `folder`. True if that cannot be read: opening the store then says why.
    pub fn exists(folder: &Path) -> bool {
        folder.join("leases.db").try_exists().unwrap_or(true)
    }

    /// Whether there was a store in `folder` whose leases are gone: it has given numbers in this boot, and its database is missing
    /// or empty. Before a new store gives its first number, its database has tables.
    pub fn is_lost(folder: &Path, boot: &str) -> bool {
        let is_empty = |name: &str| match fs::symlink_metadata(folder.join(name)) {
            Ok(meta) => meta.is_file() && meta.len() == 0,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        let has_given = || {
            let tokens = Tokens::open_to_read(folder, boot).ok()?;
            tokens.last().ok()?.filter(|last| *last > 0)
        };
        is_empty("leases.db") && is_empty("leases.db-wal") && has_given().is_some()
    }

    /// A connection that no other thread uses now.
    fn connection(&self) -> Result<Pooled<'_>, StoreError> {
        self.connections.take(Purpose::Write, || {
            // The path may lead to another file by now.
            self.check_place()?;
            if self.is_read_only {
                return schema::connect_to_read(&self.path);
            }
            let connection = schema::connect(&self.path)?;
            schema::tune(&connection, &self.path)?;
            Ok(connection)
        })
    }

    /// Fails if the files are not those that were opened: other processes would not see what is written to them.
    fn check_place(&self) -> Result<(), StoreError> {
        let folder = fs::metadata(&self.folder).map_err(|error| self.gone_or(error, &self.folder))?;
        let stamp = (folder.ino(), folder.ctime(), folder.ctime_nsec());
        let now = clock::now();
        // If something in the folder is created, renamed or removed, its change time moves on, unless that happens in the same
        // tick of the clock.
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let since = seen.filter(|(known, _)| *known == stamp).map_or(now, |(_, since)| since);
        if now.since(since) > SETTLED {
            return Ok(());
        }
        for (path, inode) in &self.files {
            let found = fs::metadata(path).map_err(|error| self.gone_or(error, path))?;
            if found.ino() != *inode {
                return Err(StoreError::Removed { address: path.display().to_string() });
            }
        }
        *seen = Some((stamp, since));
        Ok(())
    }

    fn gone_or(&self, error: io::Error, path: &Path) -> StoreError {
        match error.kind() {
            io::ErrorKind::NotFound => StoreError::Removed { address: path.display().to_string() },
            _ => failed("look at", path, error),
        }
    }

    fn database<T>(&self, result: rusqlite::Result<T>) -> Result<T, StoreError> {
        result.map_err(|error| schema::explain(&self.path, error))
    }

    /// Carries out the effects of a decision that is committed.
    fn carry_out(&self, effects: &[Effect], granted: &[(WakerId, Granted)]) {
        for effect in effects {
            // A sleeper also polls now and then, so a failure here only delays it.
            let _ = match effect {
                Effect::Wake(waker) => {
                    let message =
                        granted.iter().find(|(to, _)| to == waker).map(|(_, granted)| message_of(*granted));
                    self.wake_sender.wake(*waker, message.as_ref()).map(|_| ())
                }
                Effect::RemoveWaker(waker) => self.wake_sender.remove(*waker),
            };
        }
    }

    /// The limit of numbers that the database has.
    fn noted_limit(&self, connection: &Connection) -> Result<u64, StoreError> {
        let noted = || {
            let mut statement = connection.prepare_cached("SELECT highest FROM numbers")?;
            statement.query_row([], |row| row.get::<_, i64>(0))
        };
        self.database(noted()).map(i64::cast_unsigned)
    }

    /// Writes the limit of numbers into the database, in case `tokens` is lost.
    fn note_limit(&self, connection: &Connection, limit: u64) -> Result<(), StoreError> {
        let noted = connection.execute("UPDATE numbers SET highest = ?1", [limit.cast_signed()]);
        self.database(noted).map(|_| ())
    }
}

impl LeaseStore for SqliteStore {
    fn begin(&self) -> Result<Box<dyn Transaction + '_>, StoreError> {
        if self.is_read_only {
            return Err(failed("write to", &self.folder, io::ErrorKind::ReadOnlyFilesystem.into()));
        }
        let lock =
            self.write_lock.lock().map_err(|error| StoreError::lock(&self.folder.join("gate"), error))?;
        self.check_place()?;
        Ok(Box::new(SqliteRecords::begin(self, self.connection()?, Some(lock))?))
    }

    fn snapshot(&self) -> Result<Box<dyn Records<StoreError> + '_>, StoreError> {
        Ok(Box::new(SqliteRecords::begin(self, self.connection()?, None)?))
    }

    fn waker(&self) -> Result<Box<dyn Waker>, StoreError> {
        let made = waker::Waker::create(&self.folder);
        Ok(Box::new(made.map_err(|error| failed("make a waker in", &self.folder, error))?))
    }

    fn waker_with_id(&self, id: WakerId) -> Result<Box<dyn Waker>, StoreError> {
        let made = waker::Waker::create_with_id(&self.folder, id);
        Ok(Box::new(made.map_err(|error| failed("make a waker in", &self.folder, error))?))
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn raise_numbers(&self, above: u64) -> Result<bool, StoreError> {
        let lock = self.write_lock.lock();
        let _alone = lock.map_err(|error| StoreError::lock(&self.folder.join("gate"), error))?;
        let connection = self.connection()?;
        let mut drawing = self.tokens.draw(self.noted_limit(&connection)?, &self.write_lock)?;
        drawing.raise(above);
        if let Some(limit) = drawing.keep()? {
            self.note_limit(&connection, limit)?;
        }
        Ok(true)
    }

    fn sweep(&self) -> Result<(), StoreError> {
        waker::sweep(&self.folder).map_err(|error| failed("clear", &self.folder.join("wake"), error))
    }

    fn examine(&self, thorough: bool) -> Result<Examination, StoreError> {
        if let Some(holder) = self.write_lock.stopped_holder() {
            return Err(StoreError::kept(&self.folder.join("gate"), Some(holder), Duration::ZERO));
        }
        examine::examine(self, &*self.connection()?, thorough)
    }
}

impl Waker for waker::Waker {
    fn id(&self) -> WakerId {
        self.id()
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        AsFd::as_fd(self)
    }

    fn receive(&self) -> Option<Granted> {
        waker::Waker::receive(self).ok()?.1.map(granted_from)
    }
}

/// A granted lease as the message of a wake-up: id, token, moment.
fn message_of(granted: Granted) -> waker::Message {
    let mut message = waker::Message::default();
    let parts = [granted.id.0, granted.token.0, granted.at.as_micros().cast_unsigned()];
    message.as_chunks_mut().0.iter_mut().zip(parts).for_each(|(place, part)| *place = part.to_ne_bytes());
    message
}

fn granted_from(message: waker::Message) -> Granted {
    let part = |place: usize| u64::from_ne_bytes(message.as_chunks().0[place]);
    Granted { id: LeaseId(part(0)), token: Token(part(1)), at: Moment::from_micros(part(2).cast_signed()) }
}

fn execute(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(|_| ())
}

pub(super) fn make_folder(folder: &Path) -> Result<(), StoreError> {
    access::make_state_folder(folder).map_err(|error| failed("make the folder", folder, error))
}

/// Removes the database of another boot, whose holders are all dead. The caller holds the write lock.
///
/// A folder that two machines share looks the same to each of them. So it is removed only if nobody can be using it: no
/// process holds a liveness lock, and nobody has written to it since this machine started.
fn start_boot(tokens: &Tokens, write_lock: &WriteLock, path: &Path, boot: &str) -> Result<(), StoreError> {
    match tokens.boot()? {
        // Nothing is known about a database that is there. The open that follows checks it.
        None => return Ok(()),
        Some(last) if last == boot => return Ok(()),
        Some(_) => {}
    }
    let elsewhere = |why| StoreError::InUseElsewhere { address: path.display().to_string(), why };
    let folder = path.parent().unwrap_or(path);
    let life = LivenessFile::open(folder).map_err(|error| failed("open the locks in", folder, error))?;
    let is_there = path.try_exists().unwrap_or(true);
    if is_there && life.has_holders() {
        return Err(elsewhere("processes hold locks there"));
    }
    if is_there && tokens.was_written_since_boot(write_lock)? {
        return Err(elsewhere("it was written since this machine started"));
    }
    // It does not matter if a power cut has damaged it. But a file of another program is not removed.
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
    let mut drawing = tokens.draw(0, write_lock)?;
    drawing.next();
    drawing.keep().map(|_| ())
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> StoreError {
    StoreError::io(action, path, source)
}
