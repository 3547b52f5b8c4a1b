//! What this engine does and no other.

use lockkeeper_core::overlay::Change;
use tempfile::TempDir;

use super::SqliteStore;
use super::schema::LONG_LOG;
use crate::store::Store;
use crate::store::conformance::sample::{lease, name};

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
    std::fs::File::options().write(true).open(&log).unwrap().set_len(LONG_LOG + 1).unwrap();
    for id in 1..100 {
        let taken = lease(id, "a", &[name("db")]);
        let mut change = Some(Change::AddLease(taken.clone()));
        store.transact(&mut |records| change.take().map_or(Ok(()), |change| records.apply(change))).unwrap();
        let mut change = Some(Change::RemoveLease(taken));
        store.transact(&mut |records| change.take().map_or(Ok(()), |change| records.apply(change))).unwrap();
    }
    assert!(std::fs::metadata(log).unwrap().len() <= LONG_LOG);
}
