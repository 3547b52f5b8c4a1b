//! Schema of the lease database, and the settings of a connection.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::StoreError;
use lockkeeper_platform::access;
use lockkeeper_platform::sqlite_path::for_sqlite;

/// `LkSt`: marks the database as one of ours.
const APPLICATION_ID: i64 = 0x4c6b_5374;
/// The version of the tables. It grows with every change that an older program cannot use.
pub(super) const VERSION: i64 = 4;
/// The version with the same tables, whose claims have fewer kinds of proof. It becomes [`VERSION`] when it is opened.
const SAME_TABLES: i64 = 3;
/// Both together.
const FORMAT: Format = Format { application_id: APPLICATION_ID, version: VERSION };

/// How long to retry while other processes read a database that has no tables yet.
const LOG_PATIENCE: Duration = Duration::from_secs(10);
/// How long a statement waits for a lock of SQLite: as long as rusqlite does by default.
const BUSY_PATIENCE: Duration = Duration::from_secs(5);
/// A commit that leaves this many pages in the write-ahead log copies them to the database (checkpoint). The next commit of the
/// same process then starts the log from its beginning.
const CHECKPOINT_PAGES: u32 = 64;
/// A commit that leaves a longer log (in bytes) truncates it. A command that starts alone reads the whole log.
const LONG_LOG: u64 = 128 * 1024;

/// Every command parses the schema again, so it is as small as possible. Types are strict; `rows` checks the values.
///
/// Tickets have a `rank`, leases have none. A ticket that is granted keeps its row. The `id` of a record is that of the lease or ticket
/// with a minus: so new rows are inserted at the front, where SQLite splits a full page. At the end it would allocate a new page for a
/// single row, and free it with the row, each time.
///
/// `filed` is the index by key, for leases and tickets together. `numbers` has a limit above every number that was drawn, in
/// case the file `tokens` is lost.
const TABLES: &str = "
CREATE TABLE IF NOT EXISTS record (
    id INTEGER PRIMARY KEY, rank INTEGER, claim BLOB NOT NULL, since INTEGER NOT NULL, seen_at INTEGER NOT NULL,
    token INTEGER, pickup_by INTEGER, revoked INTEGER,
    priority INTEGER, stays INTEGER, bell INTEGER, under BLOB, upgrades INTEGER
) STRICT;
CREATE TABLE IF NOT EXISTS filed (
    waits INTEGER NOT NULL, key TEXT NOT NULL, rank INTEGER NOT NULL, id INTEGER NOT NULL,
    PRIMARY KEY (waits, key, rank, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS numbers (highest INTEGER NOT NULL) STRICT;";

/// Drops the tables of earlier versions, once they are empty. The limit of numbers stays.
const NO_OLDER_TABLES: &str = "
DROP TABLE IF EXISTS lease; DROP TABLE IF EXISTS lease_key; DROP TABLE IF EXISTS ticket;
DROP TABLE IF EXISTS ticket_key;";

/// Application id and version of a database.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    /// The program and the purpose.
    pub(crate) application_id: i64,
    /// The newest version of its tables that this program can use.
    pub(crate) version: i64,
}

/// Opens a connection; the database may still be empty.
pub(crate) fn connect(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    // SQLite gives its other files the same mode. Only a new file is opened here: closing a file that a connection of this
    // process has open would drop the locks of that connection.
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
            return Err(StoreError::io("make", path, source));
        }
        Ok(new) => {
            access::inherit(&new, path.parent().unwrap_or(path))
                .map_err(|source| StoreError::io("share", path, source))?;
        }
        Err(_) => {}
    }
    let connection = open(path, flags)?;
    // No checkpoint at the end of every short command: a commit truncates a long log.
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
        .map_err(|error| explain(path, error))?;
    // Query plans do not depend on bound values, so each is made once.
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)
        .map_err(|error| explain(path, error))?;
    // All statements of a decision fit in, so none is compiled twice.
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// Opens a connection to a database that may not be written. SQLite reads the log of other processes through `leases.db-shm`.
pub(crate) fn connect_to_read(path: &Path) -> Result<Connection, StoreError> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    open(path, flags)
}

fn open(path: &Path, flags: OpenFlags) -> Result<Connection, StoreError> {
    let short = for_sqlite(path).map_err(|source| StoreError::io("open the folder of", path, source))?;
    let opened = match short.vfs {
        Some(vfs) => Connection::open_with_flags_and_vfs(short.path, flags, vfs),
        None => Connection::open_with_flags(short.path, flags),
    };
    opened.map_err(|error| explain(path, error))
}

/// Whether the tables are there. Fails if they are not ours, or of a newer version. Tables of an earlier version count only while
/// they are not empty.
pub(super) fn is_set_up(connection: &Connection, path: &Path) -> Result<bool, StoreError> {
    let found = match version(connection, path, FORMAT)? {
        None => return Ok(false),
        Some(VERSION) => return Ok(true),
        Some(SAME_TABLES) => return Ok(false),
        Some(older) => older,
    };
    match number(connection, path, "SELECT (SELECT count(*) FROM lease) + (SELECT count(*) FROM ticket)")? {
        0 => Ok(false),
        _ => Err(StoreError::TooOld { address: path.display().to_string(), found, known: VERSION }),
    }
}

