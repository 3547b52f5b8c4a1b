//! Snapshots: everything as it was at one moment.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use lockkeeper_core::request::RequestStatus;
use lockkeeper_core::run::Status;

use super::sample::{
    FAILURE, SUCCESS, all_events, all_runs, apply, claim, end_of, execute, finish, request, request_after,
    request_with_retries, run, store, submit,
};
use super::{Harness, LIMIT};

pub(super) fn one_moment_is_seen(harness: &dyn Harness) {
    let (place, store) = store(harness);
    let queued = submit(&*store, &request("a"));
    let other = place.open();
    let before = other.snapshot().unwrap();
    assert_eq!(before.run(&queued.id).unwrap().as_ref(), Some(&queued));
    let ended = finish(&*store, &claim(&*store, &queued), SUCCESS);
    assert_eq!(before.run(&queued.id).unwrap(), Some(queued));
    assert_eq!(before.events_of(&ended.id, 0, 9).unwrap().len(), 1);
    assert_eq!(before.request(&ended.request).unwrap().unwrap().status, RequestStatus::Queued);
    assert_eq!(before.request_counts().unwrap(), [(RequestStatus::Queued, 1)]);
    drop(before);
    let after = other.snapshot().unwrap();
    assert_eq!(after.run(&ended.id).unwrap(), Some(ended));
    assert_eq!(after.request_counts().unwrap(), [(RequestStatus::Done, 1)]);
}

pub(super) fn nobody_waits_for_a_snapshot(harness: &dyn Harness) {
    let (place, store) = store(harness);
    let queued = submit(&*store, &request("a"));
    let records = store.snapshot().unwrap();
    assert_eq!(records.run(&queued.id).unwrap().unwrap().status(), Status::Queued);
    let (done, is_done) = mpsc::channel();
    thread::scope(|scope| {
        let writer = place.open();
        scope.spawn(move || {
            finish(&*writer, &claim(&*writer, &queued), SUCCESS);
            writer.sync().unwrap();
            done.send(()).unwrap();
        });
        let ended = is_done.recv_timeout(LIMIT);
        drop(records);
        ended.expect("a snapshot kept a writer waiting");
    });
}

/// A run, its event, its request and the requests that depend on it.
pub(super) fn what_belongs_together_changes_together(harness: &dyn Harness) {
    let (place, store) = store(harness);
    let many = request_with_retries("a", 1_000);
    let queued = submit(&*store, &many);
    submit(&*store, &request_after("later", &["a"]));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (writer, is_over, queued, many) = (place.open(), &is_over, &queued, &many);
        scope.spawn(move || {
            let mut current = queued.clone();
            for _ in 0..40 {
                let claimed = claim(&*writer, &current);
                current = apply(&*writer, end_of(&*writer, &claimed, many, FAILURE));
            }
            let claimed = claim(&*writer, &current);
            apply(&*writer, end_of(&*writer, &claimed, many, SUCCESS));
            is_over.store(true, Ordering::SeqCst);
        });
        loop {
            let is_last = is_over.load(Ordering::SeqCst);
            let records = store.snapshot().unwrap();
            let run = records.run(&queued.id).unwrap().unwrap();
            let events = records.events_of(&queued.id, 0, usize::MAX).unwrap();
            assert_eq!(events.len(), run.version as usize);
            assert_eq!(events.last().unwrap().to, run.status().as_str());
            let request = records.request(&queued.request).unwrap().unwrap();
            assert_eq!(request.status, RequestStatus::from(&run));
            let later = records.request(&"later".parse().unwrap()).unwrap().unwrap();
            let is_done = run.status() == Status::Succeeded;
            assert_eq!(later.unmet == 0, is_done);
            assert_eq!(records.queue_head(1).unwrap() == later.latest.as_slice(), is_done);
            if is_last {
                assert!(is_done);
                break;
            }
        }
    });
}

pub(super) fn everything_is_there_after_opening_again(harness: &dyn Harness) {
    let (place, store) = store(harness);
    let ended = execute(&*store, &request("a"), SUCCESS);
    let queued = submit(&*store, &request("b"));
    store.sync().unwrap();
    let (runs, events) = (all_runs(&*store), all_events(&*store));
    let address = store.address();
    drop(store);
    let store = place.open();
    assert_eq!(store.address(), address);
    assert_eq!((all_runs(&*store), all_events(&*store)), (runs, events));
    assert_eq!([run(&*store, &queued.id), run(&*store, &ended.id)], [queued, ended]);
}

pub(super) fn an_intact_store_has_no_flaws(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    assert_eq!(store.examine(true).unwrap().flaws, [""; 0]);
    execute(&*store, &request("a"), SUCCESS);
    execute(&*store, &request_after("b", &["a"]), FAILURE);
    submit(&*store, &request_after("c", &["b"]));
    for thorough in [false, true] {
        let found = store.examine(thorough).unwrap();
        assert!(found.flaws.is_empty() && !found.backend.is_empty(), "{found:?}");
    }
}
