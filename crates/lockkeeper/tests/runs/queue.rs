//! The queue: one request after the other, under one lock.

use std::sync::Arc;

use lockkeeper_core::queue::{Limits, Stop};
use lockkeeper_core::request::{Request, RequestStatus};
use lockkeeper_core::run::Status;
use lockkeeper_engine::queue::{self, FailedCheck, QueueRunner};
use lockkeeper_engine::runs::Runs;
use lockkeeper_engine::runs::bulk::Bulk;
use lockkeeper_engine::work::{ClaimResult, ControlListener, Settings, Worker};
use lockkeeper_formats::aiflow::{Aiflow, Subject};
use lockkeeper_store::runs::RequestFilter;

use super::work::script;
use super::world::World;

fn runner(world: &World, aiflow: Option<&Aiflow>) -> Result<QueueRunner, String> {
    let folder = world.folder.path();
    let leases = lockkeeper_engine::open::open_engine(folder).unwrap();
    let settings = Settings { aiflow: aiflow.cloned(), ..Settings::default() };
    let runs = Runs::open(folder).unwrap();
    let worker = Worker::begin(runs, leases, settings, 1, None, Box::new(|_| {})).unwrap();
    let worker = Arc::new(worker);
    let listener = ControlListener::begin(&worker, None).unwrap();
    QueueRunner::lock(&worker, listener, aiflow).unwrap().map_err(|busy| busy.holder)
}

fn failed() -> FailedCheck {
    FailedCheck { id: "store".to_owned(), title: String::new(), detail: "damaged".to_owned(), fix: None }
}

fn auto(world: &World, limits: Limits) -> (Stop, Vec<String>) {
    let end = runner(world, None).unwrap().auto(limits, &mut || None, &mut |_| {}).unwrap();
    (end.stop, end.runs.iter().map(|run| run.request.to_string()).collect())
}

/// Requirements 183, 184. Priority first, then age; what comes after others waits for them.
#[test]
fn requests_are_executed_in_their_order() {
    let world = World::new();
    let urgent = lockkeeper_core::record::Priority::new(5).unwrap();
    let submit = |request: Request| world.runs.submit(&request, None).unwrap();
    submit(script("old", "true"));
    submit(Request { after: vec!["old".parse().unwrap()], priority: urgent, ..script("later", "true") });
    submit(Request { priority: urgent, ..script("urgent", "true") });
    submit(script("young", "true"));
    let (stop, order) = auto(&world, Limits::default());
    assert_eq!((stop, order.join(" ")), (Stop::NothingLeft, "urgent old later young".to_owned()));
}

/// Requirements 164, 183, 196. Nobody else gets in before the lock is given back, and then somebody does.
#[test]
fn only_one_works_through_the_queue() {
    let world = World::new();
    let first = runner(&world, None).unwrap();
    let leases = lockkeeper_engine::open::open_engine(world.folder.path()).unwrap();
    assert!(queue::is_running(&leases).unwrap());
    let Err(holder) = runner(&world, None) else { panic!("two work through the queue") };
    assert!(holder.starts_with("queue:W-"), "{holder}");
    drop(first);
    assert!(!queue::is_running(&leases).unwrap());
    assert!(runner(&world, None).is_ok());
}

/// Requirement 185.
#[test]
fn a_failure_ends_it_and_frees_the_lock() {
    let world = World::new();
    for (id, command) in [("a", "true"), ("b", "exit 10"), ("c", "exit 1"), ("d", "true")] {
        world.runs.submit(&script(id, command), None).unwrap();
    }
    let (stop, order) = auto(&world, Limits::default());
    assert_eq!((stop, order.join(" ")), (Stop::NeedsInput, "a b".to_owned()));
    let (stop, order) = auto(&world, Limits::default());
    assert_eq!((stop, order.join(" ")), (Stop::Failed, "c".to_owned()));
    let end =
        runner(&world, None).unwrap().auto(Limits::default(), &mut || Some(failed()), &mut |_| {}).unwrap();
    assert_eq!((end.stop, end.runs.len()), (Stop::DoctorFailed, 0));
    let (stop, order) = auto(&world, Limits { runs: 1, ..Limits::default() });
    assert_eq!((stop, order.join(" ")), (Stop::RunLimit, "d".to_owned()));
    assert!(!queue::is_running(&lockkeeper_engine::open::open_engine(world.folder.path()).unwrap()).unwrap());
}

/// Requirements 191, 185.
#[test]
fn the_lock_is_given_back_by_a_panic_too() {
    let world = World::new();
    let runner = runner(&world, None).unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _runner = runner;
        panic!("on purpose");
    }));
    assert!(panicked.is_err());
    assert!(!queue::is_running(&lockkeeper_engine::open::open_engine(world.folder.path()).unwrap()).unwrap());
}

/// What ended long ago is not done, and does not stand in the way of what waits.
#[test]
fn many_that_were_called_off_do_not_hide_the_one_that_waits() {
    let world = World::new();
    let urgent = lockkeeper_core::record::Priority::new(5).unwrap();
    let old =
        (0..1_100).map(|number| Request { priority: urgent, ..script(&format!("old{number}"), "true") });
    world.runs.submit_all(&old.collect::<Vec<_>>(), None).unwrap();
    let all = RequestFilter { limit: 2_000, ..RequestFilter::default() };
    world.runs.bulk(&Bulk::Cancel { reason: None }, &all).unwrap();
    world.runs.submit(&script("young", "true"), None).unwrap();
    let selection = queue::selection(&world.runs, &[], &[]).unwrap();
    assert_eq!(selection.next, Some("young".parse().unwrap()));
    assert!(!selection.passed_over.is_empty() && selection.passed_over.len() < 1_000);
}

