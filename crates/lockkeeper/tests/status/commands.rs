//! `status emit`, `status follow` and `status summary` as commands.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use lockkeeper_formats::status::{State, StatusLine, StatusLog};
use serde_json::Value;

use super::line;

fn status(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
    command.arg("status").args(args).env("AI_SWARM_DIR", folder);
    for variable in
        ["AI_SWARM_WORKER_ID", "LOCKKEEPER_OWNER", "LOCKKEEPER_STATUS_LIMIT", "LOCKKEEPER_STATUS_KEEP"]
    {
        command.env_remove(variable);
    }
    command
}

fn run(folder: &Path, args: &[&str]) -> Output {
    status(folder, args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Requirements 52, 53, 54, 55, 57.
#[test]
fn emit_appends_one_line() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("swarm");
    let output = run(&folder, &["emit", "START", "--task", "task-123", "--message", "开始执行"]);
    assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
    let args =
        ["emit", "DONE", "--task", "t", "--meta", r#"{"retry_count":2}"#, "--worker", "worker-1", "--json"];
    let output = run(&folder, &args);
    let log = fs::read_to_string(folder.join("status.log")).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    assert!(lines[0].starts_with(r#"{"state": "START", "task_id": "task-123", "timestamp": ""#));
    assert!(lines[0].ends_with(r#"Z", "message": "开始执行"}"#));
    assert!(lines[1].ends_with(r#"Z", "meta": {"retry_count": 2, "worker_id": "worker-1"}}"#));
    assert_eq!(text(&output.stdout).trim_end(), lines[1]);
    assert_eq!(lines.len(), 2);
}

/// Requirements 53, 54, 55.
#[test]
fn emit_refuses_bad_input_and_touches_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("swarm");
    for args in [
        &["emit", "RUNNING", "--task", "t"][..],
        &["emit", "ASSIGNED", "--task", "t"],
        &["emit", "done", "--task", "t"],
        &["emit", "DONE"],
        &["emit", "DONE", "--task", ""],
        &["emit", "DONE", "--task", "a\nb"],
        &["emit", "DONE", "--task", "t", "--meta", "[]"],
        &["emit", "DONE", "--task", "t", "--meta", "{"],
        &["emit", "DONE", "--task", "t", "--worker", ""],
        &["emit", "DONE", "--task", "t", "--limit", "much"],
        &["follow", "--state", "NEW"],
    ] {
        let output = run(&folder, args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{args:?}");
    }
    let output = run(&folder, &["emit", "NEW", "--task", "t", "--json"]);
    let error: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(error["error"]["reason_code"], "BAD_INPUT");
    let long = "x".repeat(70_000);
    let output = run(&folder, &["emit", "DONE", "--task", "t", "--message", &long]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(!folder.exists());
}

/// Requirement 55.
#[test]
fn the_worker_comes_from_the_flag_the_swarm_or_the_owner() {
    let temp = tempfile::tempdir().unwrap();
    let worker = |variables: &[(&str, &str)], more: &[&str]| {
        let args = [&["emit", "START", "--task", "t", "--json"], more].concat();
        let output = status(temp.path(), &args).envs(variables.iter().copied()).output().unwrap();
        text(&output.stdout).parse::<StatusLine>().unwrap().worker().map(str::to_owned)
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
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
    let output = command.args(["status", "emit", "--help"]).env_remove("AI_SWARM_DIR").output().unwrap();
    let help = text(&output.stdout);
    assert!(help.contains("AI_SWARM_DIR") && help.contains("/tmp/ai_swarm"), "{help}");
}

struct Following {
    process: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Following {
    /// Follows from the start; the first line is there already, so that all that is said later is surely followed.
    fn start(folder: &Path, args: &[&str]) -> Self {
        let args = [&["follow", "--from-start"], args].concat();
        let mut process = status(folder, &args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines }
    }

    fn next(&mut self) -> String {
        self.lines.next().unwrap().unwrap()
    }
}

/// Requirement 69.
#[test]
fn follow_shows_the_wanted_lines_until_it_is_interrupted() {
    let temp = tempfile::tempdir().unwrap();
    let log = StatusLog::open(temp.path()).unwrap();
    log.append(&line("t", 0)).unwrap();
    let wanted = ["--task", "t", "--worker", "w", "--state", "DONE", "--state", "HELP"];
    let mut filtered = Following::start(temp.path(), &wanted);
    let mut all = Following::start(temp.path(), &["--json"]);
    assert_eq!(all.next().parse::<StatusLine>().unwrap().task(), "t");
    for args in [
        ["emit", "DONE", "--task", "other", "--worker", "w"],
        ["emit", "START", "--task", "t", "--worker", "w"],
        ["emit", "DONE", "--task", "t", "--worker", "v"],
        ["emit", "HELP", "--task", "t", "--worker", "w"],
    ] {
        assert!(run(temp.path(), &args).status.success());
        let seen: StatusLine = all.next().parse().unwrap();
        assert_eq!((seen.state().as_str(), seen.task()), (args[1], args[3]));
    }
    let shown = filtered.next();
    assert!(shown.contains("HELP      t  w"), "{shown}");
    for following in [&mut filtered, &mut all] {
        let pid = rustix::process::Pid::from_child(&following.process);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        assert!(following.process.wait().unwrap().success());
        assert!(following.lines.next().is_none());
    }
}

/// Requirement 69.
#[test]
fn follow_ends_when_nobody_reads_it() {
    let temp = tempfile::tempdir().unwrap();
    StatusLog::open(temp.path()).unwrap().append(&line("t", 0)).unwrap();
    let mut following = Following::start(temp.path(), &[]);
    following.next();
    let Following { mut process, lines } = following;
    drop(lines);
    assert!(process.wait().unwrap().success(), "it ends although no line comes");
}

/// Requirement 70.
#[test]
fn summary_tells_people_and_programs() {
    let temp = tempfile::tempdir().unwrap();
    let output = run(temp.path(), &["summary"]);
    assert!(output.status.success() && text(&output.stdout).contains("nobody has said anything yet"));
    for args in [
        ["emit", "START", "--task", "a", "--worker", "w1"],
        ["emit", "HELP", "--task", "b", "--worker", "w2"],
        ["emit", "DONE", "--task", "a", "--worker", "w1"],
    ] {
        assert!(run(temp.path(), &args).status.success());
    }
    super::write_foreign(temp.path(), b"\x1b[2J garbage\n");
    let shown = text(&run(temp.path(), &["summary"]).stdout);
    assert!(shown.starts_with("needs help: b\n"), "{shown}");
    assert!(
        shown.contains("TASK  STATE  AGE") && shown.contains("lines that are no status lines: 1"),
        "{shown}"
    );
    let value: Value = serde_json::from_slice(&run(temp.path(), &["summary", "--json"]).stdout).unwrap();
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
    let temp = tempfile::tempdir().unwrap();
    fs::create_dir(temp.path().join("status.log")).unwrap();
    for args in [&["emit", "DONE", "--task", "t"][..], &["summary"], &["follow"]] {
        let output = run(temp.path(), args);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = text(&output.stderr);
        assert!(said.contains("is a folder, not a log") && said.contains("hint"), "{said}");
    }
}
