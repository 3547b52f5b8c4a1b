//! The record of the auto-run.

use lockkeeper_store::RunStore;
use lockkeeper_store::runs::{AutoRun, AutoRunChange};

use super::Harness;
use super::sample::{new_run_id, store, worker};

fn auto_run(store: &dyn RunStore) -> AutoRun {
    store.snapshot().unwrap().auto_run().unwrap().expect("there was one")
}

pub(super) fn there_is_one_record(harness: &dyn Harness) {
    let (place, store) = store(harness);
    assert_eq!(store.snapshot().unwrap().auto_run().unwrap(), None);
    let (first, run) = (worker("W-1"), new_run_id());
    store.change_auto_run(&AutoRunChange::Start { worker: &first }).unwrap();
    store.change_auto_run(&AutoRunChange::CountRun { worker: &first, run: &run }).unwrap();
    let found = auto_run(&*place.open());
    assert_eq!((&found.worker, found.runs, found.current, found.stop), (&first, 1, Some(run), false));
    store.change_auto_run(&AutoRunChange::End { worker: &first, why: "empty" }).unwrap();
    assert_eq!(auto_run(&*store).ended.as_deref(), Some("empty"));
    // An auto-run that has ended cannot be stopped.
    store.change_auto_run(&AutoRunChange::RequestStop { worker: None }).unwrap();
    assert!(!auto_run(&*store).stop);
    let second = worker("W-2");
    store.change_auto_run(&AutoRunChange::Start { worker: &second }).unwrap();
    let found = auto_run(&*store);
    assert_eq!((found.worker, found.runs, found.current, found.ended), (second, 0, None, None));
    assert!(found.started_at <= store.now().unix_micros);
}

pub(super) fn only_its_worker_changes_it(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    let (ours, other, run) = (worker("W-1"), worker("W-2"), new_run_id());
    store.change_auto_run(&AutoRunChange::Start { worker: &ours }).unwrap();
    let before = auto_run(&*store);
    for change in [
        AutoRunChange::CountRun { worker: &other, run: &run },
        AutoRunChange::RequestStop { worker: Some(&other) },
        AutoRunChange::End { worker: &other, why: "stopped" },
    ] {
        store.change_auto_run(&change).unwrap();
        assert_eq!(auto_run(&*store), before);
    }
    store.change_auto_run(&AutoRunChange::RequestStop { worker: Some(&ours) }).unwrap();
    assert!(auto_run(&*store).stop);
}
