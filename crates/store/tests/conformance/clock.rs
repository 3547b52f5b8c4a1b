//! One clock for all users of a store.

use std::thread;

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::records::Change;

use super::atomic::put_counter;
use super::{Harness, decide, look};

pub(super) fn it_stands_during_a_decision(harness: &dyn Harness) {
    let place = harness.place();
    let store = place.open();
    let twice = decide(&*store, |records| {
        let first = records.now();
        records.all()?;
        records.next_number()?;
        Ok((Vec::new(), (first, records.now())))
    });
    let (first, second) = twice.unwrap();
    assert_eq!(first, second);
}

/// Every decision writes its moment into a record, where the next decision of any process reads it.
pub(super) fn it_never_goes_back(harness: &dyn Harness) {
    let place = harness.place();
    put_counter(&*place.open());
    thread::scope(|scope| {
        for _ in 0..4 {
            let store = place.open();
            scope.spawn(move || {
                for _ in 0..25 {
                    let (last, now) = decide(&*store, |records| {
                        let (mut record, now) =
                            (records.lease(LeaseId(1))?.expect("it is there"), records.now());
                        let last = std::mem::replace(&mut record.heartbeat_at, now);
                        Ok((vec![Change::UpdateLease(record)], (last, now)))
                    })
                    .unwrap();
                    assert!(last <= now, "{last:?} {now:?}");
                    assert!(look(&*store, |records| Ok(records.now())) >= now);
                }
            });
        }
    });
}
