//! The write-ahead log has room ahead, which means nothing to anybody but the disk.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use lockkeeper_core::request::RequestStatus;
use lockkeeper_engine::runs::Runs;

use super::world::{World, request};

fn log(folder: &Path) -> PathBuf {
    folder.join("runs.db-wal")
}

#[test]
fn most_commits_leave_the_length_of_the_log_as_it_is() {
    let world = World::new();
    let lengths: BTreeSet<u64> = (0..60)
        .map(|number| {
            world.submit(&format!("r{number}"));
            log(world.folder.path()).metadata().unwrap().len()
        })
        .collect();
    assert!(lengths.len() < 10, "{lengths:?}");
}

/// Requirement 92. After a power cut there are the database and its log, and no index of the log.
#[test]
fn everything_is_found_again_in_a_log_with_room() {
    let world = World::new();
    for number in 0..5 {
        let run = world.submit(&format!("r{number}")).run;
        world.runs.cancel(&run, None).unwrap();
        let copy = tempfile::tempdir().unwrap();
        for name in ["runs.db", "runs.db-wal"] {
            fs::copy(world.folder.path().join(name), copy.path().join(name)).unwrap();
        }
        let found = Runs::open(copy.path()).unwrap();
        assert_eq!(found.request_counts().unwrap(), [(RequestStatus::Canceled, number + 1)]);
        assert_eq!(found.store().examine(true).unwrap().flaws, [""; 0]);
    }
}

/// Other programs write to the log as well, and may even begin it anew.
#[test]
fn room_is_made_only_where_nobody_has_written() {
    let world = World::new();
    let other = rusqlite::Connection::open(world.folder.path().join("runs.db")).unwrap();
    for number in 0..40 {
        world.submit(&format!("r{number}"));
        other.execute("UPDATE request SET title = ?1 WHERE id = ?2", (number, format!("r{number}"))).unwrap();
        if number % 7 == 3 {
            other.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
            assert_eq!(log(world.folder.path()).metadata().unwrap().len(), 0);
        }
    }
    let again = Runs::open(world.folder.path()).unwrap();
    assert_eq!(again.store().examine(true).unwrap().flaws, [""; 0]);
    assert_eq!(again.request_counts().unwrap(), [(RequestStatus::Queued, 40)]);
    let titles: i64 = other
        .query_row("SELECT count(*) FROM request WHERE id = 'r' || title", [], |row| row.get(0))
        .unwrap();
    assert_eq!(titles, 40);
}

/// Another program that closes the database last takes the log away.
#[test]
fn a_store_whose_log_is_gone_goes_on() {
    let world = World::new();
    world.submit("a");
    let folder = world.folder;
    drop(world.runs);
    let other = rusqlite::Connection::open(folder.path().join("runs.db")).unwrap();
    other.execute("UPDATE request SET title = 'other'", []).unwrap();
    drop(other);
    assert!(!log(folder.path()).exists());
    let again = Runs::open(folder.path()).unwrap();
    again.submit(&request("b"), None).unwrap();
    assert_eq!(again.request_counts().unwrap(), [(RequestStatus::Queued, 2)]);
}
