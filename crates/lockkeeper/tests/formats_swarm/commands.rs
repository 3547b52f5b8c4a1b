//! The commands, as scripts use them.

use lockkeeper_testing::Finished;

use crate::tasks::{HOUR, Tasks};

/// Requirements 58, 59, 62.
#[test]
fn lock_unlock_and_heartbeat_answer_with_their_exit_codes() {
    let tasks = Tasks::new();
    let task = |verb: &str, worker: &str| tasks.run(&["task", verb, "task-1", "--worker", worker]);
    task("heartbeat", "w1").code(75);
    task("lock", "w1").code(0);
    task("lock", "w2").code(75);
    task("lock", "w1").code(75);
    task("heartbeat", "w1").code(0);
    task("heartbeat", "w2").code(75);
    task("unlock", "w2").code(75);
    assert_eq!(tasks.names(), ["task-1.lock"]);
    task("unlock", "w1").code(0);
    task("unlock", "w1").code(0);
    assert!(tasks.names().is_empty());
}

/// Requirements 63, 67.
#[test]
fn an_expired_lock_is_taken_over_and_the_answer_names_its_worker() {
    let tasks = Tasks::new();
    tasks.write_record("a", "w1", HOUR, 300);
    assert_eq!(tasks.json(&["task", "show", "a"])["status"], "stale");
    let answer = tasks.json(&["task", "lock", "a", "--worker", "w2"]);
    assert_eq!((&answer["status"], &answer["replaced"]["worker_id"]), (&"locked".into(), &"w1".into()));
    assert_eq!(answer["lock"]["worker_id"], "w2");
    let refusal = tasks.json(&["task", "heartbeat", "a", "--worker", "w1"]);
    assert_eq!(refusal["error"]["reason_code"], "NOT_THE_OWNER");
    assert_eq!(refusal["error"]["context"]["holder"]["worker_id"], "w2");
    assert_eq!(tasks.read("a")["worker_id"], "w2");
}

/// Requirement 65.
#[test]
fn the_ttl_comes_from_the_flag_else_from_the_environment_else_from_the_format() {
    let tasks = Tasks::new();
    let locked = |task: &str, args: &[&str], variable: Option<&str>| {
        let mut command = tasks.world.lockkeeper(["task", "lock", task, "--worker", "w"]);
        command.args(args);
        variable.map(|value| command.env("AI_SWARM_LOCK_TTL", value));
        Finished::of(&mut command).code(0);
        tasks.read(task)["ttl"].clone()
    };
    assert_eq!(locked("a", &[], None), 300);
    assert_eq!(locked("b", &[], Some("60")), 60);
    assert_eq!(locked("c", &["--ttl", "5m"], Some("60")), 300);
    assert_eq!(locked("d", &["--ttl", "0.5"], None), 0.5);
    assert_eq!(locked("e", &[], Some("")), 300);
}

#[test]
fn a_ttl_that_is_none_is_refused_before_anything_is_touched() {
    let tasks = Tasks::new();
    for ttl in ["0", "-1", "NaN", "inf", "1e9", "99999999999999999999", ""] {
        tasks.run(&["task", "lock", "a", "--worker", "w", "--ttl", ttl]).code(2);
    }
    // An empty variable counts as none.
    for ttl in ["0", "-1", "NaN", "inf", "1e9", "99999999999999999999"] {
        let mut command = tasks.world.lockkeeper(["task", "lock", "a", "--worker", "w"]);
        Finished::of(command.env("AI_SWARM_LOCK_TTL", ttl)).code(2);
    }
    assert!(!tasks.locks().exists());
}

#[test]
fn show_tells_record_and_verdict_and_leaves_nothing_behind() {
    let tasks = Tasks::new();
    let free = tasks.json(&["task", "show", "a"]);
    assert_eq!((&free["status"], &free["lock"]), (&"free".into(), &serde_json::Value::Null));
    assert!(!tasks.locks().exists());
    tasks.run(&["task", "lock", "a", "--worker", "w"]).code(0);
    let held = tasks.json(&["task", "show", "a", "--worker", "w"]);
    assert_eq!((&held["status"], &held["mine"]), (&"held".into(), &true.into()));
    assert_eq!(held["lock"].as_object().unwrap().len(), 5);
    tasks.run(&["task", "show", "a"]).code(0).prints("worker_id: w\n").prints("verdict: held");
}

#[test]
fn locks_lists_the_files_of_the_swarm_with_their_verdicts() {
    let tasks = Tasks::new();
    tasks.write_record("b", "w1", HOUR, 300);
    tasks.write("c", "rubbish");
    tasks.run(&["task", "lock", "a", "--worker", "w2"]).code(0);
    let listing = tasks.json(&["locks", "--format", "swarm"]);
    let states: Vec<(&str, &str)> = listing["locks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lock| (lock["subject"].as_str().unwrap(), lock["state"].as_str().unwrap()))
        .collect();
    assert_eq!(states, [("a", "held"), ("b", "stale"), ("c", "unknown")]);
    let text = tasks.run(&["locks", "--format", "swarm"]).code(0).stdout();
    assert_eq!(text.lines().count(), 4, "{text}");
}
