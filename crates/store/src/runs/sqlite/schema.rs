//! The schema. Constraints and a trigger reject what the state machine does not allow.

use std::path::Path;

use lockkeeper_core::run::{MOVES, Status};
use rusqlite::Connection;

use super::machines;
use crate::StoreError;
use crate::sqlite::{self, explain};

/// `LkRu`: distinguishes the database from those of other programs.
const APPLICATION_ID: i64 = 0x4c6b_5275;
/// Grows with every change of the tables that an older program cannot use.
///
/// | version | what is new |
/// |---|---|
/// | 2 | a request stays `QUEUED` until its run has ended; `event` has no counter of its own, a prune leaves one row |
/// | 3 | workers have labels, and requests need some |
/// | 4 | only where other machines use the folder: their workers have sessions |
const VERSION: i64 = 3;
const SERVED: i64 = 4;

/// Times are in microseconds: `_at` on the wall clock; `_moment`, `give_up_at` and `retry_at` on the clock of this boot.
///
/// Every page that a transition changes is written twice, to the log and to the database. So `request.status` stays `QUEUED`
/// until the latest run has ended, and only that run shows whether a worker has claimed it.
const TABLES: &str = "
CREATE TABLE clock (boot TEXT NOT NULL) STRICT;
CREATE TABLE request (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    title TEXT NOT NULL,
    spec TEXT NOT NULL,
    priority INTEGER NOT NULL,
    key TEXT UNIQUE,
    created_at INTEGER NOT NULL,
    status TEXT NOT NULL,
    latest INTEGER,
    unmet INTEGER NOT NULL CHECK (unmet >= 0)
) STRICT;
CREATE INDEX request_status ON request (status, seq);
CREATE TABLE dependency (
    request INTEGER NOT NULL, after INTEGER NOT NULL, PRIMARY KEY (request, after), CHECK (request <> after)
) STRICT, WITHOUT ROWID;
CREATE INDEX dependency_after ON dependency (after);
CREATE TABLE worker (
    id TEXT PRIMARY KEY, holder INTEGER NOT NULL, host TEXT NOT NULL, boot TEXT NOT NULL,
    pid_namespace INTEGER NOT NULL, pid INTEGER NOT NULL, pid_started INTEGER NOT NULL,
    jobs INTEGER NOT NULL, started_at INTEGER NOT NULL, labels TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;
CREATE TABLE auto_run (
    worker TEXT NOT NULL, started_at INTEGER NOT NULL, runs INTEGER NOT NULL, current TEXT,
    stop INTEGER NOT NULL, ended TEXT
) STRICT;
CREATE TABLE event (
    position INTEGER PRIMARY KEY,
    run INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, kind TEXT NOT NULL,
    from_status TEXT, to_status TEXT NOT NULL, attempt INTEGER NOT NULL, claim INTEGER NOT NULL,
    reason TEXT, message TEXT,
    UNIQUE (run, seq)
) STRICT;";

/// The table of runs. Its constraints reject what [`lockkeeper_core::run::RunRow`] rejects, also from other programs.
///
/// `wish` is the lease key of the request. `ready` is 1 if the run can be claimed, 0 if it waits for dependencies, and -1 if it is
/// claimed by its id only. `events` is the version of the run.
///
/// Statuses are compared one by one: for a list of three or more, SQLite creates a table at every change.
const RUN: &str = "
CREATE TABLE run (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    request INTEGER NOT NULL,
    status TEXT NOT NULL CHECK ({statuses}),
    attempt INTEGER NOT NULL CHECK (attempt >= 0),
    claim INTEGER NOT NULL CHECK (claim >= attempt),
    worker TEXT,
    holder INTEGER, pid INTEGER, pid_started INTEGER,
    lease INTEGER, token INTEGER,
    priority INTEGER NOT NULL,
    ready INTEGER NOT NULL,
    wish TEXT NOT NULL,
    queued_at INTEGER NOT NULL, queued_moment INTEGER NOT NULL, give_up_at INTEGER,
    started_at INTEGER, started_moment INTEGER, timeout INTEGER, retry_at INTEGER,
    completed_at INTEGER, completed_moment INTEGER,
    exit_code INTEGER, signal INTEGER, reason TEXT, message TEXT,
    help INTEGER NOT NULL,
    events INTEGER NOT NULL,
    CHECK (({terminal}) = (completed_at IS NOT NULL)),
    CHECK (completed_at IS NULL OR worker IS NULL),
    CHECK (status <> 'queued' OR (worker IS NULL AND claim = 0 AND started_at IS NULL)),
    CHECK (status NOT IN ('running', 'cancelling') OR (attempt > 0 AND started_at IS NOT NULL)),
    CHECK (status <> 'running' OR (worker IS NULL) = (retry_at IS NOT NULL)),
    CHECK (completed_at IS NULL OR status = 'succeeded' OR reason IS NOT NULL)
) STRICT;
CREATE INDEX run_request ON run (request, seq);
CREATE INDEX run_status ON run (status, seq);
CREATE INDEX run_queue ON run (priority DESC, seq) WHERE status = 'queued' AND ready = 1;
CREATE INDEX run_wish ON run (wish, priority DESC, seq) WHERE status = 'queued' AND ready = 1;
CREATE INDEX run_give_up ON run (give_up_at) WHERE status = 'queued' AND give_up_at IS NOT NULL;
CREATE INDEX run_retry ON run (retry_at) WHERE retry_at IS NOT NULL;";

/// The allowed changes of the status.
const TRIGGER: &str = "
CREATE TRIGGER run_moves BEFORE UPDATE OF status, claim ON run
WHEN NEW.claim < OLD.claim OR (OLD.status <> NEW.status AND NOT ({moves}))
BEGIN SELECT RAISE(ABORT, 'a run does not move like this'); END;";

/// Indexes that stores of older versions may lack.
const LATER: [(&str, &str); 5] = [
    ("request_next", "request (priority DESC, created_at, id) WHERE status = 'QUEUED' AND unmet = 0"),
    ("request_after", "request (seq) WHERE status = 'QUEUED' AND unmet > 0"),
    ("run_outside", "run (seq) WHERE worker IS NOT NULL AND holder IS NULL"),
    ("run_left", "run (seq) WHERE holder IS NOT NULL AND completed_at IS NOT NULL"),
    ("run_stage", "run (seq) WHERE status = 'queued' AND ready = -1"),
];

/// Migrates a store that an older program has created. The caller holds the write lock.
pub(super) fn complete(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let indexes: String =
        LATER.iter().map(|(name, what)| format!("CREATE INDEX IF NOT EXISTS {name} ON {what};")).collect();
    let has_labels = "SELECT EXISTS (SELECT 1 FROM pragma_table_info('worker') WHERE name = 'labels')";
    let has_labels: bool =
        connection.query_row(has_labels, [], |row| row.get(0)).map_err(|error| explain(path, error))?;
    let version: i64 = connection
        .query_row("SELECT max(user_version, ?1) FROM pragma_user_version", [VERSION], |row| row.get(0))
        .map_err(|error| explain(path, error))?;
    let labels =
        if has_labels { "" } else { "ALTER TABLE worker ADD COLUMN labels TEXT NOT NULL DEFAULT '';" };
    let script = format!(
        "BEGIN IMMEDIATE;
         {labels}
         {indexes}
         DROP INDEX IF EXISTS run_living;
         DROP TRIGGER IF EXISTS run_claims;
         DROP TRIGGER IF EXISTS run_moves;
         {}
         UPDATE request SET status = 'QUEUED' WHERE status = 'RUNNING';
         PRAGMA user_version = {version};
         COMMIT;",
        trigger()
    );
    connection.execute_batch(&script).map_err(|error| {
        // The first error counts, not that of the rollback.
        let _ = connection.execute_batch("ROLLBACK");
        explain(path, error)
    })
}

/// Whether a store is of this version and has all indexes.
pub(super) fn is_complete(connection: &Connection, path: &Path) -> Result<bool, StoreError> {
    let names = LATER.map(|(name, _)| format!("'{name}'")).join(", ");
    let sql = format!(
        "SELECT user_version, (SELECT count(*) FROM sqlite_schema WHERE name IN ({names})) FROM pragma_user_version"
    );
    let found = connection.query_row(&sql, [], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)));
    found
        .map(|(version, indexes)| version >= VERSION && indexes == LATER.len() as i64)
        .map_err(|error| explain(path, error))
}

