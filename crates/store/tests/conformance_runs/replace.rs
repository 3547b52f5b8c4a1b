//! Replacement: a request that exists gets another definition and a new run.

use std::thread;
use std::time::Duration;

use lockkeeper_core::id::RunId;
use lockkeeper_core::record::Priority;
use lockkeeper_core::request::{Request, RequestStatus};
use lockkeeper_core::run::Status;
use lockkeeper_core::run::admission::{Refusal, Submission, Submitted};
use lockkeeper_store::RunStore;

use super::Harness;
use super::sample::{
    FAILURE, SUCCESS, all_events, all_runs, claim, claim_of, execute, finish, new_run_id, request,
    request_after, run, store, submit,
};

fn try_replace(
    store: &dyn RunStore,
    requests: &[Request],
    queue_limit: Option<u64>,
) -> Result<Vec<Submitted>, Refusal> {
    let runs: Vec<RunId> = requests.iter().map(|_| new_run_id()).collect();
    store.replace(&Submission { requests, runs: &runs, queue_limit, forbidden: None }).unwrap()
}

fn replace(store: &dyn RunStore, request: &Request) -> Submitted {
    try_replace(store, std::slice::from_ref(request), None).unwrap().remove(0)
}

/// Another definition of the request `a`: nothing of the first one is left.
fn other() -> Request {
    Request {
        title: "other".to_owned(),
        command: vec!["false".to_owned()],
        locks: vec!["db".parse().unwrap()],
        priority: Priority::new(9).unwrap(),
        timeout: Some(Duration::from_secs(5)),
        ..request("a")
    }
}

fn queued(store: &dyn RunStore) -> Vec<RunId> {
    store.snapshot().unwrap().queue_head(9).unwrap()
}

pub(super) fn an_ended_request_gets_a_new_run(harness: &dyn Harness) {
    let (place, store) = store(harness);
    let ended = execute(&*store, &Request { key: Some("key".to_owned()), ..request("a") }, FAILURE);
    let replaced = replace(&*store, &other());
    assert!(replaced.replaced && !replaced.existing);
    let again = place.open();
    let records = again.snapshot().unwrap();
    let stored = records.request(&ended.request).unwrap().unwrap();
    assert_eq!(stored.request, other());
    assert_eq!((stored.status, stored.unmet), (RequestStatus::Queued, 0));
    assert_eq!(stored.latest.as_ref(), Some(&replaced.run));
    let new = records.run(&replaced.run).unwrap().unwrap();
    assert_eq!((new.status(), new.timeout), (Status::Queued, other().timeout));
    assert_eq!(records.run(&ended.id).unwrap(), Some(ended), "an ended run never changes");
    assert_eq!(records.queue_head(9).unwrap(), [replaced.run]);
    drop(records);
    // No request has the key any more.
    submit(&*store, &Request { key: Some("key".to_owned()), ..request("b") });
}

pub(super) fn a_queued_run_is_replaced(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    let old = submit(&*store, &request("a"));
    let replaced = replace(&*store, &other());
    let canceled = run(&*store, &old.id);
    assert_eq!((canceled.status(), canceled.version), (Status::Canceled, 2));
    assert_eq!(queued(&*store), std::slice::from_ref(&replaced.run));
    // A worker that had seen the old run cannot claim it.
    let late = store.move_runs(&[claim_of(&*store, &old, "W-1")]).unwrap();
    assert!(matches!(late[..], [lockkeeper_store::runs::Moved::Conflict(Some(_))]), "{late:?}");
    let records = store.snapshot().unwrap();
    let stored = records.request(&old.request).unwrap().unwrap();
    assert_eq!((stored.status, stored.latest), (RequestStatus::Queued, Some(replaced.run)));
    let whole = all_events(&*store).iter().map(|event| event.kind.clone()).collect::<Vec<_>>();
    assert_eq!(whole, ["submitted", "ended", "submitted"]);
}