/// The version of the tables, if there are any. Fails if they are not ours, or newer than this program.
pub(crate) fn version(
    connection: &Connection,
    path: &Path,
    format: Format,
) -> Result<Option<i64>, StoreError> {
    match number(connection, path, "PRAGMA application_id")? {
        found if found == format.application_id => {}
        0 if number(connection, path, "SELECT count(*) FROM sqlite_schema")? == 0 => return Ok(None),
        _ => return Err(StoreError::Foreign { address: path.display().to_string() }),
    }
    let found = number(connection, path, "PRAGMA user_version")?;
    if found > format.version {
        return Err(StoreError::TooNew { address: path.display().to_string(), found, known: format.version });
    }
    Ok(Some(found))
}

fn number(connection: &Connection, path: &Path, sql: &str) -> Result<i64, StoreError> {
    connection.query_row(sql, [], |row| row.get(0)).map_err(|error| explain(path, error))
}

/// Creates the tables. The caller holds the write lock. `highest` is the limit in the file `tokens`.
pub(super) fn set_up(connection: &Connection, path: &Path, highest: u64) -> Result<(), StoreError> {
    // Records are small. With small pages a commit writes less, and a command reads less of the log.
    connection.execute_batch("PRAGMA page_size = 1024;").map_err(|error| explain(path, error))?;
    use_log(connection, path)?;
    let script = format!(
        "BEGIN IMMEDIATE;
         {NO_OLDER_TABLES}
         {TABLES}
         INSERT INTO numbers VALUES ({highest});
         DELETE FROM numbers WHERE rowid NOT IN (SELECT rowid FROM numbers ORDER BY highest DESC LIMIT 1);
         PRAGMA application_id = {APPLICATION_ID};
         PRAGMA user_version = {VERSION};
         COMMIT;"
    );
    connection.execute_batch(&script).map_err(|error| explain(path, error))
}

/// Settings that the database file does not keep.
pub(super) fn tune(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    use_log(connection, path)?;
    // Leases need no fsync: after a power cut all their holders are dead, and the database is created anew.
    connection
        .execute_batch(&format!("PRAGMA synchronous = OFF; PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES};"))
        .map_err(|error| explain(path, error))
}

/// Truncates the write-ahead log if it is long. The caller holds the write lock.
///
/// The checkpoints of SQLite do not shorten the log of short commands: a command that starts alone reads the log anew, and does
/// not know that its pages are in the database already. So nobody ever starts the log from its beginning. A process that reads
/// an older snapshot at this moment prevents it, and the next commit tries again.
pub(super) fn shorten_log(connection: &Connection, log: &File) -> rusqlite::Result<()> {
    if log.metadata().map_or(0, |log| log.len()) < LONG_LOG {
        return Ok(());
    }
    // A commit does not wait for readers.
    connection.busy_timeout(Duration::ZERO)?;
    let done = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    connection.busy_timeout(BUSY_PATIENCE)?;
    done
}

/// Switches the database to a write-ahead log. SQLite reports no error if it cannot, so the mode is checked.
pub(crate) fn use_log(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let until = Instant::now() + LOG_PATIENCE;
    loop {
        let mode = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get::<_, String>(0));
        match mode.map_err(|error| explain(path, error)) {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(mode) => {
                let source = io::Error::other(format!("its journal is `{mode}` and cannot be changed"));
                return Err(StoreError::io("use a write-ahead log for", path, source));
            }
            // Other processes check the tables, each for a moment. SQLite does not wait for them here, and there is no event
            // to wait for.
            Err(StoreError::Busy { .. }) if Instant::now() < until => thread::sleep(Duration::from_millis(2)),
            Err(error) => return Err(error),
        }
    }
}

/// Converts an error of SQLite.
pub(crate) fn explain(path: &Path, error: rusqlite::Error) -> StoreError {
    use rusqlite::ErrorCode as Code;
    let address = path.display().to_string();
    match error.sqlite_error_code() {
        Some(Code::DatabaseBusy | Code::DatabaseLocked) => StoreError::Busy { address },
        Some(Code::NotADatabase) => StoreError::Damaged { address, what: "it is not a database".to_owned() },
        Some(Code::DatabaseCorrupt) => StoreError::Damaged { address, what: error.to_string() },
        Some(Code::DiskFull) => {
            let source = io::Error::from(io::ErrorKind::StorageFull);
            StoreError::Io { action: "write to", address, source }
        }
        Some(Code::ReadOnly | Code::PermissionDenied) => {
            let source = io::Error::from(io::ErrorKind::PermissionDenied);
            StoreError::Io { action: "write to", address, source }
        }
        _ => StoreError::Database { address, source: Box::new(error) },
    }
}
