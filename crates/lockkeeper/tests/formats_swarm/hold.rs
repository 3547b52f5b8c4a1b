//! `task hold`: heartbeats while a command runs, and the end of the command when the lock is lost.

use std::fs;
use std::time::Duration;

use lockkeeper_testing::{Signal, Started, until};

use crate::tasks::{Tasks, record};

/// Starts `task hold` with a script, and waits until the script says `runs`.
#[track_caller]
fn hold(tasks: &Tasks, args: &[&str], script: &str) -> Started {
    let mut command = tasks.world.lockkeeper(["task", "hold", "a", "--worker", "w1"]);
    let mut holding = Started::of(command.args(args).args(["--", "sh", "-c", script]));
    assert_eq!(holding.line(), "runs");
    holding
}

/// Waits until the TTL has run out and another worker gets the lock.
#[track_caller]
fn until_taken_over(tasks: &Tasks) {
    until("the lock runs out", || tasks.run(&["task", "lock", "a", "--worker", "w2"]).succeeded());
}

/// Requirement 64.
#[test]
fn heartbeats_come_as_often_as_the_format_says() {
    assert_eq!(lockkeeper_formats::swarm::HEARTBEAT_EVERY, Duration::from_secs(10));
}

/// Requirement 64.
#[test]
fn the_lock_beats_while_the_command_runs_and_is_gone_after_it() {
    let tasks = Tasks::new();
    let holding = hold(&tasks, &["--interval", "20ms"], "echo runs; read line; exit 7");
    let first = tasks.read("a");
    assert_eq!(first["worker_id"], "w1");
    until("a heartbeat", || tasks.read("a")["heartbeat_at"] != first["heartbeat_at"]);
    assert_eq!(tasks.read("a")["acquired_at"], first["acquired_at"]);
    tasks.run(&["task", "lock", "a", "--worker", "w2"]).code(75);
    holding.finish().code(7);
    assert!(tasks.names().is_empty());
}

/// Requirement 202. Invariant 10. The tree is stopped, and the new owner's record stays.
#[test]
fn a_lost_lock_stops_the_command_and_exits_76() {
    let tasks = Tasks::new();
    let holding = hold(&tasks, &["--interval", "20ms", "--ttl", "1h"], "echo runs; sleep 1000 & wait");
    // A foreign program breaks the lock, as the format's own procedure does: delete, create.
    let beside = tasks.dir().join("beside");
    fs::write(&beside, record("a", "thief", Duration::ZERO, 300)).unwrap();
    fs::rename(&beside, tasks.file("a")).unwrap();
    holding.wait().code(76).says("thief has it now");
    assert_eq!(tasks.read("a")["worker_id"], "thief");
    assert_eq!(tasks.names(), ["a.lock"]);
}

/// Requirement 202. A record that another program removed counts as lost, although nobody took the task.
#[test]
fn a_record_that_was_removed_is_lost() {
    let tasks = Tasks::new();
    let holding = hold(&tasks, &["--interval", "20ms"], "echo runs; sleep 1000 & wait");
    fs::remove_file(tasks.file("a")).unwrap();
    holding.wait().code(76);
    assert!(tasks.names().is_empty());
}

/// Requirements 67, 202. Invariant 10. A holder that was stopped too long notices that when it continues, and stops its command.
#[test]
fn a_holder_that_was_stopped_beyond_its_ttl_stops_its_command_when_it_wakes() {
    let tasks = Tasks::new();
    let script = "echo runs; sleep 1000 & wait";
    let holding = hold(&tasks, &["--interval", "50ms", "--ttl", "300ms"], script);
    holding.signal(Signal::STOP);
    until_taken_over(&tasks);
    holding.signal(Signal::CONT);
    holding.wait().code(76).says("w2 has it now");
    assert_eq!(tasks.read("a")["worker_id"], "w2");
}

#[test]
fn a_task_of_another_worker_is_not_run() {
    let tasks = Tasks::new();
    tasks.write_record("a", "w2", Duration::ZERO, 300);
    tasks.run(&["task", "hold", "a", "--worker", "w1", "--", "touch", "ran"]).code(75);
    assert!(!tasks.world.path("ran").exists());
}

#[test]
fn a_command_that_does_not_start_leaves_no_lock() {
    let tasks = Tasks::new();
    tasks.run(&["task", "hold", "a", "--worker", "w", "--", "./there-is-none"]).code(127);
    assert!(tasks.names().is_empty());
    for interval in ["0", "2s"] {
        let args = ["task", "hold", "a", "--worker", "w", "--ttl", "1", "--interval", interval, "--", "true"];
        tasks.run(&args).code(2);
    }
    assert!(tasks.names().is_empty());
}

/// Requirements 63, 67. A killed holder leaves its record and its spare file. The next holder removes both.
#[test]
fn after_a_kill_the_ttl_frees_the_task_and_the_spare_is_swept() {
    let tasks = Tasks::new();
    let mut holding = hold(&tasks, &["--interval", "20ms", "--ttl", "300ms"], "echo runs; read line");
    holding.kill();
    assert_eq!(tasks.names().len(), 2);
    until_taken_over(&tasks);
    assert_eq!(tasks.names(), ["a.lock"]);
    assert_eq!(tasks.read("a")["worker_id"], "w2");
}
