//! `task hold`: heartbeats while a command runs, and the end of the command when the lock is lost.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Nest, record};

/// A held command that says when it runs, and ends when its input does.
struct Holding {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Holding {
    fn start(nest: &Nest, args: &[&str], script: &str) -> Self {
        let mut command = nest.command(&["task", "hold", "a", "--worker", "w1"]);
        command.args(args).args(["--", "sh", "-c", script]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut holding = Self { child, output };
        assert_eq!(holding.line(), "runs");
        holding
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn end(mut self) -> (i32, String) {
        if let Some(mut input) = self.child.stdin.take() {
            let _ = input.write_all(b"\n");
        }
        self.finish()
    }

    fn finish(self) -> (i32, String) {
        let output = self.child.wait_with_output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    }
}

/// Waits until a condition of the file system holds: nothing tells of a heartbeat.
fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Requirement 64.
#[test]
fn heartbeats_come_as_often_as_the_format_says() {
    assert_eq!(lockkeeper_formats::swarm::HEARTBEAT_EVERY, Duration::from_secs(10));
}

/// Requirement 64.
#[test]
fn the_lock_beats_while_the_command_runs_and_is_gone_after_it() {
    let nest = Nest::new();
    let holding = Holding::start(&nest, &["--interval", "20ms"], "echo runs; read line; exit 7");
    let first = nest.read("a");
    assert_eq!(first["worker_id"], "w1");
    until("a heartbeat", || nest.read("a")["heartbeat_at"] != first["heartbeat_at"]);
    assert_eq!(nest.read("a")["acquired_at"], first["acquired_at"]);
    assert_eq!(nest.code(&["task", "lock", "a", "--worker", "w2"]), 75);
    let (code, _) = holding.end();
    assert_eq!(code, 7);
    assert!(nest.names().is_empty());
}

/// Requirement 202. Invariant 10. The tree is stopped, and the new owner's record stays.
#[test]
fn a_lost_lock_stops_the_command_and_exits_76() {
    let nest = Nest::new();
    let holding =
        Holding::start(&nest, &["--interval", "20ms", "--ttl", "1h"], "echo runs; sleep 1000 & wait");
    // A foreign program breaks the lock, as the format's own procedure does: delete, create.
    let beside = nest.dir().join("beside");
    fs::write(&beside, record("a", "thief", Duration::ZERO, 300)).unwrap();
    fs::rename(&beside, nest.file("a")).unwrap();
    let (code, talk) = holding.finish();
    assert_eq!(code, 76, "{talk}");
    assert!(talk.contains("thief has it now"), "{talk}");
    assert_eq!(nest.read("a")["worker_id"], "thief");
    assert_eq!(nest.names(), ["a.lock"]);
}

/// Requirement 202. The record is removed, and nobody has the task: it is lost all the same.
#[test]
fn a_record_that_was_removed_is_lost() {
    let nest = Nest::new();
    let holding = Holding::start(&nest, &["--interval", "20ms"], "echo runs; sleep 1000 & wait");
    fs::remove_file(nest.file("a")).unwrap();
    let (code, talk) = holding.finish();
    assert_eq!(code, 76, "{talk}");
    assert!(nest.names().is_empty());
}

/// Requirements 67, 202. Invariant 10. A holder that slept too long learns it when it wakes, and stops its command.
#[test]
fn a_holder_that_was_stopped_beyond_its_ttl_stops_its_command_when_it_wakes() {
    let nest = Nest::new();
    let script = "echo runs; sleep 1000 & wait";
    let holding = Holding::start(&nest, &["--interval", "50ms", "--ttl", "300ms"], script);
    let pid = Pid::from_child(&holding.child);
    kill_process(pid, Signal::STOP).unwrap();
    until("the lock runs out", || nest.code(&["task", "lock", "a", "--worker", "w2"]) == 0);
    kill_process(pid, Signal::CONT).unwrap();
    let (code, talk) = holding.finish();
    assert_eq!(code, 76, "{talk}");
    assert!(talk.contains("w2 has it now"), "{talk}");
    assert_eq!(nest.read("a")["worker_id"], "w2");
}

#[test]
fn a_task_of_another_worker_is_not_run() {
    let nest = Nest::new();
    nest.write_record("a", "w2", Duration::ZERO, 300);
    let output = nest.run(&["task", "hold", "a", "--worker", "w1", "--", "touch", "ran"]);
    assert_eq!(output.status.code(), Some(75));
    assert!(!nest.dir().join("ran").exists());
}

#[test]
fn a_command_that_does_not_start_leaves_no_lock() {
    let nest = Nest::new();
    assert_eq!(nest.code(&["task", "hold", "a", "--worker", "w", "--", "./there-is-none"]), 127);
    assert!(nest.names().is_empty());
    for interval in ["0", "2s"] {
        let args = ["task", "hold", "a", "--worker", "w", "--ttl", "1", "--interval", interval, "--", "true"];
        assert_eq!(nest.code(&args), 2, "{interval}");
    }
    assert!(nest.names().is_empty());
}

/// Requirements 63, 67. A killed holder leaves its record and its spare; its successor needs neither.
#[test]
fn after_a_kill_the_ttl_frees_the_task_and_the_spare_is_swept() {
    let nest = Nest::new();
    let mut holding =
        Holding::start(&nest, &["--interval", "20ms", "--ttl", "300ms"], "echo runs; read line");
    holding.child.kill().unwrap();
    holding.child.wait().unwrap();
    assert_eq!(nest.names().len(), 2);
    until("the lock runs out", || nest.code(&["task", "lock", "a", "--worker", "w2"]) == 0);
    assert_eq!(nest.names(), ["a.lock"]);
    assert_eq!(nest.read("a")["worker_id"], "w2");
}
