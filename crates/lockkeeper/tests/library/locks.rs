//! Locks: acquire with and without waiting, timeouts, deadlocks, and several keepers in one process.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use lockkeeper::{Contract, Error, Keeper};

use crate::Site;

/// If it waited, the test would never end: the lock is released later, by the same thread.
#[test]
fn a_try_never_waits_and_names_the_holder() {
    let site = Site::new();
    let keeper = site.keeper();
    let guard = keeper.path("src/**/*.rs").owner("worker:1").reason("rename").acquire().unwrap();
    let attempt = keeper.path("src/main.*").timeout(Duration::from_secs(3600)).try_acquire();
    let Err(error @ Error::Held { .. }) = attempt else { panic!("{attempt:?}") };
    assert_eq!(error.to_string(), "src/main.* is held by worker:1 (both match src/main.rs)");
    let Error::Held { blockers, .. } = error else { unreachable!() };
    let [blocker] = &blockers[..] else { panic!("{blockers:?}") };
    assert_eq!((blocker.wanted.as_str(), blocker.witness.as_str()), ("src/main.*", "src/main.rs"));
    assert_eq!((blocker.owner.as_str(), blocker.id.clone()), ("worker:1", guard.id()));
    assert_eq!((blocker.reason.as_deref(), blocker.pid), (Some("rename"), Some(std::process::id())));
    let age = SystemTime::UNIX_EPOCH
        .elapsed()
        .unwrap()
        .abs_diff(blocker.since.duration_since(SystemTime::UNIX_EPOCH).unwrap());
    assert!(!blocker.is_waiting && age < lockkeeper_testing::LIMIT, "{blocker:?}");
    assert_eq!(site.counts(), (1, 0));
    guard.release().unwrap();
    keeper.path("src/main.*").try_acquire().unwrap().release().unwrap();
}

/// Invariant 6.
#[test]
fn a_timeout_is_an_error_of_its_own_and_leaves_nothing_in_line() {
    let site = Site::new();
    let keeper = site.keeper();
    let guard = keeper.lock("db").owner("worker:1").acquire().unwrap();
    let limit = Duration::from_millis(20);
    // Without a waker at first, then with the waker of the first wait.
    for _ in 0..2 {
        match keeper.lock("db").timeout(limit).acquire() {
            Err(Error::Timeout { waited, blockers, .. }) => {
                assert!(waited >= limit, "{waited:?}");
                assert_eq!((blockers.len(), blockers[0].owner.as_str()), (1, "worker:1"));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(site.counts(), (1, 0));
    }
    drop(guard);
    keeper.lock("db").timeout(limit).acquire().unwrap().release().unwrap();
}

/// Invariant 7.
#[test]
fn who_waits_is_named_to_those_behind() {
    let site = Site::new();
    let keeper = site.keeper();
    let reader = keeper.lock("db").shared().acquire().unwrap();
    thread::scope(|scope| {
        let writer = scope.spawn(|| keeper.lock("db").owner("worker:writer").acquire().unwrap());
        site.until(1, 1);
        match keeper.lock("db").shared().try_acquire() {
            Err(Error::Held { blockers, .. }) => {
                let waiting = blockers.iter().find(|blocker| blocker.is_waiting).unwrap();
                assert_eq!(waiting.to_string(), "worker:writer is ahead in line for db");
            }
            other => panic!("{other:?}"),
        }
        drop(reader);
        writer.join().unwrap().release().unwrap();
    });
}

/// Invariant 8.
#[test]
fn a_deadlock_is_refused_with_its_cycle() {
    let site = Site::new();
    let keeper = site.keeper();
    let one = keeper.lock("a").owner("worker:1").acquire().unwrap();
    let two = keeper.lock("b").owner("worker:2").acquire().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| keeper.lock("b").owner("worker:1").acquire().unwrap());
        site.until(2, 1);
        let Err(Error::Deadlock { cycle, .. }) = keeper.lock("a").owner("worker:2").acquire() else {
            panic!("it was not refused")
        };
        let links: Vec<String> = cycle.iter().map(ToString::to_string).collect();
        assert_eq!(links, ["worker:2 waits for a of worker:1", "worker:1 waits for b of worker:2"]);
        assert_eq!(site.counts(), (2, 1));
        drop(two);
        waiter.join().unwrap().release().unwrap();
    });
    drop(one);
}

