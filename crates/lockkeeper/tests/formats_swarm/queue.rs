//! The queue of a swarm, `tasks.json`: what our workers write, and what a worker of the original system sees.

use std::fs;
use std::time::Duration;

use lockkeeper_testing::{Finished, World, files, processes, until_seen, world};
use serde_json::{Value, json};

/// Reads the pending tasks, assigns the first one to itself, and writes the file back, as the original program does.
const THEIR_WORKER: &str = r#"
import fcntl, json, os, sys
path = sys.argv[1]
tasks = json.load(open(path))["tasks"]
pending = [task for task in tasks if task["status"] == "pending"]
if pending:
    pending[0]["status"] = "assigned"
    pending[0]["assigned_to"] = "theirs"
    with open(path + ".tmp", "w") as file:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX)
        json.dump({"tasks": tasks}, file, indent=2)
        file.flush(); os.fsync(file.fileno())
    os.replace(path, path + ".bak")
    os.rename(path + ".tmp", path)
print(pending[0]["id"] if pending else "none")
"#;

fn swarm(tasks: &Value) -> World {
    let world = world!().with_state();
    files::write(&world.beside("swarm").join("tasks.json"), json!({ "tasks": tasks }).to_string());
    world
}

fn path(world: &World) -> String {
    world.beside("swarm").join("tasks.json").to_str().unwrap().to_owned()
}

fn import(world: &World, command: &str) {
    world.run(["submit", "--from-swarm", &path(world), "--agent-command", command]).code(0);
}

fn statuses(world: &World) -> Vec<String> {
    let file: Value = serde_json::from_slice(&fs::read(path(world)).unwrap()).unwrap();
    let tasks = file["tasks"].as_array().unwrap();
    tasks.iter().map(|task| format!("{} {}", task["id"], task["status"].as_str().unwrap())).collect()
}

fn their_worker(world: &World) -> String {
    let worker = Finished::of(world.command("python3").args(["-c", THEIR_WORKER, &path(world)])).code(0);
    worker.stdout().trim().to_owned()
}

/// Requirement 68. What runs here is not pending for their workers, and what they have is not run here.
#[test]
fn a_task_is_assigned_and_ended_where_the_original_program_reads_it() {
    let world = swarm(&json!([
        { "id": "good", "prompt": "true", "status": "pending", "big": 12345 },
        { "id": "bad", "prompt": "false", "status": "pending" },
        { "id": "long", "prompt": "until [ -e go ]; do sleep 0.02; done", "status": "pending" },
        { "id": "done", "prompt": "true", "status": "DONE" },
    ]));
    let text = fs::read_to_string(path(&world)).unwrap().replace("12345", "123456789012345678901234567890");
    fs::write(path(&world), text).unwrap();
    import(&world, "sh -c {prompt}");
    let worker = world.start(["work", "--drain"]);
    until_seen("the long one runs", || statuses(&world), |all| all[2] == "\"long\" assigned");
    assert_eq!(their_worker(&world), "none", "{:?}", statuses(&world));
    world.touch("go");
    worker.wait().code(1);
    let expected = ["\"good\" completed", "\"bad\" failed", "\"long\" completed", "\"done\" DONE"];
    assert_eq!(statuses(&world), expected);
    let text = fs::read_to_string(path(&world)).unwrap();
    assert!(text.contains("123456789012345678901234567890"), "{text}");
    assert_eq!(files::names(&world.beside("swarm").join("locks")), [""; 0]);
}

/// Requirement 68.
#[test]
fn a_task_that_another_worker_has_taken_is_left_to_it() {
    let world = swarm(&json!([{ "id": "t1", "prompt": "true", "status": "pending" }]));
    import(&world, "sh -c {prompt}");
    assert_eq!(their_worker(&world), "t1");
    let mut worker = world.start(["work"]);
    worker.until_stderr("task t1 is assigned by theirs");
    assert_eq!(statuses(&world), ["\"t1\" assigned"]);
    worker.kill();
}

/// Requirement 67. What a worker of theirs leaves that took the task and was killed: its lock expires, and anybody takes over.
#[test]
fn a_task_whose_worker_died_is_executed_once_its_lock_has_expired() {
    let world = swarm(&json!([{ "id": "t1", "prompt": "echo ran >> ran", "status": "pending" }]));
    import(&world, "sh -c {prompt}");
    assert_eq!(their_worker(&world), "t1");
    their_lock(&world, Duration::from_secs(400));
    let worker = world.run(["work", "--drain"]).code(0);
    worker.says("LOCK_STALE_RECOVERED: took over the lock of theirs on task t1");
    assert_eq!(fs::read_to_string(world.path("ran")).unwrap(), "ran\n");
    assert_eq!(statuses(&world), ["\"t1\" completed"]);
    assert!(!fs::read_to_string(path(&world)).unwrap().contains("theirs"));
    assert_eq!(files::names(&world.beside("swarm").join("locks")), [""; 0]);
    world.run(["run", "events", "t1"]).code(0).prints("LOCK_STALE_RECOVERED");
}

