//! Looking without being in anybody's way.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::overlay::Change;
use lockkeeper_core::time::Moment;

use super::sample::{lease, name, put};
use super::{Harness, LIMIT, decide, look};
use crate::store::{Records, Store, StoreError};

fn put_pair(store: &dyn Store) {
    let pair = [1, 2].map(|id| Change::AddLease(lease(id, "pair", &[name("pair")])));
    put(store, &pair);
}

fn stamp(store: &dyn Store, micros: i64) {
    let stamped = decide(store, |records| {
        for id in [1, 2] {
            let mut one = records.lease(LeaseId(id))?.expect("it is there");
            one.heartbeat_at = Moment::from_micros(micros);
            records.apply(Change::UpdateLease(one))?;
        }
        Ok(())
    });
    stamped.unwrap();
}

fn stamp_of(records: &mut dyn Records, id: u64) -> Result<i64, StoreError> {
    Ok(records.lease(LeaseId(id))?.expect("it is there").heartbeat_at.as_micros())
}

/// The pair changes together while a look lies between its halves.
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

pub(super) fn nobody_waits_for_a_look(harness: &dyn Harness) {
    let place = harness.place();
    let store = place.open();
    put_pair(&*store);
    for (number, other) in [place.open(), store.clone()].into_iter().enumerate() {
        let (done, wait) = channel();
        look(&*store, |records| {
            records.everything()?;
            let (other, done) = (other.clone(), done.clone());
            thread::spawn(move || {
                stamp(&*other, 7);
                done.send(())
            });
            wait.recv_timeout(LIMIT).unwrap_or_else(|_| panic!("kept waiting by a look: {number}"));
            Ok(())
        });
    }
}

pub(super) fn a_look_waits_for_nobody(harness: &dyn Harness) {
    let place = harness.place();
    let store = place.open();
    put_pair(&*store);
    for (number, other) in [place.open(), store.clone()].into_iter().enumerate() {
        let (inside, wait_inside) = channel();
        let (end, wait_end) = channel::<()>();
        let deciding = store.clone();
        let decision = thread::spawn(move || {
            decide(&*deciding, |records| {
                records.apply(Change::AddLease(lease(9, "late", &[name("late")])))?;
                let _ = inside.send(());
                assert_eq!(wait_end.recv_timeout(LIMIT), Err(RecvTimeoutError::Disconnected), "{number}");
                let late = records.lease(LeaseId(9))?.expect("it was added");
                records.apply(Change::RemoveLease(late))
            })
        });
        wait_inside.recv_timeout(LIMIT).expect("the decision begins");
        let (seen, wait_seen) = channel();
        thread::spawn(move || seen.send(look(&*other, |records| records.everything()).0.len()));
        let seen = wait_seen.recv_timeout(LIMIT);
        drop(end);
        decision.join().unwrap().unwrap();
        assert_eq!(seen, Ok(2), "{number}");
    }
}

pub(super) fn a_look_changes_nothing(harness: &dyn Harness) {
    let place = harness.place();
    let store = place.open();
    put_pair(&*store);
    let before = look(&*store, |records| records.everything());
    let _ =
        store.snapshot(&mut |records| records.apply(Change::AddLease(lease(3, "three", &[name("three")]))));
    assert_eq!(look(&*store, |records| records.everything()), before);
}
