//! Requests that one machine submits and another one executes.

use std::fs;

use lockkeeper_testing::processes::{is_alive, pid_in};
use lockkeeper_testing::until;
use serde_json::Value;

use super::team::{Machine, Team};

fn run_of(machine: &Machine, id: &str) -> Value {
    machine.world.json(&["run", "show", id, "--json"])
}

/// Invariant 9. Requirement 157.
#[test]
fn a_request_of_one_machine_is_executed_by_another() {
    let Some(team) = Team::new() else { return };
    let (one, other) = (team.machine(), team.machine());
    one.world.run(["runs"]).code(0);
    let mark = one.world.path("done");
    let script = format!("echo hello > '{}'; exit 3", mark.display());
    one.world.run(["submit", "--id", "a", "--", "sh", "-c", &script]).code(0);
    let seen = other.world.json(&["runs", "--json"]);
    assert_eq!(seen["runs"][0]["request_id"], "a", "{seen}");
    other.world.run(["work", "--drain"]).code(1);
    one.world.run(["run", "wait", "a"]).code(3);
    assert_eq!(fs::read_to_string(mark).unwrap(), "hello\n");
    let ended = run_of(&one, "a");
    assert_eq!((&ended["status"], &ended["exit_code"]), (&"failed".into(), &3.into()), "{ended}");
    // The queue is that of the project, from wherever it is looked at.
    one.world.run(["queue", "list"]).code(0);
    one.world.run(["requests"]).code(0).prints("a");
    one.world.run(["runs", "stats"]).code(0);
}

/// Invariants 9 and 10. The guardian of the killed worker looks after its command; nobody else starts the run again, although
/// the session of the worker has ended.
#[test]
fn the_run_of_a_killed_worker_ends_as_its_command_does() {
    let Some(team) = Team::with_session("8s") else { return };
    let (one, other) = (team.machine(), team.machine());
    let script = "echo $$ > pid; echo began >> record; until [ -e go ]; do sleep 0.05; done; exit 7";
    other.world.run(["submit", "--id", "a", "--retry", "3", "--", "sh", "-c", script]).code(0);
    let mut worker = other.world.start(["work"]);
    let command = pid_in(&other.world.path("pid"));
    worker.kill();
    let waiter = one.world.start(["run", "wait", "a"]);
    let _next = one.world.start(["work"]);
    // Longer than the session of the killed worker.
    std::thread::sleep(std::time::Duration::from_secs(10));
    assert!(is_alive(command));
    let running = run_of(&one, "a");
    assert_eq!((&running["status"], &running["attempt"]), (&"running".into(), &1.into()), "{running}");
    one.world.run(["run", "cancel", "a"]).code(0);
    waiter.wait().code(75);
    until("the command is gone", || !is_alive(command));
    assert_eq!(fs::read_to_string(other.world.path("record")).unwrap(), "began\n");
}

/// The same, and the command ends by itself.
#[test]
fn the_end_of_a_command_without_its_worker_is_known_to_all() {
    let Some(team) = Team::new() else { return };
    let (one, other) = (team.machine(), team.machine());
    let script = "echo $$ > pid; until [ -e go ]; do sleep 0.05; done; exit 7";
    one.world
        .run([
            "submit",
            "--id",
            "a",
            "--dir",
            &other.world.cwd().display().to_string(),
            "--",
            "sh",
            "-c",
            script,
        ])
        .code(0);
    let mut worker = other.world.start(["work"]);
    pid_in(&other.world.path("pid"));
    worker.kill();
    other.world.touch("go");
    // Its session lasts for minutes: the kernel of its own machine has told its guardian.
    one.world.run(["run", "wait", "a"]).code(7);
}

