//! Numbers that only grow.

use std::collections::BTreeSet;
use std::thread;

use super::{Harness, decide, gives_up};
use lockkeeper_store::{Store, StoreError};

fn draw(store: &dyn Store, count: usize) -> Vec<u64> {
    decide(store, |records| (0..count).map(|_| records.draw()).collect()).unwrap()
}

/// Invariant 2.
pub(super) fn they_grow_from_decision_to_decision(harness: &dyn Harness) {
    let place = harness.place();
    let stores = [place.open(), place.open()];
    let drawn: Vec<u64> = (0..20).flat_map(|round| draw(&*stores[round % 2], 3)).collect();
    assert!(drawn.is_sorted_by(|one, next| one < next), "{drawn:?}");
    assert!(drawn[0] > 0);
}

/// Invariant 2.
pub(super) fn they_grow_after_failures(harness: &dyn Harness) {
    let place = harness.place();
    let store = place.open();
    let mut drawn = Vec::new();
    for _ in 0..3 {
        let failed = decide(&*store, |records| -> Result<(), StoreError> {
            drawn.push(records.draw()?);
            Err(gives_up())
        });
        assert!(failed.is_err());
        drawn.extend(draw(&*store, 1));
    }
    assert!(drawn.is_sorted_by(|one, next| one < next), "{drawn:?}");
}

/// Invariant 2.
pub(super) fn they_grow_after_opening_again(harness: &dyn Harness) {
    let place = harness.place();
    let drawn: Vec<u64> = (0..5).flat_map(|_| draw(&*place.open(), 2)).collect();
    assert!(drawn.is_sorted_by(|one, next| one < next), "{drawn:?}");
}

/// Invariant 2.
pub(super) fn no_two_threads_get_the_same(harness: &dyn Harness) {
    let place = harness.place();
    let (threads, rounds) = (4, 25);
    let drawn: Vec<Vec<u64>> = thread::scope(|scope| {
        let drawing: Vec<_> = (0..threads)
            .map(|_| {
                let store = place.open();
                scope.spawn(move || (0..rounds).flat_map(|_| draw(&*store, 1)).collect::<Vec<_>>())
            })
            .collect();
        drawing.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(drawn.iter().all(|own| own.is_sorted_by(|one, next| one < next)));
    assert_eq!(drawn.iter().flatten().collect::<BTreeSet<_>>().len(), threads * rounds);
}
