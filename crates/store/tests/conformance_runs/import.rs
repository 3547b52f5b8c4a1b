//! Import: the records of another store, all or none of them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use lockkeeper_core::record::Priority;
use lockkeeper_core::request::Request;
use lockkeeper_core::run::Status;
use lockkeeper_core::run::admission::Submission;
use lockkeeper_store::runs::{AutoRunChange, ClaimOrder, Claims, Import, Imported, Listing};
use lockkeeper_store::{RunStore, SqliteRunStore, StoreError};
use tempfile::TempDir;

use super::Harness;
use super::sample::{
    FAILURE, SUCCESS, all_events, apply, cancel, claim, end_of, execute, new_run_id, request, request_after,
    request_with_retries, store, submit, try_submit, worker,
};

/// A store with a run in each state that a store without workers can have.
pub(super) fn source() -> (TempDir, SqliteRunStore) {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteRunStore::open(folder.path(), "this-boot").unwrap();
    let pruned = execute(&store, &request("pruned"), SUCCESS);
    assert_eq!(store.prune(i64::MAX).unwrap()[0].runs, [pruned.id]);
    execute(&store, &request("done"), SUCCESS);
    execute(&store, &request("failed"), FAILURE);
    cancel(&store, &submit(&store, &request("canceled")));
    let again = request_with_retries("again", 3);
    let run = claim(&store, &submit(&store, &again));
    apply(&store, end_of(&store, &run, &again, FAILURE));
    submit(&store, &Request { key: Some("nightly".to_owned()), ..request("keyed") });
    submit(&store, &request_after("later", &["done", "keyed"]));
    submit(&store, &Request { locks: vec!["db".parse().unwrap()], ..request("leased") });
    let timeout = Some(Duration::from_secs(3_600));
    submit(&store, &Request { queue_timeout: timeout, timeout, ..request("patient") });
    store.set_priority(&"patient".parse().unwrap(), Priority::new(7).unwrap()).unwrap();
    assert!(try_submit(&store, &[request("refused")], Some(1)).is_err());
    // A request that was replaced comes after one that was submitted later.
    submit(&store, &request("replaced"));
    submit(&store, &request("newest"));
    let requests = [request_after("replaced", &["newest"])];
    let submission =
        Submission { requests: &requests, runs: &[new_run_id()], queue_limit: None, forbidden: None };
    store.replace(&submission).unwrap().unwrap();
    let by = worker("W-9");
    store.change_auto_run(&AutoRunChange::Start { worker: &by }).unwrap();
    store.change_auto_run(&AutoRunChange::End { worker: &by, why: "empty" }).unwrap();
    (folder, store)
}

/// Copies all records. Requests stay as they are.
pub(super) fn import(
    from: &dyn RunStore,
    into: &dyn RunStore,
    replaces: bool,
) -> Result<Imported, StoreError> {
    let records = from.snapshot().unwrap();
    into.import(&Import { from: &*records, translate: &|request| request, replaces, progress: &|_| () })
}

/// Everything that does not depend on the clock.
pub(super) fn shown(store: &dyn RunStore) -> Vec<String> {
    let records = store.snapshot().unwrap();
    let requests = records.requests_in_order(None, usize::MAX).unwrap();
    let unmet = requests.iter().map(|stored| records.unmet(&stored.request.id).unwrap());
    let unmet = format!("{:?}", unmet.collect::<Vec<_>>());
    let runs = records.runs_in_order(None, usize::MAX).unwrap().into_iter().map(|(run, request)| {
        let (ending, reason, message) = (run.ending(), run.reason(), run.message());
        let times = (run.queued_at.unix_micros, run.completed_at(), run.timeout);
        format!(
            "{} {} {} {} {} {times:?} {ending:?} {reason:?} {message:?} {:?}",
            run.id,
            run.status(),
            run.version,
            run.claim(),
            run.attempt(),
            request.id
        )
    });
    let mut shown: Vec<String> = runs.collect();
    shown.extend(requests.iter().map(|stored| format!("{stored:?}")));
    shown.extend(records.events_after(0, usize::MAX).unwrap().iter().map(|event| format!("{event:?}")));
    shown.push(unmet);
    shown.push(format!("{:?}", records.auto_run().unwrap()));
    shown.push(format!("{:?} {:?}", records.queue_head(99).unwrap(), records.last_position().unwrap()));
    shown.push(format!("{:?}", records.request_counts().unwrap()));
    let claimable = records.claimable(Listing::EveryRun, 99).unwrap();
    shown.push(format!("{:?}", claimable.iter().map(|(run, _)| &run.id).collect::<Vec<_>>()));
    shown
}

pub(super) fn everything_is_copied(harness: &dyn Harness) {
    let (_place, into) = store(harness);
    let (_folder, from) = source();
    let before = shown(&from);
    let imported = import(&from, &*into, false).unwrap();
    assert_eq!((imported.requests, imported.runs), (11, 12));
    assert_eq!(imported.events, all_events(&from).len() as u64);
    assert_eq!(shown(&*into), before);
    assert_eq!(shown(&from), before, "the other store is unchanged");
    assert_eq!(into.examine(true).unwrap().flaws, [""; 0]);
}

