//! Records are found by their keys, and tickets in the order of their line.

use std::ops::ControlFlow;

use lockkeeper_core::draft::{Change, Walk};
use lockkeeper_core::id::LeaseId;
use lockkeeper_core::record::Rank;
use lockkeeper_core::resource::{Key, Reach, Target};

use super::sample::{lease, name, path, put, ticket};
use super::{Harness, look};
use lockkeeper_store::Store;

pub(super) fn leases_within(store: &dyn Store, reach: &Reach) -> Vec<u64> {
    let mut found = look(store, |records| {
        let mut ids = Vec::new();
        records.leases(reach, &mut |lease| ids.push(lease.id.0))?;
        Ok(ids)
    });
    found.sort_unstable();
    found
}

pub(super) fn tickets_within(store: &dyn Store, reach: &Reach, walk: Walk, at_most: usize) -> Vec<u64> {
    look(store, |records| {
        let mut ids = Vec::new();
        records.tickets(reach, walk, &mut |ticket| {
            ids.push(ticket.id.0);
            if ids.len() == at_most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(ids)
    })
}

fn add_leases(store: &dyn Store, targets: &[Target]) {
    let numbered = targets.iter().zip(1..);
    let added = numbered
        .map(|(target, id)| Change::AddLease(lease(id, &format!("o{id}"), std::slice::from_ref(target))));
    put(store, &added.collect::<Vec<_>>());
}

pub(super) fn keys_are_found_exactly(harness: &dyn Harness) {
    let place = harness.place();
    let store = place.open();
    add_leases(&*store, &[name("db"), name("db/a"), name("DB"), name("d"), path("db"), name("数据库")]);
    assert_eq!(leases_within(&*store, &name("db").reach()), [1]);
    assert_eq!(leases_within(&*store, &name("DB").reach()), [3]);
    assert_eq!(leases_within(&*store, &name("数据库").reach()), [6]);
    assert_eq!(leases_within(&*store, &name("none").reach()), [0; 0]);
    let owner = Key::of_owner(&"worker:o4".parse().unwrap());
    assert_eq!(leases_within(&*store, &Reach::of(owner)), [4]);
}

pub(super) fn folders_are_found_with_what_is_below(harness: &dyn Harness) {
    let place = harness.place();
    let store = place.open();
    let texts = ["**", "src/**", "src/api/**", "src/api/v1/x.rs", "src/api-old/x.rs", "src/apis", "docs/**"];
    add_leases(&*store, &texts.map(path));
    assert_eq!(leases_within(&*store, &path("src/api/**").reach()), [1, 2, 3, 4]);
    assert_eq!(leases_within(&*store, &path("src/**").reach()), [1, 2, 3, 4, 5, 6]);
    assert_eq!(leases_within(&*store, &path("**").reach()), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(leases_within(&*store, &path("docs/a/b").reach()), [1, 7]);
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
    let reach = path("src/**").reach();
    assert_eq!(leases_within(&*store, &reach), [1]);
    assert_eq!(tickets_within(&*store, &reach, Walk::Up(None), usize::MAX), [3, 2]);
    assert_eq!(tickets_within(&*store, &reach, Walk::Down(None), usize::MAX), [2, 3]);
}

/// Three in line for `db`, two of them at the same time, and one elsewhere.
fn line(store: &dyn Store) {
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

pub(super) fn the_line_is_walked_up_and_down(harness: &dyn Harness) {
    let place = harness.place();
    let store = place.open();
    line(&*store);
    let rank = |at, id| Some(Rank { at, id: LeaseId(id) });
    for (reach, walks) in [
        (
            name("db").reach(),
            [
                (Walk::Up(None), &[4, 3, 5][..]),
                (Walk::Up(rank(i64::MIN, 4)), &[3, 5]),
                (Walk::Up(rank(10, 3)), &[5]),
                (Walk::Up(rank(11, 0)), &[]),
                (Walk::Down(None), &[5, 3, 4]),
                (Walk::Down(rank(10, 5)), &[3, 4]),
                (Walk::Down(rank(10, u64::MAX)), &[5, 3, 4]),
                (Walk::Down(rank(i64::MIN, 4)), &[]),
            ],
        ),
        (
            path("src/x").reach(),
            [
                (Walk::Up(None), &[6, 3][..]),
                (Walk::Up(rank(0, 6)), &[3]),
                (Walk::Up(rank(10, 3)), &[]),
                (Walk::Up(rank(-1, 9)), &[6, 3]),
                (Walk::Down(None), &[3, 6]),
                (Walk::Down(rank(10, 3)), &[6]),
                (Walk::Down(rank(i64::MAX, 1)), &[3, 6]),
                (Walk::Down(rank(0, 6)), &[]),
            ],
        ),
    ] {
        for (walk, expected) in walks {
            assert_eq!(tickets_within(&*store, &reach, walk, usize::MAX), expected, "{walk:?} {reach:?}");
        }
    }
}

pub(super) fn a_walk_ends_when_told(harness: &dyn Harness) {
    let place = harness.place();
    let store = place.open();
    line(&*store);
    assert_eq!(tickets_within(&*store, &name("db").reach(), Walk::Up(None), 2), [4, 3]);
    assert_eq!(tickets_within(&*store, &path("src/x").reach(), Walk::Down(None), 1), [3]);
}

pub(super) fn everything_is_in_order(harness: &dyn Harness) {
    let place = harness.place();
    let store = place.open();
    line(&*store);
    let added = [8, 7].map(|id| Change::AddLease(lease(id, "holder", &[name("held")])));
    put(&*store, &added);
    let (leases, tickets) = look(&*store, |records| records.everything());
    assert_eq!(leases.iter().map(|lease| lease.id.0).collect::<Vec<_>>(), [7, 8]);
    assert_eq!(tickets.iter().map(|ticket| ticket.id.0).collect::<Vec<_>>(), [4, 6, 3, 5]);
}
