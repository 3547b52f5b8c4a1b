//! Snapshots block nobody, and nobody blocks them.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::record::Lease;
use lockkeeper_core::records::{Change, Records};
use lockkeeper_core::time::Moment;

use super::sample::{lease, name, put};
use super::{Harness, LIMIT, decide, everything, look};
use lockkeeper_store::{LeaseStore, StoreError};

fn put_pair(store: &dyn LeaseStore) {
    let pair = [1, 2].map(|id| Change::AddLease(lease(id, "pair", &[name("pair")])));
    put(store, &pair);
}

fn stamp(store: &dyn LeaseStore, micros: i64) {
    let stamped = decide(store, |records| {
        let mut changes = Vec::new();
        for id in [1, 2] {
            let one = records.lease(LeaseId(id))?.expect("it is there");
            changes.push(Change::UpdateLease(Lease { heartbeat_at: Moment::from_micros(micros), ..one }));
        }
        Ok((changes, ()))
    });
    stamped.unwrap();
}

fn stamp_of(records: &mut dyn Records<StoreError>, id: u64) -> Result<i64, StoreError> {
    Ok(records.lease(LeaseId(id))?.expect("it is there").heartbeat_at.as_micros())
}

/// Both records of a pair change in one commit, between two reads of a snapshot.
pub(super) fn one_moment_is_seen(harness: &dyn Harness) {
    let place = harness.place();
    let store = place.open();
    put_pair(&*store);
    let other = place.open();
    let (one, two) = look(&*store, |records| {
        let one = stamp_of(records, 1)?;
        thread::scope(|scope| scope.spawn(|| stamp(&*other, 5)).join()).expect("the stamp goes through");
        Ok((one, stamp_of(records, 2)?))
    });
    assert_eq!((one, two), (0, 0));
    assert_eq!(look(&*store, |records| stamp_of(records, 2)), 5);
}

pub(super) fn nobody_waits_for_a_snapshot(harness: &dyn Harness) {
    let place = harness.place();
    let store = place.open();
    put_pair(&*store);
    for (number, other) in [place.open(), store.clone()].into_iter().enumerate() {
        let (done, wait) = channel();
        look(&*store, |records| {
            records.all()?;
            let (other, done) = (other.clone(), done.clone());
            thread::spawn(move || {
                stamp(&*other, 7);
                done.send(())
            });
            wait.recv_timeout(LIMIT).unwrap_or_else(|_| panic!("kept waiting by a snapshot: {number}"));
            Ok(())
        });
    }
}

pub(super) fn a_snapshot_waits_for_nobody(harness: &dyn Harness) {
    let place = harness.place();
    let store = place.open();
    put_pair(&*store);
    for (number, other) in [place.open(), store.clone()].into_iter().enumerate() {
        let (inside, wait_inside) = channel();
        let (end, wait_end) = channel::<()>();
        let deciding = store.clone();
        let decision = thread::spawn(move || {
            let mut transaction = deciding.begin().unwrap();
            transaction.all().unwrap();
            let _ = inside.send(());
            assert_eq!(wait_end.recv_timeout(LIMIT), Err(RecvTimeoutError::Disconnected), "{number}");
        });
        wait_inside.recv_timeout(LIMIT).expect("the decision begins");
        let (seen, wait_seen) = channel();
        thread::spawn(move || seen.send(everything(&*other).0.len()));
        let seen = wait_seen.recv_timeout(LIMIT);
        drop(end);
        decision.join().unwrap();
        assert_eq!(seen, Ok(2), "{number}");
    }
}