pub(super) fn a_request_that_runs_is_left_alone(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    let running = claim(&*store, &submit(&*store, &request("a")));
    let before = all_events(&*store);
    let refused = try_replace(&*store, &[request("new"), other()], None).unwrap_err();
    let Refusal::InProgress { run, status: Status::Running, .. } = refused else { panic!("{refused:?}") };
    assert_eq!(run, running.id);
    assert_eq!(all_events(&*store), before);
    let records = store.snapshot().unwrap();
    assert_eq!(records.request(&running.request).unwrap().unwrap().request, request("a"));
    assert!(records.request(&request("new").id).unwrap().is_none(), "all or none");
}

pub(super) fn a_new_id_is_submitted(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    let submitted = replace(&*store, &request("a"));
    assert!(!submitted.replaced && !submitted.existing);
    assert_eq!(queued(&*store), [submitted.run]);
}

pub(super) fn dependencies_are_replaced(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    for id in ["x", "a", "b"] {
        execute(&*store, &request(id), SUCCESS);
    }
    submit(&*store, &request_after("c", &["b"]));
    // The order of the list does not matter: `b` waits for the new runs of both.
    let batch = [request_after("b", &["a", "x"]), request("a"), request("x")];
    let replaced = try_replace(&*store, &batch, None).unwrap();
    let runs = |id: &str| replaced.iter().find(|one| one.request.as_str() == id).unwrap().run.clone();
    let unmet = |id: &str| store.snapshot().unwrap().unmet(&id.parse().unwrap()).unwrap();
    assert_eq!(queued(&*store), [runs("a"), runs("x")]);
    assert_eq!(unmet("c"), ["b".parse().unwrap()], "it waits again");
    replace(&*store, &request_after("b", &["a"]));
    assert_eq!(unmet("b"), ["a".parse().unwrap()]);
    finish(&*store, &claim(&*store, &run(&*store, &runs("a"))), SUCCESS);
    assert_eq!(unmet("b"), []);
    let ready = queued(&*store);
    assert_eq!(ready.len(), 2, "`x` and the latest run of `b`: {ready:?}");
}

pub(super) fn a_cycle_over_other_requests_is_refused(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    submit(&*store, &request("a"));
    submit(&*store, &request_after("b", &["a"]));
    submit(&*store, &request_after("c", &["b"]));
    let before = all_events(&*store);
    let refused = try_replace(&*store, &[request_after("a", &["c"])], None).unwrap_err();
    assert!(matches!(&refused, Refusal::Cycle { cycle } if cycle.len() == 3), "{refused:?}");
    let refused = try_replace(&*store, &[request_after("a", &["missing"])], None).unwrap_err();
    assert!(matches!(refused, Refusal::MissingDependency { .. }), "{refused:?}");
    assert_eq!(all_events(&*store), before);
}

pub(super) fn a_full_queue_takes_no_more(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    execute(&*store, &request("ended"), SUCCESS);
    submit(&*store, &request("a"));
    let refused = try_replace(&*store, &[request("ended")], Some(1)).unwrap_err();
    assert!(matches!(refused, Refusal::QueueFull { run: None, length: 1, .. }), "{refused:?}");
    // The new run takes the place of the queued one.
    assert!(try_replace(&*store, &[other()], Some(1)).is_ok());
    assert_eq!(queued(&*store).len(), 1);
}

pub(super) fn many_replace_at_once(harness: &dyn Harness) {
    let (place, first) = store(harness);
    let ended = execute(&*first, &request("a"), SUCCESS);
    thread::scope(|scope| {
        for _ in 0..4 {
            let store = place.open();
            scope.spawn(move || {
                for _ in 0..5 {
                    replace(&*store, &other());
                }
            });
        }
    });
    let stored = first.snapshot().unwrap().request(&ended.request).unwrap().unwrap();
    assert_eq!(queued(&*first), [stored.latest.unwrap()]);
    let canceled = all_runs(&*first).iter().filter(|run| run.status() == Status::Canceled).count();
    assert_eq!(canceled, 19);
    assert!(first.examine(true).unwrap().flaws.is_empty());
}
