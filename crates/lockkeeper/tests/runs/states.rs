//! Runs move by compare-and-set, and every move leaves an event.

use lockkeeper_core::id::{RunId, WorkerId};
use lockkeeper_core::run::Status;
use lockkeeper_core::run::transition::Mark;
use lockkeeper_engine::runs::{RunError, Runs};

use super::world::World;

fn worker(id: &str) -> WorkerId {
    id.parse().unwrap()
}

fn mark(runs: &Runs, run: &RunId, to: Status) -> Result<Status, RunError> {
    let mark = Mark { to, expect: None, claim: None, exit_code: None, worker: worker("test") };
    runs.mark(run, &mark).map(|run| run.status())
}

/// Requirements 73, 82, 84, 88. Invariant 9.
#[test]
fn of_many_who_claim_one_run_exactly_one_wins() {
    let world = World::new();
    let run = world.submit("a").run;
    let won = std::thread::scope(|scope| {
        let claims: Vec<_> = (0..16)
            .map(|number| {
                let run = run.clone();
                let folder = world.folder.path();
                scope.spawn(move || Runs::open(folder).unwrap().claim(&run, worker(&format!("w{number}"))))
            })
            .collect();
        claims.into_iter().map(|claim| claim.join().unwrap()).filter(Result::is_ok).count()
    });
    assert_eq!(won, 1);
    let shown = world.runs.show(&run).unwrap();
    assert_eq!((shown.run.status(), shown.run.claim(), shown.run.attempt()), (Status::Running, 1, 1));
    assert!(shown.run.started_at().is_some());
    let events: Vec<String> = shown.events.iter().map(|event| event.id.to_string()).collect();
    assert_eq!(events, [format!("{run}:1"), format!("{run}:2")]);
}

/// Requirements 81, 83, 85, 87.
#[test]
fn an_ended_run_never_moves_again() {
    let world = World::new();
    let run = world.submit("a").run;
    world.runs.claim(&run, worker("w")).unwrap();
    assert_eq!(mark(&world.runs, &run, Status::Succeeded).unwrap(), Status::Succeeded);
    let before = world.runs.show(&run).unwrap();
    for to in Status::ALL {
        assert!(matches!(mark(&world.runs, &run, to), Err(RunError::Refused { .. })), "{to}");
    }
    assert!(matches!(world.runs.cancel(&run, None), Err(RunError::Refused { .. })));
    let after = world.runs.show(&run).unwrap();
    assert_eq!((before.run, before.events), (after.run, after.events));
}

/// Requirement 81. The database refuses what the rules do not have, also from other programs.
#[test]
fn the_database_itself_refuses_moves_that_are_not_in_the_table() {
    let world = World::new();
    let run = world.submit("a").run;
    let database = rusqlite::Connection::open(world.runs.folder().join("runs.db")).unwrap();
    let set = |status: &str| {
        database.execute("UPDATE run SET status = ?1 WHERE id = ?2", [status, run.as_str()]).is_ok()
    };
    for status in Status::ALL.map(Status::as_str) {
        assert_eq!(set(status), status == "queued", "{status}");
    }
}
