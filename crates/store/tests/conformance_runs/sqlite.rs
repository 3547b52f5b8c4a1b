//! What only SQLite does: impossible rows, and another boot.

use lockkeeper_store::{RunStore, SqliteRunStore, StoreError};
use rusqlite::Connection;
use tempfile::TempDir;

use super::sample::{claim, request, submit};

fn store() -> (TempDir, SqliteRunStore) {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteRunStore::open(folder.path(), "this-boot").unwrap();
    (folder, store)
}

fn database(folder: &TempDir) -> Connection {
    Connection::open(folder.path().join("runs.db")).unwrap()
}

/// Each row is one that no run can have. The error names the run, and the row stays as it is.
#[test]
fn an_impossible_row_is_reported_and_never_replaced() {
    for (change, what) in [
        ("claim = 0", "more attempts than claims"),
        ("started_at = NULL, started_moment = NULL", "claimed at no time"),
        ("worker = NULL", "no worker executes it"),
        ("retry_at = 1", "waits for its next attempt"),
    ] {
        let (folder, store) = store();
        let run = claim(&store, &submit(&store, &request("a")));
        let unchecked = "PRAGMA ignore_check_constraints = ON; DROP TRIGGER run_moves;";
        database(&folder).execute_batch(&format!("{unchecked} UPDATE run SET {change}")).unwrap();
        let error = store.snapshot().unwrap().run(&run.id).unwrap_err();
        let StoreError::Damaged { what: found, address } = error else { panic!("{error:?}") };
        assert!(found.contains(run.id.as_str()) && found.contains(what), "{found}");
        assert_eq!(address, store.address());
        let left: i64 =
            database(&folder).query_row("SELECT count(*) FROM run", [], |row| row.get(0)).unwrap();
        assert_eq!(left, 1);
    }
}

/// The monotonic clock starts again with a boot. The rest of a timeout stays the same.
#[test]
fn timestamps_of_open_runs_move_onto_the_clock_of_another_boot() {
    let (folder, store) = store();
    let hour = std::time::Duration::from_secs(3600);
    let limited = lockkeeper_core::request::Request { queue_timeout: Some(hour), ..request("a") };
    let run = submit(&store, &limited);
    drop(store);
    let back = 500_000_000_000_i64;
    let shift = "UPDATE run SET queued_moment = queued_moment + ?1, give_up_at = give_up_at + ?1";
    database(&folder).execute(shift, [back]).unwrap();
    let store = SqliteRunStore::open(folder.path(), "another-boot").unwrap();
    let found = store.snapshot().unwrap().run(&run.id).unwrap().unwrap();
    assert_eq!(found.queued_at.unix_micros, run.queued_at.unix_micros);
    let left = found.give_up_at().unwrap().since(store.now().moment);
    assert!(left <= hour && left > hour / 2, "{left:?}");
}
