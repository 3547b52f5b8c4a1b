//! Connections that break in the middle of a decision: it is made once, or not at all.

use lockkeeper_core::id::Token;
use lockkeeper_core::record::Lease;
use lockkeeper_core::records::{Change, Records};
use lockkeeper_core::resource::Target;
use lockkeeper_core::time::Moment;
use lockkeeper_store::{LeaseStore, StoreError};

use super::backends::{ETCD, HTTP, POSTGRES, REDIS};
use super::breaks::every_break;
use super::sample::{lease, name, put, ticket};
use super::{decide, everything};

fn state(store: &dyn LeaseStore) -> String {
    assert_eq!(store.examine(true).unwrap().flaws, [""; 0]);
    format!("{:?}", everything(store))
}

fn db() -> [Target; 1] {
    [name("db")]
}

/// A lease and two that wait for it.
fn held(store: &dyn LeaseStore) {
    let changes = [
        Change::AddLease(lease(1, "a", &db())),
        Change::AddTicket(ticket(2, 2, "b", &db())),
        Change::AddTicket(ticket(3, 3, "c", &db())),
    ];
    put(store, &changes);
    // These records have numbers that were never drawn.
    let draw = |records: &mut dyn Records<StoreError>| {
        while records.next_number()? < 3 {}
        Ok((Vec::new(), ()))
    };
    decide(store, draw).unwrap();
}

/// Makes changes of what was read before. Returns how many leases were read.
fn change(store: &dyn LeaseStore, changes: &[Change]) -> Result<usize, StoreError> {
    decide(store, |records| {
        let found = records.leases(&name("db").key_range())?;
        let number = records.next_number()?;
        assert!(number > 3);
        Ok((changes.to_vec(), found.len()))
    })
}

#[test]
fn a_lease_is_acquired_once() {
    let acquire = |store: &dyn LeaseStore| change(store, &[Change::AddLease(lease(7, "d", &[name("web")]))]);
    every_break(&POSTGRES, held, acquire, state);
    every_break(&REDIS, held, acquire, state);
    every_break(&ETCD, held, acquire, state);
    every_break(&HTTP, held, acquire, state);
}

#[test]
fn a_lease_is_renewed_once() {
    let renewed = |store: &dyn LeaseStore| {
        let renewed = Lease { heartbeat_at: Moment::from_micros(5), ..lease(1, "a", &db()) };
        change(store, &[Change::UpdateLease(renewed)])
    };
    every_break(&POSTGRES, held, renewed, state);
    every_break(&REDIS, held, renewed, state);
    every_break(&ETCD, held, renewed, state);
    every_break(&HTTP, held, renewed, state);
}

#[test]
fn a_lease_is_passed_on_once() {
    let pass_on = |store: &dyn LeaseStore| {
        let granted = Lease { token: Token(9), ..lease(2, "b", &db()) };
        let changes =
            [Change::RemoveLease(lease(1, "a", &db())), Change::Grant(ticket(2, 2, "b", &db()), granted)];
        change(store, &changes)
    };
    every_break(&POSTGRES, held, pass_on, state);
    every_break(&REDIS, held, pass_on, state);
    every_break(&ETCD, held, pass_on, state);
    every_break(&HTTP, held, pass_on, state);
}

#[test]
fn a_lease_is_released_once() {
    let release = |store: &dyn LeaseStore| {
        let changes = [
            Change::RemoveLease(lease(1, "a", &db())),
            Change::RemoveTicket(ticket(2, 2, "b", &db())),
            Change::RemoveTicket(ticket(3, 3, "c", &db())),
        ];
        change(store, &changes)
    };
    every_break(&POSTGRES, held, release, state);
    every_break(&REDIS, held, release, state);
    every_break(&ETCD, held, release, state);
    every_break(&HTTP, held, release, state);
}
