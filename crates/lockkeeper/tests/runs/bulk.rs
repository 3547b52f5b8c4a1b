//! What is done to many requests at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use lockkeeper_core::request::{Request, RequestStatus};
use lockkeeper_core::run::{Run, Status};
use lockkeeper_engine::runs::Runs;
use lockkeeper_engine::runs::bulk::Bulk;
use lockkeeper_store::runs::{RequestFilter, RunFilter};

use super::world::{World, request};

fn queued() -> RequestFilter {
    RequestFilter { statuses: vec![RequestStatus::Queued], limit: usize::MAX, ..RequestFilter::default() }
}

/// The others' requests come in while many runs are called off, not before and not after all of them.
#[test]
fn others_come_to_their_turn_while_many_are_changed() {
    let world = World::new();
    let many: Vec<Request> = (0..2_000).map(|number| request(&format!("r{number}"))).collect();
    world.runs.submit_all(&many, None).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let other = Runs::open(world.folder.path()).unwrap();
            let mut number = 0;
            while !done.load(Ordering::Relaxed) {
                number += 1;
                other.submit(&request(&format!("other{number}")), None).unwrap();
            }
        });
        let changed = world.runs.bulk(&Bulk::Cancel { reason: None }, &queued());
        done.store(true, Ordering::Relaxed);
        let changed = changed.unwrap();
        let ours = changed.moved.iter().filter(|one| one.request.as_str().starts_with('r')).count();
        assert_eq!((ours, changed.refused.len(), changed.next), (2_000, 0, None));
    });
    let events = world.runs.store().snapshot().unwrap().events_after(2_000, usize::MAX).unwrap();
    let first = events.iter().position(|event| event.to == "canceled").unwrap();
    let last = events.iter().rposition(|event| event.to == "canceled").unwrap();
    let between = events[first..last].iter().filter(|event| event.to == "queued").count();
    assert!(between > 0, "nobody else came to a turn between {first} and {last}");
}

#[test]
fn a_forecast_says_what_is_done() {
    let world = World::new();
    for id in ["a", "b", "c"] {
        world.submit(id);
    }
    let ended = world.runs.find("c").unwrap();
    world.runs.cancel(&ended.id, None).unwrap();
    let all = RequestFilter { limit: 10, ..RequestFilter::default() };
    let (cancel, retry) = (Bulk::Cancel { reason: None }, Bulk::Retry);
    let forecast = world.runs.forecast(&cancel, &all).unwrap();
    assert_eq!((forecast.matched, forecast.movable), (3, 2));
    assert_eq!(world.runs.forecast(&retry, &all).unwrap().movable, 1);
    let done = world.runs.bulk(&cancel, &all).unwrap();
    assert_eq!((done.moved.len(), done.refused.len()), (2, 1));
    let again = world.runs.bulk(&retry, &all).unwrap();
    assert_eq!((again.moved.len(), again.refused.len()), (3, 0));
    assert!(again.moved.iter().all(|one| one.status == Status::Queued));
}

/// A request whose only run was refused has none that could be called off, and can be queued again.
#[test]
fn what_was_refused_at_the_door_can_be_queued_again() {
    let world = World::new();
    world.runs.submit(&request("full"), Some(0)).unwrap_err();
    let all = RequestFilter { limit: 10, ..RequestFilter::default() };
    let done = world.runs.bulk(&Bulk::Cancel { reason: None }, &all).unwrap();
    assert_eq!((done.moved.len(), done.refused.len()), (0, 1));
    assert_eq!(world.runs.bulk(&Bulk::Retry, &all).unwrap().moved.len(), 1);
}

/// States are looked up one by one, and what is found is in one order and cut at the limit all the same.
#[test]
fn lists_of_several_states_are_as_if_all_were_looked_at() {
    let world = World::new();
    for number in 0..12 {
        let run = world.submit(&format!("r{number:02}")).run;
        if number % 3 == 0 {
            world.runs.cancel(&run, None).unwrap();
        } else if number % 3 == 1 {
            world.runs.claim(&run, "w".parse().unwrap()).unwrap();
        }
    }
    let both = vec![RequestStatus::Canceled, RequestStatus::Running];
    let filter = RequestFilter { statuses: both, limit: 3, ..RequestFilter::default() };
    let names = |filter: &RequestFilter| -> Vec<String> {
        let found = world.runs.requests(filter).unwrap();
        found.iter().map(|entry| entry.request.request.id.to_string()).collect()
    };
    assert_eq!(names(&filter), ["r10", "r09", "r07"]);
    let rest = RequestFilter { before: Some("r07".parse().unwrap()), ..filter };
    assert_eq!(names(&rest), ["r06", "r04", "r03"]);
    let statuses = vec![Status::Canceled, Status::Running];
    let runs =
        world.runs.list(&RunFilter { statuses: statuses.clone(), limit: 3, ..RunFilter::default() }).unwrap();
    let requests = |runs: &[Run]| runs.iter().map(|run| run.request.to_string()).collect::<Vec<_>>();
    assert_eq!(requests(&runs), ["r10", "r09", "r07"]);
    let before = Some(runs[2].id.clone());
    let runs = world.runs.list(&RunFilter { statuses, before, limit: 9, ..RunFilter::default() }).unwrap();
    assert_eq!(requests(&runs), ["r06", "r04", "r03", "r01", "r00"]);
}

