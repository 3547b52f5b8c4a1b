//! Submission: what enters the queue, and what is refused.

use std::collections::HashSet;
use std::thread;
use std::time::Duration;

use lockkeeper_core::record::Priority;
use lockkeeper_core::request::{Request, RequestStatus};
use lockkeeper_core::retry::RetryPolicy;
use lockkeeper_core::run::admission::{Refusal, Submitted};
use lockkeeper_core::run::{Status, transition};
use lockkeeper_store::runs::Requeue;

use super::Harness;
use super::sample::{
    SUCCESS, all_events, all_runs, claim, execute, finish, new_run_id, request, request_after, store, submit,
    try_submit,
};

pub(super) fn every_field_comes_back(harness: &dyn Harness) {
    let (place, store) = store(harness);
    execute(&*store, &request("before"), SUCCESS);
    let full = Request {
        id: "full".parse().unwrap(),
        title: "Zürich, 東京 'quoted' \"twice\"".to_owned(),
        command: vec!["printf".to_owned(), "%s\n".to_owned(), String::new()],
        dir: "/tmp/a folder".to_owned(),
        env: vec![("A".to_owned(), "1=2".to_owned()), ("B".to_owned(), String::new())],
        locks: vec!["db".parse().unwrap()],
        paths: vec!["src/**".parse().unwrap()],
        shared: true,
        needs: vec!["gpu".parse().unwrap(), "linux/arm64".parse().unwrap()],
        priority: Priority::new(-7).unwrap(),
        after: vec!["before".parse().unwrap()],
        queue_timeout: Some(Duration::from_micros(90_000_001)),
        timeout: Some(Duration::from_secs(5)),
        retry: RetryPolicy {
            limit: 3,
            base: Duration::from_millis(20),
            longest: Duration::from_secs(9),
            codes: vec![1, 75],
        },
        success: vec![0, 3],
        key: Some("key".to_owned()),
        origin: Some("swarm:task".to_owned()),
    };
    let run = submit(&*store, &full);
    let records = place.open();
    let records = records.snapshot().unwrap();
    let stored = records.request(&full.id).unwrap().unwrap();
    assert_eq!(stored.request, full);
    assert_eq!((stored.status, stored.unmet), (RequestStatus::Queued, 0));
    assert_eq!(stored.latest.as_ref(), Some(&run.id));
    assert_eq!(run, transition::submit(&full, run.id.clone(), run.queued_at).run);
    assert_eq!(records.latest_run(&full.id).unwrap(), Some(run));
}

pub(super) fn a_batch_enters_together_or_not_at_all(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    let refused = try_submit(&*store, &[request("a"), request_after("b", &["missing"])], None);
    assert!(matches!(refused, Err(Refusal::MissingDependency { .. })), "{refused:?}");
    assert!(all_runs(&*store).is_empty() && all_events(&*store).is_empty());
    assert!(store.snapshot().unwrap().request(&request("a").id).unwrap().is_none());
    let batch = [request_after("c", &["b"]), request_after("b", &["a"]), request("a")];
    let submitted = try_submit(&*store, &batch, None).unwrap();
    let order: Vec<&str> = submitted.iter().map(|one| one.request.as_str()).collect();
    assert_eq!(order, ["a", "b", "c"]);
    assert_eq!(all_runs(&*store).len(), 3);
    assert_eq!(store.snapshot().unwrap().unmet(&batch[0].id).unwrap(), ["b".parse().unwrap()]);
}

pub(super) fn one_of_many_submits_a_key(harness: &dyn Harness) {
    let (place, first) = store(harness);
    let submitted: Vec<Submitted> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|number| {
                let store = place.open();
                let one = Request { key: Some("once".to_owned()), ..request(&format!("r{number}")) };
                scope.spawn(move || try_submit(&*store, &[one], None).unwrap().remove(0))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(submitted.iter().filter(|one| !one.existing).count(), 1);
    let different: HashSet<_> = submitted.iter().map(|one| (&one.request, &one.run)).collect();
    assert_eq!(different.len(), 1);
    assert_eq!(all_runs(&*first).len(), 1);
}

pub(super) fn the_queue_limit_holds_for_many(harness: &dyn Harness) {
    let (place, first) = store(harness);
    thread::scope(|scope| {
        for thread in 0..4 {
            let store = place.open();
            scope.spawn(move || {
                for number in 0..5 {
                    match try_submit(&*store, &[request(&format!("r{thread}.{number}"))], Some(7)) {
                        Ok(_) => {}
                        Err(refusal) => assert!(matches!(refusal, Refusal::QueueFull { length: 7, .. })),
                    }
                }
            });
        }
    });
    let counts = first.snapshot().unwrap().run_counts().unwrap();
    assert_eq!(HashSet::from([(Status::Queued, 7), (Status::Rejected, 13)]), counts.into_iter().collect());
}

pub(super) fn a_refusal_is_recorded(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    let queued = submit(&*store, &request("a"));
    let refusal = try_submit(&*store, &[request("a")], None).unwrap_err();
    let Refusal::Duplicate { run: Some(rejected), .. } = refusal else { panic!("{refusal:?}") };
    let records = store.snapshot().unwrap();
    assert_eq!(records.run(&rejected).unwrap().unwrap().status(), Status::Rejected);
    // The request still has the run that was not rejected.
    assert_eq!(records.latest_run(&queued.request).unwrap(), Some(queued));
    let events = records.events_of(&rejected, 0, 9).unwrap();
    assert_eq!(events.iter().map(|event| event.to.as_str()).collect::<Vec<_>>(), ["rejected"]);
    drop(records);
    let refusal = try_submit(&*store, &[request("b")], Some(1)).unwrap_err();
    assert!(matches!(refusal, Refusal::QueueFull { run: Some(_), length: 1, .. }), "{refusal:?}");
    let stored = store.snapshot().unwrap().request(&request("b").id).unwrap().unwrap();
    assert_eq!((stored.status, stored.latest), (RequestStatus::Failed, None));
}

pub(super) fn one_of_many_queues_the_next_run(harness: &dyn Harness) {
    let (place, first) = store(harness);
    let ended = execute(&*first, &request("a"), SUCCESS);
    let queued: usize = thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let (store, expected) = (place.open(), Some(ended.id.clone()));
                scope.spawn(move || {
                    let first = transition::submit(&request("a"), new_run_id(), store.now());
                    store.requeue(&[Requeue { first, expected }]).unwrap() == [true]
                })
            })
            .collect();
        threads.into_iter().map(|thread| usize::from(thread.join().unwrap())).sum()
    });
    assert_eq!((queued, all_runs(&*first).len()), (1, 2));
    let stored = first.snapshot().unwrap().request(&ended.request).unwrap().unwrap();
    assert_eq!(stored.status, RequestStatus::Queued);
}

pub(super) fn a_new_run_needs_the_expected_latest_run(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    let dependent = submit(&*store, &request("first"));
    let ended = finish(&*store, &claim(&*store, &dependent), SUCCESS);
    let new = |request: &Request, expected| Requeue {
        first: transition::submit(request, new_run_id(), store.now()),
        expected,
    };
    let other = Some(new_run_id());
    let answers = store.requeue(&[
        new(&request("first"), other),
        new(&request("first"), None),
        new(&request("missing"), None),
        new(&request("first"), Some(ended.id.clone())),
        new(&request("first"), Some(ended.id)),
    ]);
    assert_eq!(answers.unwrap(), [false, false, false, true, false]);
    assert_eq!(all_runs(&*store).len(), 2);
}
