//! What only etcd has: limits of a transaction, and a clock whose count may start again.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::records::{Change, Records};
use lockkeeper_platform::random;
use lockkeeper_store::{EtcdAddress, EtcdStore, LeaseStore, StoreError};

use super::backends::ETCD;
use super::harness::{Harness, Place, skip};
use super::sample::{lease, name, path};
use super::{commit, decide, everything};

fn place() -> Option<Box<dyn Place<dyn LeaseStore>>> {
    match ETCD.lacks() {
        None => Some(ETCD.place()),
        Some(what) => {
            skip(what);
            None
        }
    }
}

/// If a transaction of etcd has too many operations, they go into nested transactions.
#[test]
fn a_decision_about_hundreds_of_leases_is_one_commit() {
    let Some(place) = place() else { return };
    let store = place.open();
    let leases: Vec<_> = (1..=500).map(|id| lease(id, "one", &[name(&format!("n{id}"))])).collect();
    let added: Vec<Change> = leases.iter().cloned().map(Change::AddLease).collect();
    commit(&*store, &added, &[]).unwrap();
    assert_eq!(everything(&*store).0.len(), 500);
    assert_eq!(store.examine(true).unwrap().flaws, [""; 0]);
    // Each is read by its own key: more comparisons than one transaction has.
    let removed = decide(&*store, |records| {
        let mut changes = Vec::new();
        for lease in &leases {
            changes.extend(records.lease(lease.id)?.map(Change::RemoveLease));
        }
        Ok((changes, ()))
    });
    removed.unwrap();
    assert!(everything(&*store).0.is_empty());
}

#[test]
fn a_decision_that_is_too_large_says_so_and_changes_nothing() {
    let Some(place) = place() else { return };
    let store = place.open();
    let added: Vec<Change> =
        (1..=3000).map(|id| Change::AddLease(lease(id, "one", &[name(&format!("n{id}"))]))).collect();
    let error = commit(&*store, &added, &[]).unwrap_err();
    assert!(error.changed_nothing(), "{error:?}");
    let StoreError::Database { source, .. } = error else { panic!("{error:?}") };
    assert!(source.to_string().contains("too large for etcd"), "{source}");
    assert!(everything(&*store).0.is_empty());
}

/// A path has as many keys as it has folders.
#[test]
fn a_very_deep_path_is_found() {
    let Some(place) = place() else { return };
    let store = place.open();
    let deep = path(&format!("{}x", "d/".repeat(150)));
    commit(&*store, &[Change::AddLease(lease(1, "one", &[path("d/**")]))], &[]).unwrap();
    let found = decide(&*store, |records| Ok((Vec::new(), records.leases(&deep.key_range())?.len())));
    assert_eq!(found.unwrap(), 1);
}

/// Invariant 3. After the election of a leader the count starts again: the store's clock does not go back, and continues.
#[test]
fn the_clock_goes_on_when_the_count_starts_again() {
    let Some(place) = place() else { return };
    let Ok(server) = std::env::var("LOCKKEEPER_TEST_ETCD") else { return };
    let moment = |store: &dyn LeaseStore| decide(store, |records| Ok((Vec::new(), records.now()))).unwrap();
    let first = place.open();
    commit(&*first, &[Change::AddLease(lease(1, "one", &[name("db")]))], &[]).unwrap();
    let before = moment(&*first);
    let mut revoke = Command::new("etcdctl");
    revoke.env("ETCDCTL_API", "3").args(["--endpoints", &server, "lease", "revoke", "6c6f636b6b656570"]);
    match revoke.output() {
        // Another test may have revoked the lease at the same time.
        Ok(_) => {}
        Err(error) => return skip(&format!("the program etcdctl: {error}")),
    }
    let second = place.open();
    commit(&*second, &[Change::AddLease(lease(2, "two", &[name("web")]))], &[]).unwrap();
    let after = moment(&*second);
    assert!(after.as_micros() + 2_000_000 > before.as_micros(), "{before:?} {after:?}");
    lockkeeper_testing::until("the clock goes on", || moment(&*second) > before);
}

/// Invariants 2 and 3. The keys of a project are lost, and a client that never knew it makes them anew. One that knew it sets the clock
/// forward and begins a new time in which nothing is granted, and numbers go on above its own.
#[test]
fn a_project_that_was_lost_gets_clock_and_numbers_of_those_who_knew_it() {
    if let Some(what) = ETCD.lacks() {
        return skip(what);
    }
    let server = std::env::var("LOCKKEEPER_TEST_ETCD").unwrap();
    let address = EtcdAddress::parse(&format!("etcd://{server}"), &|_| None, None).unwrap();
    let project = format!("lost-{:x}", random::number().unwrap());
    let open = || EtcdStore::open(address.clone(), &project, Duration::from_secs(30)).unwrap();
    let seen = |store: &dyn LeaseStore| {
        let read = |records: &mut dyn Records<StoreError>| {
            // It is known since when the store remembers once something was read.
            records.lease(LeaseId(1))?;
            let number = records.next_number()?;
            Ok((Vec::new(), (number, records.now(), records.remembers_since())))
        };
        decide(store, read).unwrap()
    };
    let knows = open();
    let (_, first, _) = seen(&knows);
    let later = first.after(Duration::from_secs(3_600));
    etcdctl(&server, &["put", &format!("/lockkeeper/{project}/clock/last")], &bytes_of(later.as_micros()));
    let (number, before, _) = seen(&knows);
    assert!(before >= later, "the clock was set forward");
    etcdctl(&server, &["del", "--prefix", &format!("/lockkeeper/{project}/")], &[]);
    let unaware = open();
    assert!(seen(&unaware).1 < later, "nobody has told it");
    let (_, again, since) = seen(&knows);
    assert!(again >= before && since.unwrap() >= before, "{before:?} {again:?} {since:?}");
    let (next, now, since) = seen(&unaware);
    assert!(now >= before && since.unwrap() >= before, "{before:?} {now:?} {since:?}");
    assert!(next > number, "{number} {next}");
}

/// A moment as the store writes it.
fn bytes_of(micros: i64) -> [u8; 8] {
    (micros ^ i64::MIN).to_be_bytes()
}

fn etcdctl(server: &str, args: &[&str], input: &[u8]) {
    let mut command = Command::new("etcdctl");
    command.env("ETCDCTL_API", "3").args(["--endpoints", server]).args(args);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    assert!(child.wait().unwrap().success());
}
