//! Connections that break in the middle of a call: it is made once, or not at all.

use lockkeeper_core::id::{HolderId, RunId};
use lockkeeper_core::run::admission::Submission;
use lockkeeper_core::run::transition::{self, Transition};
use lockkeeper_store::runs::{AutoRunChange, ClaimOrder, Claims, RequestFilter, Requeue};
use lockkeeper_store::{RunStore, StoreError};
use lockkeeper_testing::until;

use super::backends::{HTTP, POSTGRES};
use super::breaks::every_break;
use super::harness::{Harness, skip};
use super::on_server::OnServer;
use super::sample::{
    SUCCESS, all_events, all_runs, claim, claim_of, end_of, request, request_after, store, worker,
};

/// Everything that a store has, without times.
fn state(store: &dyn RunStore) -> String {
    let mut text = String::new();
    for run in all_runs(store) {
        let process = run.process().map(|process| process.holder);
        let worker = run.worker().map(ToString::to_string);
        text +=
            &format!("{} {} {} {} {worker:?} {process:?}\n", run.id, run.status(), run.version, run.claim());
    }
    for event in all_events(store) {
        text += &format!("{} {} {:?}\n", event.id, event.kind, event.message);
    }
    let records = store.snapshot().unwrap();
    let all = RequestFilter { limit: usize::MAX, ..RequestFilter::default() };
    for stored in records.requests(&all).unwrap() {
        text += &format!("{} {:?} {:?} {}\n", stored.request.id, stored.status, stored.latest, stored.unmet);
    }
    let auto_run = records.auto_run().unwrap();
    text += &format!("{:?}", auto_run.map(|found| (found.worker, found.runs, found.current, found.stop)));
    assert_eq!(store.examine(true).unwrap().flaws, [""; 0]);
    text
}

fn id(text: &str) -> RunId {
    text.parse().unwrap()
}

fn queue(store: &dyn RunStore, name: &str, after: &[&str]) -> Result<usize, StoreError> {
    let requests = [request_after(name, after)];
    let runs = [id(&format!("RUN-{name}"))];
    let submission = Submission { requests: &requests, runs: &runs, queue_limit: Some(9), forbidden: None };
    store.submit(&submission).map(|answer| answer.unwrap().len())
}

/// Two runs, one of which is claimed, and a third that waits for it.
fn three(store: &dyn RunStore) {
    queue(store, "a", &[]).unwrap();
    queue(store, "b", &[]).unwrap();
    queue(store, "c", &["a"]).unwrap();
    claim(store, &super::sample::run(store, &id("RUN-a")));
}

fn end_of_first(store: &dyn RunStore) -> Result<Transition, StoreError> {
    let run = store.snapshot()?.run(&id("RUN-a"))?.unwrap();
    Ok(end_of(store, &run, &request("a"), SUCCESS))
}

fn claims(locks: &[HolderId]) -> Claims<'_> {
    static WORKER: std::sync::LazyLock<lockkeeper_core::id::WorkerId> =
        std::sync::LazyLock::new(|| worker("W-7"));
    Claims { worker: &WORKER, locks, order: ClaimOrder::Strict }
}

#[test]
fn a_submission_is_made_once() {
    every_break(&POSTGRES, three, |store| queue(store, "d", &["a", "b"]), state);
    every_break(&HTTP, three, |store| queue(store, "d", &["a", "b"]), state);
}

#[test]
fn a_transition_is_made_once() {
    every_break(&POSTGRES, three, |store| store.move_runs(&[end_of_first(store)?]), state);
    every_break(&HTTP, three, |store| store.move_runs(&[end_of_first(store)?]), state);
}

#[test]
fn a_claim_is_made_once() {
    let claim = |store: &dyn RunStore| {
        let claimed = store.claim(&claims(&[HolderId(5), HolderId(6)]))?;
        Ok(claimed.into_iter().map(|(run, _)| run.id).collect::<Vec<_>>())
    };
    every_break(&POSTGRES, three, claim, state);
    every_break(&HTTP, three, claim, state);
}

#[test]
fn an_end_with_the_next_claim_is_made_once() {
    let call = |store: &dyn RunStore| {
        let done = store.move_and_claim(&[end_of_first(store)?], Some(&claims(&[HolderId(5)])))?;
        Ok((done.moved, done.claimed.into_iter().map(|(run, _)| run.id).collect::<Vec<_>>()))
    };
    every_break(&POSTGRES, three, call, state);
    every_break(&HTTP, three, call, state);
}

#[test]
fn a_new_run_of_a_request_is_made_once() {
    let prepare = |store: &dyn RunStore| {
        three(store);
        assert_eq!(store.move_runs(&[end_of_first(store).unwrap()]).unwrap().len(), 1);
    };
    let call = |store: &dyn RunStore| {
        let first = transition::submit(&request("a"), id("RUN-again"), store.now());
        store.requeue(&[Requeue { first, expected: Some(id("RUN-a")) }])
    };
    every_break(&POSTGRES, prepare, call, state);
    every_break(&HTTP, prepare, call, state);
}

#[test]
fn a_prune_is_made_once() {
    let prepare = |store: &dyn RunStore| {
        queue(store, "a", &[]).unwrap();
        claim(store, &super::sample::run(store, &id("RUN-a")));
        assert_eq!(store.move_runs(&[end_of_first(store).unwrap()]).unwrap().len(), 1);
    };
    every_break(&POSTGRES, prepare, |store| store.prune(i64::MAX), state);
    every_break(&HTTP, prepare, |store| store.prune(i64::MAX), state);
}

#[test]
fn a_run_is_counted_once() {
    let prepare = |store: &dyn RunStore| {
        store.change_auto_run(&AutoRunChange::Start { worker: &worker("W-7") }).unwrap();
    };
    let call = |store: &dyn RunStore| {
        store.change_auto_run(&AutoRunChange::CountRun { worker: &worker("W-7"), run: &id("RUN-a") })
    };
    every_break(&POSTGRES, prepare, call, state);
    every_break(&HTTP, prepare, call, state);
}

/// A process that sleeps is woken when its connection breaks, and hears later changes again.
#[test]
fn a_subscription_connects_again() {
    connects_again(&POSTGRES);
    connects_again(&HTTP);
}

fn connects_again(backend: &OnServer<dyn RunStore>) {
    if let Some(what) = backend.lacks() {
        return skip(what);
    }
    let (place, direct) = store(backend);
    let proxy = lockkeeper_testing::ServerProxy::start(&backend.address());
    let behind = (backend.open)(proxy.address(), &place.address().unwrap());
    let signal = behind.subscribe().unwrap();
    let is_signaled = || {
        let signaled =
            lockkeeper_platform::poll::wait(&[signal.as_fd().unwrap()], Some(super::LIMIT)).unwrap();
        signal.drain();
        signaled.contains(0)
    };
    proxy.close_all();
    assert!(is_signaled());
    queue(&*direct, "a", &[]).unwrap();
    let queued = super::sample::run(&*direct, &id("RUN-a"));
    // The first signals are those of the connection itself.
    until("a change is heard", || {
        signal.drain();
        let _ = direct.move_runs(&[claim_of(&*direct, &queued, "W-1")]).unwrap();
        assert!(direct.change_auto_run(&AutoRunChange::Start { worker: &worker("W-7") }).is_ok());
        lockkeeper_platform::poll::wait(&[signal.as_fd().unwrap()], Some(std::time::Duration::from_secs(1)))
            .unwrap()
            .contains(0)
    });
}
