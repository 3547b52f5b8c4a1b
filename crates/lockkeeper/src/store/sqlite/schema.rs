//! The tables of the embedded store, and how a connection is made ready.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::store::StoreError;

/// `LkSt`: tells the database from those of other programs.
const APPLICATION_ID: i64 = 0x4c6b_5374;
/// Counts up with every change of the tables that an older program could not use.
pub(super) const VERSION: i64 = 3;
/// Both together.
const FORMAT: Format = Format { application_id: APPLICATION_ID, version: VERSION };

/// How long those may take who look at a database that is not set up yet.
const LOG_PATIENCE: Duration = Duration::from_secs(10);
/// A log that became longer than so many bytes is cut when it is begun anew.
pub(super) const LONG_LOG: u64 = 512 * 1024;
/// The log is copied into the database when it has this many pages.
const CHECKPOINT_PAGES: u32 = 64;

/// The tables are read anew by every command, so they are as plain as can be: types are strict, and what a
/// column may say is checked where a row is read, in `rows`.
///
/// Tickets have a `rank`, leases have none; a ticket that is granted stays where it is. Ids count downwards from -1:
/// new rows come to the front, where SQLite divides a page that is full. At the end it would begin a new one for a single
/// row, and give it back with it, each time.
///
/// Keys stand in a table of their own, so that one look finds what meets a resource, and whether anybody waits at all.
/// `numbers` has a number above every one that was drawn, for when the file of tokens is lost.
const TABLES: &str = "
CREATE TABLE record (
    id INTEGER PRIMARY KEY, rank INTEGER, claim BLOB NOT NULL, since INTEGER NOT NULL, seen_at INTEGER NOT NULL,
    token INTEGER, pickup_by INTEGER, revoked INTEGER,
    priority INTEGER, stays INTEGER, bell INTEGER, under BLOB, upgrades INTEGER
) STRICT;
CREATE TABLE filed (
    waits INTEGER NOT NULL, key TEXT NOT NULL, rank INTEGER NOT NULL, id INTEGER NOT NULL,
    PRIMARY KEY (waits, key, rank, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS numbers (highest INTEGER NOT NULL) STRICT;";

/// Takes away what earlier versions made, when nobody is in it any more. Their number stays.
const NO_OLDER_TABLES: &str = "
DROP TABLE IF EXISTS lease; DROP TABLE IF EXISTS lease_key; DROP TABLE IF EXISTS ticket;
DROP TABLE IF EXISTS ticket_key;";

/// What a database says to be.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct Format {
    /// Which program's it is, and for what.
    pub(in crate::store) application_id: i64,
    /// The newest version of its tables that this program can use.
    pub(in crate::store) version: i64,
}

/// Opens a connection; the database may still be empty.
pub(in crate::store) fn connect(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    // SQLite gives its other files the same mode. Only a file that was not there is ever opened here: closing
    // one that a connection of this process has open would drop that connection's locks.
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
            return Err(StoreError::io("make", path, source));
        }
        Ok(_) | Err(_) => {}
    }
    let connection = Connection::open_with_flags(path, flags).map_err(|error| explain(path, error))?;
    // Nobody waits for a checkpoint at the end of every short command: a commit does it now and then.
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
        .map_err(|error| explain(path, error))?;
    // Plans are made once, not again for every value that is bound.
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)
        .map_err(|error| explain(path, error))?;
    // All statements that a decision may need fit in, so that none is compiled twice.
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// Whether the tables of leases are there; fails when they are not ours, or of another version. Those of an earlier one
/// count only while somebody is in them.
pub(super) fn is_set_up(connection: &Connection, path: &Path) -> Result<bool, StoreError> {
    let found = match version(connection, path, FORMAT)? {
        None => return Ok(false),
        Some(VERSION) => return Ok(true),
        Some(older) => older,
    };
    match number(connection, path, "SELECT (SELECT count(*) FROM lease) + (SELECT count(*) FROM ticket)")? {
        0 => Ok(false),
        _ => Err(StoreError::TooOld { address: path.display().to_string(), found, known: VERSION }),
    }
}

/// The version of the tables, if there are any; fails when they are not ours, or newer than this program.
pub(in crate::store) fn version(
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

/// Makes the tables; the caller keeps everybody else out. `highest` is what the file of tokens knows of.
pub(super) fn set_up(connection: &Connection, path: &Path, highest: u64) -> Result<(), StoreError> {
    // Records are small: with small pages a commit writes less, and a command that finds the log of others
    // reads less.
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

/// Settings that a connection does not remember.
pub(super) fn tune(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    use_log(connection, path)?;
    // Leases need no fsync: after a power cut all their holders are dead, and the file is made anew.
    connection
        .execute_batch(&format!(
            "PRAGMA synchronous = OFF; PRAGMA journal_size_limit = {LONG_LOG};
             PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES};"
        ))
        .map_err(|error| explain(path, error))
}

/// Has the database use a write-ahead log. When SQLite cannot, it stays with what it had and does not call it
/// an error.
pub(in crate::store) fn use_log(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let until = Instant::now() + LOG_PATIENCE;
    loop {
        let mode = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get::<_, String>(0));
        match mode.map_err(|error| explain(path, error)) {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(mode) => {
                let source = io::Error::other(format!("its journal is `{mode}` and cannot be changed"));
                return Err(StoreError::io("use a write-ahead log for", path, source));
            }
            // Others look whether it is set up, each for a moment. SQLite does not wait for them here, and
            // nothing tells when they are done.
            Err(StoreError::Busy { .. }) if Instant::now() < until => thread::sleep(Duration::from_millis(2)),
            Err(error) => return Err(error),
        }
    }
}

/// Says what a refusal of SQLite means.
pub(in crate::store) fn explain(path: &Path, error: rusqlite::Error) -> StoreError {
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
