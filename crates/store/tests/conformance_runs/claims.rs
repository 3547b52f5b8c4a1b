//! Claims: which runs a worker gets, and in which order.

use std::collections::HashSet;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use lockkeeper_core::id::HolderId;
use lockkeeper_core::record::Priority;
use lockkeeper_core::request::Request;
use lockkeeper_store::RunStore;
use lockkeeper_store::runs::{ClaimOrder, Claims, Listing, Moved};

use super::Harness;
use super::sample::{
    FAILURE, SUCCESS, all_events, apply, claim, end_of, finish, request, request_after, request_with_retries,
    run, store, submit, worker,
};

/// Claims at most this many runs. Returns the ids of their requests.
fn claim_some(store: &dyn RunStore, order: ClaimOrder, limit: u64) -> Vec<String> {
    let locks: Vec<HolderId> = (1..=limit).map(|number| HolderId(1000 + number)).collect();
    let claimed = store.claim(&Claims { worker: &worker("W-9"), locks: &locks, order }).unwrap();
    claimed
        .into_iter()
        .map(|(claimed, request)| {
            assert_eq!(run(store, &claimed.id), claimed);
            assert_eq!(claimed.request, request.id);
            request.id.to_string()
        })
        .collect()
}

fn with_priority(id: &str, level: i32) -> Request {
    Request { priority: Priority::new(level).unwrap(), ..request(id) }
}

fn with_lock(id: &str) -> Request {
    Request { locks: vec!["db".parse().unwrap()], ..request(id) }
}

pub(super) fn they_come_by_priority_then_by_age(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    for (id, level) in [("z", 0), ("low", -1), ("y", 0), ("high", 5), ("x", 0)] {
        submit(&*store, &with_priority(id, level));
    }
    assert_eq!(claim_some(&*store, ClaimOrder::Strict, 2), ["high", "z"]);
    assert_eq!(claim_some(&*store, ClaimOrder::SkipLeased, 2), ["y", "x"]);
    assert_eq!(claim_some(&*store, ClaimOrder::Strict, 2), ["low"]);
    assert_eq!(claim_some(&*store, ClaimOrder::Strict, 2), [""; 0]);
}

pub(super) fn a_due_attempt_comes_before_queued_runs(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    submit(&*store, &request("a"));
    submit(&*store, &with_priority("urgent", 1));
    let retried = request_with_retries("retried", 1);
    let claimed = claim(&*store, &submit(&*store, &retried));
    let waiting = apply(&*store, end_of(&*store, &claimed, &retried, FAILURE));
    assert!(waiting.waits_for_retry());
    assert_eq!(claim_some(&*store, ClaimOrder::Strict, 3), ["urgent", "retried", "a"]);
    let again = run(&*store, &waiting.id);
    assert_eq!((again.attempt(), again.claim()), (2, 2));
}

pub(super) fn a_strict_claim_stops_at_a_lease(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    for request in [request("a"), with_lock("locked"), request("b")] {
        submit(&*store, &request);
    }
    assert_eq!(claim_some(&*store, ClaimOrder::Strict, 3), ["a"]);
    assert_eq!(claim_some(&*store, ClaimOrder::Strict, 3), [""; 0]);
}

pub(super) fn a_claim_can_skip_leases(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    let task = Request { origin: Some("swarm:task".to_owned()), ..request("task") };
    for request in [with_lock("locked"), task, request("a"), with_lock("locked too"), request("b")]
        .map(|request| Request { id: request.id.as_str().replace(' ', "-").parse().unwrap(), ..request })
    {
        submit(&*store, &request);
    }
    assert_eq!(claim_some(&*store, ClaimOrder::SkipLeased, 5), ["a", "b"]);
}

/// Only the claimer knows the labels of its worker: it claims such runs one by one.
pub(super) fn a_claim_of_many_leaves_runs_that_need_labels(harness: &dyn Harness) {
    let (place, store) = store(harness);
    let on = |id: &str, labels: &[&str]| Request {
        needs: labels.iter().map(|label| label.parse().unwrap()).collect(),
        ..request(id)
    };
    for request in [on("gpu", &["gpu"]), request("a"), on("gpu-2", &["gpu"]), on("both", &["big", "gpu"])] {
        submit(&*store, &request);
    }
    assert_eq!(claim_some(&*store, ClaimOrder::Strict, 3), [""; 0]);
    let records = place.open();
    let listed = records.snapshot().unwrap().claimable(Listing::FirstOfEachLease, 9).unwrap();
    let ids: Vec<&str> = listed.iter().map(|(_, request)| request.id.as_str()).collect();
    assert_eq!(ids, ["gpu", "a", "both"], "one for each set of labels");
    assert_eq!(claim_some(&*store, ClaimOrder::SkipLeased, 3), ["a"]);
}

