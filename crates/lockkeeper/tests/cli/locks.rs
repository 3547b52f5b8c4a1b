//! `locks`: who holds and who waits, the dead, the stuck, and force.

use serde_json::Value;

use crate::env::Env;

#[test]
fn the_listing_tells_who_holds_and_who_waits() {
    let env = Env::new();
    env.run(["locks"]).code(0).prints("nothing is held");
    assert_eq!(
        env.run(["locks", "--json"]).code(0).json().to_string(),
        r#"{"leases":[],"waiters":[],"alerts":[]}"#
    );
    let holder = env.hold(&["db", "--owner", "worker:one", "--reason", "a migration"]);
    let waiter = env.start(["exec", "db", "--owner", "worker:two", "--priority", "5", "--", "true"]);
    env.until_waiting(1);
    env.run(["locks"])
        .code(0)
        .prints("worker:one")
        .prints("a migration")
        .prints("worker:two")
        .prints("WAITS FOR");
    let listing = env.run(["locks", "--json"]).code(0).json();
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
    let env = Env::new();
    let lease = env.acquire(&["db"]);
    let mut watch = env.start(["locks", "--watch", "--json"]);
    let mut next = || serde_json::from_str::<Value>(&watch.line()).unwrap();
    assert_eq!(next()["leases"][0]["id"], lease.as_str());
    env.run(["release", &lease]).code(0);
    assert_eq!(next()["leases"], Value::Array(Vec::new()));
    watch.signal("INT");
    watch.wait().code(0);
}

#[test]
fn watching_ends_with_its_reader() {
    let env = Env::new();
    env.acquire(&["db"]);
    // Nothing changes any more: only the closed pipe can end it.
    env.shell("lockkeeper locks --watch --json | head -1").code(0).prints("\"name\":\"db\"");
}

/// Invariant 3.
#[test]
fn force_needs_a_yes() {
    let env = Env::new();
    let (one, two) = (env.acquire(&["db"]), env.acquire(&["log"]));
    let before = env.tree();
    env.run(["locks", "break", &one]).code(2).says("--yes");
    env.run(["locks", "force-release-all"]).code(2).says("hint: ").says("--yes");
    assert_eq!(env.tree(), before);
    let broken = env.run(["locks", "break", &one, "--yes", "--json"]).code(0).json();
    assert_eq!(broken["broken"][0]["id"], one.as_str());
    env.run(["locks", "break", &one, "--yes"]).code(75).says("is not held");
    env.run(["locks", "force-release-all", "--yes"]).code(0).prints(&two).says("1 broken");
    env.run(["locks"]).code(0).prints("nothing is held");
}

/// Invariant 4.
#[test]
fn the_dead_are_shown_and_cleaned_up() {
    let env = Env::new();
    let mut process = env.command("sleep").arg("600").spawn().unwrap();
    env.run(["acquire", "db", "--pid", &process.id().to_string()]).code(0);
    env.run(["locks", "cleanup"]).code(0).says("0 cleaned up");
    process.kill().unwrap();
    process.wait().unwrap();
    env.run(["locks"]).code(0).prints("dead").prints("locks cleanup");
    let cleaned = env.run(["locks", "cleanup", "--json"]).code(0).json();
    assert_eq!(cleaned["cleaned"][0]["state"], "dead");
    env.run(["locks"]).code(0).prints("nothing is held");
}

/// Requirement 160. Invariant 8.
#[test]
fn a_circle_is_refused_and_named() {
    let env = Env::new();
    env.run(["locks", "check-deadlock"]).code(0).says("no deadlock");
    env.acquire(&["a", "--owner", "worker:one"]);
    env.acquire(&["b", "--owner", "worker:two"]);
    let args = ["acquire", "b", "--owner", "worker:one", "--ttl", "10m"];
    let waiter = env.start([&args[..], &["--wait=60s"]].concat());
    env.until_waiting(1);
    let refused = env.run(["acquire", "a", "--owner", "worker:two", "--wait", "--ttl", "1m"]).code(75);
    refused.says("deadlock refused").says("worker:one").says("worker:two").says("hint: ");
    assert_eq!(
        env.run(["locks", "check-deadlock", "--json"]).code(0).json().to_string(),
        r#"{"deadlocks":[]}"#
    );
    env.run(["locks", "force-release-all", "--yes"]).code(0);
    waiter.wait().code(0);
}

/// Looking leaves nothing behind, whatever is asked.
#[test]
fn who_only_looks_makes_nothing() {
    let env = Env::new().git();
    let before = env.tree();
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
        env.run(args).code(0);
        let json = [args, &["--json"]].concat();
        env.run(json).code(0);
    }
    assert_eq!(env.tree(), before);
}