/// Makes the tables of a folder that other machines use, unless they are there. The caller holds the write lock.
pub(super) fn serve(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    machines::make_tables(connection, path, SERVED)
}

/// Whether the tables of a folder that other machines use are there.
pub(super) fn is_served(connection: &Connection, path: &Path) -> Result<bool, StoreError> {
    let sql = "SELECT user_version = ?1 FROM pragma_user_version";
    connection.query_row(sql, [SERVED], |row| row.get(0)).map_err(|error| explain(path, error))
}

pub(super) fn connect(path: &Path) -> Result<Connection, StoreError> {
    sqlite::connect(path)
}

pub(super) fn connect_to_read(path: &Path) -> Result<Connection, StoreError> {
    sqlite::connect_to_read(path)
}

/// Whether the tables exist. Fails if they belong to another program or to a newer version.
pub(super) fn is_set_up(connection: &Connection, path: &Path) -> Result<bool, StoreError> {
    let format = sqlite::Format { application_id: APPLICATION_ID, version: SERVED };
    sqlite::version(connection, path, format).map(|version| version.is_some())
}

/// Creates the tables. The caller holds the write lock.
pub(super) fn set_up(connection: &Connection, path: &Path, boot: &str) -> Result<(), StoreError> {
    // A transition changes a few bytes on each of a dozen pages: the smaller the pages, the less a commit writes.
    connection.execute_batch("PRAGMA page_size = 1024;").map_err(|error| explain(path, error))?;
    sqlite::use_log(connection, path)?;
    let script = format!(
        "BEGIN IMMEDIATE;
         {TABLES}
         {}
         {}
         PRAGMA application_id = {APPLICATION_ID};
         PRAGMA user_version = {VERSION};",
        run_table(),
        trigger()
    );
    let made = connection.execute_batch(&script).and_then(|()| {
        connection.execute("INSERT INTO clock VALUES (?1)", [boot])?;
        connection.execute_batch("COMMIT")
    });
    made.map_err(|error| explain(path, error))
}

/// Settings that every new connection needs.
pub(super) fn tune(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    sqlite::use_log(connection, path)?;
    // A checkpoint forces the log and the database to the disk. A commit does not: `sync` does.
    connection
        .execute_batch("PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 4000;")
        .map_err(|error| explain(path, error))
}

fn run_table() -> String {
    let any_of = |keep: fn(&Status) -> bool| {
        let words = Status::ALL.iter().filter(|status| keep(status)).map(|one| format!("status = '{one}'"));
        words.collect::<Vec<_>>().join(" OR ")
    };
    RUN.replace("{statuses}", &any_of(|_| true)).replace("{terminal}", &any_of(|status| status.is_terminal()))
}

fn trigger() -> String {
    let moves =
        MOVES.iter().map(|one| format!("(OLD.status = '{}' AND NEW.status = '{}')", one.from, one.to));
    TRIGGER.replace("{moves}", &moves.collect::<Vec<_>>().join(" OR "))
}
