//! What this engine does and no other.

use std::sync::atomic::Ordering;

use lockkeeper_core::draft::Change;
use tempfile::TempDir;

use super::SqliteStore;
use crate::store::conformance::sample::{lease, name};
use crate::store::{Records, Store};

fn store() -> (TempDir, SqliteStore) {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path(), "boot").unwrap();
    (folder, store)
}

/// Invariant 2. What it draws is not given to anybody, and what it changes is not there.
#[test]
fn a_rehearsal_leaves_nothing_behind() {
    let (_folder, store) = store();
    let mut runs = 0;
    let mut rehearse = || {
        store.rehearse(&mut |records: &mut dyn Records| {
            runs += 1;
            let (first, second) = (records.draw()?, records.draw()?);
            assert!(first < second, "{first} and {second}");
            records.apply(Change::AddLease(lease(first, "a", &[name("db")])))
        });
    };
    rehearse();
    store.crowded.store(true, Ordering::Relaxed);
    rehearse();
    assert_eq!(runs, 1, "only where somebody waits");
    let decided = store.transact(&mut |records: &mut dyn Records| {
        assert_eq!(records.everything()?, (Vec::new(), Vec::new()));
        assert_eq!(records.draw()?, 1);
        Ok(())
    });
    decided.unwrap();
}

#[test]
fn the_log_is_copied_seldom_while_several_wait() {
    let (_folder, store) = store();
    let copied_at = |met: usize| {
        let asked = store.connected(|connection| {
            store.pace_log(connection, met)?;
            store.database(connection.query_row("PRAGMA wal_autocheckpoint", [], |row| row.get::<_, i64>(0)))
        });
        asked.unwrap()
    };
    let alone = copied_at(0);
    assert_eq!(copied_at(1), alone);
    let crowd = copied_at(2);
    assert!(crowd > alone, "{crowd} and {alone}");
    assert_eq!(copied_at(1), crowd, "one who waits is no reason to change");
    assert_eq!(copied_at(0), alone);
}
