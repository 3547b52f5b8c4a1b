//! What this engine does and no other.

use lockkeeper_core::draft::Change;
use tempfile::TempDir;

use super::sample::{lease, name};
use lockkeeper_store::SqliteStore;
use lockkeeper_store::Store;

/// A write-ahead log longer than this is truncated by the next checkpoint.
const LONG: u64 = 512 * 1024;

fn store() -> (TempDir, SqliteStore) {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path(), "boot").unwrap();
    (folder, store)
}

/// What was long once, in a crowd, is not read as a whole by every later command.
#[test]
fn a_long_log_gets_short_again() {
    let (folder, store) = store();
    let log = folder.path().join("leases.db-wal");
    std::fs::File::options().write(true).open(&log).unwrap().set_len(LONG + 1).unwrap();
    for id in 1..100 {
        let taken = lease(id, "a", &[name("db")]);
        let mut change = Some(Change::AddLease(taken.clone()));
        store.transact(&mut |records| change.take().map_or(Ok(()), |change| records.apply(change))).unwrap();
        let mut change = Some(Change::RemoveLease(taken));
        store.transact(&mut |records| change.take().map_or(Ok(()), |change| records.apply(change))).unwrap();
    }
    assert!(std::fs::metadata(log).unwrap().len() <= LONG);
}
