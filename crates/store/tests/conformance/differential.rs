//! Random changes, made to a backend and to the store in memory: both accept or refuse the same changes, and return the same
//! records.

use std::sync::Arc;

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::in_memory::InMemoryRecords;
use lockkeeper_core::record::{Lease, Rank, Ticket};
use lockkeeper_core::records::{Change, Scan};
use lockkeeper_core::resource::Target;
use lockkeeper_core::time::Moment;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::backends::{ETCD, Memory, POSTGRES, REDIS, SQLITE};
use super::everything;
use super::harness::{Harness, skip};
use super::lookup::{leases_within, tickets_within};
use super::sample::{lease, name, path, ticket};
use lockkeeper_store::LeaseStore;

const TARGETS: usize = 8;

fn target(number: usize) -> Target {
    let paths = ["**", "src/**", "src/a/**", "src/a-b/x", "src/a/b/*.rs", "docs"];
    if number < 2 { name(["db", "src"][number]) } else { path(paths[number - 2]) }
}

#[derive(Clone, Debug)]
enum Kind {
    Add,
    /// Adds a record without a look whether its id is in use.
    AddBlindly,
    Update,
    Remove,
    Grant,
}

#[derive(Clone, Debug)]
struct Step {
    kind: Kind,
    is_lease: bool,
    id: u64,
    targets: Vec<usize>,
    at: i64,
    /// Whether the decision gives up after this step.
    gives_up: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let kind = prop_oneof![4 => Just(Kind::Add), 1 => Just(Kind::AddBlindly), 2 => Just(Kind::Update), 3 => Just(Kind::Remove), 2 => Just(Kind::Grant)];
    let targets = prop::collection::vec(0..TARGETS, 1..4);
    (kind, any::<bool>(), 1..6u64, targets, -3..3i64, prop::bool::weighted(0.1)).prop_map(
        |(kind, is_lease, id, targets, at, gives_up)| Step { kind, is_lease, id, targets, at, gives_up },
    )
}

/// The change that a step makes, given the records.
fn change(step: &Step, held: Option<Lease>, waits: Option<Ticket>) -> Option<Change> {
    let mut targets: Vec<Target> = Vec::new();
    for number in &step.targets {
        let target = target(*number);
        if !targets.contains(&target) {
            targets.push(target);
        }
    }
    let owner = format!("o{}", step.at);
    let new_lease = || lease(step.id, &owner, &targets);
    let new_ticket = || ticket(step.id, step.at, &owner, &targets);
    let touched = Moment::from_micros(step.at);
    match (&step.kind, step.is_lease) {
        (Kind::Add, true) => held.is_none().then(|| Change::AddLease(new_lease())),
        (Kind::Add, false) => waits.is_none().then(|| Change::AddTicket(new_ticket())),
        (Kind::AddBlindly, true) => Some(Change::AddLease(new_lease())),
        (Kind::AddBlindly, false) => Some(Change::AddTicket(new_ticket())),
        (Kind::Update, true) => {
            Some(Change::UpdateLease(Lease { heartbeat_at: touched, ..held.unwrap_or_else(new_lease) }))
        }
        (Kind::Update, false) => {
            Some(Change::UpdateTicket(Ticket { seen_at: touched, ..waits.unwrap_or_else(new_ticket) }))
        }
        (Kind::Grant, _) => {
            let ticket = waits.unwrap_or_else(new_ticket);
            let lease = Lease { claim: Arc::clone(&ticket.claim), acquired_at: touched, ..new_lease() };
            Some(Change::Grant(ticket, lease))
        }
        (Kind::Remove, true) => Some(Change::RemoveLease(held.unwrap_or_else(new_lease))),
        (Kind::Remove, false) => Some(Change::RemoveTicket(waits.unwrap_or_else(new_ticket))),
    }
}

/// Runs one decision of several steps; each step sees the changes of the steps before it. Returns whether it was committed.
fn run(store: &dyn LeaseStore, steps: &[Step]) -> bool {
    let mut transaction = store.begin().unwrap();
    let (leases, tickets) = transaction.all().unwrap();
    let mut records = InMemoryRecords::default();
    let there = leases.into_iter().map(Change::AddLease).chain(tickets.into_iter().map(Change::AddTicket));
    there.for_each(|change| records.apply(change).unwrap());
    let mut changes = Vec::new();
    for step in steps {
        let id = LeaseId(step.id);
        let change = change(step, records.lease(id).cloned(), records.ticket(id).cloned());
        changes.extend(change.clone());
        // The store has to refuse all changes if one of them does not fit.
        let fits = change.is_none_or(|change| records.apply(change).is_ok());
        if step.gives_up {
            return false;
        }
        if !fits {
            break;
        }
    }
    transaction.commit(changes, &[]).is_ok()
}

/// Makes the same decisions in a store of this backend and in the store in memory.
fn agree(
    backend: &dyn Harness<dyn LeaseStore>,
    decisions: &[Vec<Step>],
    place: (i64, u64),
) -> Result<(), TestCaseError> {
    let (backend, memory) = (backend.place(), Memory.place());
    let (backend, memory) = (backend.open(), memory.open());
    for steps in decisions {
        prop_assert_eq!(run(&*backend, steps), run(&*memory, steps), "{:?}", steps);
        prop_assert_eq!(everything(&*backend), everything(&*memory));
    }
    let rank = Rank { at: place.0, id: LeaseId(place.1) };
    let scans =
        [Scan::Forward(None), Scan::Backward(None), Scan::Forward(Some(rank)), Scan::Backward(Some(rank))];
    for range in (0..TARGETS).map(|number| target(number).key_range()) {
        prop_assert_eq!(leases_within(&*backend, &range), leases_within(&*memory, &range));
        for scan in scans {
            for at_most in [1, usize::MAX] {
                let within = |store: &dyn LeaseStore| tickets_within(store, &range, scan, at_most);
                prop_assert_eq!(within(&*backend), within(&*memory), "{:?} {:?}", range, scan);
            }
        }
    }
    Ok(())
}

fn decisions() -> impl Strategy<Value = Vec<Vec<Step>>> {
    prop::collection::vec(prop::collection::vec(step(), 1..5), 1..25)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn sqlite_and_memory_agree(decisions in decisions(), place in (-4..4i64, 0..7u64)) {
        agree(&SQLITE, &decisions, place)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn postgres_and_memory_agree(decisions in decisions(), place in (-4..4i64, 0..7u64)) {
        match POSTGRES.lacks() {
            None => agree(&POSTGRES, &decisions, place)?,
            Some(what) => skip(what),
        }
    }

    #[test]
    fn redis_and_memory_agree(decisions in decisions(), place in (-4..4i64, 0..7u64)) {
        match REDIS.lacks() {
            None => agree(&REDIS, &decisions, place)?,
            Some(what) => skip(what),
        }
    }

    #[test]
    fn etcd_and_memory_agree(decisions in decisions(), place in (-4..4i64, 0..7u64)) {
        match ETCD.lacks() {
            None => agree(&ETCD, &decisions, place)?,
            Some(what) => skip(what),
        }
    }
}
