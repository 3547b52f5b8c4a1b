//! Records come back as they were put in, and a change that does not fit fails.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_core::id::{LeaseId, Token, WakerId};
use lockkeeper_core::liveness::{Contract, ProcessRef, Voucher};
use lockkeeper_core::record::{Lease, Priority, Rank, Ticket};
use lockkeeper_core::records::{Change, Scan};
use lockkeeper_core::resource::{Key, KeyRange, Mode, Resource};
use lockkeeper_core::time::{Moment, Ttl};

use super::lookup::{leases_within, tickets_within};
use super::sample::{lease, name, path, put, ticket};
use super::{Harness, commit, everything, look};

/// A lease and a ticket with something in every field.
fn full() -> (Lease, Ticket) {
    let slots = Mode::Slots(NonZeroU32::new(3).unwrap());
    let mut held = lease(7, "holder \u{1f512} 'x' \"y\" %_", &[name("db"), path("src/{a,b}*/**")]);
    let claim = Arc::make_mut(&mut held.claim);
    claim.resources.push(Resource { target: name("build"), mode: slots });
    claim.resources.push(Resource { target: path("docs/**"), mode: Mode::Shared });
    claim.proof.voucher = Voucher::Process(ProcessRef { pid: 4_194_304, started: u64::MAX >> 1 });
    claim.proof.origin.pid_namespace = 4_026_531_836;
    claim.contract = Contract::Kill;
    claim.ttl = Some(Ttl::new(Duration::from_micros(1_500_001)).unwrap());
    claim.reason = Some("line one\nline two\t數".to_owned());
    claim.ticket = Some("my turn".parse().unwrap());
    held.token = Token(u64::MAX >> 1);
    held.acquired_at = Moment::from_micros(1);
    held.heartbeat_at = Moment::from_micros(i64::MAX);
    held.pickup_by = Some(Moment::from_micros(3));
    held.revoked = true;
    let mut waits = ticket(8, i64::MIN, "waiter", &[name("db")]);
    let claim = Arc::make_mut(&mut waits.claim);
    claim.proof.voucher = Voucher::Time;
    claim.contract = Contract::Lease;
    claim.ticket = Some("T-next".parse().unwrap());
    waits.priority = Priority::new(-100).unwrap();
    waits.enqueued_at = Moment::from_micros(11);
    waits.seen_at = Moment::from_micros(12);
    waits.stays = Ttl::new(Ttl::MAX).unwrap();
    waits.waker = Some(WakerId(u64::MAX >> 1));
    waits.under = vec![LeaseId(7), LeaseId(3)];
    waits.upgrades = Some(LeaseId(7));
    (held, waits)
}

pub(super) fn every_field_comes_back(harness: &dyn Harness) {
    let place = harness.place();
    let (held, waits) = full();
    put(&*place.open(), &[Change::AddLease(held.clone()), Change::AddTicket(waits.clone())]);
    let store = place.open();
    assert_eq!(look(&*store, |records| records.lease(held.id)), Some(held.clone()));
    assert_eq!(look(&*store, |records| records.ticket(waits.id)), Some(waits.clone()));
    assert_eq!(look(&*store, |records| records.lease(waits.id)), None);
    assert_eq!(look(&*store, |records| records.ticket(held.id)), None);
    for key in held.keys() {
        assert_eq!(leases_within(&*store, &KeyRange::of(key.clone())), [7], "{key:?}");
    }
    for key in waits.keys() {
        assert_eq!(
            tickets_within(&*store, &KeyRange::of(key.clone()), Scan::Forward(None), 9),
            [8],
            "{key:?}"
        );
    }
    assert_eq!(leases_within(&*store, &KeyRange::of(Key::of_wait_under(LeaseId(7)))), [0; 0]);
}

pub(super) fn what_is_added_must_be_new(harness: &dyn Harness) {
    let (held, waits) = full();
    let other = lease(7, "other", &[name("other")]);
    let late = ticket(8, 3, "other", &[name("other")]);
    refuses(harness, &[Change::AddLease(held), Change::AddLease(other)]);
    refuses(harness, &[Change::AddTicket(waits), Change::AddTicket(late)]);
}

