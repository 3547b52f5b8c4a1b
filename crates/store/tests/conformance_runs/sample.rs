//! Requests and runs to put into stores, and the steps that move them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockkeeper_core::id::{HolderId, RunId, WorkerId};
use lockkeeper_core::request::Request;
use lockkeeper_core::retry::RetryPolicy;
use lockkeeper_core::run::admission::{Refusal, Submission, Submitted};
use lockkeeper_core::run::transition::{self, AttemptOutcome, Claimant, FinishPolicy, Transition};
use lockkeeper_core::run::{Ending, Run};
use lockkeeper_store::RunStore;
use lockkeeper_store::runs::{Moved, RunFilter, StoredEvent};

use super::{Harness, Place};

pub(super) const SUCCESS: AttemptOutcome = AttemptOutcome::Ended(Ending::Exited(0));
pub(super) const FAILURE: AttemptOutcome = AttemptOutcome::Ended(Ending::Exited(1));

/// An empty store, with the place that it is in.
pub(super) fn store(harness: &dyn Harness) -> (Box<Place>, Arc<dyn RunStore>) {
    let place = harness.place();
    let store = place.open();
    (place, store)
}

pub(super) fn request(id: &str) -> Request {
    Request::new(id.parse().unwrap(), vec!["true".to_owned()], "/".to_owned())
}

/// A request that comes after others.
pub(super) fn request_after(id: &str, after: &[&str]) -> Request {
    Request { after: after.iter().map(|id| id.parse().unwrap()).collect(), ..request(id) }
}

/// A request whose failed attempts are due again at once.
pub(super) fn request_with_retries(id: &str, limit: u32) -> Request {
    let retry = RetryPolicy { limit, base: Duration::ZERO, ..RetryPolicy::default() };
    Request { retry, ..request(id) }
}

pub(super) fn new_run_id() -> RunId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("RUN-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)).parse().unwrap()
}

pub(super) fn worker(id: &str) -> WorkerId {
    id.parse().unwrap()
}

/// Submits requests together.
pub(super) fn try_submit(
    store: &dyn RunStore,
    requests: &[Request],
    queue_limit: Option<u64>,
) -> Result<Vec<Submitted>, Refusal> {
    let runs: Vec<RunId> = requests.iter().map(|_| new_run_id()).collect();
    store.submit(&Submission { requests, runs: &runs, queue_limit, forbidden: None }).unwrap()
}

/// Submits a request. Returns its run.
pub(super) fn submit(store: &dyn RunStore, request: &Request) -> Run {
    let submitted = try_submit(store, std::slice::from_ref(request), None).unwrap().remove(0);
    assert!(!submitted.existing);
    run(store, &submitted.run)
}

/// The record of a run.
pub(super) fn run(store: &dyn RunStore, id: &RunId) -> Run {
    store.snapshot().unwrap().run(id).unwrap().expect("the run exists")
}

/// All runs, the latest first.
pub(super) fn all_runs(store: &dyn RunStore) -> Vec<Run> {
    let filter = RunFilter { limit: usize::MAX, ..RunFilter::default() };
    store.snapshot().unwrap().runs(&filter).unwrap()
}

/// All events, in the order of their positions.
pub(super) fn all_events(store: &dyn RunStore) -> Vec<StoredEvent> {
    store.snapshot().unwrap().events_after(0, usize::MAX).unwrap()
}

/// Writes a transition, which has to apply.
pub(super) fn apply(store: &dyn RunStore, transition: Transition) -> Run {
    assert_eq!(store.move_runs(std::slice::from_ref(&transition)).unwrap(), [Moved::Applied]);
    transition.run
}

/// A claim of a run. The kernel lock has the number of the claim.
pub(super) fn claim_of(store: &dyn RunStore, run: &Run, id: &str) -> Transition {
    let holder = Some(HolderId(run.claim() + 1));
    let claimant = Claimant { worker: worker(id), holder, lease: None };
    transition::claim(run, claimant, store.now()).unwrap()
}

pub(super) fn claim(store: &dyn RunStore, run: &Run) -> Run {
    apply(store, claim_of(store, run, "W-1"))
}

/// The end of an attempt of this request.
pub(super) fn end_of(
    store: &dyn RunStore,
    run: &Run,
    request: &Request,
    outcome: AttemptOutcome,
) -> Transition {
    let policy = FinishPolicy { success: &request.success, retry: &request.retry, random: 0 };
    transition::finish(run, run.claim(), outcome, policy, store.now()).unwrap()
}

/// Ends the only attempt of a run.
pub(super) fn finish(store: &dyn RunStore, run: &Run, outcome: AttemptOutcome) -> Run {
    apply(store, end_of(store, run, &request("any"), outcome))
}

/// Submits a request and executes it to this end.
pub(super) fn execute(store: &dyn RunStore, request: &Request, outcome: AttemptOutcome) -> Run {
    finish(store, &claim(store, &submit(store, request)), outcome)
}

pub(super) fn cancel(store: &dyn RunStore, run: &Run) -> Run {
    apply(store, transition::cancel(run, store.now(), Some("no".to_owned())).unwrap())
}