/// Counts are remembered, and never wrong: not after others' changes, nor after old ones were removed.
#[test]
fn requests_are_counted_again_after_every_change() {
    let world = World::new();
    let other = Runs::open(world.folder.path()).unwrap();
    let counts = || world.runs.request_counts().unwrap();
    assert_eq!(counts(), []);
    let run = other.submit(&request("a"), None).unwrap().run;
    assert_eq!(counts(), [(RequestStatus::Queued, 1)]);
    other.cancel(&run, None).unwrap();
    assert_eq!(counts(), [(RequestStatus::Canceled, 1)]);
    assert_eq!(counts(), [(RequestStatus::Canceled, 1)]);
    other.prune(i64::MAX).unwrap();
    assert_eq!(counts(), []);
}

/// A reader that follows the events by their positions misses none, also if runs are removed meanwhile.
#[test]
fn a_position_of_an_event_never_comes_again() {
    let world = World::new();
    let events_after =
        |position| world.runs.store().snapshot().unwrap().events_after(position, usize::MAX).unwrap();
    let mut last = 0;
    for round in 0..4 {
        let run = world.submit(&format!("r{round}")).run;
        world.runs.cancel(&run, None).unwrap();
        let events = events_after(last);
        assert_eq!(events.iter().map(|event| &event.id.run).collect::<Vec<_>>(), [&run, &run]);
        assert!(events.iter().all(|event| event.position > last));
        last = events.last().unwrap().position;
        assert_eq!(world.runs.prune(i64::MAX).unwrap().len(), 1);
        assert!(events_after(0).is_empty());
        assert_eq!(world.runs.store().examine(true).unwrap().flaws, [""; 0]);
    }
}

/// What is noted of a request is less than where it is: its run tells whether somebody has begun with it.
#[test]
fn requests_are_found_by_every_state() {
    let world = World::new();
    let begun = world.submit("begun").run;
    world.submit("waits");
    let over = world.submit("over").run;
    world.runs.claim(&begun, "w1".parse().unwrap()).unwrap();
    world.runs.cancel(&over, None).unwrap();
    let found = |statuses: &[RequestStatus], ids: &[&str]| {
        let ids = ids.iter().map(|id| id.parse().unwrap()).collect();
        let filter = RequestFilter { statuses: statuses.to_vec(), ids, limit: 9, ..RequestFilter::default() };
        let listed = world.runs.requests(&filter).unwrap();
        let listed: Vec<String> = listed.iter().map(|entry| entry.request.request.id.to_string()).collect();
        let counted = world.runs.store().snapshot().unwrap().count_matching(&filter).unwrap();
        assert_eq!(counted.iter().map(|(_, count)| *count as usize).sum::<usize>(), listed.len());
        listed
    };
    let (queued, running, canceled) =
        (RequestStatus::Queued, RequestStatus::Running, RequestStatus::Canceled);
    let all = ["begun", "waits", "over"];
    for ids in [&[][..], &all] {
        assert_eq!(found(&[queued], ids), ["waits"]);
        assert_eq!(found(&[running], ids), ["begun"]);
        assert_eq!(found(&[queued, running], ids), ["waits", "begun"]);
        assert_eq!(found(&[canceled, running], ids), ["over", "begun"]);
        assert_eq!(found(&[canceled, queued], ids), ["over", "waits"]);
        assert_eq!(found(&[queued, running, canceled], ids), ["over", "waits", "begun"]);
        assert_eq!(found(&[RequestStatus::Done], ids), [""; 0]);
    }
    let counts = world.runs.request_counts().unwrap();
    assert_eq!(counts, [(queued, 1), (running, 1), (canceled, 1)]);
    world.runs.cancel(&begun, None).unwrap();
    assert_eq!(found(&[running], &[]), ["begun"], "it is still about to end");
}
