//! Whoever registers a waker, then looks, then sleeps, is woken by every wake after the look.

use std::thread;
use std::time::Duration;

use lockkeeper_core::id::{LeaseId, Token, WakerId};
use lockkeeper_core::time::Moment;

use super::{Harness, LIMIT};
use crate::platform::poll;
use crate::store::{Granted, Waker};

fn is_rung(waker: &dyn Waker, within: Duration) -> bool {
    poll::wait(&[waker.as_fd()], Some(within)).unwrap().any()
}

/// Makes it quiet; a spurious wake now and then is allowed, ringing on is not.
fn hush(waker: &dyn Waker) {
    let quiet = (0..10).any(|_| {
        waker.quiet();
        !is_rung(waker, Duration::ZERO)
    });
    assert!(quiet, "it goes on ringing");
}

pub(super) fn a_ring_before_the_sleep_wakes(harness: &dyn Harness) {
    let place = harness.place();
    let waker = place.open().waker().unwrap();
    hush(&*waker);
    let other = place.open();
    (0..3).for_each(|_| other.wake(waker.id()));
    assert!(is_rung(&*waker, LIMIT));
}

pub(super) fn a_ring_during_the_sleep_wakes(harness: &dyn Harness) {
    let place = harness.place();
    let waker = place.open().waker().unwrap();
    hush(&*waker);
    let (other, id) = (place.open(), waker.id());
    let sleeper = thread::spawn(move || is_rung(&*waker, LIMIT));
    other.wake(id);
    assert!(sleeper.join().unwrap());
}

pub(super) fn a_quiet_bell_can_be_rung_again(harness: &dyn Harness) {
    let place = harness.place();
    let store = place.open();
    let (waker, neighbour) = (store.waker().unwrap(), store.waker().unwrap());
    assert_ne!(waker.id(), neighbour.id());
    for _ in 0..3 {
        store.wake(waker.id());
        assert!(is_rung(&*waker, LIMIT));
        hush(&*waker);
    }
    hush(&*neighbour);
}

pub(super) fn a_bell_is_rung_by_its_number(harness: &dyn Harness) {
    let place = harness.place();
    let id = WakerId(0x1234_5678_9abc);
    for _ in 0..2 {
        let waker = place.open().waker_with_id(id).unwrap();
        assert_eq!(waker.id(), id);
        hush(&*waker);
        place.open().wake(id);
        assert!(is_rung(&*waker, LIMIT));
    }
}

pub(super) fn a_ring_for_nobody_is_harmless(harness: &dyn Harness) {
    let place = harness.place();
    let store = place.open();
    store.wake(WakerId(1));
    let waker = store.waker().unwrap();
    let id = waker.id();
    drop(waker);
    store.wake(id);
    let next = store.waker().unwrap();
    store.wake(next.id());
    assert!(is_rung(&*next, LIMIT));
}

pub(super) fn what_is_dismantled_is_gone(harness: &dyn Harness) {
    let place = harness.place();
    let store = place.open();
    let (dead, alive) = (store.waker().unwrap(), store.waker().unwrap());
    store.remove_waker(dead.id());
    store.remove_waker(dead.id());
    store.remove_waker(WakerId(1));
    store.wake(dead.id());
    store.wake(alive.id());
    assert!(is_rung(&*alive, LIMIT));
    let again = store.waker_with_id(dead.id()).unwrap();
    store.wake(again.id());
    assert!(is_rung(&*again, LIMIT));
}

pub(super) fn a_ring_tells_of_a_lease_once_or_not_at_all(harness: &dyn Harness) {
    let place = harness.place();
    let (store, waker) = (place.open(), place.open().waker().unwrap());
    let granted = |id| Granted { id: LeaseId(id), token: Token(u64::MAX >> 1), at: Moment::from_micros(-1) };
    for id in [1, u64::MAX >> 1] {
        store.wake(waker.id());
        store.wake_with_grant(waker.id(), granted(id));
        assert!(is_rung(&*waker, LIMIT));
        let heard = waker.hear();
        assert!(heard.is_none() || heard == Some(granted(id)), "{heard:?}");
        hush(&*waker);
        assert_eq!(waker.hear(), None);
    }
}

pub(super) fn a_lease_may_be_announced(harness: &dyn Harness) {
    let place = harness.place();
    let (store, waker) = (place.open(), place.open().waker().unwrap());
    let granted = Granted { id: LeaseId(7), token: Token(8), at: Moment::from_micros(9) };
    // Announced and not granted after all, then both, then granted without a word before.
    for (announced, is_granted) in [(true, false), (true, true), (false, true)] {
        if announced {
            store.alert(waker.id());
        }
        if is_granted {
            store.wake_with_grant(waker.id(), granted);
            assert!(is_rung(&*waker, LIMIT));
        }
        let heard = waker.hear();
        assert!(heard.is_none() || (is_granted && heard == Some(granted)), "{heard:?}");
        hush(&*waker);
    }
    store.alert(WakerId(1));
}
