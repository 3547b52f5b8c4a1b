//! Guards that a program keeps for a long time: upgrades, losses, and the resources that they use.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use lockkeeper::{Error, Guard, Keeper, Loss};
use lockkeeper_core::id::LeaseId;
use lockkeeper_core::lease::{Outcome, WaitTerms};
use lockkeeper_core::resource::Mode;
use lockkeeper_core::time::Ttl;
use lockkeeper_testing::this_test;

use crate::Site;

const LONG: Duration = Duration::from_secs(60);
const NO_GRACE: Duration = Duration::ZERO;

fn id_of(guard: &Guard) -> LeaseId {
    guard.id().parse().unwrap()
}

#[test]
fn an_upgrade_is_never_taken_for_a_loss() {
    let site = Site::new();
    let keeper = site.keeper();
    let mut guard = keeper.lock("db").shared().acquire().unwrap();
    guard.on_lost(|why| panic!("lost: {why}")).unwrap();
    let other = keeper.lock("other").acquire().unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        // Each of these makes the lease monitor check all guards again.
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                other.on_lost(|_| {}).unwrap();
            }
        });
        let lost = (0..500).find(|_| {
            guard.try_upgrade().unwrap();
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
    let site = Site::new();
    let keeper = site.keeper();
    let (one, two) = (keeper.lock("db").shared(), keeper.lock("db").shared());
    let (one, two) = (one.acquire().unwrap(), two.acquire().unwrap());
    let terms = WaitTerms { waker: None, stays: Ttl::new(LONG).unwrap() };
    let token = site.engine.lease(id_of(&one)).unwrap().map(|lease| lease.token);
    let upgrade = || match site.engine.upgrade(id_of(&one), token, Some(terms)).unwrap().unwrap() {
        Outcome::Waiting(waiting) => waiting.ticket,
        other => panic!("{other:?}"),
    };
    assert!(site.engine.give_up(&upgrade()).unwrap().is_none());
    let ticket = upgrade();
    drop(two);
    let grant = site.engine.give_up(&ticket).unwrap().expect("it was granted by the release");
    assert_eq!((grant.lease.id, grant.lease.claim.resources[0].mode), (id_of(&one), Mode::Exclusive));
    assert!(keeper.lock("db").shared().try_acquire().is_err());
}

#[test]
fn a_callback_that_panics_harms_no_other_guard() {
    let site = Site::new();
    let keeper = site.keeper();
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
    site.engine.break_lease(id_of(&one), NO_GRACE).unwrap().unwrap();
    assert_eq!(hears.recv_timeout(LONG), Ok("one"));
    site.engine.break_lease(id_of(&two), NO_GRACE).unwrap().unwrap();
    assert_eq!(hears.recv_timeout(LONG), Ok("two"));
}

/// Runs in a process of its own, since the other tests of this program open files, too.
#[test]
#[cfg(target_os = "linux")]
fn guards_that_are_gone_leave_no_files_open() {
    let counted = this_test("guards::count_open_files").output().unwrap();
    assert!(counted.status.success(), "{}", String::from_utf8_lossy(&counted.stderr));
}

/// Not a test of its own: see above.
#[test]
#[ignore = "is started by guards_that_are_gone_leave_no_files_open"]
#[cfg(target_os = "linux")]
fn count_open_files() {
    let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
    let site = Site::new();
    let keeper = site.keeper();
    let round = |number: u32| {
        let held = keeper.lock("db").ttl(LONG).acquire().unwrap();
        assert!(keeper.lock("db").timeout(Duration::from_millis(1)).acquire().is_err());
        drop(held);
        drop(keeper.lock(&format!("name-{number}")).path("src/**").acquire().unwrap());
    };
    round(0);
    let before = descriptors();
    (1..300).for_each(round);
    // The lease monitor may have opened a connection of its own: a file and its log.
    let after = descriptors();
    assert!(after <= before + 2, "{before} were open, {after} are");
}

/// Invariant 10.
#[test]
fn a_broken_lock_is_lost_and_its_release_says_so() {
    let site = Site::new();
    let keeper = site.keeper();
    let guard = keeper.lock("db").acquire().unwrap();
    let other = keeper.lock("other").acquire().unwrap();
    assert!(!guard.is_lost().unwrap());
    // No thread watches the guard yet. Otherwise it might see that the lock is revoked, before it is taken away.
    site.engine.break_lease(id_of(&guard), NO_GRACE).unwrap().unwrap();
    assert!(guard.wait_until_lost(LONG).unwrap() && guard.is_lost().unwrap());
    let (told, hears) = mpsc::channel();
    guard.on_lost(move |loss| told.send(loss).unwrap()).unwrap();
    assert_eq!(hears.recv_timeout(LONG), Ok(Loss::Removed));
    let error = guard.release().unwrap_err();
    assert!(matches!(error, Error::Lost(Loss::Removed)), "{error:?}");
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "the lock was taken away");
    assert!(!other.wait_until_lost(NO_GRACE).unwrap());
}

#[test]
fn an_upgrade_beside_another_reader_names_it_and_stays_shared() {
    let site = Site::new();
    let keeper = site.keeper();
    let mut guard = keeper.lock("db").shared().acquire().unwrap();
    let other = keeper.lock("db").shared().owner("worker:2").acquire().unwrap();
    match guard.try_upgrade() {
        Err(Error::Held { blockers, .. }) => assert_eq!(blockers[0].owner, "worker:2"),
        other => panic!("{other:?}"),
    }
    assert!(keeper.lock("db").shared().try_acquire().is_ok());
    drop(other);
    guard.try_upgrade().unwrap();
    assert!(keeper.lock("db").shared().try_acquire().is_err());
}

#[test]
fn everything_can_be_used_from_any_thread_and_shown() {
    fn check<T: Send + Sync + std::fmt::Debug>() {}
    check::<Keeper>();
    check::<Guard>();
    check::<lockkeeper::LockBuilder>();
    check::<lockkeeper::Run>();
    check::<lockkeeper::RunBuilder>();
    check::<Error>();
    let site = Site::new();
    let guard = site.keeper().lock("db").acquire().unwrap();
    let shown = format!("{guard:?}");
    assert!(shown.contains(&guard.id()) && shown.contains(&guard.token().to_string()), "{shown}");
}
