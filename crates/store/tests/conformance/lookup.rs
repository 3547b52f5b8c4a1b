//! Records are found by their keys, and tickets in the order of their line.

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::record::Rank;
use lockkeeper_core::records::{Change, Scan};
use lockkeeper_core::resource::{Key, KeyRange, Target};

use super::sample::{lease, name, path, put, ticket};
use super::{Harness, everything, look};
use lockkeeper_store::LeaseStore;

pub(super) fn leases_within(store: &dyn LeaseStore, range: &KeyRange) -> Vec<u64> {
    let mut found: Vec<u64> =
        look(store, |records| records.leases(range)).iter().map(|lease| lease.id.0).collect();
    found.sort_unstable();
    found
}

pub(super) fn tickets_within(store: &dyn LeaseStore, range: &KeyRange, scan: Scan, limit: usize) -> Vec<u64> {
    look(store, |records| records.tickets(range, scan, limit)).iter().map(|ticket| ticket.id.0).collect()
}

fn add_leases(store: &dyn LeaseStore, targets: &[Target]) {
    let numbered = targets.iter().zip(1..);
    let added = numbered
        .map(|(target, id)| Change::AddLease(lease(id, &format!("o{id}"), std::slice::from_ref(target))));
    put(store, &added.collect::<Vec<_>>());
}

pub(super) fn keys_are_found_exactly(harness: &dyn Harness) {
    let place = harness.place();
    let store = place.open();
    add_leases(&*store, &[name("db"), name("db/a"), name("DB"), name("d"), path("db"), name("数据库")]);
    assert_eq!(leases_within(&*store, &name("db").key_range()), [1]);
    assert_eq!(leases_within(&*store, &name("DB").key_range()), [3]);
    assert_eq!(leases_within(&*store, &name("数据库").key_range()), [6]);
    assert_eq!(leases_within(&*store, &name("none").key_range()), [0; 0]);
    let owner = Key::of_owner(&"worker:o4".parse().unwrap());
    assert_eq!(leases_within(&*store, &KeyRange::of(owner)), [4]);
}

pub(super) fn folders_are_found_with_what_is_below(harness: &dyn Harness) {
    let place = harness.place();
    let store = place.open();
    let texts = ["**", "src/**", "src/api/**", "src/api/v1/x.rs", "src/api-old/x.rs", "src/apis", "docs/**"];
    add_leases(&*store, &texts.map(path));
    assert_eq!(leases_within(&*store, &path("src/api/**").key_range()), [1, 2, 3, 4]);
    assert_eq!(leases_within(&*store, &path("src/**").key_range()), [1, 2, 3, 4, 5, 6]);
    assert_eq!(leases_within(&*store, &path("**").key_range()), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(leases_within(&*store, &path("docs/a/b").key_range()), [1, 7]);
}

pub(super) fn a_record_under_two_keys_comes_once(harness: &dyn Harness) {
    let place = harness.place();
    let store = place.open();
    let targets = ["src/a/**", "src/b/**", "src/**", "**"].map(path);
    put(
        &*store,
        &[
            Change::AddLease(lease(1, "one", &targets)),
            Change::AddTicket(ticket(2, 0, "two", &targets)),
            Change::AddTicket(ticket(3, -5, "three", &targets[..2])),
        ],
    );
    let range = path("src/**").key_range();
    assert_eq!(leases_within(&*store, &range), [1]);
    assert_eq!(tickets_within(&*store, &range, Scan::Forward(None), usize::MAX), [3, 2]);
    assert_eq!(tickets_within(&*store, &range, Scan::Backward(None), usize::MAX), [2, 3]);
}

/// Three in line for `db`, two of them at the same time, and one elsewhere.
fn line(store: &dyn LeaseStore) {
    put(
        store,
        &[
            Change::AddTicket(ticket(5, 10, "five", &[name("db")])),
            Change::AddTicket(ticket(3, 10, "three", &[name("db"), path("src/**")])),
            Change::AddTicket(ticket(4, i64::MIN, "four", &[name("db")])),
            Change::AddTicket(ticket(6, 0, "six", &[name("other"), path("src/**")])),
        ],
    );
}

pub(super) fn the_line_is_scanned_forward_and_backward(harness: &dyn Harness) {
    let place = harness.place();
    let store = place.open();
    line(&*store);
    let rank = |at, id| Some(Rank { at, id: LeaseId(id) });
    for (range, scans) in [
        (
            name("db").key_range(),
            [
                (Scan::Forward(None), &[4, 3, 5][..]),
                (Scan::Forward(rank(i64::MIN, 4)), &[3, 5]),
                (Scan::Forward(rank(10, 3)), &[5]),
                (Scan::Forward(rank(11, 0)), &[]),
                (Scan::Backward(None), &[5, 3, 4]),
                (Scan::Backward(rank(10, 5)), &[3, 4]),
                (Scan::Backward(rank(10, u64::MAX)), &[5, 3, 4]),
                (Scan::Backward(rank(i64::MIN, 4)), &[]),
            ],
        ),
        (
            path("src/x").key_range(),
            [
                (Scan::Forward(None), &[6, 3][..]),
                (Scan::Forward(rank(0, 6)), &[3]),
                (Scan::Forward(rank(10, 3)), &[]),
                (Scan::Forward(rank(-1, 9)), &[6, 3]),
                (Scan::Backward(None), &[3, 6]),
                (Scan::Backward(rank(10, 3)), &[6]),
                (Scan::Backward(rank(i64::MAX, 1)), &[3, 6]),
                (Scan::Backward(rank(0, 6)), &[]),
            ],
        ),
    ] {
        for (scan, expected) in scans {
            assert_eq!(tickets_within(&*store, &range, scan, usize::MAX), expected, "{scan:?} {range:?}");
        }
    }
}

pub(super) fn a_scan_ends_at_its_limit(harness: &dyn Harness) {
    let place = harness.place();
    let store = place.open();
    line(&*store);
    assert_eq!(tickets_within(&*store, &name("db").key_range(), Scan::Forward(None), 2), [4, 3]);
    assert_eq!(tickets_within(&*store, &path("src/x").key_range(), Scan::Backward(None), 1), [3]);
}

pub(super) fn everything_is_in_order(harness: &dyn Harness) {
    let place = harness.place();
    let store = place.open();
    line(&*store);
    let added = [8, 7].map(|id| Change::AddLease(lease(id, "holder", &[name("held")])));
    put(&*store, &added);
    let (leases, tickets) = everything(&*store);
    assert_eq!(leases.iter().map(|lease| lease.id.0).collect::<Vec<_>>(), [7, 8]);
    assert_eq!(tickets.iter().map(|ticket| ticket.id.0).collect::<Vec<_>>(), [4, 6, 3, 5]);
}