pub(super) fn a_dependency_is_done_first(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    let (first, second) = (submit(&*store, &request("first")), submit(&*store, &request("second")));
    let later = request_after("later", &["first", "second"]);
    submit(&*store, &later);
    assert_eq!(claim_some(&*store, ClaimOrder::Strict, 1), ["first"]);
    finish(&*store, &run(&*store, &first.id), SUCCESS);
    assert_eq!(claim_some(&*store, ClaimOrder::Strict, 2), ["second"]);
    assert_eq!(store.snapshot().unwrap().unmet(&later.id).unwrap(), ["second".parse().unwrap()]);
    // A dependency that failed is not done.
    finish(&*store, &run(&*store, &second.id), FAILURE);
    assert_eq!(claim_some(&*store, ClaimOrder::SkipLeased, 2), [""; 0]);
    let again = lockkeeper_store::runs::Requeue {
        first: lockkeeper_core::run::transition::submit(
            &request("second"),
            super::sample::new_run_id(),
            store.now(),
        ),
        expected: Some(second.id),
    };
    assert_eq!(store.requeue(std::slice::from_ref(&again)).unwrap(), [true]);
    finish(&*store, &claim(&*store, &run(&*store, &again.first.run.id)), SUCCESS);
    assert_eq!(claim_some(&*store, ClaimOrder::Strict, 2), ["later"]);
}

pub(super) fn a_run_of_a_stage_is_left_alone(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    let stage = Request { origin: Some("stage:build.1".to_owned()), ..request("stage") };
    let queued = submit(&*store, &stage);
    let found = store.snapshot().unwrap().queued_in_stages().unwrap();
    assert_eq!(found.iter().map(|run| &run.id).collect::<Vec<_>>(), [&queued.id]);
    assert_eq!(claim_some(&*store, ClaimOrder::Strict, 1), [""; 0]);
    assert_eq!(claim_some(&*store, ClaimOrder::SkipLeased, 1), [""; 0]);
    assert_eq!(store.snapshot().unwrap().queue_head(9).unwrap(), []);
    // Its own worker claims it by its id.
    claim(&*store, &queued);
    // Also after its dependency is done.
    let first = submit(&*store, &request("first"));
    let later = Request { origin: Some("stage:build.2".to_owned()), ..request_after("later", &["first"]) };
    submit(&*store, &later);
    finish(&*store, &claim(&*store, &first), SUCCESS);
    assert_eq!(store.snapshot().unwrap().unmet(&later.id).unwrap(), []);
    assert_eq!(claim_some(&*store, ClaimOrder::Strict, 1), [""; 0]);
}

pub(super) fn a_run_that_timed_out_is_left_alone(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    submit(&*store, &Request { queue_timeout: Some(Duration::ZERO), ..request("late") });
    assert_eq!(claim_some(&*store, ClaimOrder::Strict, 1), [""; 0]);
    assert_eq!(claim_some(&*store, ClaimOrder::SkipLeased, 1), [""; 0]);
}

/// A caller that does not know whether its claim was committed finds the run by the lock.
pub(super) fn each_claim_has_its_lock(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    let queued = ["a", "b", "c"].map(|id| submit(&*store, &request(id)));
    let locks = [HolderId(u64::MAX), HolderId(2)];
    let claims = Claims { worker: &worker("W-1"), locks: &locks, order: ClaimOrder::Strict };
    let claimed = store.claim(&claims).unwrap();
    assert_eq!(claimed.len(), 2);
    let records = store.snapshot().unwrap();
    for ((claimed, _), lock) in claimed.iter().zip(locks) {
        assert_eq!(records.run_with_lock(lock).unwrap().as_ref(), Some(claimed));
        assert_eq!(claimed.process().unwrap().holder, lock);
    }
    assert_eq!(records.run_with_lock(HolderId(3)).unwrap(), None);
    assert_eq!(records.run(&queued[2].id).unwrap().as_ref(), Some(&queued[2]));
}

pub(super) fn claims_see_the_transitions_of_their_call(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    let first = claim(&*store, &submit(&*store, &request("first")));
    submit(&*store, &request_after("later", &["first"]));
    let end = end_of(&*store, &first, &request("first"), SUCCESS);
    let claims = Claims { worker: &worker("W-1"), locks: &[HolderId(5)], order: ClaimOrder::Strict };
    let done = store.move_and_claim(&[end], Some(&claims)).unwrap();
    assert_eq!(done.moved, [Moved::Applied]);
    let claimed: Vec<&str> = done.claimed.iter().map(|(_, request)| request.id.as_str()).collect();
    assert_eq!(claimed, ["later"]);
}

pub(super) fn no_run_is_claimed_twice(harness: &dyn Harness) {
    const RUNS: usize = 40;
    let (place, first) = store(harness);
    for number in 0..RUNS {
        submit(&*first, &request(&format!("r{number}")));
    }
    let claimed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for number in 0..4_u64 {
            let (store, claimed) = (place.open(), &claimed);
            scope.spawn(move || {
                let worker = worker(&format!("W-{number}"));
                for round in 0.. {
                    let locks = [1, 2, 3].map(|lock| HolderId(number * 1_000 + round * 10 + lock));
                    let order = ClaimOrder::Strict;
                    let next = store.claim(&Claims { worker: &worker, locks: &locks, order }).unwrap();
                    if next.is_empty() {
                        return;
                    }
                    claimed.lock().unwrap().extend(next.into_iter().map(|(run, _)| run.id));
                }
            });
        }
    });
    let claimed = claimed.into_inner().unwrap();
    assert_eq!((claimed.len(), claimed.iter().collect::<HashSet<_>>().len()), (RUNS, RUNS));
    assert_eq!(all_events(&*first).len(), 2 * RUNS);
}
