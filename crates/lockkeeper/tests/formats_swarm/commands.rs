//! The commands, as scripts use them.

use crate::support::{HOUR, Nest};

/// Requirements 58, 59, 62.
#[test]
fn lock_unlock_and_heartbeat_answer_with_their_exit_codes() {
    let nest = Nest::new();
    let task = |verb: &str, worker: &str| nest.code(&["task", verb, "task-1", "--worker", worker]);
    assert_eq!(task("heartbeat", "w1"), 75);
    assert_eq!(task("lock", "w1"), 0);
    assert_eq!(task("lock", "w2"), 75);
    assert_eq!(task("lock", "w1"), 75);
    assert_eq!(task("heartbeat", "w1"), 0);
    assert_eq!(task("heartbeat", "w2"), 75);
    assert_eq!(task("unlock", "w2"), 75);
    assert_eq!(nest.names(), ["task-1.lock"]);
    assert_eq!(task("unlock", "w1"), 0);
    assert_eq!(task("unlock", "w1"), 0);
    assert!(nest.names().is_empty());
}

/// Requirements 63, 67.
#[test]
fn an_expired_lock_is_taken_over_and_the_answer_names_its_worker() {
    let nest = Nest::new();
    nest.write_record("a", "w1", HOUR, 300);
    assert_eq!(nest.json(&["task", "show", "a"])["status"], "stale");
    let answer = nest.json(&["task", "lock", "a", "--worker", "w2"]);
    assert_eq!((&answer["status"], &answer["replaced"]["worker_id"]), (&"locked".into(), &"w1".into()));
    assert_eq!(answer["lock"]["worker_id"], "w2");
    let refusal = nest.json(&["task", "heartbeat", "a", "--worker", "w1"]);
    assert_eq!(refusal["error"]["reason_code"], "NOT_THE_OWNER");
    assert_eq!(refusal["error"]["context"]["holder"]["worker_id"], "w2");
    assert_eq!(nest.read("a")["worker_id"], "w2");
}

/// Requirement 65.
#[test]
fn the_ttl_comes_from_the_flag_else_from_the_environment_else_from_the_format() {
    let nest = Nest::new();
    let locked = |task: &str, args: &[&str], variable: Option<&str>| {
        let mut command = nest.command(&["task", "lock", task, "--worker", "w"]);
        command.args(args);
        variable.map(|value| command.env("AI_SWARM_LOCK_TTL", value));
        assert!(command.output().unwrap().status.success());
        nest.read(task)["ttl"].clone()
    };
    assert_eq!(locked("a", &[], None), 300);
    assert_eq!(locked("b", &[], Some("60")), 60);
    assert_eq!(locked("c", &["--ttl", "5m"], Some("60")), 300);
    assert_eq!(locked("d", &["--ttl", "0.5"], None), 0.5);
    assert_eq!(locked("e", &[], Some("")), 300);
}

#[test]
fn a_ttl_that_is_none_is_refused_before_anything_is_touched() {
    let nest = Nest::new();
    for ttl in ["0", "-1", "NaN", "inf", "1e9", "99999999999999999999", ""] {
        assert_eq!(nest.code(&["task", "lock", "a", "--worker", "w", "--ttl", ttl]), 2, "{ttl}");
        let mut command = nest.command(&["task", "lock", "a", "--worker", "w"]);
        if !ttl.is_empty() {
            let output = command.env("AI_SWARM_LOCK_TTL", ttl).output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{ttl}");
        }
    }
    assert!(!nest.locks().exists());
}

#[test]
fn show_tells_record_and_verdict_and_leaves_nothing_behind() {
    let nest = Nest::new();
    let free = nest.json(&["task", "show", "a"]);
    assert_eq!((&free["status"], &free["lock"]), (&"free".into(), &serde_json::Value::Null));
    assert!(!nest.locks().exists());
    assert_eq!(nest.code(&["task", "lock", "a", "--worker", "w"]), 0);
    let held = nest.json(&["task", "show", "a", "--worker", "w"]);
    assert_eq!((&held["status"], &held["mine"]), (&"held".into(), &true.into()));
    assert_eq!(held["lock"].as_object().unwrap().len(), 5);
    let text = String::from_utf8(nest.run(&["task", "show", "a"]).stdout).unwrap();
    assert!(text.contains("worker_id: w\n") && text.contains("verdict: held"), "{text}");
}

#[test]
fn locks_lists_the_files_of_the_swarm_with_their_verdicts() {
    let nest = Nest::new();
    nest.write_record("b", "w1", HOUR, 300);
    nest.write("c", "rubbish");
    assert_eq!(nest.code(&["task", "lock", "a", "--worker", "w2"]), 0);
    let listing = nest.json(&["locks", "--format", "swarm"]);
    let states: Vec<(&str, &str)> = listing["locks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lock| (lock["subject"].as_str().unwrap(), lock["state"].as_str().unwrap()))
        .collect();
    assert_eq!(states, [("a", "held"), ("b", "stale"), ("c", "unknown")]);
    let text = String::from_utf8(nest.run(&["locks", "--format", "swarm"]).stdout).unwrap();
    assert_eq!(text.lines().count(), 4, "{text}");
}
