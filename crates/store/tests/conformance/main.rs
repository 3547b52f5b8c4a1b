//! Conformance suite: the contract of [`LeaseStore`] as a list of cases, the same for every backend.
//!
//! A new backend writes a [`Harness`] and one `conformance_tests!` line, both in `backends.rs`: every case becomes one test of that
//! backend. The compiler reports a case that is missing from the list as unused code. A backend that cannot be reached fails, or
//! is `#[ignore]`d with what it needs, so that nobody leaves it out by accident.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

#[macro_use]
#[path = "../support/all.rs"]
mod support;

mod atomic;
mod broken;
mod changes;
mod clock;
mod differential;
mod etcd;
mod lookup;
mod numbers;
mod processes;
mod retry;
mod sample;
mod snapshots;
mod sqlite;
mod twice;
mod wakers;

use lockkeeper_core::record::{Lease, Ticket};
use lockkeeper_core::records::{Change, Effect, Records};

use lockkeeper_store::{Commit, LeaseStore, StoreError};

use support::{LIMIT, breaks, harness, on_server, other_process, serving, through_proxy};

/// A backend of stores of leases, for the cases.
pub trait Harness: harness::Harness<dyn LeaseStore> {}

impl<H: harness::Harness<dyn LeaseStore>> Harness for H {}

/// Where one store of leases is.
type Place = dyn harness::Place<dyn LeaseStore>;

/// Makes one test of each case for a backend: `conformance_tests!(sqlite: SQLITE)`.
macro_rules! conformance_tests {
    ($backend:ident: $harness:expr) => {
        mod $backend {
            tests_of_cases!($harness;
                atomic: no_update_is_lost, one_of_many_finds_it_free, one_of_many_finds_the_folder_free,
                    nobody_waits_for_what_was_removed, a_dropped_transaction_leaves_nothing,
                    a_failed_change_leaves_nothing, a_panic_leaves_nothing;
                processes: no_update_of_another_process_is_lost, a_killed_process_leaves_nothing;
                numbers: they_grow_from_decision_to_decision, they_grow_after_failures, they_grow_after_opening_again,
                    no_two_threads_get_the_same, they_can_be_raised_and_never_fall, a_snapshot_gives_none;
                snapshots: one_moment_is_seen, nobody_waits_for_a_snapshot, a_snapshot_waits_for_nobody;
                lookup: keys_are_found_exactly, folders_are_found_with_what_is_below, a_record_under_two_keys_comes_once,
                    the_line_is_scanned_forward_and_backward, a_scan_ends_at_its_limit, everything_is_in_order;
                changes: every_field_comes_back, what_is_added_must_be_new, an_id_is_that_of_a_lease_or_of_a_ticket,
                    a_ticket_that_is_granted_is_a_lease, what_is_granted_must_wait, what_is_changed_must_be_there,
                    what_is_removed_must_be_there, a_change_keeps_its_keys;
                wakers: a_wake_up_before_the_sleep_wakes, a_wake_up_during_the_sleep_wakes,
                    a_waker_can_be_woken_again, a_waker_is_found_by_its_id, a_wake_up_for_nobody_is_harmless,
                    a_removed_waker_is_gone, a_wake_up_brings_the_granted_lease_or_nothing, a_failed_grant_brings_nothing;
                clock: it_stands_during_a_decision, it_never_goes_back;
                retry: decisions_may_run_twice, only_the_last_run_counts;
            );
        }
    };
}
// The macro is in scope below its definition only.
mod backends;

/// What a decision returns: its changes, and an answer.
type Decided<T> = Result<(Vec<Change>, T), StoreError>;

/// Runs a decision until its changes are committed. Returns the answer of the run that was committed.
fn decide<T>(
    store: &dyn LeaseStore,
    mut decision: impl FnMut(&mut dyn Records<StoreError>) -> Decided<T>,
) -> Result<T, StoreError> {
    loop {
        let mut transaction = store.begin()?;
        let (changes, answer) = decision(&mut *transaction)?;
        if transaction.commit(changes, &[])? == Commit::Committed {
            return Ok(answer);
        }
    }
}

/// Commits changes and effects.
fn commit(store: &dyn LeaseStore, changes: &[Change], effects: &[Effect]) -> Result<(), StoreError> {
    while store.begin()?.commit(changes.to_vec(), effects)? == Commit::Changed {}
    Ok(())
}

/// Reads a snapshot.
fn look<T>(
    store: &dyn LeaseStore,
    look: impl FnOnce(&mut dyn Records<StoreError>) -> Result<T, StoreError>,
) -> T {
    let mut snapshot = store.snapshot().expect("a snapshot");
    look(&mut *snapshot).expect("reading works")
}

/// All records.
fn everything(store: &dyn LeaseStore) -> (Vec<Lease>, Vec<Ticket>) {
    look(store, |records| records.all())
}
