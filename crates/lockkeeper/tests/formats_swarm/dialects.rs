//! Locks that other programs of the same system write in their own ways.

use std::time::Duration;

use lockkeeper_testing::files;
use serde_json::{Value, json};

use crate::tasks::{HOUR, Tasks};

/// A lock as `swarm_lock.sh` writes it.
fn of_script(task: &str, acquired: Duration, expires: Option<&str>) -> String {
    let acquired_at = files::ago(acquired).to_string();
    format!(
        "{:#}",
        json!({ "task_id": task, "worker": "w1", "acquired_at": acquired_at, "expires_at": expires })
    )
}

fn without_ttl(task: &str, age: Duration) -> String {
    let at = files::ago(age).to_string();
    json!({ "worker_id": "w1", "task_id": task, "acquired_at": at, "heartbeat_at": at }).to_string()
}

/// Requirements 65, 66, 68.
#[test]
fn a_lock_without_a_ttl_counts_for_300_seconds() {
    let tasks = Tasks::with_locks();
    tasks.write("young", without_ttl("young", Duration::from_secs(200)));
    tasks.write("old", without_ttl("old", Duration::from_secs(301)));
    tasks.run(&["task", "lock", "young", "--worker", "w2"]).code(75).says("w1");
    tasks.run(&["task", "lock", "old", "--worker", "w2"]).code(0);
    assert_eq!(tasks.read("old")["worker_id"], "w2");
}

/// Requirements 62, 63, 68.
#[test]
fn a_lock_of_the_script_counts_until_its_end() {
    let tasks = Tasks::with_locks();
    tasks.write("held", of_script("held", HOUR, Some("2999-01-01T00:00:00Z")));
    tasks.write("over", of_script("over", HOUR, Some("2026-01-01T00:00:00Z")));
    tasks.write("for-good", of_script("for-good", HOUR * 10_000, None));
    tasks.write("never", of_script("never", HOUR, Some("9999-12-31T23:59:59Z")));
    for task in ["held", "for-good", "never"] {
        tasks.run(&["task", "lock", task, "--worker", "w2"]).code(75).says("w1");
        assert_eq!(tasks.json(&["task", "show", task])["lock"]["worker_id"], "w1", "{task}");
    }
    tasks.run(&["task", "lock", "over", "--worker", "w2"]).code(0);
    let names: Vec<Value> = tasks.json(&["locks", "--format", "swarm"])["locks"].as_array().unwrap().clone();
    assert_eq!(names.len(), 4, "{names:?}");
}

/// Requirements 64, 68. Invariant 11.
#[test]
fn its_worker_renews_and_unlocks_a_lock_of_the_script() {
    let tasks = Tasks::with_locks();
    tasks.write("a", of_script("a", HOUR, Some("2026-01-01T00:00:00Z")));
    tasks.run(&["task", "heartbeat", "a", "--worker", "w2", "--ttl", "60"]).code(75);
    tasks.run(&["task", "heartbeat", "a", "--worker", "w1", "--ttl", "60"]).code(0);
    let record = tasks.read("a");
    assert!(record["expires_at"].as_str() > Some("2026-01-02") && record["worker"] == "w1", "{record}");
    assert!(record.get("worker_id").is_none() && record.get("ttl").is_none(), "{record}");
    tasks.run(&["task", "lock", "a", "--worker", "w2"]).code(75);
    tasks.run(&["task", "unlock", "a", "--worker", "w2"]).code(75);
    tasks.run(&["task", "unlock", "a", "--worker", "w1"]).code(0);

    tasks.write("b", of_script("b", HOUR, None));
    tasks.run(&["task", "heartbeat", "b", "--worker", "w1"]).code(0);
    assert_eq!(tasks.read("b")["expires_at"], Value::Null, "for good stays for good");
    tasks.write("c", of_script("c", HOUR, Some("9999-12-31T23:59:59Z")));
    tasks.run(&["task", "heartbeat", "c", "--worker", "w1"]).code(0);
    assert!(tasks.read("c")["expires_at"].as_str() > Some("9999"));
    tasks.run(&["task", "lock", "c", "--worker", "w2"]).code(75).says("w1");
}
