//! A program that keeps leases for a long time: its guards, their thread, and what they use up.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use lockkeeper::Keeper;
use lockkeeper_core::lease::{Outcome, WaitTerms};
use lockkeeper_core::resource::Mode;
use lockkeeper_core::time::Ttl;

const LONG: Duration = Duration::from_secs(60);
const NO_GRACE: Duration = Duration::ZERO;

#[test]
fn an_upgrade_is_never_taken_for_a_loss() {
    let folder = tempfile::tempdir().unwrap();
    let keeper = Keeper::open(folder.path()).unwrap();
    let mut guard = keeper.lock("db").shared().acquire().unwrap();
    guard.on_lost(|why| panic!("lost: {why}")).unwrap();
    let other = keeper.lock("other").acquire().unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        // Each of these has the thread that looks after all guards look again.
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                other.on_lost(|_| {}).unwrap();
            }
        });
        let lost = (0..500).find(|_| {
            guard.upgrade().unwrap();
            guard.downgrade().unwrap();
            guard.is_lost().unwrap()
        });
        done.store(true, Ordering::Relaxed);
        assert_eq!(lost, None, "the round in which it was lost");
    });
    guard.release().unwrap();
}

#[test]
fn an_upgrade_that_is_granted_before_it_is_given_up_is_held() {
    let folder = tempfile::tempdir().unwrap();
    let keeper = Keeper::open(folder.path()).unwrap();
    let (one, two) = (keeper.lock("db").shared(), keeper.lock("db").shared());
    let (one, two) = (one.acquire().unwrap(), two.acquire().unwrap());
    let terms = WaitTerms { waker: None, stays: Ttl::new(LONG).unwrap() };
    let upgrade = || match keeper.engine().upgrade(one.id(), None, Some(terms)).unwrap().unwrap() {
        Outcome::Waiting(waiting) => waiting.ticket,
        other => panic!("{other:?}"),
    };
    assert!(keeper.engine().give_up(&upgrade()).unwrap().is_none());
    let ticket = upgrade();
    drop(two);
    let grant = keeper.engine().give_up(&ticket).unwrap().expect("it was granted by the release");
    assert_eq!((grant.lease.id, grant.lease.claim.resources[0].mode), (one.id(), Mode::Exclusive));
    assert!(keeper.lock("db").shared().acquire().is_err());
}

#[test]
fn a_callback_that_panics_harms_no_other_guard() {
    let folder = tempfile::tempdir().unwrap();
    let keeper = Keeper::open(folder.path()).unwrap();
    let breaker = Keeper::open(folder.path()).unwrap();
    let (told, hears) = mpsc::channel();
    let one = keeper.lock("one").acquire().unwrap();
    let two = keeper.lock("two").acquire().unwrap();
    let about_one = told.clone();
    one.on_lost(move |_| {
        about_one.send("one").unwrap();
        panic!("this panic is part of the test");
    })
    .unwrap();
    two.on_lost(move |_| told.send("two").unwrap()).unwrap();
    breaker.engine().break_lease(one.id(), NO_GRACE).unwrap().unwrap();
    assert_eq!(hears.recv_timeout(LONG), Ok("one"));
    breaker.engine().break_lease(two.id(), NO_GRACE).unwrap().unwrap();
    assert_eq!(hears.recv_timeout(LONG), Ok("two"));
}

#[test]
#[cfg(target_os = "linux")]
fn guards_that_are_gone_leave_no_files_open() {
    let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
    let folder = tempfile::tempdir().unwrap();
    let keeper = Keeper::open(folder.path()).unwrap();
    let round = |number: u32| {
        let held = keeper.lock("db").ttl(LONG).acquire().unwrap();
        assert!(keeper.lock("db").wait(Duration::from_millis(1)).acquire().is_err());
        drop(held);
        drop(keeper.lock(&format!("name-{number}")).path("src/**").acquire().unwrap());
    };
    round(0);
    let before = descriptors();
    (1..300).for_each(round);
    // The thread that renews may have needed a connection of its own meanwhile: a file and its log.
    let after = descriptors();
    assert!(after <= before + 2, "{before} were open, {after} are");
}

/// Invariants 1 and 2. A waiter takes the word of the wake that woke it.
#[test]
fn a_lease_that_was_waited_for_is_the_one_that_the_store_has() {
    let folder = tempfile::tempdir().unwrap();
    let waited: usize = thread::scope(|scope| {
        let turns = || {
            let keeper = Keeper::open(folder.path()).unwrap();
            let turn = |_: &usize| {
                let guard = keeper.lock("db").wait_forever().acquire().unwrap();
                assert_eq!(keeper.engine().lease(guard.id()).unwrap(), Some(guard.lease()));
                guard.lease().was_waited_for()
            };
            (0..50).filter(turn).count()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(turns)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let at_once = Keeper::open(folder.path()).unwrap().lock("db").acquire().unwrap();
    assert!(waited > 0 && !at_once.lease().was_waited_for(), "{waited} of 200 turns were waited for");
}

/// Invariants 1, 6 and 7. Twelve programs take turns on one name; each turn is had once, and nothing is left behind.
#[test]
fn a_crowd_takes_turns() {
    let folder = tempfile::tempdir().unwrap();
    let inside = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                let keeper = Keeper::open(folder.path()).unwrap();
                let mut last = None;
                for _ in 0..60 {
                    let guard = keeper.lock("db").wait_forever().acquire().unwrap();
                    assert!(!inside.swap(true, Ordering::SeqCst), "two are inside");
                    assert!(last < Some(guard.token()), "tokens grow");
                    last = Some(guard.token());
                    inside.store(false, Ordering::SeqCst);
                    guard.release().unwrap();
                }
            });
        }
    });
    let left = Keeper::open(folder.path()).unwrap().engine().listing().unwrap();
    assert!(left.holders.is_empty() && left.waiters.is_empty(), "{left:?}");
    let wakers: Vec<_> = fs::read_dir(folder.path().join("wake")).unwrap().collect();
    assert!(wakers.is_empty(), "{wakers:?}");
}
