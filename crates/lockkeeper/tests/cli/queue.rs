//! The queue from the command line: why it stopped, and in which format requests are locked.

use lockkeeper_testing::{ServerProcess, files, until, until_seen, world};
use serde_json::json;

/// Requirement 185.
#[test]
fn why_the_queue_stopped_is_told() {
    let world = world!().with_state();
    world.run(["submit", "--id", "RQ-1", "--", "sh", "-c", "exit 3"]).code(0);
    let run = world.run(["--json", "queue", "auto"]).code(1).json()["runs"][0]["id"].take();
    let listed = world.run(["--json", "queue", "list"]).code(0).json();
    let stop = &listed["last_stop"];
    assert_eq!((&stop["reason"], &stop["run_id"], &stop["check"]), (&json!("FAILED"), &run, &json!(null)));
    world.run(["queue", "list"]).code(0).says("why the queue stopped: The last request failed.");
    world.run(["--lang", "zh", "queue", "list"]).code(0).says("队列停止的原因：最后一个请求失败了。");
}

/// Requirement 195. Otherwise a program of aiflow could run what a native worker runs already.
#[test]
fn executors_of_one_store_lock_in_one_format() {
    let world = world!().with_state();
    world.run(["submit", "--id", "RQ-1", "--", "sh", "-c", "while [ ! -e go ]; do sleep 0.02; done"]).code(0);
    let worker = world.start(["work", "--drain", "--lock-format", "aiflow"]);
    let running =
        || world.run(["--json", "runs", "--status", "running"]).json()["runs"].as_array().unwrap().len();
    until_seen("it runs", running, |count| *count == 1);
    world.run(["work", "--drain"]).code(75).says("--lock-format aiflow");
    let error = world.run(["--json", "queue", "run-next"]).code(75).json()["error"].take();
    assert_eq!(error["reason_code"], "LOCK_FORMAT_DIFFERS");
    world.touch("go");
    worker.wait().code(0);
    world.run(["work", "--drain"]).code(0);
    // A server that has nothing to do yet is an executor, too.
    let mut server = ServerProcess::start(&world, &["--lock-format", "aiflow"]);
    world.run(["submit", "--id", "RQ-2", "--", "true"]).code(0);
    world.run(["work", "--drain"]).code(75).says("--lock-format aiflow");
    server.kill();
    world.run(["work", "--drain"]).code(0);
}

/// Requirement 197. The command that ends the run knows neither the format nor the folder of the lock files.
#[test]
fn lock_files_of_a_killed_executor_go_with_its_run() {
    let world = world!().with_state();
    let submit = |started: &str, end: &str| {
        let line = format!(": > {started}; while [ ! -e {end} ]; do sleep 0.02; done");
        world.run(["submit", "--id", "RQ-1", "--replace", "--", "sh", "-c", &line]).code(0);
    };
    submit("started", "go");
    let mut worker = world.start(["work", "--lock-format", "aiflow"]);
    let files =
        [".aiflow/locks/RQ-1.lock", ".aiflow/locks/request.RQ-1.lock.json"].map(|name| world.path(name));
    let running =
        || world.run(["--json", "runs", "--status", "running"]).json()["runs"].as_array().unwrap().len();
    until("the command runs", || world.path("started").exists());
    assert!(files.iter().all(|file| file.exists()));
    worker.kill();
    world.touch("go");
    world.run(["run", "wait", "RQ-1"]).code(0);
    assert!(!files.iter().any(|file| file.exists()));
    // The doctor ends a run without a worker.
    submit("started-again", "end");
    let mut worker = world.start(["work", "--lock-format", "aiflow"]);
    until("the command runs", || world.path("started-again").exists());
    worker.kill();
    world.touch("end");
    let open = || {
        let _ = world.run(["doctor", "--full"]);
        running()
    };
    until_seen("the doctor ends it", open, |count| *count == 0);
    assert!(!files.iter().any(|file| file.exists()));
}

/// Requirement 197. The lock file of the queue has a run of this store, and the lease of the queue is free.
#[test]
fn a_killed_queue_does_not_stop_the_next_one() {
    let world = world!().with_state();
    let line = ": > started; while [ ! -e go ]; do sleep 0.02; done";
    world.run(["submit", "--id", "a", "--", "sh", "-c", line]).code(0);
    world.run(["submit", "--id", "b", "--", "true"]).code(0);
    let mut queue = world.start(["queue", "auto", "--lock-format", "aiflow"]);
    until("the command runs", || world.path("started").exists());
    queue.kill();
    world.touch("go");
    world.run(["run", "wait", "a"]).code(0);
    assert!(world.path(".aiflow/locks/queue.lock.json").exists());
    world.run(["queue", "list", "--lock-format", "aiflow"]).code(0).prints("next: b");
    world.run(["queue", "auto", "--lock-format", "aiflow"]).code(0);
    world.run(["run", "wait", "b"]).code(0);
    assert!(!world.path(".aiflow/locks/queue.lock.json").exists());
}