pub(super) fn an_id_is_that_of_a_lease_or_of_a_ticket(harness: &dyn Harness) {
    let (held, waits) = (lease(7, "holder", &[name("db")]), ticket(7, 1, "waiter", &[name("other")]));
    let (add_lease, add_ticket) = (Change::AddLease(held.clone()), Change::AddTicket(waits.clone()));
    refuses(harness, &[add_lease.clone(), add_ticket.clone()]);
    refuses(harness, &[add_ticket.clone(), add_lease.clone()]);
    refuses(harness, &[add_lease.clone(), Change::UpdateTicket(waits.clone())]);
    refuses(harness, &[add_ticket.clone(), Change::UpdateLease(held.clone())]);
    refuses(harness, &[add_lease, Change::RemoveTicket(waits)]);
    refuses(harness, &[add_ticket, Change::RemoveLease(held)]);
}

pub(super) fn a_ticket_that_is_granted_is_a_lease(harness: &dyn Harness) {
    let place = harness.place();
    let (held, waits) = full();
    let granted = Lease { id: waits.id, claim: Arc::clone(&waits.claim), ..held };
    put(&*place.open(), &[Change::AddTicket(waits.clone())]);
    put(&*place.open(), &[Change::Grant(waits.clone(), granted.clone())]);
    let store = place.open();
    assert_eq!(everything(&*store), (vec![granted.clone()], Vec::new()));
    for key in waits.keys() {
        let is_leases = granted.keys().contains(&key);
        assert_eq!(!leases_within(&*store, &KeyRange::of(key.clone())).is_empty(), is_leases, "{key:?}");
        assert_eq!(tickets_within(&*store, &KeyRange::of(key), Scan::Forward(None), 9), [0; 0]);
    }
    put(&*store, &[Change::RemoveLease(granted)]);
    assert_eq!(everything(&*store), Default::default());
}

pub(super) fn what_is_granted_must_wait(harness: &dyn Harness) {
    let waits = ticket(8, 5, "waiter", &[name("db")]);
    let granted = Lease { claim: Arc::clone(&waits.claim), ..lease(8, "waiter", &[name("db")]) };
    let grant = Change::Grant(waits.clone(), granted.clone());
    refuses(harness, std::slice::from_ref(&grant));
    refuses(harness, &[Change::AddLease(granted.clone()), grant.clone()]);
    refuses(harness, &[Change::AddTicket(waits.clone()), grant.clone(), grant]);
    let sooner = Ticket { rank: Rank { at: 4, id: waits.id }, ..waits.clone() };
    refuses(harness, &[Change::AddTicket(waits), Change::Grant(sooner, granted)]);
}

pub(super) fn what_is_changed_must_be_there(harness: &dyn Harness) {
    let (held, waits) = full();
    refuses(harness, &[Change::UpdateLease(held)]);
    refuses(harness, &[Change::UpdateTicket(waits)]);
}

pub(super) fn what_is_removed_must_be_there(harness: &dyn Harness) {
    let (held, waits) = full();
    refuses(harness, &[Change::RemoveLease(held.clone())]);
    refuses(harness, &[Change::RemoveTicket(waits.clone())]);
    let (added, gone) = (Change::AddLease(held.clone()), Change::RemoveLease(held));
    refuses(harness, &[added, gone.clone(), gone]);
    let (added, gone) = (Change::AddTicket(waits.clone()), Change::RemoveTicket(waits));
    refuses(harness, &[added, gone.clone(), gone]);
}

pub(super) fn a_change_keeps_its_keys(harness: &dyn Harness) {
    let one = lease(1, "one", &[name("db")]);
    let moved = lease(1, "one", &[name("elsewhere")]);
    refuses(harness, &[Change::AddLease(one.clone()), Change::UpdateLease(moved.clone())]);
    refuses(harness, &[Change::AddLease(one), Change::RemoveLease(moved)]);
    let two = ticket(2, 5, "two", &[name("db")]);
    let sooner = Ticket { rank: Rank { at: 4, id: two.id }, ..two.clone() };
    refuses(harness, &[Change::AddTicket(two.clone()), Change::UpdateTicket(sooner.clone())]);
    refuses(harness, &[Change::AddTicket(two), Change::RemoveTicket(sooner)]);
}

/// All but the last are committed; the last one fails, and leaves what was there.
fn refuses(harness: &dyn Harness, changes: &[Change]) {
    let place = harness.place();
    let store = place.open();
    let (last, before) = changes.split_last().unwrap();
    before.iter().for_each(|change| put(&*store, std::slice::from_ref(change)));
    let there = everything(&*store);
    let refused = commit(&*store, std::slice::from_ref(last), &[]);
    assert!(refused.is_err(), "{last:?}");
    assert_eq!(everything(&*store), there);
}
