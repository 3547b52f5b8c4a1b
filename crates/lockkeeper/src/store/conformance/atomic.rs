//! Serializable, and all or nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::thread;

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::overlay::{Change, Scan};
use lockkeeper_core::resource::Target;
use lockkeeper_core::time::Moment;

use super::sample::{lease, name, path, put, ticket};
use super::{Harness, Place, decide, gives_up, look};
use crate::store::{Records, Store, StoreError};

const THREADS: usize = 6;
const ROUNDS: usize = 20;
/// The record that is counted in.
const COUNTER: LeaseId = LeaseId(1);

/// Puts up a record to count in.
pub(super) fn put_counter(store: &dyn Store) {
    put(store, &[Change::AddLease(lease(COUNTER.0, "counter", &[name("counter")]))]);
}

/// Reads, adds one, writes.
pub(super) fn count_one(store: &dyn Store) {
    let counted = decide(store, |records| {
        let mut counter = records.lease(COUNTER)?.expect("the counter is there");
        counter.heartbeat_at = Moment::from_micros(counter.heartbeat_at.as_micros() + 1);
        records.apply(Change::UpdateLease(counter))
    });
    counted.unwrap();
}

pub(super) fn counted(store: &dyn Store) -> i64 {
    look(store, |records| records.lease(COUNTER)).unwrap().heartbeat_at.as_micros()
}

pub(super) fn no_update_is_lost(harness: &dyn Harness) {
    let place = harness.place();
    let store = place.open();
    put_counter(&*store);
    crowd(&*place, |store, _| (0..ROUNDS).for_each(|_| count_one(store)));
    assert_eq!(counted(&*store), i64::try_from(THREADS * ROUNDS).unwrap());
}

pub(super) fn one_of_many_finds_it_free(harness: &dyn Harness) {
    one_of_many(harness, &|_| name("db"));
}

/// What each would take is filed under another key, and all of them are within range of each other.
pub(super) fn one_of_many_finds_the_folder_free(harness: &dyn Harness) {
    one_of_many(harness, &|number| path(&"src/**".replace("src", &"src/".repeat(number + 1))));
}

fn one_of_many(harness: &dyn Harness, target: &(dyn Fn(usize) -> Target + Sync)) {
    let place = harness.place();
    for round in 0..ROUNDS {
        crowd(&*place, |store, number| {
            let wanted = target(number);
            let taken = decide(store, |records| {
                let mut held = false;
                records.leases(&wanted.key_range(), &mut |_| held = true)?;
                let id = records.draw()?;
                if held {
                    Ok(())
                } else {
                    records.apply(Change::AddLease(lease(id, "one", std::slice::from_ref(&wanted))))
                }
            });
            taken.unwrap();
        });
        let store = place.open();
        let (leases, _) = look(&*store, |records| records.everything());
        assert_eq!(leases.len(), 1, "in round {round}");
        put(&*store, &[Change::RemoveLease(leases[0].clone())]);
    }
}

/// Who sees a holder gets in line, who leaves looks for the line: nobody may stay in line for nothing.
pub(super) fn nobody_waits_for_what_was_removed(harness: &dyn Harness) {
    let place = harness.place();
    let store = place.open();
    let range = name("db").key_range();
    for round in 0..ROUNDS {
        put(&*store, &[Change::AddLease(lease(1, "holder", &[name("db")]))]);
        crowd(&*place, |store, number| {
            let done = decide(store, |records| {
                if number > 0 {
                    let held = records.lease(LeaseId(1))?.is_some();
                    let new = ticket(number as u64 + 1, 0, "waiter", &[name("db")]);
                    return if held { records.apply(Change::AddTicket(new)) } else { Ok(()) };
                }
                let mut line = Vec::new();
                records.tickets(&range, Scan::Forward(None), &mut |ticket| {
                    line.push(ticket);
                    std::ops::ControlFlow::Continue(())
                })?;
                let holder = records.lease(LeaseId(1))?.expect("nobody else removes it");
                records.apply(Change::RemoveLease(holder))?;
                line.into_iter().try_for_each(|ticket| records.apply(Change::RemoveTicket(ticket)))
            });
            done.unwrap();
        });
        let (leases, tickets) = look(&*store, |records| records.everything());
        assert_eq!((leases.len(), tickets.len()), (0, 0), "in round {round}");
    }
}

pub(super) fn a_failed_decision_leaves_nothing(harness: &dyn Harness) {
    leaves_nothing(harness, &|records| {
        fill(records)?;
        Err(gives_up())
    });
}

pub(super) fn a_failed_change_leaves_nothing(harness: &dyn Harness) {
    leaves_nothing(harness, &|records| {
        fill(records)?;
        records.apply(Change::UpdateLease(lease(77, "nobody", &[name("x")])))
    });
}

fn leaves_nothing(harness: &dyn Harness, decision: &dyn Fn(&mut dyn Records) -> Result<(), StoreError>) {
    let place = harness.place();
    let store = place.open();
    put_counter(&*store);
    let before = look(&*store, |records| records.everything());
    assert!(decide(&*store, decision).is_err());
    assert_eq!(look(&*store, |records| records.everything()), before);
    assert_eq!(look(&*place.open(), |records| records.everything()), before);
    count_one(&*store);
}

pub(super) fn a_panic_leaves_nothing(harness: &dyn Harness) {
    let place = harness.place();
    let store = place.open();
    put_counter(&*store);
    let before = look(&*store, |records| records.everything());
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _ = decide(&*store, |records| -> Result<(), StoreError> {
            fill(records)?;
            panic!("on purpose");
        });
    }));
    assert!(panicked.is_err());
    let stores = [store, place.open()];
    for store in &stores {
        assert_eq!(look(&**store, |records| records.everything()), before);
    }
    stores.iter().for_each(|store| count_one(&**store));
    assert_eq!(counted(&*stores[0]), 2);
}

/// Changes something of everything.
pub(super) fn fill(records: &mut dyn Records) -> Result<(), StoreError> {
    let mut counter = records.lease(COUNTER)?.expect("the counter is there");
    counter.revoked = true;
    records.apply(Change::UpdateLease(counter))?;
    records.apply(Change::AddLease(lease(2, "two", &[name("two"), path("src/**")])))?;
    records.apply(Change::AddTicket(ticket(3, 5, "three", &[name("two")])))
}

/// Runs the same at once in many threads, each with the store opened for itself.
fn crowd(place: &dyn Place, work: impl Fn(&dyn Store, usize) + Sync) {
    let start = Barrier::new(THREADS);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (store, start, work) = (place.open(), &start, &work);
            scope.spawn(move || {
                start.wait();
                work(&*store, number);
            });
        }
    });
}
