//! Whoever registers a bell, then looks, then sleeps, is woken by every ring after the look.

use std::thread;
use std::time::Duration;

use lockkeeper_core::id::{BellId, LeaseId, Token};
use lockkeeper_core::time::Moment;

use super::{Harness, LIMIT};
use lockkeeper_platform::poll;
use lockkeeper_store::{Bell, Granted};

fn is_rung(bell: &dyn Bell, within: Duration) -> bool {
    poll::wait(&[bell.as_fd()], Some(within)).unwrap().any()
}

/// Makes it quiet; a spurious ring now and then is allowed, ringing on is not.
fn hush(bell: &dyn Bell) {
    let quiet = (0..10).any(|_| {
        bell.quiet();
        !is_rung(bell, Duration::ZERO)
    });
    assert!(quiet, "it goes on ringing");
}

pub(super) fn a_ring_before_the_sleep_wakes(harness: &dyn Harness) {
    let place = harness.place();
    let bell = place.open().bell().unwrap();
    hush(&*bell);
    let other = place.open();
    (0..3).for_each(|_| other.ring(bell.id()));
    assert!(is_rung(&*bell, LIMIT));
}

pub(super) fn a_ring_during_the_sleep_wakes(harness: &dyn Harness) {
    let place = harness.place();
    let bell = place.open().bell().unwrap();
    hush(&*bell);
    let (other, id) = (place.open(), bell.id());
    let sleeper = thread::spawn(move || is_rung(&*bell, LIMIT));
    other.ring(id);
    assert!(sleeper.join().unwrap());
}

pub(super) fn a_quiet_bell_can_be_rung_again(harness: &dyn Harness) {
    let place = harness.place();
    let store = place.open();
    let (bell, neighbour) = (store.bell().unwrap(), store.bell().unwrap());
    assert_ne!(bell.id(), neighbour.id());
    for _ in 0..3 {
        store.ring(bell.id());
        assert!(is_rung(&*bell, LIMIT));
        hush(&*bell);
    }
    hush(&*neighbour);
}

pub(super) fn a_bell_is_rung_by_its_number(harness: &dyn Harness) {
    let place = harness.place();
    let id = BellId(0x1234_5678_9abc);
    for _ in 0..2 {
        let bell = place.open().bell_with_id(id).unwrap();
        assert_eq!(bell.id(), id);
        hush(&*bell);
        place.open().ring(id);
        assert!(is_rung(&*bell, LIMIT));
    }
}

pub(super) fn a_ring_for_nobody_is_harmless(harness: &dyn Harness) {
    let place = harness.place();
    let store = place.open();
    store.ring(BellId(1));
    let bell = store.bell().unwrap();
    let id = bell.id();
    drop(bell);
    store.ring(id);
    let next = store.bell().unwrap();
    store.ring(next.id());
    assert!(is_rung(&*next, LIMIT));
}

pub(super) fn what_is_dismantled_is_gone(harness: &dyn Harness) {
    let place = harness.place();
    let store = place.open();
    let (dead, alive) = (store.bell().unwrap(), store.bell().unwrap());
    store.dismantle(dead.id());
    store.dismantle(dead.id());
    store.dismantle(BellId(1));
    store.ring(dead.id());
    store.ring(alive.id());
    assert!(is_rung(&*alive, LIMIT));
    let again = store.bell_with_id(dead.id()).unwrap();
    store.ring(again.id());
    assert!(is_rung(&*again, LIMIT));
}

pub(super) fn a_ring_tells_of_a_lease_once_or_not_at_all(harness: &dyn Harness) {
    let place = harness.place();
    let (store, bell) = (place.open(), place.open().bell().unwrap());
    let granted = |id| Granted { id: LeaseId(id), token: Token(u64::MAX >> 1), at: Moment::from_micros(-1) };
    for id in [1, u64::MAX >> 1] {
        store.ring(bell.id());
        store.hand_over(bell.id(), granted(id));
        assert!(is_rung(&*bell, LIMIT));
        let heard = bell.hear();
        assert!(heard.is_none() || heard == Some(granted(id)), "{heard:?}");
        hush(&*bell);
        assert_eq!(bell.hear(), None);
    }
}

pub(super) fn a_lease_may_be_announced(harness: &dyn Harness) {
    let place = harness.place();
    let (store, bell) = (place.open(), place.open().bell().unwrap());
    let granted = Granted { id: LeaseId(7), token: Token(8), at: Moment::from_micros(9) };
    // Announced and not granted after all, then both, then granted without a word before.
    for (announced, is_granted) in [(true, false), (true, true), (false, true)] {
        if announced {
            store.alert(bell.id());
        }
        if is_granted {
            store.hand_over(bell.id(), granted);
            assert!(is_rung(&*bell, LIMIT));
        }
        let heard = bell.hear();
        assert!(heard.is_none() || (is_granted && heard == Some(granted)), "{heard:?}");
        hush(&*bell);
    }
    store.alert(BellId(1));
}
