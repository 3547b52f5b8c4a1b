//! Other boots and other wall clocks: what waits goes on waiting for what is left of its time.

use std::process::Command;
use std::time::Duration;

use lockkeeper_core::request::Request;
use lockkeeper_core::run::{Run, Status};
use lockkeeper_store::runs::{RunStore, SqliteRunStore};
use rusqlite::Connection;

use super::world::{World, request};

const HOUR: Duration = Duration::from_secs(3600);

/// A run that may wait an hour, as another boot's clock dated it this many seconds ago by the wall clock.
fn from_another_boot(seconds_ago: i64) -> (World, Run) {
    let world = World::new();
    world.runs.submit(&Request { queue_timeout: Some(HOUR), ..request("a") }, None).unwrap();
    let database = Connection::open(world.runs.folder().join("runs.db")).unwrap();
    let shift = 1_000_000_000_000_i64;
    let sql = format!(
        "UPDATE run SET queued_at = queued_at - {}, queued_moment = queued_moment + {shift}, give_up_at = give_up_at + {shift}",
        seconds_ago * 1_000_000
    );
    database.execute_batch(&sql).unwrap();
    database.execute_batch("UPDATE clock SET boot = 'another boot'").unwrap();
    let store = SqliteRunStore::open(world.folder.path(), "a later boot").unwrap();
    let run = store.snapshot().unwrap().latest_run(&"a".parse().unwrap()).unwrap().unwrap();
    (world, run)
}

fn left(run: &Run) -> Duration {
    run.give_up_at().unwrap().since(lockkeeper_platform::clock::now())
}

/// Requirements 75, 92, 94.
#[test]
fn after_a_boot_a_run_waits_for_the_rest_of_its_time() {
    let (_world, run) = from_another_boot(1800);
    let rest = left(&run);
    assert!(rest <= HOUR / 2 && rest > HOUR / 2 - Duration::from_secs(120), "{rest:?}");
    assert_eq!(run.give_up_at().unwrap().since(run.queued_at.moment), HOUR);
    let (_world, over) = from_another_boot(7200);
    assert_eq!(left(&over), Duration::ZERO);
}

/// A wall clock that was set back before the boot says that no time has passed.
#[test]
fn after_a_boot_with_a_wall_clock_that_was_set_back_all_of_its_time_is_left() {
    let (_world, run) = from_another_boot(-86_400);
    let rest = left(&run);
    assert!(rest <= HOUR && rest > HOUR - Duration::from_secs(120), "{rest:?}");
}

fn lockkeeper(world: &World, shift: &str, args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new("faketime");
    command
        .args(["-f", shift, env!("CARGO_BIN_EXE_lockkeeper"), "--dir"])
        .arg(world.folder.path())
        .args(args);
    let output = command.current_dir(world.folder.path()).output().expect("these tests need faketime(1)");
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

/// Requirements 75, 94. Neither a day forward nor a day back changes how long a run may wait.
#[test]
fn a_wall_clock_that_jumps_expires_no_run() {
    let world = World::new();
    for (shift, id) in [("+0d", "a"), ("+1d", "b"), ("-1d", "c")] {
        let done = lockkeeper(&world, shift, &["submit", "--id", id, "--queue-timeout", "1h", "--", "true"]);
        assert_eq!(done.0, Some(0), "{done:?}");
    }
    for shift in ["+1d", "-1d", "+0d"] {
        let (code, listed) = lockkeeper(&world, shift, &["runs", "--status", "queued", "--json"]);
        assert_eq!(
            (code, listed.matches("\"status\":\"queued\"").count()),
            (Some(0), 3),
            "{shift}: {listed}"
        );
    }
    let short = ["submit", "--id", "d", "--queue-timeout", "1ms", "--", "true"];
    assert_eq!(lockkeeper(&world, "+1d", &short).0, Some(0));
    assert_eq!(lockkeeper(&world, "-1d", &["run", "wait", "d"]).0, Some(75));
    assert_eq!(world.runs.find("d").unwrap().status(), Status::TimedOut);
}