/// Requirement 67. A lock that has not expired is evidence of a worker; no lock at all is evidence of nothing.
#[test]
fn a_task_that_is_assigned_waits_while_its_worker_may_live() {
    let world = swarm(&json!([{ "id": "t1", "prompt": "touch ran", "status": "pending" }]));
    import(&world, "sh -c {prompt}");
    assert_eq!(their_worker(&world), "t1");
    their_lock(&world, Duration::from_secs(10));
    let mut worker = world.start(["work"]);
    worker.until_stderr("task t1 is locked by theirs");
    world.run(["run", "show", "t1"]).code(0).prints("t1.lock is held by theirs");
    fs::remove_file(world.beside("swarm").join("locks/t1.lock")).unwrap();
    worker.until_stderr("task t1 is assigned by theirs, without a lock");
    world.run(["run", "show", "t1"]).code(0).prints("set its status to `pending` in");
    let shown = world.run(["--json", "run", "show", "t1"]).code(0).json();
    assert!(shown["run"]["blocked"]["lock_file"].as_str().unwrap().contains("without a lock"), "{shown}");
    assert!(!world.path("ran").exists());
    let text = fs::read_to_string(path(&world)).unwrap().replace("assigned\"", "pending\"");
    fs::write(path(&world), text).unwrap();
    world.run(["run", "wait", "t1"]).code(0);
    worker.kill();
}

/// The lock that their worker took, with a last heartbeat this long ago.
fn their_lock(world: &World, age: Duration) {
    let at = files::ago(age).to_string();
    let lock =
        json!({ "worker_id": "theirs", "task_id": "t1", "acquired_at": at, "heartbeat_at": at, "ttl": 300 });
    files::write(&world.beside("swarm").join("locks/t1.lock"), lock.to_string());
}

/// Requirement 68. A task that another program has ended since the import is not run again, and nobody waits for it.
#[test]
fn a_task_that_another_program_has_ended_ends_its_run_with_the_reason() {
    let task = |id: &str| json!({ "id": id, "prompt": "touch ran", "status": "pending" });
    let world = swarm(&json!([task("t1"), task("t2"), task("t3")]));
    import(&world, "sh -c {prompt}");
    world.run(["submit", "--id", "next", "--after", "t1", "--", "touch", "next"]).code(0);
    let text = fs::read_to_string(path(&world)).unwrap();
    let mut file: Value = serde_json::from_str(&text).unwrap();
    for (task, status) in [(0, "completed"), (1, "DONE"), (2, "skipped")] {
        file["tasks"][task]["status"] = json!(status);
        file["tasks"][task]["assigned_to"] = json!("theirs");
    }
    fs::write(path(&world), file.to_string()).unwrap();
    world.run(["work", "--drain"]).code(0);
    let runs = world.run(["runs", "--json"]).code(0).json();
    let of = |request: &str| {
        let run = runs["runs"].as_array().unwrap().iter().find(|run| run["request_id"] == request).unwrap();
        (run["status"].as_str().unwrap().to_owned(), run["message"].as_str().unwrap_or_default().to_owned())
    };
    let expected = |status: &str, why: &str| (status.to_owned(), why.to_owned());
    assert_eq!(of("t1"), expected("succeeded", "task t1 is completed by theirs"));
    assert_eq!(of("t2"), expected("succeeded", "task t2 is DONE by theirs"));
    assert_eq!(of("t3"), expected("canceled", "task t3 is skipped by theirs"));
    assert_eq!(of("next").0, "succeeded");
    assert!(!world.path("ran").exists());
    assert_eq!(files::names(&world.beside("swarm").join("locks")), [""; 0]);
}

/// Requirements 68 and 197. The worker that goes on with a run takes over the lock of its task.
#[test]
fn after_a_workers_death_the_lock_of_its_task_goes_with_the_run() {
    let world = swarm(
        &json!([{ "id": "t1", "prompt": "until [ -e go ]; do sleep 0.02; done", "status": "pending" }]),
    );
    import(&world, "sh -c {prompt}");
    let lock = world.beside("swarm").join("locks/t1.lock");
    let mut first = world.start(["work"]);
    let running = || processes::of_runs(&world.path("state")).len();
    until_seen("it runs", running, |count| *count > 0);
    let dead: Value = serde_json::from_slice(&fs::read(&lock).unwrap()).unwrap();
    first.kill();
    let second = world.start(["work", "--drain"]);
    let holder = || fs::read(&lock).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok());
    let is_other =
        |lock: &Option<Value>| lock.as_ref().is_some_and(|lock| lock["worker_id"] != dead["worker_id"]);
    until_seen("the lock has another worker", holder, is_other);
    world.touch("go");
    let _ = second.wait();
    assert!(!lock.exists());
    assert_ne!(statuses(&world), ["\"t1\" assigned"]);
}

/// Requirement 204. An id is refused by all commands, or by none.
#[test]
fn ids_are_refused_everywhere() {
    for id in [".", "..", "-x", "a/b", "a\nb", ""] {
        let world = swarm(&json!([{ "id": id, "prompt": "true" }]));
        world.run(["task", "lock", "--worker", "w", "--", id]).code(2);
        world.run(["status", "emit", "START", &format!("--task={id}")]).code(2);
        world.run(["submit", "--from-swarm", &path(&world), "--agent-command", "sh -c {prompt}"]).code(2);
    }
    let long = "x".repeat(250);
    let world = swarm(&json!([{ "id": long, "prompt": "true" }]));
    world.run(["task", "lock", &long, "--worker", "w"]).code(0);
    world.run(["status", "emit", "START", "--task", &long]).code(0);
    import(&world, "sh -c {prompt}");
}
