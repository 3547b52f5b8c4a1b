//! A process that creates a waker, then reads, then sleeps, is woken by every wake-up after the read.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use lockkeeper_core::id::WakerId;
use lockkeeper_core::record::{Lease, Ticket};
use lockkeeper_core::records::{Change, Effect};

use super::sample::{lease, name, put, ticket};
use super::{Harness, LIMIT, commit};
use lockkeeper_platform::poll;
use lockkeeper_store::{Granted, LeaseStore, Waker};

fn wake(store: &dyn LeaseStore, id: WakerId) {
    commit(store, &[], &[Effect::Wake(id)]).unwrap();
}

fn remove(store: &dyn LeaseStore, id: WakerId) {
    commit(store, &[], &[Effect::RemoveWaker(id)]).unwrap();
}

fn is_woken(waker: &dyn Waker, within: Duration) -> bool {
    poll::wait(&[waker.as_fd()], Some(within)).unwrap().any()
}

/// Clears wake-ups. Some without a reason are allowed, but they have to stop.
fn clear(waker: &dyn Waker) {
    let quiet = (0..10).any(|_| {
        waker.receive();
        !is_woken(waker, Duration::ZERO)
    });
    assert!(quiet, "the wake-ups do not end");
}

pub(super) fn a_wake_up_before_the_sleep_wakes(harness: &dyn Harness) {
    let place = harness.place();
    let waker = place.open().waker().unwrap();
    clear(&*waker);
    let other = place.open();
    (0..3).for_each(|_| wake(&*other, waker.id()));
    assert!(is_woken(&*waker, LIMIT));
}

pub(super) fn a_wake_up_during_the_sleep_wakes(harness: &dyn Harness) {
    let place = harness.place();
    let waker = place.open().waker().unwrap();
    clear(&*waker);
    let (other, id) = (place.open(), waker.id());
    let sleeper = thread::spawn(move || is_woken(&*waker, LIMIT));
    wake(&*other, id);
    assert!(sleeper.join().unwrap());
}

pub(super) fn a_waker_can_be_woken_again(harness: &dyn Harness) {
    let place = harness.place();
    let store = place.open();
    let (waker, neighbour) = (store.waker().unwrap(), store.waker().unwrap());
    assert_ne!(waker.id(), neighbour.id());
    for _ in 0..3 {
        wake(&*store, waker.id());
        assert!(is_woken(&*waker, LIMIT));
        clear(&*waker);
    }
    clear(&*neighbour);
}

pub(super) fn a_waker_is_found_by_its_id(harness: &dyn Harness) {
    let place = harness.place();
    let id = WakerId(0x1234_5678_9abc);
    for _ in 0..2 {
        let waker = place.open().waker_with_id(id).unwrap();
        assert_eq!(waker.id(), id);
        clear(&*waker);
        wake(&*place.open(), id);
        assert!(is_woken(&*waker, LIMIT));
    }
}

pub(super) fn a_wake_up_for_nobody_is_harmless(harness: &dyn Harness) {
    let place = harness.place();
    let store = place.open();
    wake(&*store, WakerId(1));
    let waker = store.waker().unwrap();
    let id = waker.id();
    drop(waker);
    wake(&*store, id);
    let next = store.waker().unwrap();
    wake(&*store, next.id());
    assert!(is_woken(&*next, LIMIT));
}

pub(super) fn a_removed_waker_is_gone(harness: &dyn Harness) {
    let place = harness.place();
    let store = place.open();
    let (dead, alive) = (store.waker().unwrap(), store.waker().unwrap());
    remove(&*store, dead.id());
    remove(&*store, dead.id());
    remove(&*store, WakerId(1));
    wake(&*store, dead.id());
    wake(&*store, alive.id());
    assert!(is_woken(&*alive, LIMIT));
    let again = store.waker_with_id(dead.id()).unwrap();
    wake(&*store, again.id());
    assert!(is_woken(&*again, LIMIT));
}

/// A ticket on which a process sleeps, and the lease that it is granted.
fn granted(id: u64, waker: WakerId) -> (Ticket, Lease) {
    let waits = Ticket { waker: Some(waker), ..ticket(id, 5, "waiter", &[name("db")]) };
    let held = Lease { claim: Arc::clone(&waits.claim), ..lease(id, "waiter", &[name("db")]) };
    (waits, held)
}

/// A wake-up may come late, so it may also bring the lease of an earlier grant.
pub(super) fn a_wake_up_brings_the_granted_lease_or_nothing(harness: &dyn Harness) {
    let place = harness.place();
    let (store, waker) = (place.open(), place.open().waker().unwrap());
    let mut grants = Vec::new();
    for id in [1, u64::MAX >> 1] {
        let (waits, held) = granted(id, waker.id());
        put(&*store, &[Change::AddTicket(waits.clone())]);
        wake(&*store, waker.id());
        commit(&*store, &[Change::Grant(waits, held.clone())], &[Effect::Wake(waker.id())]).unwrap();
        grants.push(Granted { id: held.id, token: held.token, at: held.acquired_at });
        for _ in 0..2 {
            assert!(is_woken(&*waker, LIMIT));
            let received = waker.receive();
            assert!(received.is_none_or(|received| grants.contains(&received)), "{received:?}");
            wake(&*store, waker.id());
        }
        put(&*store, &[Change::RemoveLease(held)]);
    }
}

pub(super) fn a_failed_grant_brings_nothing(harness: &dyn Harness) {
    let place = harness.place();
    let (store, waker) = (place.open(), place.open().waker().unwrap());
    let (waits, held) = granted(7, waker.id());
    put(&*store, &[Change::AddTicket(waits.clone())]);
    wake(&*store, waker.id());
    clear(&*waker);
    let fails = [Change::Grant(waits, held), Change::RemoveLease(lease(9, "nobody", &[name("db")]))];
    assert!(commit(&*store, &fails, &[Effect::Wake(waker.id())]).is_err());
    assert_eq!(waker.receive(), None);
}
