//! `locks`: holders, waiters, dead holders, deadlocks, and breaking a lease by force.

use lockkeeper_testing::{Signal, world};
use serde_json::Value;

#[test]
fn the_listing_tells_who_holds_and_who_waits() {
    let world = world!();
    world.run(["locks"]).code(0).prints("nothing is held");
    assert_eq!(
        world.run(["locks", "--json"]).code(0).json().to_string(),
        r#"{"leases":[],"waiters":[],"alerts":[],"foreign":[],"foreign_waiters":[]}"#
    );
    let holder = world.hold(&["db", "--owner", "worker:one", "--reason", "a migration"]);
    let waiter = world.start(["exec", "db", "--owner", "worker:two", "--priority", "5", "--", "true"]);
    world.until_waiting(1);
    world
        .run(["locks"])
        .code(0)
        .prints("worker:one")
        .prints("a migration")
        .prints("worker:two")
        .prints("WAITS FOR");
    let listing = world.run(["locks", "--json"]).code(0).json();
    assert_eq!(
        (&listing["leases"][0]["state"], &listing["leases"][0]["owner"]),
        (&"alive".into(), &"worker:one".into())
    );
    let waits = &listing["waiters"][0];
    assert_eq!(
        (&waits["owner"], &waits["position"], &waits["priority"]),
        (&"worker:two".into(), &1.into(), &5.into())
    );
    assert_eq!(waits["waits_for"][0]["owner"], "worker:one");
    holder.finish().code(0);
    waiter.wait().code(0);
}

#[test]
fn watching_prints_a_line_at_each_change() {
    let world = world!();
    let lease = world.acquire(&["db"]);
    let mut watch = world.start(["locks", "--watch", "--json"]);
    let mut next = || serde_json::from_str::<Value>(&watch.line()).unwrap();
    assert_eq!(next()["leases"][0]["id"], lease.as_str());
    world.run(["release", &lease]).code(0);
    assert_eq!(next()["leases"], Value::Array(Vec::new()));
    watch.signal(Signal::INT);
    watch.wait().code(0);
}

#[test]
fn watching_ends_with_its_reader() {
    let world = world!();
    world.acquire(&["db"]);
    // Nothing changes any more: only the closed pipe can end it.
    world.shell("lockkeeper locks --watch --json | head -1").code(0).prints("\"name\":\"db\"");
}

/// Invariant 3.
#[test]
fn force_needs_a_yes() {
    let world = world!();
    let (one, two) = (world.acquire(&["db"]), world.acquire(&["log"]));
    let before = world.tree();
    world.run(["locks", "break", &one]).code(2).says("--yes");
    world.run(["locks", "force-release-all"]).code(2).says("hint: ").says("--yes");
    assert_eq!(world.tree(), before);
    let broken = world.run(["locks", "break", &one, "--yes", "--json"]).code(0).json();
    assert_eq!(broken["broken"][0]["id"], one.as_str());
    world.run(["locks", "break", &one, "--yes"]).code(75).says("is not held");
    world.run(["locks", "force-release-all", "--yes"]).code(0).prints(&two).says("1 broken");
    world.run(["locks"]).code(0).prints("nothing is held");
}

/// Invariant 4.
#[test]
fn the_dead_are_shown_and_cleaned_up() {
    let world = world!();
    let mut process = world.command("sleep").arg("600").spawn().unwrap();
    world.run(["acquire", "db", "--pid", &process.id().to_string()]).code(0);
    world.run(["locks", "cleanup"]).code(0).says("0 cleaned up");
    process.kill().unwrap();
    process.wait().unwrap();
    world.run(["locks"]).code(0).prints("dead").prints("locks cleanup");
    let cleaned = world.run(["locks", "cleanup", "--json"]).code(0).json();
    assert_eq!(cleaned["cleaned"][0]["state"], "dead");
    world.run(["locks"]).code(0).prints("nothing is held");
}