/// Requirement 183. Nor do those that only a worker with a label executes.
#[test]
fn many_that_need_a_label_do_not_hide_the_one_that_can_run() {
    let world = World::new();
    let needs = || vec!["gpu".parse().unwrap()];
    let special =
        (0..300).map(|number| Request { needs: needs(), ..script(&format!("gpu{number}"), "true") });
    world.runs.submit_all(&special.collect::<Vec<_>>(), None).unwrap();
    world.runs.submit(&script("plain", "true"), None).unwrap();
    let selection = queue::selection(&world.runs, &[], &[]).unwrap();
    assert_eq!((selection.next, selection.passed_over.len()), (Some("plain".parse().unwrap()), 100));
    let with_label = queue::selection(&world.runs, &needs(), &[]).unwrap();
    assert_eq!(with_label.next, Some("gpu0".parse().unwrap()));
}

#[test]
fn it_ends_after_the_present_run_when_asked() {
    let world = World::new();
    for id in ["a", "b"] {
        world.runs.submit(&script(id, "true"), None).unwrap();
    }
    let leases = lockkeeper_engine::open::open_engine(world.folder.path()).unwrap();
    assert!(!queue::stop(&world.runs, &leases).unwrap());
    let mut runner = runner(&world, None).unwrap();
    let stopped = || assert!(queue::stop(&world.runs, &leases).unwrap());
    let end = runner.auto(Limits::default(), &mut || None, &mut |_| stopped()).unwrap();
    assert_eq!((end.stop, end.runs.len()), (Stop::Asked, 1));
}

/// Requirements 165, 167, 170, 184, 192. Both locks are there while a request is executed, and gone afterwards.
#[test]
fn the_files_of_aiflow_are_held_while_a_request_is_executed() {
    let world = World::new();
    let aiflow = Aiflow::new(world.folder.path());
    let locks = world.folder.path().join(".aiflow/locks");
    let shown = world.folder.path().join("shown");
    let command =
        format!("ls {} > {}; cat {}/*.json >> {1}", locks.display(), shown.display(), locks.display());
    world.runs.submit(&script("RQ-1", &command), None).unwrap();
    let mut runner = runner(&world, Some(&aiflow)).unwrap();
    assert!(self::runner(&world, Some(&aiflow)).is_err());
    let run = runner.run_next().unwrap().run.unwrap();
    drop(runner);
    assert_eq!(run.status(), Status::Succeeded);
    let shown = std::fs::read_to_string(shown).unwrap();
    assert!(shown.starts_with("RQ-1.lock\nqueue.lock.json\nrequest.RQ-1.lock.json\n"), "{shown}");
    assert_eq!(shown.matches(run.id.as_str()).count(), 2, "{shown}");
    let now = lockkeeper_platform::wall_clock::WallTime::now();
    for subject in [Subject::Queue, Subject::Request("RQ-1".to_owned())] {
        assert!(aiflow.show(&subject, now).unwrap().is_none());
    }
    let stage = std::fs::read_to_string(world.runs.folder_of(&run.id).stage()).unwrap();
    let stage: serde_json::Value = serde_json::from_str(&stage).unwrap();
    assert_eq!(stage["lock"]["lock_type"], "request");
    assert_eq!(stage["lock"]["holder"]["pid"], std::process::id());
}

/// Requirement 68. A task of a swarm is executed only by the worker that has its lock.
#[test]
fn a_task_of_a_swarm_needs_its_lock() {
    use lockkeeper_core::time::Ttl;
    use lockkeeper_formats::swarm::{Attempt, Swarm};

    let world = World::new();
    let swarm =
        Swarm::new(world.folder.path().join("swarm"), Ttl::new(std::time::Duration::from_secs(300)).unwrap());
    let now = lockkeeper_platform::wall_clock::WallTime::now();
    let Attempt::Locked { lock, .. } = swarm.lock("task-1", "foreign", None, now).unwrap() else {
        panic!("nobody has it")
    };
    world
        .runs
        .submit(&Request { origin: Some("swarm:task-1".to_owned()), ..script("t", "true") }, None)
        .unwrap();
    let leases = lockkeeper_engine::open::open_engine(world.folder.path()).unwrap();
    let settings = Settings { swarm: Some(swarm), ..Settings::default() };
    let runs = Runs::open(world.folder.path()).unwrap();
    let worker = Worker::begin(runs, leases, settings, 1, None, Box::new(|_| {})).unwrap();
    let run = world.runs.find("t").unwrap().id;
    assert!(matches!(worker.claim(&run).unwrap(), ClaimResult::FileHeld));
    assert_eq!(world.runs.find("t").unwrap().status(), Status::Queued);
    lock.unlock().unwrap();
    let ClaimResult::Claimed(claimed) = worker.claim(&run).unwrap() else { panic!("it is free") };
    worker.execute(*claimed).unwrap();
    assert_eq!(RequestStatus::from(&world.runs.find("t").unwrap()), RequestStatus::Done);
}
