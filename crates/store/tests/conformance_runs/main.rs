//! Conformance suite: the contract of [`RunStore`] as a list of cases, the same for every backend.
//!
//! A new backend writes a [`Harness`] and one `conformance_tests!` line, both in `backends.rs`: every case becomes one test of that
//! backend. The compiler reports a case that is missing from the list as unused code. A backend that cannot be reached fails, or
//! is `#[ignore]`d with what it needs, so that nobody leaves it out by accident.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

#[macro_use]
#[path = "../support/all.rs"]
mod support;
#[path = "../support/own_database.rs"]
mod own_database;

mod auto_run;
mod broken;
mod claims;
mod clock;
mod differential;
mod events;
mod http;
mod import;
mod lists;
mod moves;
mod postgres;
mod processes;
mod prune;
mod queue;
mod replace;
mod sample;
mod signals;
mod snapshots;
mod sqlite;
mod submit;

use lockkeeper_store::RunStore;

use support::{LIMIT, breaks, harness, on_server, other_process, serving, through_proxy};

/// A backend of stores of runs, for the cases.
pub trait Harness: harness::Harness<dyn RunStore> {}

impl<H: harness::Harness<dyn RunStore>> Harness for H {}

/// Where one store of runs is.
type Place = dyn harness::Place<dyn RunStore>;

/// Makes one test of each case for a backend: `conformance_tests!(sqlite: SQLITE)`.
macro_rules! conformance_tests {
    ($backend:ident: $harness:expr) => {
        mod $backend {
            tests_of_cases!($harness;
                submit: every_field_comes_back, a_batch_enters_together_or_not_at_all, one_of_many_submits_a_key,
                    the_queue_limit_holds_for_many, a_refusal_is_recorded, one_of_many_queues_the_next_run,
                    a_new_run_needs_the_expected_latest_run;
                replace: an_ended_request_gets_a_new_run, a_queued_run_is_replaced, a_request_that_runs_is_left_alone,
                    a_new_id_is_submitted, dependencies_are_replaced, a_cycle_over_other_requests_is_refused,
                    a_full_queue_takes_no_more, many_replace_at_once;
                moves: every_state_comes_back, no_update_is_lost, one_of_many_claims_a_run,
                    a_conflict_returns_the_current_record, a_conflict_does_not_keep_others_from_applying,
                    transitions_apply_in_their_order, the_same_transition_applies_once, an_unknown_run_conflicts,
                    clearing_processes_is_no_event, an_ended_run_never_changes;
                claims: they_come_by_priority_then_by_age, a_due_attempt_comes_before_queued_runs,
                    a_strict_claim_stops_at_a_lease, a_claim_can_skip_leases,
                    a_claim_of_many_leaves_runs_that_need_labels, a_dependency_is_done_first,
                    a_run_of_a_stage_is_left_alone, a_run_that_timed_out_is_left_alone, each_claim_has_its_lock,
                    claims_see_the_transitions_of_their_call, no_run_is_claimed_twice;
                queue: the_queue_is_in_order, only_the_first_of_each_lease_is_listed, timeouts_are_found,
                    the_next_due_moment_is_known, a_store_knows_whether_it_has_work, a_priority_can_change;
                events: they_say_what_happened, a_reader_misses_none, they_are_read_in_parts,
                    a_position_is_never_used_again;
                snapshots: one_moment_is_seen, nobody_waits_for_a_snapshot, what_belongs_together_changes_together,
                    everything_is_there_after_opening_again, an_intact_store_has_no_flaws;
                lists: runs_are_filtered, requests_are_filtered, open_requests_are_in_order, everything_is_counted,
                    rows_that_belong_together_come_together, the_oldest_run_of_the_queue_is_known,
                    runs_are_found_by_a_part_of_their_id, timings_are_those_of_the_runs, workers_come_and_go;
                auto_run: there_is_one_record, only_its_worker_changes_it;
                prune: old_requests_are_removed, what_is_needed_stays;
                import: everything_is_copied, it_goes_on_above_what_was_copied, moments_are_on_the_clock_of_the_store,
                    a_store_with_records_is_refused, records_can_be_replaced, an_import_that_fails_leaves_nothing,
                    a_store_that_was_moved_does_not_change;
                signals: a_change_signals, a_signal_can_be_forgotten;
                clock: it_never_goes_back;
                processes: no_update_of_another_process_is_lost, a_killed_process_leaves_whole_records;
            );
        }
    };
}
// The macro is in scope below its definition only.
mod backends;
