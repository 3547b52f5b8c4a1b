//! Serializable, and all or nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::thread;

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::records::{Change, Records, Scan};
use lockkeeper_core::resource::Target;
use lockkeeper_core::time::Moment;

use super::sample::{lease, name, path, put, ticket};
use super::{Harness, Place, commit, decide, everything, look};
use lockkeeper_store::{LeaseStore, StoreError};

const THREADS: usize = 6;
const ROUNDS: usize = 20;
/// The record that is counted in.
const COUNTER: LeaseId = LeaseId(1);

/// Adds the record that is counted in.
pub(super) fn put_counter(store: &dyn LeaseStore) {
    put(store, &[Change::AddLease(lease(COUNTER.0, "counter", &[name("counter")]))]);
}

/// Reads, adds one, writes.
pub(super) fn count_one(store: &dyn LeaseStore) {
    let counted = decide(store, |records| {
        let mut counter = records.lease(COUNTER)?.expect("the counter is there");
        counter.heartbeat_at = Moment::from_micros(counter.heartbeat_at.as_micros() + 1);
        Ok((vec![Change::UpdateLease(counter)], ()))
    });
    counted.unwrap();
}

pub(super) fn counted(store: &dyn LeaseStore) -> i64 {
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

/// The records have different keys, and each key range contains all of them.
pub(super) fn one_of_many_finds_the_folder_free(harness: &dyn Harness) {
    one_of_many(harness, &|number| path(&"src/**".replace("src", &"src/".repeat(number + 1))));
}

fn one_of_many(harness: &dyn Harness, target: &(dyn Fn(usize) -> Target + Sync)) {
    let place = harness.place();
    for round in 0..ROUNDS {
        crowd(&*place, |store, number| {
            let wanted = target(number);
            let taken = decide(store, |records| {
                let held = !records.leases(&wanted.key_range())?.is_empty();
                let id = records.next_number()?;
                let taken = Change::AddLease(lease(id, "one", std::slice::from_ref(&wanted)));
                Ok((if held { Vec::new() } else { vec![taken] }, ()))
            });
            taken.unwrap();
        });
        let store = place.open();
        let (leases, _) = everything(&*store);
        assert_eq!(leases.len(), 1, "in round {round}");
        put(&*store, &[Change::RemoveLease(leases[0].clone())]);
    }
}

/// One decision adds a ticket because it has read a lease. Another one removes the lease and the tickets that it has read. No
/// ticket may remain without a lease.
pub(super) fn nobody_waits_for_what_was_removed(harness: &dyn Harness) {
    let place = harness.place();
    let store = place.open();
    let range = name("db").key_range();
    for round in 0..ROUNDS {
        put(&*store, &[Change::AddLease(lease(1, "holder", &[name("db")]))]);
        crowd(&*place, |store, number| {
            let done = decide(store, |records| {
                let held = records.lease(LeaseId(1))?;
                if number > 0 {
                    let new = ticket(number as u64 + 1, 0, "waiter", &[name("db")]);
                    return Ok((held.map(|_| Change::AddTicket(new)).into_iter().collect(), ()));
                }
                let line = records.tickets(&range, Scan::Forward(None), usize::MAX)?;
                let mut gone = vec![Change::RemoveLease(held.expect("nobody else removes it"))];
                gone.extend(line.into_iter().map(Change::RemoveTicket));
                Ok((gone, ()))
            });
            done.unwrap();
        });
        let (leases, tickets) = everything(&*store);
        assert_eq!((leases.len(), tickets.len()), (0, 0), "in round {round}");
    }
}

pub(super) fn a_dropped_transaction_leaves_nothing(harness: &dyn Harness) {
    leaves_nothing(harness, &|store| {
        let mut transaction = store.begin().unwrap();
        transaction.next_number().unwrap();
        fill(&mut *transaction);
    });
}

pub(super) fn a_failed_change_leaves_nothing(harness: &dyn Harness) {
    leaves_nothing(harness, &|store| {
        let mut transaction = store.begin().unwrap();
        let mut changes = fill(&mut *transaction);
        drop(transaction);
        changes.push(Change::UpdateLease(lease(77, "nobody", &[name("x")])));
        assert!(commit(store, &changes, &[]).is_err());
    });
}

pub(super) fn a_panic_leaves_nothing(harness: &dyn Harness) {
    leaves_nothing(harness, &|store| {
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let mut transaction = store.begin().unwrap();
            fill(&mut *transaction);
            panic!("on purpose");
        }));
        assert!(panicked.is_err());
    });
}

fn leaves_nothing(harness: &dyn Harness, fails: &dyn Fn(&dyn LeaseStore)) {
    let place = harness.place();
    let store = place.open();
    put_counter(&*store);
    let before = everything(&*store);
    fails(&*store);
    let stores = [store, place.open()];
    stores.iter().for_each(|store| assert_eq!(everything(&**store), before));
    stores.iter().for_each(|store| count_one(&**store));
    assert_eq!(counted(&*stores[0]), 2);
}

/// A change of every kind of record.
pub(super) fn fill(records: &mut dyn Records<StoreError>) -> Vec<Change> {
    let mut counter = records.lease(COUNTER).unwrap().expect("the counter is there");
    counter.revoked = true;
    vec![
        Change::UpdateLease(counter),
        Change::AddLease(lease(2, "two", &[name("two"), path("src/**")])),
        Change::AddTicket(ticket(3, 5, "three", &[name("two")])),
    ]
}

/// Runs `work` in many threads at the same time, each with its own connection to the store.
fn crowd(place: &Place, work: impl Fn(&dyn LeaseStore, usize) + Sync) {
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
