//! State folders of released versions: the program goes on from what an older one left on disk.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

use std::path::{Path, PathBuf};

use lockkeeper_testing::{Finished, World, files, skip, world};
use rusqlite::Connection;
use serde_json::Value;

/// The highest token that version 0.1.0 gave out in `runs`.
const LAST_TOKEN: u64 = 5;

/// The boot and the host in which the folders were made: see their README.
const BOOT: &str = "00000000-0000-4000-8000-000000000000";
const HOST: &str = "maker";

fn frozen(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/state-0.1.0").join(name)
}

/// A world whose state folder is a copy of a frozen one.
fn upgraded(name: &str) -> World {
    let world = world!().with_state();
    files::copy_folder(&frozen(name), &world.path("state"));
    world
}

/// Each run of `runs` as version 0.1.0 printed it.
fn printed_before() -> Vec<Value> {
    let text = std::fs::read_to_string(frozen("runs.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn sql(world: &World, database: &str, script: &str) {
    Connection::open(world.path("state").join(database)).unwrap().execute_batch(script).unwrap();
}

/// Asserts that a command is refused with this code and a hint, and that the state folder stays as it is.
#[track_caller]
fn refused(world: &World, args: &[&str], code: &str) {
    let before = files::tree(&world.path("state"));
    let error = world.run([&["--json"], args].concat()).code(69).json()["error"].take();
    assert_eq!(error["reason_code"], code, "{error}");
    assert!(error["hint"].as_str().is_some_and(|hint| !hint.is_empty()), "{error}");
    let kept = |tree: files::Tree| -> Vec<_> {
        let is_database = |path: &Path| path.extension().is_some_and(|ending| ending == "db");
        tree.into_iter().filter(|(path, _)| is_database(path)).collect()
    };
    assert_eq!(kept(files::tree(&world.path("state"))), kept(before));
}

/// Invariant 12.
#[test]
fn requests_runs_and_events_are_the_same_as_before() {
    let world = upgraded("runs");
    let before = printed_before();
    assert_eq!(before.len(), 9);
    for mut expected in before {
        let state = world.path("state").to_str().unwrap().to_owned();
        let log = expected["run"]["log"].as_str().unwrap().replace("STATE", &state);
        expected["run"]["log"] = log.into();
        // These keys are new since then.
        expected["run"]["host"] = Value::Null;
        expected["run"]["request"]["needs"] = Value::Array(Vec::new());
        let id = expected["run"]["request_id"].as_str().unwrap().to_owned();
        let mut shown = world.json(&["run", "show", &id]);
        // The time of the next attempt is kept on the clock of the boot. It is converted for this boot, and then
        // differs by the difference of the wall clocks.
        for place in ["/run/retry_at", "/run/blocked/retry_at"] {
            let times = [shown.pointer_mut(place), expected.pointer_mut(place)];
            let waits = times.map(|time| time.is_some_and(|time| time.take().is_string()));
            assert_eq!(waits, [id == "again"; 2], "{id}: {place}");
        }
        assert_eq!(shown, expected, "{id}");
    }
    let listed = world.json(&["runs"]);
    assert_eq!(listed["runs"].as_array().unwrap().len(), 9, "{listed}");
    assert_eq!(world.run(["run", "logs", "done"]).code(0).stdout(), "one\ntwo\n");
}

/// Invariants 9, 12.
#[test]
fn old_and_new_runs_are_executed() {
    let world = upgraded("runs");
    world.run(["run", "mark", "outside", "succeeded", "--expect", "running"]).code(0);
    world.run(["submit", "--id", "new", "--after", "third", "--lock", "db", "--", "echo", "new"]).code(0);
    let _worker = world.start(["work", "--quiet"]);
    for id in ["second", "third", "new"] {
        world.run(["run", "wait", id]).code(0);
        assert_eq!(world.run(["run", "logs", id]).code(0).stdout(), format!("{id}\n"));
    }
    // What had ended stays ended.
    for (id, code) in [("done", 0), ("bad", 3), ("late", 75), ("off", 75)] {
        world.run(["run", "wait", id]).code(code);
    }
    world.run(["doctor", "--json"]).code(0);
}

/// Invariant 2.
#[test]
fn tokens_go_on_above_the_old_ones() {
    let world = upgraded("runs");
    let lease = world.json(&["acquire", "db", "--ttl", "1m"])["lease"].take();
    assert!(lease["token"].as_u64().unwrap() > LAST_TOKEN, "{lease}");
}

/// Invariants 2, 4. The folder comes from another boot, so all its holders are dead.
#[test]
fn holders_of_another_boot_are_succeeded_at_once() {
    let world = upgraded("killed");
    let lease = world.json(&["acquire", "db", "--ttl", "1m"])["lease"].take();
    assert!(lease["token"].as_u64().unwrap() > 1, "{lease}");
    assert_eq!(world.json(&["locks"])["waiters"].as_array().unwrap().len(), 0);
}

/// Invariants 2, 4. In the same boot only the kernel lock proves that the holder is dead.
#[test]
fn a_holder_of_the_same_boot_that_was_killed_is_succeeded_at_once() {
    let world = upgraded("killed").write("boot_id", BOOT);
    let run = |line: &str| {
        let boot = format!("hostname {HOST} && mount --bind boot_id /proc/sys/kernel/random/boot_id");
        let script = format!("{boot} && {line}");
        Finished::of(world.command("unshare").args(["--uts", "--mount", "sh", "-c", &script]))
    };
    if !run("true").succeeded() {
        return skip("namespaces for mounts and the host name: root or CAP_SYS_ADMIN");
    }
    let acquire = format!("'{}' --json acquire db --ttl 1m", world.program());
    let lease = run(&acquire).code(0).json()["lease"].take();
    assert!(lease["token"].as_u64().unwrap() > 1, "{lease}");
}

/// Invariant 12. A newer program made them.
#[test]
fn databases_of_a_newer_version_are_refused() {
    let world = upgraded("runs");
    sql(&world, "runs.db", "PRAGMA user_version = 99; PRAGMA wal_checkpoint(TRUNCATE);");
    refused(&world, &["submit", "--", "true"], "STORE_TOO_NEW");
    let world = upgraded("killed");
    // The file of tokens names the boot. Leases of another boot would be discarded.
    let tokens = std::fs::read_to_string(world.path("state/tokens")).unwrap();
    let boot = lockkeeper_platform::origin::origin().unwrap().boot;
    std::fs::write(world.path("state/tokens"), tokens.replace(BOOT, &boot)).unwrap();
    sql(&world, "leases.db", "PRAGMA user_version = 99; PRAGMA wal_checkpoint(TRUNCATE);");
    refused(&world, &["acquire", "db", "--ttl", "1m"], "STORE_TOO_NEW");
}

/// Invariants 3, 12. The tables of leases of version 1 cannot be read, so their holder may live.
#[test]
fn leases_of_a_much_older_version_are_refused_while_somebody_holds_one() {
    let world = world!().with_state();
    std::fs::create_dir(world.path("state")).unwrap();
    let tables = "CREATE TABLE lease (id); CREATE TABLE ticket (id); CREATE TABLE numbers (highest);
        INSERT INTO lease VALUES (1); INSERT INTO numbers VALUES (5000);
        PRAGMA application_id = 1282102132; PRAGMA user_version = 1;";
    sql(&world, "leases.db", tables);
    refused(&world, &["acquire", "db", "--ttl", "1m"], "STORE_TOO_OLD");
    // Once nobody holds a lease, the tables are made anew, and tokens go on.
    sql(&world, "leases.db", "DELETE FROM lease;");
    let lease = world.json(&["acquire", "db", "--ttl", "1m"])["lease"].take();
    assert!(lease["token"].as_u64().unwrap() > 5000, "{lease}");
}

/// The tables of version 3 are those of version 4, so that held leases stay held when the program is replaced.
#[test]
fn leases_of_version_three_stay_held() {
    let world = world!().with_state();
    let lease = world.acquire(&["db"]);
    sql(&world, "leases.db", "PRAGMA user_version = 3;");
    world.run(["acquire", "db"]).code(75).says("db");
    world.run(["release", &lease]).code(0);
    world.acquire(&["db"]);
}
