//! The contract of a store as a list of cases, the same for every engine.
//!
//! A new engine writes a [`Harness`] and a test that gives it to [`run_all`], both in `engines.rs`. A case that
//! is missing from [`CASES`] is unused code, which the compiler tells; an engine that cannot be reached fails,
//! or is `#[ignore]`d with what it needs, so that it is never silently left out.

mod atomic;
mod changes;
mod clock;
mod differential;
mod engines;
mod lookup;
mod numbers;
mod processes;
mod retry;
pub(super) mod sample;
mod snapshots;
mod twice;
mod wakers;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::{Records, Store, StoreError};

/// Longer than anything that works takes, on the slowest machine.
const LIMIT: Duration = Duration::from_secs(30);

/// How the cases get at stores of one engine.
pub(super) trait Harness: Sync {
    /// The engine's name.
    fn name(&self) -> &'static str;

    /// A place where no store was yet; it is cleared away when dropped.
    fn place(&self) -> Box<dyn Place>;

    /// Opens the store at an address that another process was given.
    fn open(&self, address: &str) -> Arc<dyn Store>;
}

/// Where one store lives.
pub(super) trait Place: Send + Sync {
    /// Opens the store as one more user of it would.
    fn open(&self) -> Arc<dyn Store>;

    /// What another process opens it by; none for an engine of one process.
    fn address(&self) -> Option<String>;
}

/// One promise of the contract.
struct Case {
    name: &'static str,
    run: fn(&dyn Harness),
}

macro_rules! cases {
    ($($module:ident: $($case:ident),+;)+) => {
        &[$($(Case { name: concat!(stringify!($module), "::", stringify!($case)), run: $module::$case }),+),+]
    };
}

/// Every case there is.
const CASES: &[Case] = cases! {
    atomic: no_update_is_lost, one_of_many_finds_it_free, one_of_many_finds_the_folder_free,
        nobody_waits_for_what_was_removed, a_failed_decision_leaves_nothing, a_failed_change_leaves_nothing,
        a_panic_leaves_nothing;
    processes: no_update_of_another_process_is_lost, a_killed_process_leaves_nothing;
    numbers: they_grow_from_decision_to_decision, they_grow_after_failures, they_grow_after_opening_again,
        no_two_threads_get_the_same;
    snapshots: one_moment_is_seen, nobody_waits_for_a_look, a_look_waits_for_nobody, a_look_changes_nothing;
    lookup: keys_are_found_exactly, folders_are_found_with_what_is_below, a_record_under_two_keys_comes_once,
        the_line_is_walked_up_and_down, a_walk_ends_when_told, everything_is_in_order;
    changes: every_field_comes_back, a_decision_sees_its_own_changes, what_is_added_must_be_new,
        an_id_is_that_of_a_lease_or_of_a_ticket, a_ticket_that_is_granted_is_a_lease, what_is_granted_must_wait,
        what_is_changed_must_be_there, what_is_removed_must_be_there, a_change_keeps_its_keys;
    wakers: a_ring_before_the_sleep_wakes, a_ring_during_the_sleep_wakes, a_quiet_bell_can_be_rung_again,
        a_bell_is_rung_by_its_number, a_ring_for_nobody_is_harmless, what_is_dismantled_is_gone,
        a_ring_tells_of_a_lease_once_or_not_at_all, a_lease_may_be_announced;
    clock: it_stands_during_a_decision, it_never_goes_back;
    retry: decisions_may_run_twice, only_the_last_run_counts;
};

/// Holds an engine to every case, and tells all those that it fails.
pub(super) fn run_all(harness: &dyn Harness) {
    let failed: Vec<&str> = CASES
        .iter()
        .filter(|case| {
            println!("{}: {}", harness.name(), case.name);
            catch_unwind(AssertUnwindSafe(|| (case.run)(harness))).is_err()
        })
        .map(|case| case.name)
        .collect();
    assert!(failed.is_empty(), "{} fails {failed:?}", harness.name());
}

/// Runs a decision that gives something back; what its last run gave counts.
fn decide<T>(
    store: &dyn Store,
    mut decision: impl FnMut(&mut dyn Records) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let mut given = None;
    store.transact(&mut |records| {
        given = Some(decision(records)?);
        Ok(())
    })?;
    Ok(given.expect("a store that says yes has run the decision"))
}

/// Looks at the records of one moment.
fn look<T>(store: &dyn Store, mut look: impl FnMut(&mut dyn Records) -> Result<T, StoreError>) -> T {
    let mut seen = None;
    let looked = store.snapshot(&mut |records| {
        seen = Some(look(records)?);
        Ok(())
    });
    looked.expect("looking works");
    seen.expect("a store that says yes has looked")
}

/// What a decision says that gives up.
fn gives_up() -> StoreError {
    StoreError::Mismatch("on purpose".to_owned())
}
