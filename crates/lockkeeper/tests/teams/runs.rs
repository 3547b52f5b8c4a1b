//! Requests that one machine submits and another one executes.

use std::fs;

use lockkeeper_testing::processes::{is_alive, pid_in};
use lockkeeper_testing::until;
use serde_json::{Value, json};

use super::team::{Machine, Team};

fn run_of(machine: &Machine, id: &str) -> Value {
    machine.world.json(&["run", "show", id, "--json"])["run"].clone()
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
    other.world.run(["submit", "--id", "a", "--retries", "3", "--", "sh", "-c", script]).code(0);
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
            "--cwd",
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
    one.world.run(["submit", "--id", "a", "--retries", "1", "--", "sh", "-c", &script]).code(0);
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
    let full =
        one.world.lockkeeper(["submit", "--", "true"]).env("LOCKKEEPER_QUEUE_LIMIT", "2").output().unwrap();
    assert_eq!(full.status.code(), Some(75), "{full:?}");
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
    let script = |number| format!("echo j{number} >> '{}'", record.display());
    let jobs: Vec<Value> = (0..50)
        .map(|number| json!({ "id": format!("j{number}"), "command": ["sh", "-c", script(number)] }))
        .collect();
    let one = Machine { world: one.world.write("jobs.json", &Value::from(jobs).to_string()), ..one };
    one.world.run(["submit", "--from", "jobs.json"]).code(0);
    let workers = [&one, &other].map(|machine| machine.world.start(["work", "--jobs", "2", "--drain"]));
    for worker in workers {
        worker.wait().code(0);
    }
    let text = fs::read_to_string(&record).unwrap();
    let mut names: Vec<&str> = text.lines().collect();
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

/// The same machine, with a clone of the repository.
pub(crate) fn with_clone(machine: Machine) -> Machine {
    Machine { world: machine.world.git(), ..machine }
}

/// A folder of the project is that of the worker's clone, and so are the home folder and the path.
#[test]
fn a_run_is_executed_in_the_clone_and_the_environment_of_its_worker() {
    let Some(team) = Team::new() else { return };
    let (one, other) = (with_clone(team.machine()), with_clone(team.machine()));
    for machine in [&one, &other] {
        fs::create_dir(machine.world.path("api")).unwrap();
    }
    let script = "pwd > where; echo $HOME >> where; echo $LANG >> where; echo $CHOSEN >> where";
    let submit = ["submit", "--id", "a", "--cwd", "api", "--env", "CHOSEN=here", "--", "sh", "-c", script];
    let submitted = one.world.lockkeeper(submit).env("LANG", "de_DE").output().unwrap();
    assert_eq!(submitted.status.code(), Some(0), "{submitted:?}");
    other.world.run(["work", "--drain"]).code(0);
    let where_it_was = fs::read_to_string(other.world.path("api/where")).unwrap();
    let folder = fs::canonicalize(other.world.path("api")).unwrap();
    let expected = format!("{}\n{}\nde_DE\nhere\n", folder.display(), other.world.home().display());
    assert_eq!(where_it_was, expected);
    let outside = one.world.run(["submit", "--id", "b", "--cwd", "/", "--", "pwd"]).code(0);
    outside.says("/ is outside of the project");
    assert_eq!(one.world.json(&["requests", "--json"])["requests"][0]["cwd"], "/");
}

#[test]
fn runs_and_workers_name_their_machine() {
    let Some(team) = Team::new() else { return };
    let (one, other) = (team.machine(), team.machine());
    assert_eq!(one.world.json(&["hosts", "--json"])["hosts"], json!([]));
    other.world.run(["submit", "--id", "a", "--", "sh", "-c", "echo $$ > pid; exec sleep 300"]).code(0);
    let _worker = other.world.start(["work", "--jobs", "3"]);
    let command = pid_in(&other.world.path("pid"));
    let hosts = one.world.json(&["hosts", "--json"]);
    let host = &hosts["hosts"][0];
    assert_eq!(
        (&host["workers"], &host["jobs"], &host["runs"]),
        (&1.into(), &3.into(), &1.into()),
        "{hosts}"
    );
    one.world.run(["hosts"]).code(0).prints("LAST HEARD OF");
    let name = host["host"].clone();
    assert_eq!(one.world.json(&["runs", "--json"])["runs"][0]["host"], name);
    one.world.run(["run", "cancel", "a"]).code(0);
    until("the command is gone", || !is_alive(command));
    one.world.run(["run", "wait", "a"]).code(75);
    assert_eq!(run_of(&one, "a")["host"], name, "also after its end");
}

/// A worker takes only what it has the labels for, from wherever it was submitted.
#[test]
fn a_request_that_needs_a_label_waits_for_a_machine_that_has_it() {
    let Some(team) = Team::new() else { return };
    let (one, other) = (team.machine(), team.machine());
    one.world.run(["submit", "--id", "train", "--needs", "gpu", "--", "true"]).code(0);
    one.world.run(["submit", "--id", "plain", "--", "true"]).code(0);
    let _worker = one.world.start(["work"]);
    one.world.run(["run", "wait", "plain"]).code(0);
    other.world.run(["runs"]).code(0).prints("no worker with label gpu");
    let waits = other.world.json(&["runs", "--json", "--status", "queued"])["runs"][0]["blocked"].clone();
    assert_eq!(waits, json!({ "because": "no_worker_with", "labels": ["gpu"], "holders": [] }));
    other.world.run(["work", "--label", "gpu", "--drain"]).code(0);
    one.world.run(["run", "wait", "train"]).code(0);
}

/// An answer of one machine reaches the command on another.
#[test]
fn an_answer_reaches_the_command_on_another_machine() {
    let Some(team) = Team::new() else { return };
    let (one, other) = (team.machine(), team.machine());
    let script = "[ -n \"$LOCKKEEPER_ANSWER\" ] || exit 10; echo \"$LOCKKEEPER_ANSWER\" > said";
    other.world.run(["submit", "--id", "a", "--", "sh", "-c", script]).code(0);
    other.world.run(["work", "--drain"]).code(1);
    one.world.run(["run", "answer", "a", "blue"]).code(0);
    other.world.run(["work", "--drain"]).code(0);
    assert_eq!(fs::read_to_string(other.world.path("said")).unwrap(), "blue\n");
}
