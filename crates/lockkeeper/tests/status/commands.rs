//! `status emit`, `status follow` and `status summary`.

use std::fs;
use std::path::PathBuf;

use lockkeeper_formats::status::{State, StatusLine, StatusLog};
use lockkeeper_testing::{Finished, Signal, Started, World, world};

use super::line;

/// The log folder of a world.
fn folder(world: &World) -> PathBuf {
    world.beside("swarm")
}

/// `status` with arguments.
fn run(world: &World, args: &[&str]) -> Finished {
    world.run([&["status"], args].concat())
}

/// Requirements 52, 53, 54, 55, 57.
#[test]
fn emit_appends_one_line() {
    let world = world!();
    run(&world, &["emit", "START", "--task", "task-123", "--message", "开始执行"]).code(0).silent();
    let args =
        ["emit", "DONE", "--task", "t", "--meta", r#"{"retry_count":2}"#, "--worker", "worker-1", "--json"];
    let printed = run(&world, &args).code(0).stdout();
    let log = fs::read_to_string(folder(&world).join("status.log")).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    assert!(lines[0].starts_with(r#"{"state": "START", "task_id": "task-123", "timestamp": ""#));
    assert!(lines[0].ends_with(r#"Z", "message": "开始执行"}"#));
    assert!(lines[1].ends_with(r#"Z", "meta": {"retry_count": 2, "worker_id": "worker-1"}}"#));
    assert_eq!(printed.trim_end(), lines[1]);
    assert_eq!(lines.len(), 2);
}

/// Requirements 53, 54, 55.
#[test]
fn emit_refuses_bad_input_and_touches_nothing() {
    let world = world!();
    for args in [
        &["emit", "RUNNING", "--task", "t"][..],
        &["emit", "ASSIGNED", "--task", "t"],
        &["emit", "done", "--task", "t"],
        &["emit", "DONE"],
        &["emit", "DONE", "--task", ""],
        &["emit", "DONE", "--task", "a\nb"],
        &["emit", "DONE", "--task", "a/b"],
        &["emit", "DONE", "--task", "a..b"],
        &["emit", "DONE", "--task", "t", "--dialect", "scanner"],
        &["emit", "DONE", "--task", "t", "--dialect", "french"],
        &["emit", "DONE", "--task", "t", "--meta", "[]"],
        &["emit", "DONE", "--task", "t", "--meta", "{"],
        &["emit", "DONE", "--task", "t", "--worker", ""],
        &["emit", "DONE", "--task", "t", "--limit", "much"],
        &["follow", "--state", "NEW"],
    ] {
        let refused = run(&world, args).code(2);
        assert!(refused.stdout().is_empty() && !refused.stderr().is_empty(), "{refused:?}");
    }
    let error = run(&world, &["emit", "NEW", "--task", "t", "--json"]).code(2).json();
    assert_eq!(error["error"]["reason_code"], "BAD_INPUT");
    let long = "x".repeat(70_000);
    run(&world, &["emit", "DONE", "--task", "t", "--message", &long]).code(2);
    assert!(!folder(&world).exists());
}

/// The swarm's master keeps the last line of each worker: it looks at `worker_id` and `ts` at the top of a line.
///
/// Requirements 55, 71.
#[test]
fn the_master_of_a_swarm_reads_the_dialect_of_its_scanner() {
    let world = world!();
    run(&world, &["emit", "START", "--task", "t1", "--worker", "w1"]).code(0);
    run(&world, &["emit", "DONE", "--task", "t1", "--worker", "w1", "--dialect", "scanner"]).code(0);
    let master = r#"
import json, sys
last = {}
for line in open(sys.argv[1]):
    entry = json.loads(line)
    if entry.get("worker_id"):
        last[entry["worker_id"]] = (entry.get("state"), entry.get("task_id"), bool(entry.get("ts")))
print(last)
"#;
    let log = folder(&world).join("status.log");
    let seen = Finished::of(world.command("python3").args(["-c", master]).arg(&log)).code(0).stdout();
    assert_eq!(seen, "{'w1': ('DONE', 't1', True)}\n");
    let text = fs::read_to_string(log).unwrap();
    assert!(!text.lines().next().unwrap().contains("\"ts\""), "the design's fields alone: {text}");
    let read: StatusLine = text.lines().last().unwrap().parse().unwrap();
    assert_eq!((read.state(), read.worker()), (State::Done, Some("w1")));
}

/// Requirement 55.
#[test]
fn the_worker_comes_from_the_flag_the_swarm_or_the_owner() {
    let world = world!();
    let worker = |variables: &[(&str, &str)], more: &[&str]| {
        let args = [&["status", "emit", "START", "--task", "t", "--json"], more].concat();
        let emitted = Finished::of(world.lockkeeper(args).envs(variables.iter().copied())).code(0);
        emitted.stdout().parse::<StatusLine>().unwrap().worker().map(str::to_owned)
    };
    let (swarm, owner) = (("AI_SWARM_WORKER_ID", "w2"), ("LOCKKEEPER_OWNER", "worker:w3"));
    assert_eq!(worker(&[], &[]), None);
    assert_eq!(worker(&[owner], &[]).as_deref(), Some("w3"));
    assert_eq!(worker(&[("LOCKKEEPER_OWNER", "run:7")], &[]).as_deref(), Some("run:7"));
    assert_eq!(worker(&[swarm, owner], &[]).as_deref(), Some("w2"));
    assert_eq!(worker(&[swarm, owner], &["--meta", r#"{"worker_id": "w4"}"#]).as_deref(), Some("w4"));
    let both = ["--meta", r#"{"worker_id": "w4"}"#, "--worker", "w1"];
    assert_eq!(worker(&[swarm, owner], &both).as_deref(), Some("w1"));
}

/// Requirement 57.
#[test]
fn without_a_variable_the_log_is_where_the_swarm_has_it() {
    let world = world!();
    let mut help = world.lockkeeper(["status", "emit", "--help"]);
    Finished::of(help.env_remove("AI_SWARM_DIR")).code(0).prints("AI_SWARM_DIR").prints("/tmp/ai_swarm");
}

/// Follows from the start. The first line is already there, so no later line can be missed.
fn follow(world: &World, args: &[&str]) -> Started {
    world.start([&["status", "follow", "--from-start"], args].concat())
}

/// Requirement 69.
#[test]
fn follow_shows_the_wanted_lines_until_it_is_interrupted() {
    let world = world!();
    let log = StatusLog::open(folder(&world)).unwrap();
    log.append(&line("t", 0)).unwrap();
    let wanted = ["--task", "t", "--worker", "w", "--state", "DONE", "--state", "HELP"];
    let mut filtered = follow(&world, &wanted);
    let mut all = follow(&world, &["--json"]);
    assert_eq!(all.line().parse::<StatusLine>().unwrap().task(), "t");
    for args in [
        ["emit", "DONE", "--task", "other", "--worker", "w"],
        ["emit", "START", "--task", "t", "--worker", "w"],
        ["emit", "DONE", "--task", "t", "--worker", "v"],
        ["emit", "HELP", "--task", "t", "--worker", "w"],
    ] {
        run(&world, &args).code(0);
        let seen: StatusLine = all.line().parse().unwrap();
        assert_eq!((seen.state().as_str(), seen.task()), (args[1], args[3]));
    }
    let shown = filtered.line();
    assert!(shown.contains("HELP      t  w"), "{shown}");
    for following in [filtered, all] {
        following.signal(Signal::INT);
        assert_eq!(following.wait().code(0).stdout(), "");
    }
}

/// Requirement 69.
#[test]
fn follow_ends_when_nobody_reads_it() {
    let world = world!();
    StatusLog::open(folder(&world)).unwrap().append(&line("t", 0)).unwrap();
    // `head` ends after the first line. The shell waits for both.
    world.shell("set -o pipefail; lockkeeper status follow --from-start | head -n 1").code(0).prints("START");
}

/// Requirement 70.
#[test]
fn summary_tells_people_and_programs() {
    let world = world!();
    run(&world, &["summary"]).code(0).prints("nobody has said anything yet");
    for args in [
        ["emit", "START", "--task", "a", "--worker", "w1"],
        ["emit", "HELP", "--task", "b", "--worker", "w2"],
        ["emit", "DONE", "--task", "a", "--worker", "w1"],
    ] {
        run(&world, &args).code(0);
    }
    super::write_foreign(&folder(&world), b"\x1b[2J garbage\n");
    let summary = run(&world, &["summary"]).code(0).prints("TASK  STATE  AGE");
    let shown = summary.prints("lines that are no status lines: 1").stdout();
    assert!(shown.starts_with("needs help: b\n"), "{shown}");
    let value = run(&world, &["summary", "--json"]).code(0).json();
    assert_eq!(value["needs_help"], serde_json::json!(["b"]));
    assert_eq!((&value["tasks"][0]["task_id"], &value["tasks"][0]["state"]), (&"a".into(), &"DONE".into()));
    assert_eq!(
        (&value["workers"][1]["worker_id"], &value["workers"][1]["task_id"]),
        (&"w2".into(), &"b".into())
    );
    assert_eq!((&value["lines"], &value["bad_lines"]), (&3.into(), &1.into()));
    assert!(value["tasks"][0]["age_seconds"].as_f64().unwrap() < 600.0);
    let keys: Vec<&String> = value["tasks"][0].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["task_id", "state", "timestamp", "age_seconds", "worker_id", "message", "lines"]);
    assert!(State::Help.needs_help());
}

#[test]
fn a_place_that_is_no_log_is_a_failure_with_a_hint() {
    let world = world!();
    fs::create_dir_all(folder(&world).join("status.log")).unwrap();
    for args in [&["emit", "DONE", "--task", "t"][..], &["summary"], &["follow"]] {
        run(&world, args).code(1).says("is a folder, not a log").says("hint");
    }
}
