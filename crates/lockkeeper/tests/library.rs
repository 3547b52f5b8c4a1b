//! A program that keeps leases for a long time: its guards, their thread, and what they use up.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use lockkeeper::Keeper;
use lockkeeper_core::lease::{Outcome, Request, WaitTerms};
use lockkeeper_core::liveness::Contract;
use lockkeeper_core::record::{Claim, Priority};
use lockkeeper_core::resource::{Mode, Resource, Target};
use lockkeeper_core::time::Ttl;
use lockkeeper_engine::open::unique_owner;
use lockkeeper_platform::desk::Desk;
use lockkeeper_store::Granted;

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
    let terms = WaitTerms { bell: None, stays: Ttl::new(LONG).unwrap() };
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

/// Invariants 1 and 2. A waiter takes the word of the ring that woke it.
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

/// Invariants 1, 6 and 7. In a crowd one who waits decides for the others; every turn is had once, and nothing is left.
#[test]
fn a_crowd_takes_turns_through_a_clerk() {
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
    assert!(folder.path().join("clerk").exists(), "somebody sat at the desk");
    let left = Keeper::open(folder.path()).unwrap().engine().listing().unwrap();
    assert!(left.holders.is_empty() && left.waiters.is_empty(), "{left:?}");
    let bells: Vec<_> = fs::read_dir(folder.path().join("wake")).unwrap().collect();
    assert!(bells.is_empty(), "{bells:?}");
}

/// In a crowd one decides for the others for as long as it takes turns itself, and not for longer.
#[test]
fn a_clerk_stays_while_its_program_takes_turns() {
    const KEEPERS: usize = 6;
    let folder = tempfile::tempdir().unwrap();
    let clerk = || fs::read_to_string(folder.path().join("clerk")).unwrap_or_default();
    let nobody = || clerk().bytes().all(|digit| digit == b'0');
    let keepers: Vec<Keeper> = (0..KEEPERS).map(|_| Keeper::open(folder.path()).unwrap()).collect();
    let (crowded, until) = (AtomicBool::new(false), Instant::now() + LONG);
    let turns = |keeper: &Keeper| {
        let mut met = Vec::new();
        // Nobody ends before they have met.
        while met.len() < 100 || (!crowded.load(Ordering::Relaxed) && Instant::now() < until) {
            let _guard = keeper.lock("db").wait_forever().acquire().unwrap();
            met.push(clerk());
            crowded.fetch_or(!nobody(), Ordering::Relaxed);
        }
        met
    };
    let mut clerks: Vec<String> = thread::scope(|scope| {
        let threads: Vec<_> = keepers.iter().map(|keeper| scope.spawn(|| turns(keeper))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    clerks.sort();
    clerks.dedup();
    // Before the first one there was nobody. Some may have been kept from their next turn for so long that they left.
    assert!((2..=4 * KEEPERS).contains(&clerks.len()), "{} sat down in 600 turns", clerks.len());
    while !nobody() {
        assert!(Instant::now() < until, "{} still sits there", clerk());
        thread::sleep(Duration::from_millis(5));
    }
}

/// Nobody polls, whoever waits and whoever decides for those who do.
#[test]
fn a_clerk_to_whom_nobody_comes_sleeps() {
    let folder = tempfile::tempdir().unwrap();
    let (keeper, done) = (Keeper::open(folder.path()).unwrap(), AtomicBool::new(false));
    let woken = thread::scope(|scope| {
        for _ in 0..5 {
            scope.spawn(|| {
                let keeper = Keeper::open(folder.path()).unwrap();
                while !done.load(Ordering::Relaxed) {
                    drop(keeper.lock("db").wait_forever().acquire().unwrap());
                }
            });
        }
        let until = Instant::now() + LONG;
        let woken = loop {
            // The claims are about a stretch of time, so one has to pass.
            let _all_wait = keeper.lock("db").wait_forever().acquire().unwrap();
            thread::sleep(Duration::from_millis(300));
            if let [clerk] = threads_named("lockkeeper-desk").as_slice() {
                let before = sleeps_of(clerk);
                thread::sleep(Duration::from_secs(2));
                break sleeps_of(clerk) - before;
            }
            assert!(Instant::now() < until, "nobody sits at the desk");
        };
        done.store(true, Ordering::Relaxed);
        woken
    });
    // Each of the five may still come once, and whoever sits there looks up now and then.
    assert!(woken <= 20, "woken {woken} times in 2 s");
}

/// A ring may come so late that its sleeper has asked for something else: it is no answer to that.
#[test]
fn a_late_ring_is_no_answer_to_a_new_request() {
    let folder = tempfile::tempdir().unwrap();
    let keeper = Keeper::open(folder.path()).unwrap();
    let (engine, bell) = (keeper.engine(), keeper.engine().store().bell().unwrap());
    let request = || Request {
        claim: Claim {
            owner: unique_owner("test").unwrap(),
            resources: vec![Resource { target: Target::Name("db".parse().unwrap()), mode: Mode::Exclusive }],
            proof: keeper.resident_proof().unwrap(),
            contract: Contract::Strict,
            ttl: None,
            reason: None,
            ticket: None,
        },
        priority: Priority::default(),
        under: Vec::new(),
        wait: Some(WaitTerms { bell: Some(bell.id()), stays: Ttl::new(LONG).unwrap() }),
        join: false,
    };
    // Whoever hands on to one of several knows that there is a crowd.
    let guard = keeper.lock("db").acquire().unwrap();
    let earlier = Granted::of(&guard.lease());
    for _ in 0..3 {
        assert!(matches!(engine.acquire(&request()).unwrap(), Outcome::Waiting(_)));
    }
    guard.release().unwrap();
    // Somebody sits at the desk and does nothing.
    let desk = Desk::new(folder.path());
    let seat = desk.sit().unwrap().unwrap();
    engine.store().hand_over(bell.id(), earlier);
    let asked = request();
    match engine.acquire_as_new(&asked, &*bell).unwrap() {
        Outcome::Waiting(waiting) => assert_eq!(waiting.ticket.claim.owner, asked.claim.owner),
        other => panic!("{other:?}"),
    }
    assert_eq!(seat.errands().unwrap().len(), 1, "it was left with the clerk first");
    let waiters = engine.listing().unwrap().waiters;
    assert_eq!(waiters.len(), 3, "two who waited before, and this one, once: {waiters:?}");
}

fn threads_named(name: &str) -> Vec<PathBuf> {
    let threads = fs::read_dir("/proc/self/task").unwrap().map(|thread| thread.unwrap().path());
    // One that has just ended has no name any more.
    let is_named =
        |thread: &PathBuf| fs::read_to_string(thread.join("comm")).is_ok_and(|it| it.trim() == name);
    threads.filter(is_named).collect()
}

/// How often a thread was off the processor by its own will.
fn sleeps_of(thread: &Path) -> u64 {
    let status = fs::read_to_string(thread.join("status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    line.trim().parse().unwrap()
}
