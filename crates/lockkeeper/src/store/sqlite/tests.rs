//! What this engine does and no other.

use std::sync::atomic::Ordering;

use lockkeeper_core::draft::Change;
use tempfile::TempDir;

use super::SqliteStore;
use super::schema::LONG_LOG;
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

/// What reads the log keeps it from being begun anew.
#[test]
fn nobody_rehearses_over_a_long_log_and_it_gets_short_again() {
    let (folder, store) = store();
    let log = folder.path().join("leases.db-wal");
    std::fs::File::options().write(true).open(&log).unwrap().set_len(LONG_LOG + 1).unwrap();
    store.crowded.store(true, Ordering::Relaxed);
    store.rehearse(&mut |_| panic!("it was rehearsed"));
    for id in 1..100 {
        let taken = lease(id, "a", &[name("db")]);
        let mut change = Some(Change::AddLease(taken.clone()));
        store.transact(&mut |records| change.take().map_or(Ok(()), |change| records.apply(change))).unwrap();
        let mut change = Some(Change::RemoveLease(taken));
        store.transact(&mut |records| change.take().map_or(Ok(()), |change| records.apply(change))).unwrap();
    }
    assert!(std::fs::metadata(log).unwrap().len() <= LONG_LOG);
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
