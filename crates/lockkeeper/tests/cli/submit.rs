//! `submit`: accepted and refused requests, and how they are shown.

use lockkeeper_testing::{Signal, World, until, world};
use serde_json::{Value, json};

fn submit(world: &World, args: &[&str]) -> (String, String) {
    let all = [&["--json", "submit"], args].concat();
    let answer = world.run(all).code(0).json();
    let text = |key: &str| answer[key].as_str().unwrap().to_owned();
    (text("request_id"), text("run_id"))
}

fn shown(world: &World, request: &str) -> Value {
    world.run(["--json", "requests", "show", request]).code(0).json()["request"].clone()
}

#[test]
fn a_request_comes_in_with_one_queued_run() {
    let world = world!().git();
    let (request, run) = submit(&world, &["--lock", "db", "--path", "src/**", "--", "make", "test"]);
    assert!(request.starts_with("RQ-") && run.starts_with("RUN-"), "{request} {run}");
    let shown = shown(&world, &request);
    assert_eq!((&shown["title"], &shown["status"]), (&json!("make test"), &json!("QUEUED")));
    assert_eq!((&shown["locks"], &shown["paths"]), (&json!(["db"]), &json!(["src/**"])));
    assert_eq!(shown["cwd"], world.cwd().to_str().unwrap());
    assert_eq!((&shown["timeout"], &shown["queue_timeout"]), (&Value::Null, &Value::Null));
    let run_shown = world.run(["--json", "run", "show", &run]).code(0).json()["run"].clone();
    for key in ["id", "request_id", "status", "attempt", "claim", "worker", "exit_code", "reason_code"] {
        assert!(run_shown.get(key).is_some(), "{key}");
    }
    assert_eq!((&run_shown["status"], &run_shown["attempt"]), (&json!("queued"), &json!(0)));
    assert!(run_shown["queued_at"].is_string() && run_shown["started_at"].is_null());
    world.run(["run", "show", &run[run.len() - 6..]]).code(0).prints(&run);
    world.run(["runs"]).code(0).prints("make test").prints("lockkeeper work");
}

#[test]
fn everything_that_was_asked_for_is_kept() {
    let world = world!();
    submit(&world, &["--id", "build", "--", "make"]);
    let flags = "--id tests --title Tests --shared --lock db --priority -3 --queue-timeout 5m --timeout 90 --retries 2 \
        --backoff 250ms --max-backoff 1m --retry-on 1,75-77 --success 0,3 --after build --key k1";
    let words: Vec<&str> = flags.split_whitespace().chain(["--", "make", "test"]).collect();
    submit(&world, &words);
    let shown = shown(&world, "tests");
    for (key, value) in [
        ("title", json!("Tests")),
        ("shared", json!(true)),
        ("priority", json!(-3)),
        ("queue_timeout", json!(300)),
        ("timeout", json!(90)),
        ("retries", json!(2)),
        ("backoff", json!(0.25)),
        ("max_backoff", json!(60)),
        ("retry_on", json!([1, 75, 76, 77])),
        ("success", json!([0, 3])),
        ("after", json!(["build"])),
        ("key", json!("k1")),
        ("blocked", json!({ "because": "dependencies", "requests": ["build"], "holders": [] })),
    ] {
        assert_eq!(shown[key], value, "{key}");
    }
    world.run(["requests"]).code(0).prints("after build");
    world.run(["requests", "--status", "done"]).code(0).says("no requests");
    world.run(["requests", "--status", "queued"]).code(0).prints("tests");
}

#[test]
fn settings_give_the_timeouts_that_a_request_does_not() {
    let world =
        world!().git().write("lockkeeper.toml", "queue_timeout = \"5m\"\ntimeout = 600\nqueue_limit = 2\n");
    submit(&world, &["--id", "a", "--timeout", "7s", "--", "true"]);
    let shown = shown(&world, "a");
    assert_eq!((&shown["queue_timeout"], &shown["timeout"]), (&json!(300), &json!(7)));
    submit(&world, &["--", "true"]);
    let full = world.run(["--json", "submit", "--id", "c", "--", "true"]).code(75).json();
    assert_eq!(full["error"]["reason_code"], "QUEUE_FULL");
    let run = full["error"]["context"]["run_id"].as_str().unwrap();
    let refused = world.run(["--json", "run", "show", run]).code(0).json();
    assert_eq!(refused["run"]["status"], "rejected");
    world.run(["run", "wait", run]).code(75).says("refused");
}

/// Requirement 164. The same request cannot be there twice.
#[test]
fn an_id_is_given_once_and_a_key_gives_the_same_again() {
    let world = world!();
    let first = submit(&world, &["--id", "a", "--key", "k", "--", "true"]);
    let again = world.run(["--json", "submit", "--key", "k", "--", "other"]).code(0).json();
    assert_eq!((again["request_id"].as_str(), again["run_id"].as_str()), (Some("a"), Some(&*first.1)));
    assert_eq!(again["existing"], true);
    let twice = world.run(["--json", "submit", "--id", "a", "--", "true"]).code(75).json();
    assert_eq!(twice["error"]["reason_code"], "DUPLICATE");
    assert_eq!(twice["error"]["context"]["request_id"], "a");
}

