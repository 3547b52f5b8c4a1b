//! Events: exactly one for each change, in one order for all readers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use lockkeeper_core::run::Reason;
use lockkeeper_store::runs::StoredEvent;

use super::Harness;
use super::sample::{
    FAILURE, SUCCESS, all_events, apply, claim, end_of, execute, finish, request, request_with_retries, run,
    store, submit,
};

pub(super) fn they_say_what_happened(harness: &dyn Harness) {
    let (place, store) = store(harness);
    let retried = request_with_retries("a", 1);
    let queued = submit(&*store, &retried);
    let first = claim(&*store, &queued);
    let waiting = apply(&*store, end_of(&*store, &first, &retried, FAILURE));
    let second = claim(&*store, &waiting);
    let ended = apply(&*store, end_of(&*store, &second, &retried, FAILURE));
    let events = all_events(&*place.open());
    let told: Vec<_> = events
        .iter()
        .map(|event| {
            assert_eq!((&event.id.run, event.request.as_str()), (&queued.id, "a"));
            let from = event.from.as_deref().unwrap_or("");
            (event.id.seq, event.kind.as_str(), from, event.to.as_str(), event.attempt, event.claim)
        })
        .collect();
    assert_eq!(
        told,
        [
            (1, "submitted", "", "queued", 0, 0),
            (2, "claimed", "queued", "running", 1, 1),
            (3, "retrying", "running", "running", 1, 1),
            (4, "retried", "running", "running", 2, 2),
            (5, "ended", "running", "failed", 2, 2),
        ]
    );
    let last = &events[4];
    assert_eq!(last.reason.as_deref(), Some(Reason::ExitCode.as_str()));
    assert_eq!(Some(last.at), ended.completed_at().map(|at| at.unix_micros));
    assert_eq!(events[1].message.as_deref(), Some("worker W-1, attempt 1"));
    assert!(events.windows(2).all(|pair| pair[0].position < pair[1].position));
    assert_eq!(store.snapshot().unwrap().last_position().unwrap(), last.position);
    assert_eq!(store.snapshot().unwrap().events_of(&queued.id, 3, 9).unwrap(), events[3..]);
}

/// A reader that continues after the last position that it has read gets every event once.
pub(super) fn a_reader_misses_none(harness: &dyn Harness) {
    const WRITERS: usize = 3;
    let (place, first) = store(harness);
    let writing = AtomicUsize::new(WRITERS);
    let mut seen: Vec<StoredEvent> = Vec::new();
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (store, writing) = (place.open(), &writing);
            scope.spawn(move || {
                for round in 0..15 {
                    execute(&*store, &request(&format!("r{writer}.{round}")), SUCCESS);
                }
                writing.fetch_sub(1, Ordering::SeqCst);
            });
        }
        loop {
            let is_last = writing.load(Ordering::SeqCst) == 0;
            let after = seen.last().map_or(0, |event| event.position);
            let next = first.snapshot().unwrap().events_after(after, 7).unwrap();
            if is_last && next.is_empty() {
                break;
            }
            seen.extend(next);
        }
    });
    assert_eq!(seen, all_events(&*first));
    assert_eq!(seen.len(), WRITERS * 15 * 3);
}

pub(super) fn they_are_read_in_parts(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    assert_eq!(store.snapshot().unwrap().last_position().unwrap(), 0);
    let [a, b] = ["a", "b"].map(|id| submit(&*store, &request(id)));
    finish(&*store, &claim(&*store, &a), SUCCESS);
    claim(&*store, &b);
    let all = all_events(&*store);
    let records = store.snapshot().unwrap();
    assert_eq!(records.events_after(0, 2).unwrap(), all[..2]);
    assert_eq!(records.events_after(all[1].position, 2).unwrap(), all[2..4]);
    assert_eq!(records.events_after(all[4].position, 2).unwrap(), []);
    assert_eq!(records.events_of(&a.id, 1, 1).unwrap().len(), 1);
    assert_eq!(records.events_of(&b.id, 2, 9).unwrap(), []);
}

pub(super) fn a_position_is_never_used_again(harness: &dyn Harness) {
    let (place, store) = store(harness);
    let old = execute(&*store, &request("old"), SUCCESS);
    let last = store.snapshot().unwrap().last_position().unwrap();
    let removed = store.prune(i64::MAX).unwrap();
    assert_eq!(removed[0].runs, [old.id]);
    assert_eq!(all_events(&*store), []);
    drop(store);
    let store = place.open();
    assert!(store.snapshot().unwrap().last_position().unwrap() >= last);
    let new = submit(&*store, &request("new"));
    let events = all_events(&*store);
    assert!(events.len() == 1 && events[0].position > last, "{events:?}");
    assert_eq!(run(&*store, &new.id), new);
}
