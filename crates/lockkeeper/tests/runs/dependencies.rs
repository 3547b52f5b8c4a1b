//! Requests that come after others, and forgetting those that ended.

use lockkeeper_core::id::{RequestId, RunId};
use lockkeeper_core::request::{Request, RequestStatus};
use lockkeeper_core::run::Status;
use lockkeeper_core::run::transition::Mark;
use lockkeeper_engine::runs::{Blocked, Refusal, RequestFilter, RunError, SubmitError};

use super::world::{World, request};

fn id(text: &str) -> RequestId {
    text.parse().unwrap()
}

fn after(own: &str, before: &[&str]) -> Request {
    Request { after: before.iter().map(|before| id(before)).collect(), ..request(own) }
}

/// Executes the latest run of a request to this end.
fn end(world: &World, request: &str, to: Status) -> RunId {
    let run = world.runs.find(request).unwrap().id;
    world.runs.claim(&run, "w".parse().unwrap()).unwrap();
    let mark = Mark { to, expect: None, claim: None, exit_code: None, worker: "w".parse().unwrap() };
    world.runs.mark(&run, &mark).unwrap();
    run
}

/// The requests whose runs can begin, the next one first.
fn ready(world: &World) -> Vec<String> {
    let runs = world
        .runs
        .store()
        .snapshot()
        .unwrap()
        .claimable(lockkeeper_store::runs::Listing::EveryRun, 100)
        .unwrap();
    runs.iter().map(|(run, _)| run.request.to_string()).collect()
}

/// What a request waits for.
fn waits_for(world: &World, request: &str) -> Vec<String> {
    match world.runs.request(&id(request)).unwrap().blocked {
        Some(Blocked::Dependencies { unmet, .. }) => unmet.iter().map(ToString::to_string).collect(),
        _ => Vec::new(),
    }
}

/// Requirement 183. A list says it of each request of a long chain, in whatever order it reads them.
#[test]
fn all_that_come_after_a_failed_request_are_known_to_wait_in_vain() {
    let world = World::new();
    world.submit("r0");
    for number in 1..60 {
        world.runs.submit(&after(&format!("r{number}"), &[&format!("r{}", number - 1)]), None).unwrap();
    }
    let in_vain = || {
        let filter =
            RequestFilter { statuses: vec![RequestStatus::Queued], limit: 100, ..RequestFilter::default() };
        let failed = |blocked: Option<Blocked>| match blocked {
            Some(Blocked::Dependencies { failed, .. }) => failed,
            _ => Vec::new(),
        };
        let all = world.runs.requests(&filter).unwrap().into_iter().map(|entry| failed(entry.blocked));
        all.filter(|failed| *failed == [id("r0")]).count()
    };
    assert_eq!((in_vain(), world.runs.stuck().unwrap().len()), (0, 0));
    end(&world, "r0", Status::Failed);
    assert_eq!((in_vain(), world.runs.stuck().unwrap().len()), (59, 59));
    world.runs.run_again(&id("r0")).unwrap();
    assert_eq!(in_vain(), 0);
}

#[test]
fn a_request_begins_when_all_that_it_comes_after_are_done() {
    let world = World::new();
    world.submit("a");
    world.submit("b");
    world.runs.submit(&after("c", &["a", "b"]), None).unwrap();
    assert_eq!(
        (ready(&world), waits_for(&world, "c")),
        (vec!["a".into(), "b".into()], vec!["a".into(), "b".into()])
    );
    end(&world, "a", Status::Succeeded);
    assert_eq!((ready(&world), waits_for(&world, "c")), (vec!["b".to_owned()], vec!["b".to_owned()]));
    end(&world, "b", Status::Failed);
    assert_eq!((ready(&world), waits_for(&world, "c")), (vec![], vec!["b".to_owned()]));
    world.runs.run_again(&id("b")).unwrap();
    end(&world, "b", Status::Succeeded);
    assert_eq!((ready(&world), waits_for(&world, "c")), (vec!["c".to_owned()], vec![]));
}