/// Invariants 1, 9 and 10. A worker that is cut off stops its command before its session can end, and another one takes the run
/// after that.
#[test]
fn a_worker_that_is_cut_off_stops_its_command_before_another_takes_the_run() {
    let Some(team) = Team::with_session("8s") else { return };
    let (one, other) = (team.machine(), team.machine());
    let record = one.world.path("record");
    // It ignores TERM, so that only KILL ends it.
    let script = format!(
        "trap '' TERM; echo begin >> '{0}'; [ \"$LOCKKEEPER_ATTEMPT\" = 1 ] || exit 0; \
         while :; do echo alive >> '{0}'; sleep 0.05; done",
        record.display()
    );
    one.world.run(["submit", "--id", "a", "--retry", "1", "--", "sh", "-c", &script]).code(0);
    let mut worker = other.world.start(["work"]);
    until("the command runs", || fs::read_to_string(&record).is_ok_and(|text| text.contains("alive")));
    let next = one.world.start(["work"]);
    other.link.silence(true);
    one.world.run(["run", "wait", "a"]).code(0);
    let lines = fs::read_to_string(&record).unwrap();
    assert!(lines.ends_with("alive\nbegin\n"), "something of the first attempt came after the second began");
    assert_eq!(lines.matches("begin").count(), 2);
    drop(next);
    // It goes on when the link is back.
    other.link.silence(false);
    assert!(!worker.has_ended());
    one.world.run(["submit", "--id", "b", "--", "true"]).code(0);
    one.world.run(["run", "wait", "b"]).code(0);
}

#[test]
fn a_run_is_canceled_from_another_machine() {
    let Some(team) = Team::new() else { return };
    let (one, other) = (team.machine(), team.machine());
    other.world.run(["submit", "--id", "a", "--", "sh", "-c", "echo $$ > pid; exec sleep 300"]).code(0);
    let _worker = other.world.start(["work"]);
    let command = pid_in(&other.world.path("pid"));
    one.world.run(["run", "cancel", "a"]).code(0);
    one.world.run(["run", "wait", "a"]).code(75);
    until("the command is gone", || !is_alive(command));
    assert_eq!(run_of(&one, "a")["status"], "canceled");
}

#[test]
fn keys_dependencies_and_the_limit_of_the_queue_hold_for_all_machines() {
    let Some(team) = Team::new() else { return };
    let (one, other) = (team.machine(), team.machine());
    one.world.run(["submit", "--id", "a", "--key", "nightly", "--", "true"]).code(0);
    let again = other.world.run(["submit", "--key", "nightly", "--json", "--", "true"]).code(0);
    assert_eq!(again.json()["request_id"], "a", "{}", again.stdout());
    other.world.run(["submit", "--id", "b", "--after", "a", "--", "true"]).code(0);
    one.world.run(["submit", "--max-queued", "2", "--", "true"]).code(75);
    assert_eq!(run_of(&one, "b")["status"], "queued");
    one.world.run(["work", "--drain"]).code(0);
    for id in ["a", "b"] {
        assert_eq!(run_of(&other, id)["status"], "succeeded");
    }
}

/// Invariant 9. The commands' own records tell how often each was executed.
#[test]
fn two_machines_drain_one_queue_and_execute_each_run_once() {
    let Some(team) = Team::new() else { return };
    let (one, other) = (team.machine(), team.machine());
    let record = one.world.path("record");
    let lines: String = (0..50)
        .map(|number| format!("{{\"id\":\"j{number}\",\"command\":[\"sh\",\"-c\",\"echo j{number} $LOCKKEEPER_DIR >> '{}'\"]}}\n", record.display()))
        .collect();
    let file = one.world.path("requests.jsonl");
    fs::write(&file, lines).unwrap();
    one.world.run(["submit", "--from", &file.display().to_string()]).code(0);
    let workers = [&one, &other].map(|machine| machine.world.start(["work", "--jobs", "2", "--drain"]));
    for worker in workers {
        worker.wait().code(0);
    }
    let text = fs::read_to_string(&record).unwrap();
    let mut names: Vec<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    names.sort_unstable();
    let mut all: Vec<String> = (0..50).map(|number| format!("j{number}")).collect();
    all.sort_unstable();
    assert_eq!(names, all);
}

/// A machine that is cut off says so, and does not hang.
#[test]
fn a_machine_that_is_cut_off_submits_and_reads_nothing() {
    let Some(team) = Team::new() else { return };
    let machine = team.machine();
    machine.link.silence(true);
    for args in
        [&["submit", "--", "true"][..], &["runs"], &["requests"], &["run", "wait", "a"], &["work", "--drain"]]
    {
        machine.world.run(args).code(69);
    }
}
