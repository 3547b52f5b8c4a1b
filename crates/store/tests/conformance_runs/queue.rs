//! The queue: its order, its timeouts, and whether there is work.

use std::time::Duration;

use lockkeeper_core::record::Priority;
use lockkeeper_core::request::Request;
use lockkeeper_core::retry::RetryPolicy;
use lockkeeper_core::run::transition::{self, Claimant};
use lockkeeper_core::time::Moment;
use lockkeeper_store::RunStore;
use lockkeeper_store::runs::Listing;

use super::Harness;
use super::sample::{
    FAILURE, apply, claim, end_of, request, request_after, request_with_retries, run, store, submit, worker,
};

fn listed(store: &dyn RunStore, listing: Listing, limit: usize) -> Vec<String> {
    let found = store.snapshot().unwrap().claimable(listing, limit).unwrap();
    found.into_iter().map(|(run, _)| run.request.to_string()).collect()
}

pub(super) fn the_queue_is_in_order(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    let [a, b] = ["a", "b"].map(|id| submit(&*store, &request(id)));
    let urgent = submit(&*store, &Request { priority: Priority::new(9).unwrap(), ..request("urgent") });
    submit(&*store, &request_after("later", &["a"]));
    let records = store.snapshot().unwrap();
    assert_eq!(records.queue_head(9).unwrap(), [urgent.id.clone(), a.id.clone(), b.id.clone()]);
    assert_eq!(records.queue_head(1).unwrap(), std::slice::from_ref(&urgent.id));
    let positions = [&urgent, &a, &b].map(|run| records.queue_position(&run.id).unwrap());
    assert_eq!(positions, [0, 1, 2]);
    drop(records);
    assert_eq!(listed(&*store, Listing::EveryRun, 9), ["urgent", "a", "b"]);
    claim(&*store, &urgent);
    assert_eq!(listed(&*store, Listing::EveryRun, 1), ["a"]);
}

pub(super) fn only_the_first_of_each_lease_is_listed(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    for (id, lock) in [("a", "db"), ("b", "db"), ("c", "web"), ("d", ""), ("e", ""), ("f", "web")] {
        let locks = if lock.is_empty() { Vec::new() } else { vec![lock.parse().unwrap()] };
        submit(&*store, &Request { locks, ..request(id) });
    }
    assert_eq!(listed(&*store, Listing::FirstOfEachLease, 9), ["a", "c", "d"]);
    assert_eq!(listed(&*store, Listing::EveryRun, 9), ["a", "b", "c", "d", "e", "f"]);
}

pub(super) fn timeouts_are_found(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    let late = submit(&*store, &Request { queue_timeout: Some(Duration::ZERO), ..request("late") });
    submit(&*store, &Request { queue_timeout: Some(Duration::from_secs(3600)), ..request("early") });
    let limited = |id| Request { timeout: Some(Duration::ZERO), ..request(id) };
    // A worker watches its own runs.
    claim(&*store, &submit(&*store, &limited("ours")));
    let outside = Claimant { worker: worker("robot"), holder: None, lease: None };
    let outside = transition::claim(&submit(&*store, &limited("outside")), outside, store.now());
    let outside = apply(&*store, outside.unwrap());
    let overdue = store.snapshot().unwrap().overdue(9).unwrap();
    assert_eq!(overdue, [late, outside]);
    for run in &overdue {
        apply(&*store, transition::time_out(run, store.now()).unwrap());
    }
    assert_eq!(store.snapshot().unwrap().overdue(9).unwrap(), []);
}

pub(super) fn the_next_due_moment_is_known(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    let looked_at = store.now().moment;
    let due = || store.snapshot().unwrap().next_due(looked_at).unwrap();
    assert_eq!(due(), None);
    let hour = Duration::from_secs(3600);
    let queued = submit(&*store, &Request { queue_timeout: Some(3 * hour), ..request("queued") });
    assert!(due().is_some() && due() == queued.give_up_at());
    let retry = RetryPolicy { limit: 1, base: 2 * hour, longest: 2 * hour, codes: Vec::new() };
    let retried = Request { retry, ..request("retried") };
    let claimed = claim(&*store, &submit(&*store, &retried));
    let waiting = apply(&*store, end_of(&*store, &claimed, &retried, FAILURE));
    assert!(due().is_some() && due() == waiting.retry_at());
    let late = submit(&*store, &Request { queue_timeout: Some(Duration::ZERO), ..request("late") });
    assert_eq!(due(), late.give_up_at());
    // An attempt that was due before `looked_at` does not wait for time.
    let at_once = request_with_retries("at-once", 1);
    let claimed = claim(&*store, &submit(&*store, &at_once));
    let waiting_too = apply(&*store, end_of(&*store, &claimed, &at_once, FAILURE));
    apply(&*store, transition::time_out(&run(&*store, &late.id), store.now()).unwrap());
    assert_eq!(due(), waiting_too.retry_at());
    let later = store.snapshot().unwrap().next_due(store.now().moment).unwrap();
    assert_eq!(later, waiting.retry_at());
    assert_eq!(store.snapshot().unwrap().next_due(Moment::MAX).unwrap(), queued.give_up_at());
}

pub(super) fn a_store_knows_whether_it_has_work(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    let has_work = || store.snapshot().unwrap().has_work().unwrap();
    assert!(!has_work());
    let retried = request_with_retries("a", 1);
    let queued = submit(&*store, &retried);
    assert!(has_work());
    let claimed = claim(&*store, &queued);
    assert!(!has_work());
    apply(&*store, end_of(&*store, &claimed, &retried, FAILURE));
    assert!(has_work());
}

pub(super) fn a_priority_can_change(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    for id in ["a", "b"] {
        submit(&*store, &request(id));
    }
    assert!(store.set_priority(&"b".parse().unwrap(), Priority::new(7).unwrap()).unwrap());
    assert!(!store.set_priority(&"none".parse().unwrap(), Priority::new(7).unwrap()).unwrap());
    let records = store.snapshot().unwrap();
    assert_eq!(records.request(&"b".parse().unwrap()).unwrap().unwrap().request.priority.get(), 7);
    let order: Vec<String> = records
        .queue_head(9)
        .unwrap()
        .into_iter()
        .map(|run| records.run(&run).unwrap().unwrap().request.to_string())
        .collect();
    assert_eq!(order, ["b", "a"]);
}
