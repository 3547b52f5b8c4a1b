//! One clock for all users of a store.

use std::sync::Mutex;
use std::thread;

use lockkeeper_core::time::Moment;

use super::Harness;
use super::sample::{request, store, submit};

/// Each user reads the clock after another user has read it.
pub(super) fn it_never_goes_back(harness: &dyn Harness) {
    let (place, _store) = store(harness);
    let latest = Mutex::new(Moment::from_micros(i64::MIN));
    thread::scope(|scope| {
        for number in 0..4 {
            let (store, latest) = (place.open(), &latest);
            scope.spawn(move || {
                for round in 0..20 {
                    let mut latest = latest.lock().unwrap();
                    let run = submit(&*store, &request(&format!("r{number}.{round}")));
                    let snapshot = store.snapshot().unwrap().now().moment;
                    let now = store.now().moment;
                    let order = [*latest, run.queued_at.moment, snapshot, now];
                    assert!(order.is_sorted(), "{order:?}");
                    *latest = now;
                }
            });
        }
    });
}