/// Requirement 160. Invariant 8.
#[test]
fn a_circle_is_refused_and_named() {
    let world = world!();
    world.run(["locks", "check-deadlock"]).code(0).says("no deadlock");
    world.acquire(&["a", "--owner", "worker:one"]);
    world.acquire(&["b", "--owner", "worker:two"]);
    let args = ["acquire", "b", "--owner", "worker:one", "--ttl", "10m"];
    let waiter = world.start([&args[..], &["--wait=60s"]].concat());
    world.until_waiting(1);
    let refused = world.run(["acquire", "a", "--owner", "worker:two", "--wait", "--ttl", "1m"]).code(75);
    refused.says("deadlock refused").says("worker:one").says("worker:two").says("hint: ");
    assert_eq!(
        world.run(["locks", "check-deadlock", "--json"]).code(0).json().to_string(),
        r#"{"deadlocks":[]}"#
    );
    world.run(["locks", "force-release-all", "--yes"]).code(0);
    waiter.wait().code(0);
}

/// Looking leaves nothing behind, whatever is asked.
#[test]
fn who_only_looks_makes_nothing() {
    let world = world!().git();
    let before = world.tree();
    for args in [
        &["locks"][..],
        &["locks", "check-deadlock"],
        &["locks", "cleanup"],
        &["locks", "force-release-all", "--yes"],
        &["why", "db"],
        &["config"],
        &["conflicts", "check", "a", "b"],
        &["completions", "bash"],
        &["man"],
        &["--help"],
        &["--version"],
    ] {
        world.run(args).code(0);
        let json = [args, &["--json"]].concat();
        world.run(json).code(0);
    }
    assert_eq!(world.tree(), before);
}

/// Requirement 139. `flock FILE sleep` holds the lock with two processes that share one descriptor.
#[test]
fn a_lock_that_processes_inherited_counts_once() {
    let world = world!().with_state();
    let file = world.beside("groups").join("g.lock");
    lockkeeper_testing::files::write(&file, "");
    let line =
        format!("flock '{}' sh -c 'touch held; until test -e go; do sleep 0.02; done'", file.display());
    let holder = lockkeeper_testing::Started::of(world.command("sh").args(["-c", &line]));
    lockkeeper_testing::until("the lock is held", || world.path("held").exists());
    let listed = world.run(["--json", "locks"]).code(0).json();
    let foreign = listed["foreign"].as_array().unwrap();
    assert_eq!(foreign.len(), 1, "{listed}");
    let who = foreign[0]["holder"].as_str().unwrap();
    assert!(who.starts_with("pid ") && who.contains("flock") && who.contains("inherited"), "{who}");
    world.touch("go");
    assert!(holder.finish().succeeded());
}

/// Requirement 203. `swarm_lock.sh` writes null for a lock that never expires.
#[test]
fn a_lock_without_an_end_has_no_time_left() {
    let world = world!().with_state();
    let record = r#"{"task_id":"n3","worker":"w","acquired_at":"2026-01-01T00:00:00Z","expires_at":null}"#;
    world.run(["task", "lock", "t1", "--worker", "w1"]).code(0);
    let lock = world.run(["--json", "task", "show", "t1"]).code(0).json();
    let path = std::path::PathBuf::from(lock["path"].as_str().unwrap_or_else(|| panic!("{lock}")));
    lockkeeper_testing::files::write(&path.with_file_name("n3.lock"), record);
    let listed = world.run(["locks", "--format", "swarm"]).code(0).stdout();
    let row = listed.lines().find(|line| line.starts_with("n3")).unwrap();
    assert!(row.split_whitespace().nth(2) == Some("-"), "{listed}");
    let rows = world.run(["--json", "locks", "--format", "swarm"]).code(0).json();
    let row = rows["locks"].as_array().unwrap().iter().find(|row| row["subject"] == "n3").unwrap();
    assert_eq!(row["expires_at"], Value::Null, "{rows}");
    let all = world.run(["--json", "locks"]).code(0).json();
    let row = all["foreign"].as_array().unwrap().iter().find(|row| row["subject"] == "n3").unwrap();
    assert_eq!((&row["state"], &row["expires_at"]), (&"held".into(), &Value::Null), "{all}");
}