/// Requirements 139 and 141. Locks of all formats are in one list.
#[test]
fn locks_of_all_formats_are_listed_with_their_format() {
    let world = world!().with_state();
    world.run(["task", "lock", "t1", "--worker", "w1"]).code(0);
    files::write(&world.path(".aiflow/locks/RQ-1.lock"), "RUN-1");
    files::write(
        &world.path(".sprint-running"),
        "pid: 4194304\nsession_id: s\nstarted_at: 2026-01-31T12:00:00Z\n",
    );
    files::write(&world.beside("groups").join("registry.log"), "g:4194304:g:1700000000:ACTIVE\n");
    let listed = world.run(["--json", "locks"]).code(0).json();
    let found: Vec<String> = listed["foreign"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lock| format!("{} {}", lock["format"].as_str().unwrap(), lock["state"].as_str().unwrap()))
        .collect();
    assert_eq!(found, ["sprint stale", "swarm held", "group stale", "aiflow held"], "{listed}");
    world.run(["locks"]).code(0).prints("FORMAT").prints("request RQ-1").prints("RUN-1");
    for number in 0..4 {
        let line = format!("g{number}:4194304:g{number}:1700000000:ACTIVE\n");
        let path = world.beside("groups").join("registry.log");
        files::write(&path, std::fs::read_to_string(&path).unwrap() + &line);
    }
    let alerts = world.run(["--json", "locks"]).code(0).json()["alerts"].take();
    assert_eq!((&alerts[0]["code"], &alerts[0]["value"]), (&json!("ORPHAN_LOCKS"), &json!(6)), "{alerts}");
}

/// Requirement 195. `queue list` sees what the executors of the store see, although it does not name their format.
#[test]
fn the_list_uses_the_lock_format_of_the_executors_at_work() {
    let world = world!().with_state();
    for id in ["A", "B"] {
        world.run(["submit", "--id", id, "--", "true"]).code(0);
    }
    files::write(&world.path(".aiflow/locks/A.lock"), "RUN-THEIRS");
    let next = || world.run(["--json", "queue", "list"]).code(0).json()["next"].take();
    assert_eq!(next(), "A", "no executor uses these files");
    let mut server = ServerProcess::start(&world, &["--lock-format", "aiflow"]);
    assert_eq!(next(), "B");
    world.run(["run", "show", "A"]).code(0).prints("RUN-THEIRS");
    server.kill();
    assert_eq!(next(), "A");
}

/// Requirement 183. `queue run-next` has no labels.
#[test]
fn a_request_that_needs_a_label_is_not_next() {
    let world = world!().with_state();
    world.run(["submit", "--id", "gpu", "--needs", "gpu", "--", "true"]).code(0);
    let listed = world.run(["--json", "queue", "list"]).code(0).json();
    let passed = json!([{ "request_id": "gpu", "reason": "NEEDS_LABEL" }]);
    assert_eq!((&listed["next"], &listed["passed_over"]), (&json!(null), &passed));
    world.run(["queue", "list"]).code(0).prints("gpu  it needs a label ").says("nothing is ready");
    let step = world.run(["--json", "queue", "run-next"]).code(0).json();
    assert_eq!((&step["next"], &step["passed_over"]), (&json!(null), &passed));
    world.run(["submit", "--id", "plain", "--", "true"]).code(0);
    world.run(["queue", "list"]).code(0).prints("next: plain");
}

/// Requirement 183. The code stays; the words say that nobody will ever start it.
#[test]
fn the_list_tells_what_can_never_start() {
    let world = world!().with_state();
    world.run(["submit", "--id", "bad", "--", "false"]).code(0);
    world.run(["queue", "run-next"]).code(1);
    world.run(["submit", "--id", "child", "--after", "bad", "--", "true"]).code(0);
    world.run(["submit", "--id", "grandchild", "--after", "child", "--", "true"]).code(0);
    let never = "can never start: bad did not succeed; `lockkeeper run retry bad`";
    let listed = world.run(["queue", "list"]).code(0);
    let listed = listed.prints(&format!("child  {never}"));
    listed.prints(&format!("grandchild  {never}"));
    let listed = world.run(["--json", "queue", "list"]).code(0).json();
    let child =
        listed["passed_over"].as_array().unwrap().iter().find(|one| one["request_id"] == "child").unwrap();
    assert_eq!(
        (&child["reason"], &child["failed"]),
        (&json!("DEPENDS_NOT_DONE"), &json!(["bad"])),
        "{listed}"
    );
    world.run(["runs"]).code(0).prints("can never start: bad did not succeed");
    world.run(["requests"]).code(0).prints("can never start: bad did not succeed");
    world.run(["run", "show", "grandchild"]).code(0).prints("can never start: bad did not succeed");
    let shown = world.run(["--json", "run", "show", "grandchild"]).code(0).json();
    let blocked = &shown["run"]["blocked"];
    assert_eq!(
        (&blocked["because"], &blocked["requests"], &blocked["failed"]),
        (&json!("dependencies"), &json!(["child"]), &json!(["bad"]))
    );
    world.run(["--lang", "ja", "queue", "list"]).code(0).prints("`lockkeeper run retry bad`");
    world.run(["run", "retry", "bad"]).code(0);
    let again = world.run(["queue", "list"]).code(0).stdout();
    assert!(!again.contains("never"), "{again}");
}
