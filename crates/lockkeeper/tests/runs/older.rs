//! Stores that were made by older programs.

use lockkeeper_core::request::RequestStatus;
use lockkeeper_core::run::Status;
use lockkeeper_core::run::transition::Mark;
use lockkeeper_engine::runs::Runs;
use lockkeeper_store::runs::RequestFilter;
use rusqlite::Connection;

use super::world::{World, request};

/// A store that was made before there were these indexes gets them.
#[test]
fn an_older_store_is_completed_when_it_is_opened() {
    let world = World::new();
    let database = Connection::open(world.folder.path().join("runs.db")).unwrap();
    database.execute_batch("DROP INDEX request_next; DROP INDEX request_after;").unwrap();
    drop(database);
    let again = Runs::open(world.folder.path()).unwrap();
    again.submit(&request("a"), None).unwrap();
    let selection = lockkeeper_engine::queue::selection(&again, &[], &[]).unwrap();
    assert_eq!(selection.next, Some("a".parse().unwrap()));
}

/// Invariant 12.
#[test]
fn a_store_of_version_1_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let database = Connection::open(&path).unwrap();
    database.execute_batch(include_str!("version-1.sql")).unwrap();
    drop(database);
    let runs = Runs::open(folder.path()).unwrap();
    let counts = runs.request_counts().unwrap();
    let one_of_each = [
        (RequestStatus::Queued, 2),
        (RequestStatus::Running, 1),
        (RequestStatus::Done, 1),
        (RequestStatus::Failed, 1),
    ];
    assert_eq!(counts, one_of_each);
    let begun = runs.find("begun").unwrap();
    assert_eq!(runs.store().snapshot().unwrap().active_runs().unwrap(), std::slice::from_ref(&begun));
    let before = runs.store().snapshot().unwrap().last_position().unwrap();
    for id in ["begun", "queued"] {
        let run = runs.find(id).unwrap();
        if run.status() == Status::Queued {
            runs.claim(&run.id, "w2".parse().unwrap()).unwrap();
        }
        let worker = "w2".parse().unwrap();
        let mark = Mark { to: Status::Succeeded, expect: None, claim: None, exit_code: Some(0), worker };
        runs.mark(&run.id, &mark).unwrap();
    }
    let done = RequestFilter { statuses: vec![RequestStatus::Done], limit: 9, ..RequestFilter::default() };
    let done = runs.requests(&done).unwrap();
    assert_eq!(
        done.iter().map(|entry| entry.request.request.id.as_str()).collect::<Vec<_>>(),
        ["begun", "queued", "done"]
    );
    let next = runs.store().snapshot().unwrap().queue_head(9).unwrap();
    assert_eq!(next, [runs.find("later").unwrap().id]);
    // One of them an open request comes after.
    assert_eq!(runs.prune(i64::MAX).unwrap().len(), 3);
    assert!(runs.store().snapshot().unwrap().last_position().unwrap() > before + 3);
    assert_eq!(runs.store().examine(true).unwrap().flaws, [""; 0]);
    let database = Connection::open(&path).unwrap();
    let again = database.execute_batch("UPDATE run SET claim = -1, status = 'succeeded'").unwrap_err();
    assert!(again.to_string().contains("does not move like this"), "{again}");
}