/// Invariants 2 and 9.
pub(super) fn it_goes_on_above_what_was_copied(harness: &dyn Harness) {
    let (_place, into) = store(harness);
    let (_folder, from) = source();
    import(&from, &*into, false).unwrap();
    let last = from.snapshot().unwrap().last_position().unwrap();
    let by = worker("W-1");
    let locks: Vec<_> = (1..20).map(lockkeeper_core::id::HolderId).collect();
    let claims = Claims { worker: &by, locks: &locks, order: ClaimOrder::SkipLeased };
    let claimed = into.claim(&claims).unwrap();
    let names: Vec<&str> = claimed.iter().map(|(_, request)| request.id.as_str()).collect();
    assert_eq!(names, ["patient", "keyed", "newest"]);
    assert!(all_events(&*into).iter().rev().take(3).all(|event| event.position > last));
    for (run, request) in &claimed {
        apply(&*into, end_of(&*into, run, request, SUCCESS));
    }
    // The requests that depend on them can run now.
    let ready = into.snapshot().unwrap().queue_head(9).unwrap();
    assert_eq!(ready.len(), 3, "{ready:?}");
    let known = try_submit(&*into, &[Request { key: Some("nightly".to_owned()), ..request("x") }], None);
    assert_eq!(known.unwrap()[0].request.as_str(), "keyed");
}

pub(super) fn moments_are_on_the_clock_of_the_store(harness: &dyn Harness) {
    let (_place, into) = store(harness);
    let (_folder, from) = source();
    import(&from, &*into, false).unwrap();
    let left = |store: &dyn RunStore| {
        let records = store.snapshot().unwrap();
        let run = records.latest_run(&"patient".parse().unwrap()).unwrap().unwrap();
        (
            run.give_up_at().unwrap().since(records.now().moment),
            records.now().moment.since(run.queued_at.moment),
        )
    };
    let ((left_here, waited_here), (left_there, waited_there)) = (left(&*into), left(&from));
    let slack = Duration::from_secs(60);
    assert!(left_here.abs_diff(left_there) < slack && waited_here.abs_diff(waited_there) < slack);
    let due = into.snapshot().unwrap().runs_in_order(None, usize::MAX).unwrap();
    let due = due.iter().find(|(run, _)| run.status() == Status::Running).unwrap();
    assert!(due.0.retry_at().unwrap() <= into.now().moment, "its next attempt is due");
}

pub(super) fn a_store_with_records_is_refused(harness: &dyn Harness) {
    let (_place, into) = store(harness);
    let (_folder, from) = source();
    execute(&*into, &request("mine"), SUCCESS);
    let refused = import(&from, &*into, false);
    assert!(matches!(refused, Err(StoreError::NotEmpty { .. })), "{refused:?}");
    // Positions were used there, although all records are removed.
    into.prune(i64::MAX).unwrap();
    let refused = import(&from, &*into, false);
    assert!(matches!(refused, Err(StoreError::NotEmpty { .. })), "{refused:?}");
    assert_eq!(into.snapshot().unwrap().requests_in_order(None, 9).unwrap(), []);
}

pub(super) fn records_can_be_replaced(harness: &dyn Harness) {
    let (_place, into) = store(harness);
    let (_folder, from) = source();
    import(&from, &*into, false).unwrap();
    submit(&from, &request("one more"));
    import(&from, &*into, true).unwrap();
    assert_eq!(shown(&*into), shown(&from));
    assert_eq!(into.examine(true).unwrap().flaws, [""; 0]);
}

/// Invariant 6. The first failure comes after everything was written, and before all of it was compared.
pub(super) fn an_import_that_fails_leaves_nothing(harness: &dyn Harness) {
    let (place, into) = store(harness);
    let (_folder, from) = source();
    let records = from.snapshot().unwrap();
    let written = 11 + 12 + all_events(&from).len() as u64;
    let stop = |count: u64| assert!(count <= written, "interrupted");
    let interrupted =
        Import { from: &*records, translate: &|request| request, replaces: false, progress: &stop };
    let failed = catch_unwind(AssertUnwindSafe(|| into.import(&interrupted).map(|_| ())));
    assert!(failed.is_err(), "it went on");
    let other = place.open();
    assert_eq!(other.snapshot().unwrap().requests_in_order(None, 9).unwrap(), []);
    import(&from, &*other, false).unwrap();
    assert_eq!(shown(&*other), shown(&from));
}

pub(super) fn a_store_that_was_moved_does_not_change(harness: &dyn Harness) {
    let (place, one) = store(harness);
    let other = place.open();
    let run = submit(&*one, &request("a"));
    one.set_moved_to(Some("elsewhere")).unwrap();
    assert_eq!(other.moved_to().unwrap().as_deref(), Some("elsewhere"));
    let runs = [new_run_id()];
    let requests = [request("b")];
    let submission = Submission { requests: &requests, runs: &runs, queue_limit: None, forbidden: None };
    let claim = super::sample::claim_of(&*one, &run, "W-1");
    let refusals =
        [other.submit(&submission).map(|_| ()), other.move_runs(std::slice::from_ref(&claim)).map(|_| ())];
    for refused in refusals {
        assert!(matches!(&refused, Err(StoreError::Moved { to, .. }) if to == "elsewhere"), "{refused:?}");
    }
    let shown = other.snapshot().unwrap().requests_in_order(None, 9).unwrap();
    assert_eq!((shown.len(), shown[0].request.id.as_str()), (1, "a"));
    other.set_moved_to(None).unwrap();
    assert_eq!(one.moved_to().unwrap(), None);
    apply(&*one, claim);
}