/// Invariant 8. By default every lock has an owner of its own; `under` says which lock the waiting thread holds.
#[test]
fn a_deadlock_between_locks_of_different_owners_is_refused_too() {
    let site = Site::new();
    let (keeper, other) = (site.keeper(), site.keeper());
    let (a, b) = (keeper.lock("a").acquire().unwrap(), other.lock("b").acquire().unwrap());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| keeper.lock("b").under(&a.id()).acquire().unwrap());
        site.until(2, 1);
        match other.lock("a").under(&b.id()).acquire() {
            Err(Error::Deadlock { cycle, .. }) => {
                assert!(cycle.iter().any(|link| link.holder == a.owner()), "{cycle:?}");
                assert!(cycle.iter().any(|link| link.holder == b.owner()), "{cycle:?}");
            }
            other => panic!("{other:?}"),
        }
        drop(b);
        waiter.join().unwrap().release().unwrap();
    });
}

/// Invariant 1.
#[test]
fn two_keepers_in_one_process_exclude_each_other() {
    let site = Site::new();
    let (one, two) = (site.keeper(), site.keeper());
    let guard = one.lock("db").acquire().unwrap();
    assert!(two.lock("db").try_acquire().is_err() && one.lock("db").try_acquire().is_err());
    let other = two.lock("other").acquire().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| two.lock("db").acquire().unwrap().token());
        site.until(2, 1);
        let token = guard.token();
        // The guard keeps its keeper: the lock stays held until the guard is gone.
        drop(one);
        assert_eq!(site.counts(), (2, 1));
        drop(guard);
        assert!(waiter.join().unwrap() > token);
    });
    assert!(!other.is_lost().unwrap());
}

#[test]
fn what_is_not_valid_is_refused_before_anything_happens() {
    let site = Site::new();
    let keeper = site.keeper();
    let cases = [
        (keeper.lock("a//b"), "empty"),
        (keeper.path("src/["), "never closed"),
        (keeper.lock("a").owner("nobody"), "kind:id"),
        (keeper.lock("a").slots(0), "at least one slot"),
        (keeper.lock("a").path("src/**").slots(2), "not for paths"),
        (keeper.lock("a").ttl(Duration::ZERO), "TTL"),
        (keeper.lock("a").contract(Contract::Lease), "TTL"),
        (keeper.lock("a").priority(101), "priority"),
        (keeper.lock("a").under("x"), "`x`"),
    ];
    for (builder, part) in cases {
        let attempt = builder.acquire();
        let Err(error @ Error::Invalid(_)) = attempt else { panic!("{part}: {attempt:?}") };
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    assert_eq!(site.counts(), (0, 0));
}

/// Invariant 12.
#[test]
fn a_store_of_another_program_is_an_error_with_a_cause() {
    let site = Site::new();
    let folder = site.path().join("other");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("leases.db"), "no database").unwrap();
    let error = Keeper::open(&folder).unwrap_err();
    assert!(matches!(error, Error::Store(_)), "{error:?}");
    assert!(error.to_string().contains("leases.db"), "{error}");
}

/// Invariants 1, 6 and 7. Twelve programs take turns on one name; each turn is had once, and nothing is left behind.
#[test]
fn a_crowd_takes_turns() {
    let site = Site::new();
    let inside = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                let keeper = site.keeper();
                let mut last = None;
                for _ in 0..60 {
                    let guard = keeper.lock("db").acquire().unwrap();
                    assert!(!inside.swap(true, Ordering::SeqCst), "two are inside");
                    assert!(last < Some(guard.token()), "tokens grow");
                    last = Some(guard.token());
                    inside.store(false, Ordering::SeqCst);
                    guard.release().unwrap();
                }
            });
        }
    });
    assert_eq!(site.counts(), (0, 0));
    let wakers: Vec<_> = fs::read_dir(site.path().join("wake")).unwrap().collect();
    assert!(wakers.is_empty(), "{wakers:?}");
}