#[test]
fn a_request_that_is_run_again_is_waited_for_again() {
    let world = World::new();
    world.submit("a");
    world.runs.submit(&after("b", &["a"]), None).unwrap();
    end(&world, "a", Status::Succeeded);
    assert_eq!(ready(&world), ["b"]);
    world.runs.run_again(&id("a")).unwrap();
    assert_eq!(ready(&world), ["a"]);
    end(&world, "a", Status::Succeeded);
    assert_eq!(ready(&world), ["b"]);
    assert!(matches!(world.runs.run_again(&id("b")), Err(RunError::InProgress { .. })));
}

#[test]
fn requests_that_would_wait_for_ever_do_not_come_in() {
    let world = World::new();
    let refused = world.runs.submit(&after("a", &["a"]), None);
    assert!(matches!(refused, Err(SubmitError::Refused(Refusal::Cycle { .. }))));
    let circle = [after("a", &["b"]), after("b", &["c"]), after("c", &["a"])];
    assert!(
        matches!(world.runs.submit_all(&circle, None), Err(SubmitError::Refused(Refusal::Cycle { cycle })) if cycle.len() == 3)
    );
    let missing = world.runs.submit(&after("a", &["nothing"]), None);
    assert!(matches!(missing, Err(SubmitError::Refused(Refusal::MissingDependency { .. }))));
    assert_eq!(world.runs.requests(&all()).unwrap().len(), 0);
}

/// A long chain, given from its end to its beginning.
#[test]
fn a_batch_comes_in_in_the_order_of_what_comes_after_what() {
    let world = World::new();
    let mut chain = vec![request("r0")];
    chain.extend((1..300).map(|place| after(&format!("r{place}"), &[&format!("r{}", place - 1)])));
    chain.reverse();
    let submitted = world.runs.submit_all(&chain, None).unwrap();
    assert_eq!((submitted.len(), submitted[0].request.as_str()), (300, "r0"));
    assert_eq!(ready(&world), ["r0"]);
}

#[test]
fn of_a_batch_that_is_refused_nothing_stays() {
    let world = World::new();
    world.submit("a");
    let with_taken = [request("x"), request("a")];
    assert!(matches!(
        world.runs.submit_all(&with_taken, None),
        Err(SubmitError::Refused(Refusal::Duplicate { run: None, .. }))
    ));
    let twice = [request("x"), request("x")];
    assert!(matches!(
        world.runs.submit_all(&twice, None),
        Err(SubmitError::Refused(Refusal::Duplicate { run: None, .. }))
    ));
    let too_many = [request("x"), request("y")];
    assert!(matches!(
        world.runs.submit_all(&too_many, Some(2)),
        Err(SubmitError::Refused(Refusal::QueueFull { run: None, .. }))
    ));
    assert_eq!(world.runs.requests(&all()).unwrap().len(), 1);
    assert_eq!(world.runs.submit_all(&too_many, Some(3)).unwrap().len(), 2);
}

#[test]
fn what_came_in_under_a_key_does_not_count_again() {
    let world = World::new();
    let keyed = |own: &str| Request { key: Some(format!("k:{own}")), ..request(own) };
    world.runs.submit_all(&[keyed("a"), keyed("b")], Some(3)).unwrap();
    let again = world.runs.submit_all(&[keyed("a"), keyed("b"), keyed("c")], Some(3)).unwrap();
    let existing: Vec<bool> = again.iter().map(|one| one.existing).collect();
    assert_eq!(existing, [true, true, false]);
}

