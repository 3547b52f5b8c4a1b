//! Commands that are killed before each of their system calls, or whose calls fail: what is left is always whole.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::{HOUR, Nest, record};

const TAKE: [&str; 5] = ["task", "lock", "a", "--worker", "new"];
const BEAT: [&str; 5] = ["task", "heartbeat", "a", "--worker", "old"];
const UNLOCK: [&str; 5] = ["task", "unlock", "a", "--worker", "old"];

/// Runs a command of ours under strace with these injections.
fn traced(nest: &Nest, injections: &[String], args: &[&str]) -> Output {
    trace_to(nest, Path::new("/dev/null"), injections, args).unwrap()
}

fn trace_to(nest: &Nest, trace: &Path, injections: &[String], args: &[&str]) -> std::io::Result<Output> {
    let ours = nest.command(args);
    let mut command = Command::new("strace");
    command.arg("-f").arg("-o").arg(trace);
    for injection in injections {
        command.args(["-e", &format!("inject={injection}")]);
    }
    command.arg(ours.get_program()).args(ours.get_args()).current_dir(nest.dir());
    command.env("AI_SWARM_DIR", nest.dir()).env_remove("AI_SWARM_LOCK_TTL").output()
}

/// The system calls of a command from its first lock of the folder on, each by its name and how often it came before,
/// or nothing when it cannot be traced here.
fn calls_under_the_guard(nest: &Nest, injections: &[String], args: &[&str]) -> Option<Vec<(String, usize)>> {
    let trace = nest.dir().join("trace");
    let output = trace_to(nest, &trace, injections, args);
    if !output.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: needs strace, and the right to trace");
        return None;
    }
    let text = std::fs::read_to_string(&trace).unwrap();
    std::fs::remove_file(trace).unwrap();
    let mut counts: HashMap<&str, usize> = HashMap::new();
    let mut calls = Vec::new();
    for line in text.lines() {
        // With -f each line begins with the number of the process.
        let Some((name, _)) =
            line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ').split_once('(')
        else {
            continue;
        };
        let count = counts.entry(name).or_default();
        *count += 1;
        if name == "flock" || !calls.is_empty() {
            calls.push((name.to_owned(), *count));
        }
    }
    Some(calls)
}

/// What is at the path after a kill.
#[derive(Debug, PartialEq, Eq)]
enum Left {
    Nothing,
    Old,
    New,
}

/// Kills the command before each of its calls, from its first lock of the folder on, and looks at what is left.
fn kill_everywhere(also: &[String], args: &[&str], prepare: fn(&Nest), allowed: &[Left]) {
    let nest = Nest::new();
    prepare(&nest);
    let Some(calls) = calls_under_the_guard(&nest, also, args) else { return };
    let mut kills = 0;
    for (name, count) in calls {
        if also.iter().any(|injection| injection.starts_with(&name)) {
            continue;
        }
        prepare(&nest);
        let mut injections = also.to_vec();
        injections.push(format!("{name}:signal=KILL:when={count}"));
        let output = traced(&nest, &injections, args);
        kills += usize::from(!output.status.success());
        let left = left(&nest);
        assert!(allowed.contains(&left), "killed at {name} {count}: {left:?}");
        let strays = nest.names().into_iter().filter(|name| name != "a.lock").collect::<Vec<_>>();
        let only_temporary = strays.iter().all(|name| name.starts_with(".lockkeeper-"));
        // Where names cannot be exchanged, the old record is aside while the new one waits.
        let most = if also.is_empty() { 1 } else { 2 };
        assert!(strays.len() <= most && only_temporary, "killed at {name} {count}: {strays:?}");
        nest.write_record("a", "dead", HOUR, 300);
        assert_eq!(nest.code(&TAKE), 0, "killed at {name} {count}: the lock is free once its time is up");
        assert_eq!(nest.names(), ["a.lock"], "killed at {name} {count}: whatever was left is swept");
    }
    eprintln!("{args:?}: killed at {kills} places");
    assert!(kills > 10, "only {kills} kills");
}

fn left(nest: &Nest) -> Left {
    let Ok(bytes) = std::fs::read(nest.file("a")) else { return Left::Nothing };
    let value: serde_json::Value = serde_json::from_slice(&bytes).expect("a whole record");
    assert_eq!(value.as_object().unwrap().len(), 5);
    let beat = value["heartbeat_at"].as_str().unwrap();
    let is_old = value["worker_id"] == "old" && beat.starts_with("2026-01-31");
    if is_old { Left::Old } else { Left::New }
}

const OLD: &str = r#"{"worker_id":"old","task_id":"a","acquired_at":"2026-01-31T12:00:00.000Z","heartbeat_at":"2026-01-31T12:00:00.000Z","ttl":300}"#;

fn absent(nest: &Nest) {
    std::fs::create_dir_all(nest.locks()).unwrap();
    let _ = std::fs::remove_file(nest.file("a"));
}

fn old(nest: &Nest) {
    nest.write("a", OLD);
}

fn without_exchange() -> Vec<String> {
    vec!["renameat2:error=EINVAL".to_owned()]
}

/// Requirements 63, 201.
#[test]
fn a_creation_that_is_killed_leaves_nothing_or_a_whole_record() {
    kill_everywhere(&[], &TAKE, absent, &[Left::Nothing, Left::New]);
}

/// Requirements 63, 200, 201. At no step is the name free: an `O_EXCL` creator never gets in.
#[test]
fn a_takeover_that_is_killed_leaves_the_old_or_the_new_record() {
    kill_everywhere(&[], &TAKE, old, &[Left::Old, Left::New]);
}

