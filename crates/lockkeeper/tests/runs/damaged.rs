//! A database that is not what it should be is refused, and left as it is.

use std::path::Path;

use lockkeeper_engine::runs::{RunError, Runs};
use lockkeeper_store::StoreError;
use lockkeeper_store::runs::{RequestFilter, RunFilter};
use rusqlite::Connection;
use rusqlite::types::Value;

use super::world::World;

/// Every value of a table.
fn rows(database: &Connection, table: &str) -> Vec<Vec<Value>> {
    let mut statement = database.prepare(&format!("SELECT * FROM {table}")).unwrap();
    let columns = statement.column_count();
    let rows = statement.query_map([], |row| (0..columns).map(|column| row.get(column)).collect());
    rows.unwrap().map(|row| row.unwrap()).collect()
}

/// Invariant 12.
#[test]
fn impossible_rows_are_refused_and_stay() {
    for damage in [
        "UPDATE run SET status = 'succeeded'",
        "UPDATE run SET status = 'paused'",
        "UPDATE run SET worker = 'w'",
        "UPDATE run SET started_at = 1, started_moment = 1",
        "UPDATE run SET status = 'running', attempt = 1, claim = 1",
        "UPDATE run SET reason = 'BECAUSE'",
        "UPDATE run SET id = '../x'",
        "UPDATE request SET spec = '{'",
        "UPDATE request SET spec = json_set(spec, '$.command', 7)",
        "UPDATE request SET spec = json_set(spec, '$.more', 7)",
        "UPDATE request SET status = 'ODD'",
    ] {
        let world = World::new();
        world.submit("a");
        let database = Connection::open(world.runs.folder().join("runs.db")).unwrap();
        database.execute_batch("PRAGMA ignore_check_constraints = ON; DROP TRIGGER run_moves;").unwrap();
        database.execute_batch(damage).unwrap();
        let before = (rows(&database, "run"), rows(&database, "request"), rows(&database, "event"));
        let runs = Runs::open(world.folder.path()).unwrap();
        let listed = runs.entries(&RunFilter { limit: 9, ..RunFilter::default() }).map(|_| ());
        let requests = runs.requests(&RequestFilter { limit: 9, ..RequestFilter::default() }).map(|_| ());
        let refused = [listed, requests].into_iter().find_map(Result::err);
        let Some(RunError::Store(StoreError::Damaged { .. })) = refused else {
            panic!("{damage}: {refused:?}");
        };
        let after = (rows(&database, "run"), rows(&database, "request"), rows(&database, "event"));
        assert_eq!(before, after, "{damage}");
    }
}

/// Writes what lies there instead of a database of runs, and has it refused and left alone.
fn refused(make: impl Fn(&Path), is_right: impl Fn(&StoreError) -> bool) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    make(&path);
    let before = std::fs::read(&path).unwrap();
    for _ in 0..2 {
        match Runs::open(folder.path()) {
            Err(RunError::Store(error)) => assert!(is_right(&error), "{error:?}"),
            Err(error) => panic!("{error:?}"),
            Ok(_) => panic!("it was opened"),
        }
    }
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

/// Invariant 12.
#[test]
fn databases_of_others_are_refused_and_left_alone() {
    refused(
        |path| {
            let database = Connection::open(path).unwrap();
            database.execute_batch("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1);").unwrap();
        },
        |error| matches!(error, StoreError::Foreign { .. }),
    );
    refused(
        |path| {
            let database = Connection::open(path).unwrap();
            database.execute_batch("CREATE TABLE t (x); PRAGMA application_id = 77;").unwrap();
        },
        |error| matches!(error, StoreError::Foreign { .. }),
    );
    refused(
        |path| std::fs::write(path, "these are not the bytes of a database\n".repeat(200)).unwrap(),
        |error| matches!(error, StoreError::Foreign { .. } | StoreError::Damaged { .. }),
    );
}

/// Invariant 12.
#[test]
fn a_newer_database_is_refused_and_left_alone() {
    let world = World::new();
    world.submit("a");
    let path = world.runs.folder().join("runs.db");
    let database = Connection::open(&path).unwrap();
    database.execute_batch("PRAGMA user_version = 99").unwrap();
    let refused = Runs::open(world.folder.path()).err();
    assert!(matches!(refused, Some(RunError::Store(StoreError::TooNew { .. }))), "{refused:?}");
    database.execute_batch("PRAGMA user_version = 1").unwrap();
    assert_eq!(Runs::open(world.folder.path()).unwrap().find("a").unwrap().request.as_str(), "a");
}
