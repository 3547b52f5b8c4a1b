//! What only SQLite does.

use lockkeeper_core::records::Change;
use tempfile::TempDir;

use lockkeeper_store::{Commit, LeaseStore, SqliteStore};

use super::sample::{lease, name};

/// A write-ahead log longer than this is truncated by the next commit.
const LONG_LOG: u64 = 128 * 1024;

fn store() -> (TempDir, SqliteStore) {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path(), "boot").unwrap();
    (folder, store)
}

/// A log that got long under load does not slow every later command, which reads the whole log.
#[test]
fn a_long_log_gets_short_again() {
    let (folder, store) = store();
    let log = folder.path().join("leases.db-wal");
    std::fs::File::options().write(true).open(&log).unwrap().set_len(LONG_LOG + 1).unwrap();
    for id in 1..100 {
        let taken = lease(id, "a", &[name("db")]);
        for change in [Change::AddLease(taken.clone()), Change::RemoveLease(taken)] {
            assert_eq!(store.begin().unwrap().commit(vec![change], &[]).unwrap(), Commit::Committed);
        }
    }
    assert!(std::fs::metadata(log).unwrap().len() <= LONG_LOG);
}