/// Requirements 64, 201.
#[test]
fn a_heartbeat_that_is_killed_leaves_the_old_or_the_new_record() {
    kill_everywhere(&[], &BEAT, old, &[Left::Old, Left::New]);
}

#[test]
fn an_unlocking_that_is_killed_leaves_the_record_or_nothing() {
    kill_everywhere(&[], &UNLOCK, old, &[Left::Old, Left::Nothing]);
}

/// Requirements 200, 201. The same where two names cannot be exchanged: then the name is free for a moment.
#[test]
fn without_exchange_a_takeover_that_is_killed_leaves_whole_records_or_nothing() {
    kill_everywhere(&without_exchange(), &TAKE, old, &[Left::Old, Left::Nothing, Left::New]);
    kill_everywhere(&without_exchange(), &TAKE, absent, &[Left::Nothing, Left::New]);
}

#[test]
fn without_exchange_everything_works_and_hold_says_so() {
    let nest = Nest::new();
    old(&nest);
    if calls_under_the_guard(&nest, &[], &["task", "show", "a"]).is_none() {
        return;
    }
    let run = |args: &[&str]| traced(&nest, &without_exchange(), args).status.code();
    assert_eq!(run(&BEAT), Some(0));
    assert_eq!(run(&TAKE), Some(75));
    assert_eq!(run(&UNLOCK), Some(0));
    assert!(nest.names().is_empty());
    assert_eq!(run(&TAKE), Some(0));
    old(&nest);
    assert_eq!(run(&TAKE), Some(0));
    assert_eq!(nest.read("a")["worker_id"], "new");
    let hold = ["task", "hold", "b", "--worker", "w", "--interval", "10ms", "--", "sh", "-c", "sleep 0.1"];
    let output = traced(&nest, &without_exchange(), &hold);
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot exchange two names"), "{output:?}");
    assert_eq!(nest.names(), ["a.lock"]);
}

/// A resident worker of ours, this test program again, that takes over the lock and renews it twice.
fn resident(nest: &Nest, trace: &Path, injection: Option<&str>) -> std::io::Result<Output> {
    let orders = nest.dir().join("orders");
    std::fs::write(&orders, format!("{}\tnew\ntake\nbeat\nbeat\n", nest.dir().display()))?;
    let mut command = Command::new("strace");
    command.arg("-f").arg("-o").arg(trace);
    injection.map(|injection| command.args(["-e", injection]));
    command.arg(std::env::current_exe()?);
    command.args(["--exact", "storm::worker_process", "--ignored", "--nocapture", "--quiet"]);
    command.stdin(std::fs::File::open(orders)?).output()
}

/// Requirements 64, 201. The heartbeats of a holder that stays: it writes to its spare, and exchanges it in.
#[test]
fn a_resident_holder_that_is_killed_leaves_the_old_or_the_new_record() {
    // Only these: the test harness around the worker makes others too, on another thread.
    const NAMES: [&str; 6] = ["flock", "fallocate", "newfstatat", "pread64", "pwrite64", "renameat2"];
    let nest = Nest::new();
    old(&nest);
    let trace = nest.dir().join("trace");
    let output = resident(&nest, &trace, None);
    if !output.as_ref().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: needs strace, and the right to trace");
        return;
    }
    let answers = String::from_utf8(output.unwrap().stdout).unwrap();
    assert_eq!(answers.matches("@won").count() + answers.matches("@kept").count(), 3, "{answers}");
    let text = std::fs::read_to_string(&trace).unwrap();
    let worker = text.lines().find(|line| line.contains(" flock(")).unwrap().split(' ').next().unwrap();
    let mut kills = 0;
    for name in NAMES {
        let called = |line: &&str| line.starts_with(worker) && line.contains(&format!(" {name}("));
        for count in 1..=text.lines().filter(called).count() {
            old(&nest);
            let injection = format!("inject={name}:signal=KILL:when={count}");
            let output = resident(&nest, Path::new("/dev/null"), Some(&injection)).unwrap();
            kills += usize::from(!output.status.success());
            assert_ne!(left(&nest), Left::Nothing, "killed at {name} {count}");
            assert!(nest.names().len() <= 2, "killed at {name} {count}: {:?}", nest.names());
            nest.write_record("a", "dead", HOUR, 300);
            assert_eq!(nest.code(&TAKE), 0, "killed at {name} {count}");
            assert_eq!(nest.names(), ["a.lock"], "killed at {name} {count}");
        }
    }
    eprintln!("a resident holder: killed at {kills} places");
    assert!(kills > 15, "only {kills} kills");
}

/// Invariant 6. A record that cannot be written is not half there, and the old one stays.
#[test]
fn a_failing_disk_leaves_everything_as_it_was() {
    let nest = Nest::new();
    old(&nest);
    if calls_under_the_guard(&nest, &[], &["task", "show", "a"]).is_none() {
        return;
    }
    let calls = [
        "pwrite64:error=ENOSPC",
        "pwrite64:error=EIO",
        "renameat2:error=EIO",
        "renameat2:error=EACCES",
        "flock:error=ENOLCK",
    ];
    for call in calls {
        let before = record("a", "old", HOUR, 300);
        nest.write("a", &before);
        let output = traced(&nest, &[call.to_owned()], &TAKE);
        assert_eq!(output.status.code(), Some(1), "{call}: {output:?}");
        assert_eq!(std::fs::read_to_string(nest.file("a")).unwrap(), before, "{call}");
        assert_eq!(nest.names(), ["a.lock"], "{call}");
    }
}