/// A nightly script uses the same ids every night.
#[test]
fn a_request_is_replaced_and_runs_again() {
    let world = world!();
    let nightly = |word: &str| {
        let args = ["--json", "submit", "--id", "nightly", "--replace", "--", "sh", "-c"];
        world.run(args.into_iter().chain([&*format!("echo {word}")])).code(0).json()
    };
    assert_eq!(nightly("one")["replaced"], false);
    world.run(["work", "--drain", "--quiet"]).code(0);
    let second = nightly("two");
    assert_eq!((&second["replaced"], &second["existing"]), (&json!(true), &json!(false)));
    let third = nightly("three");
    world.run(["work", "--drain", "--quiet"]).code(0);
    world.run(["run", "logs", "nightly"]).code(0).prints("three");
    let replaced = world.run(["run", "wait", second["run_id"].as_str().unwrap()]).code(75);
    replaced.says(&format!("replaced by {}", third["run_id"].as_str().unwrap()));
    // A file of requests: all or none, and each names its id.
    let world = world
        .write(
            "night.json",
            r#"[{"id":"b","command":["true"],"after":["nightly"]},{"id":"nightly","command":["true"]}]"#,
        )
        .write("no-id.json", r#"[{"command":["true"]}]"#)
        .write("key.json", r#"[{"id":"b","command":["true"],"key":"k"}]"#);
    world.run(["submit", "--replace", "--from", "night.json"]).code(0).says("2 queued, 1 of them replaced");
    assert_eq!(shown(&world, "b")["blocked"]["requests"], json!(["nightly"]));
    world.run(["submit", "--replace", "--from", "no-id.json"]).code(2).says("needs its id");
    world.run(["submit", "--replace", "--from", "key.json"]).code(2).says("has no key");
    world.run(["submit", "--replace", "--", "true"]).code(2).says("needs its id");
    world.run(["submit", "--replace", "--id", "b", "--key", "k", "--", "true"]).code(2).says("--key");
}

/// The worker has a ticket for the lock of the old definition. It must not run the new command under it, nor the old one.
#[test]
fn a_run_that_waits_for_its_lock_is_replaced() {
    let world = world!();
    let holder = world.start(["exec", "db", "--", "sleep", "1000"]);
    until("`db` is held", || world.run(["locks"]).code(0).stdout().contains("db"));
    submit(&world, &["--id", "a", "--lock", "db", "--", "touch", "old"]);
    let worker = world.start(["work"]);
    world.until_waiting(1);
    let replaced = submit(&world, &["--id", "a", "--replace", "--lock", "other", "--", "touch", "new"]);
    world.run(["run", "wait", &replaced.1]).code(0);
    holder.signal(Signal::TERM);
    holder.wait().code(143);
    worker.signal(Signal::TERM);
    worker.wait().code(0);
    assert!(world.cwd().join("new").exists() && !world.cwd().join("old").exists());
}

#[test]
fn a_request_that_runs_is_not_replaced() {
    let world = world!();
    let (_, run) = submit(&world, &["--id", "a", "--", "sleep", "1000"]);
    let worker = world.start(["work"]);
    until("it runs", || shown(&world, "a")["status"] == "RUNNING");
    let refused = world.run(["--json", "submit", "--id", "a", "--replace", "--", "true"]).code(75).json();
    assert_eq!(refused["error"]["reason_code"], "RUN_IN_PROGRESS");
    assert_eq!(refused["error"]["context"]["run_id"], run);
    assert_eq!(shown(&world, "a")["command"], json!(["sleep", "1000"]));
    world.run(["run", "cancel", "a"]).code(0);
    world.run(["run", "wait", "a"]).code(75);
    submit(&world, &["--id", "a", "--replace", "--", "true"]);
    world.run(["run", "wait", "a"]).code(0);
    worker.signal(Signal::TERM);
    worker.wait().code(0);
}

#[test]
fn only_the_allowed_environment_goes_along_and_secrets_are_never_shown() {
    let world = world!().set("API_TOKEN", "hush-1").set("OTHER", "stays").set("LC_ALL", "C");
    let (_, run) = submit(
        &world,
        &["--id", "a", "--env", "API_TOKEN", "--env", "DB_PASSWORD=hush-2", "--env", "X=1", "--", "true"],
    );
    let shown = shown(&world, "a");
    let expected = json!({
        "API_TOKEN": "***", "DB_PASSWORD": "***", "HOME": world.home(), "LC_ALL": "C",
        "PATH": std::env::var("PATH").unwrap(), "TERM": "dumb", "X": "1",
    });
    assert_eq!(shown["env"], expected);
    for args in [
        vec!["requests"],
        vec!["requests", "show", "a"],
        vec!["runs"],
        vec!["run", "show", &run],
        vec!["run", "events", &run],
    ] {
        for json in [&["--json"][..], &[]] {
            let done = world.run([json, &args].concat()).code(0);
            assert!(!(done.stdout() + &done.stderr()).contains("hush"), "{args:?}");
        }
    }
    let database = std::fs::metadata(world.cwd().join(".lockkeeper/runs.db")).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&database.permissions()) & 0o777, 0o600);
    world.run(["submit", "--env", "NOT_SET_HERE", "--", "true"]).code(2).says("is not set here");
}