/// A list looks at the line as a whole, one run is counted for itself: both say the same.
#[test]
fn the_place_in_the_queue_is_the_same_in_a_list_and_alone() {
    let world = World::new();
    for number in 0..30 {
        let priority = lockkeeper_core::record::Priority::new(number * 7 % 5).unwrap();
        world.runs.submit(&Request { priority, ..request(&format!("r{number}")) }, None).unwrap();
    }
    world.runs.submit(&after("later", &["r3"]), None).unwrap();
    let worker = lockkeeper_store::runs::Worker {
        id: "w".parse().unwrap(),
        holder: lockkeeper_core::id::HolderId(1),
        origin: lockkeeper_platform::origin::origin().unwrap(),
        process: lockkeeper_core::liveness::ProcessRef { pid: 1, started: 1 },
        jobs: 1,
        labels: Vec::new(),
        started_at: 0,
        heartbeat_at: None,
    };
    world.runs.store().register_worker(&worker).unwrap();
    let entries = world.runs.requests(&all()).unwrap();
    let mut places = Vec::new();
    for entry in &entries {
        let alone = world.runs.show(&entry.latest.as_ref().unwrap().id).unwrap().blocked;
        assert_eq!(entry.blocked, alone, "{}", entry.request.request.id);
        places.extend(alone.and_then(|blocked| match blocked {
            Blocked::Position(place) => Some(place),
            _ => None,
        }));
    }
    places.sort_unstable();
    assert_eq!(places, (0..30).collect::<Vec<u64>>());
}

fn all() -> lockkeeper_store::runs::RequestFilter {
    lockkeeper_store::runs::RequestFilter { limit: 1000, ..Default::default() }
}

fn prune(world: &World) -> Vec<String> {
    world.runs.prune(i64::MAX).unwrap().iter().map(ToString::to_string).collect()
}

#[test]
fn what_is_waited_for_is_not_forgotten() {
    let world = World::new();
    world.submit("done");
    world.submit("failed");
    world.runs.submit(&after("open", &["done", "failed"]), None).unwrap();
    end(&world, "done", Status::Succeeded);
    end(&world, "failed", Status::Failed);
    assert_eq!(prune(&world), [""; 0]);
    let open = world.runs.find("open").unwrap().id;
    world.runs.cancel(&open, None).unwrap();
    assert_eq!(prune(&world), ["done", "failed", "open"]);
}

/// What was called off may be run again, and then it must still wait for what failed.
#[test]
fn what_would_be_waited_for_again_is_kept_with_who_waits() {
    let world = World::new();
    world.submit("failed");
    end(&world, "failed", Status::Failed);
    world.runs.submit(&after("later", &["failed"]), None).unwrap();
    let later = world.runs.find("later").unwrap();
    // Everything that ended before the later one did: the failed one alone.
    let before = later.queued_at.unix_micros;
    world.runs.cancel(&later.id, None).unwrap();
    assert_eq!(world.runs.prunable(before).unwrap(), []);
    assert_eq!(world.runs.prune(before).unwrap(), []);
    world.runs.run_again(&id("later")).unwrap();
    assert_eq!(waits_for(&world, "later"), ["failed"]);
}

/// An open one keeps what it waits for, and that again what it would wait for.
#[test]
fn what_is_kept_keeps_what_comes_before_it() {
    let world = World::new();
    world.submit("first");
    end(&world, "first", Status::Failed);
    world.runs.submit(&after("second", &["first"]), None).unwrap();
    world.runs.submit(&after("third", &["second"]), None).unwrap();
    let second = world.runs.find("second").unwrap().id;
    world.runs.cancel(&second, None).unwrap();
    assert_eq!(prune(&world), [""; 0]);
    let third = world.runs.find("third").unwrap().id;
    world.runs.cancel(&third, None).unwrap();
    assert_eq!(prune(&world), ["first", "second", "third"]);
}

#[test]
fn what_is_forgotten_takes_its_events_and_folder_along() {
    let world = World::new();
    world.submit("a");
    let run = end(&world, "a", Status::Succeeded);
    let folder = world.runs.folder_of(&run);
    folder.make().unwrap();
    std::fs::write(folder.output(), "x").unwrap();
    assert_eq!(world.runs.prunable(i64::MAX).unwrap(), [id("a")]);
    assert_eq!(prune(&world), ["a"]);
    assert!(!folder.path().exists());
    assert!(matches!(world.runs.show(&run), Err(RunError::NoRun(_))));
    let left = world.runs.store().snapshot().unwrap().events_after(0, 100).unwrap();
    assert_eq!(left, []);
    assert_eq!(world.runs.request(&id("a")).unwrap_err().to_string(), "there is no request `a`");
    let again = world.submit("a");
    assert_eq!(world.runs.request(&id("a")).unwrap().request.status, RequestStatus::Queued);
    assert_ne!(again.run, run);
}
