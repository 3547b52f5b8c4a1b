//! Pruning: which requests are removed, and which stay.

use std::collections::BTreeSet;
use std::time::Duration;

use lockkeeper_core::request::Request;
use lockkeeper_core::run::transition;
use lockkeeper_store::runs::Removed;

use super::Harness;
use super::sample::{
    FAILURE, SUCCESS, all_runs, apply, claim, execute, request, request_after, store, submit,
};

pub(super) fn old_requests_are_removed(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    let done = execute(&*store, &request("done"), SUCCESS);
    let ended_at = done.completed_at().unwrap().unix_micros;
    assert_eq!(store.prune(ended_at).unwrap(), []);
    submit(&*store, &request("queued"));
    claim(&*store, &submit(&*store, &request("running")));
    let before = ended_at + 1;
    assert_eq!(store.snapshot().unwrap().prunable(before).unwrap(), std::slice::from_ref(&done.request));
    let removed = store.prune(before).unwrap();
    assert_eq!(removed, [Removed { request: done.request.clone(), runs: vec![done.id.clone()] }]);
    let records = store.snapshot().unwrap();
    assert_eq!((records.run(&done.id).unwrap(), records.request(&done.request).unwrap()), (None, None));
    assert_eq!(records.events_of(&done.id, 0, 9).unwrap(), []);
    drop(records);
    assert_eq!((store.prune(i64::MAX).unwrap(), all_runs(&*store).len()), (Vec::new(), 2));
    assert_eq!(store.examine(true).unwrap().flaws, [""; 0]);
    // The id can be used again.
    submit(&*store, &request("done"));
}

pub(super) fn what_is_needed_stays(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    // An open request needs its dependencies.
    execute(&*store, &request("needed"), SUCCESS);
    submit(&*store, &request_after("open", &["needed"]));
    // A request that stays would wait for a dependency that is not done.
    execute(&*store, &request("failed"), FAILURE);
    let kept = apply(
        &*store,
        transition::cancel(&submit(&*store, &request_after("kept", &["failed", "open"])), store.now(), None)
            .unwrap(),
    );
    // Processes of it may live.
    let limited = Request { timeout: Some(Duration::ZERO), ..request("timed-out") };
    let claimed = claim(&*store, &submit(&*store, &limited));
    let timed_out = apply(&*store, transition::time_out(&claimed, store.now()).unwrap());
    // A chain of ended requests goes as a whole.
    execute(&*store, &request("first"), FAILURE);
    submit(&*store, &request_after("second", &["first"]));
    let second = store.snapshot().unwrap().latest_run(&"second".parse().unwrap()).unwrap().unwrap();
    apply(&*store, transition::cancel(&second, store.now(), None).unwrap());
    let removed: BTreeSet<String> =
        store.prune(i64::MAX).unwrap().iter().map(|removed| removed.request.to_string()).collect();
    // `kept` goes with `failed`: nothing that stays depends on either.
    assert_eq!(removed, ["failed", "first", "kept", "second"].map(ToOwned::to_owned).into());
    assert!(store.snapshot().unwrap().run(&kept.id).unwrap().is_none());
    store.clear_processes(&timed_out).unwrap();
    assert_eq!(store.prune(i64::MAX).unwrap()[0].request, timed_out.request);
    let left: BTreeSet<String> = all_runs(&*store).iter().map(|run| run.request.to_string()).collect();
    assert_eq!(left, ["needed", "open"].map(ToOwned::to_owned).into());
}