#[test]
fn what_could_never_run_is_refused() {
    let world = world!();
    submit(&world, &["--id", "a", "--", "true"]);
    world.run(["submit", "--after", "nothing", "--", "true"]).code(2).says("is not there");
    world.run(["submit", "--id", "b", "--after", "b", "--", "true"]).code(2).says("for ever");
    world.run(["submit"]).code(2).says("needs a command");
    use std::os::unix::ffi::OsStrExt;
    let bytes = std::ffi::OsStr::from_bytes(b"\xff");
    let words = ["submit", "--", "echo"].map(std::ffi::OsStr::new);
    world.run(words.iter().copied().chain([bytes])).code(2).says("word 2 of the command is not UTF-8");
}

#[test]
fn a_file_of_requests_comes_in_whole_or_not_at_all() {
    let world = world!()
        .write(
            "good.json",
            r#"[{"id":"b","command":["make","b"],"after":["a"]},{"id":"a","command":["make"]}]"#,
        )
        .write(
            "circle.json",
            r#"[{"id":"x","command":["x"],"after":["y"]},{"id":"y","command":["y"],"after":["x"]}]"#,
        )
        .write("bad.json", r#"[{"id":"p","command":["x"]},{"id":"q","command":[]}]"#)
        .write("taken.json", r#"[{"id":"r","command":["x"]},{"id":"a","command":["x"]}]"#)
        .write("odd.json", r#"[{"comand":["x"]}]"#);
    let done = world.run(["--json", "submit", "--from", "good.json"]).code(0).json();
    assert_eq!(done["submitted"].as_array().unwrap().len(), 2);
    world.run(["submit", "--from", "circle.json"]).code(2).says("x after y after x");
    world.run(["submit", "--from", "bad.json"]).code(2).says("request 2: a request needs a command");
    world.run(["submit", "--from", "taken.json"]).code(75).says("`a` is there already");
    world.run(["submit", "--from", "odd.json"]).code(2).says("unknown field `comand`");
    let all = world.run(["--json", "requests"]).code(0).json();
    let ids: Vec<&str> =
        all["requests"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["b", "a"]);
    world.shell("echo '[{\"command\":[\"true\"]}]' | lockkeeper submit --from -").code(0).prints("RUN-");
}

#[test]
fn a_swarms_pending_tasks_come_in_once() {
    let tasks = r#"{"tasks":[{"id":"t1","prompt":"fix \"it\"; rm -rf /","status":"pending","priority":1},
        {"id":"t2","prompt":"done","status":"completed"},{"id":"t3","prompt":"日本語","priority":5}]}"#;
    let world = world!().write("tasks.json", tasks);
    let import = ["submit", "--from-swarm", "tasks.json", "--agent-command", "agent -p {prompt}"];
    world.run(import).code(0).says("2 queued, 0 existed already, 1 skipped");
    world.run(import).code(0).says("0 queued, 2 existed already, 1 skipped");
    let first = shown(&world, "t1");
    assert_eq!(first["command"], json!(["agent", "-p", "fix \"it\"; rm -rf /"]));
    assert_eq!((&first["priority"], &first["key"]), (&json!(20), &json!("swarm:t1")));
    assert_eq!(shown(&world, "t3")["title"], "日本語");
    world.run(["submit", "--from-swarm", "tasks.json"]).code(2).says("--agent-command");
    world.run(["submit", "--from-swarm", "tasks.json", "--agent-command", "agent"]).code(2).says("{prompt}");
}

#[test]
fn submit_can_wait_and_ends_as_the_command_does() {
    let world = world!();
    let worker = world.start(["work", "--quiet", "--status-dir", "swarm"]);
    world
        .run(["submit", "--wait", "--", "sh", "-c", "exit 7"])
        .code(7)
        .says("failed: exit code 7 (`lockkeeper run logs ");
    let done =
        world.run(["--json", "submit", "--wait", "--success", "3", "--", "sh", "-c", "exit 3"]).code(3);
    assert_eq!(done.json()["run"]["status"], "succeeded");
    world.run(["submit", "--wait", "--", "no-such-program"]).code(127);
    world.run(["submit", "--wait", "--timeout", "50ms", "--", "sleep", "60"]).code(75).says("took too long");
    worker.signal(Signal::TERM);
    drop(worker.wait().code(0));
}

/// As `exec` does.
#[test]
fn a_lock_that_is_also_a_path_is_warned_of() {
    let world = world!().write("db", "");
    world.run(["submit", "--lock", "db", "--", "true"]).code(0).says("is locked as a name");
    let quiet = world.run(["submit", "--lock", "other", "--", "true"]).code(0);
    assert!(!quiet.stderr().contains("is locked as a name"), "{quiet:?}");
}
