//! Numbers that only grow.

use std::collections::BTreeSet;
use std::thread;

use super::{Harness, decide};
use lockkeeper_store::{LeaseStore, StoreError};

fn draw(store: &dyn LeaseStore, count: usize) -> Vec<u64> {
    let drawn = decide(store, |records| {
        let numbers: Result<Vec<u64>, StoreError> = (0..count).map(|_| records.next_number()).collect();
        Ok((Vec::new(), numbers?))
    });
    drawn.unwrap()
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
        drawn.push(store.begin().unwrap().next_number().unwrap());
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

/// Invariant 2.
pub(super) fn they_can_be_raised_and_never_fall(harness: &dyn Harness) {
    let place = harness.place();
    let stores = [place.open(), place.open()];
    let first = draw(&*stores[0], 1)[0];
    let above = first + (1 << 50);
    if !stores[0].raise_numbers(above).unwrap() {
        let name = harness.name();
        assert!(
            name.starts_with("redis") || name.starts_with("etcd"),
            "{name}: only these draw numbers from a clock or a revision"
        );
        return;
    }
    let raised = draw(&*stores[1], 1)[0];
    assert!(raised > above, "{raised} is not above {above}");
    assert!(stores[1].raise_numbers(first).unwrap());
    assert!(draw(&*stores[0], 1)[0] > raised);
    assert!(draw(&*place.open(), 1)[0] > raised);
}

pub(super) fn a_snapshot_gives_none(harness: &dyn Harness) {
    let store = harness.place().open();
    assert!(store.snapshot().unwrap().next_number().is_err());
}
