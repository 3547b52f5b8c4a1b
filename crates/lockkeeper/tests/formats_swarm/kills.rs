//! Commands that are killed before each of their system calls, or whose calls fail: what is left is always whole.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use lockkeeper_testing::{Finished, is_installed, skip, this_test};

use crate::tasks::{HOUR, Tasks, record};

const TAKE: [&str; 5] = ["task", "lock", "a", "--worker", "new"];
const BEAT: [&str; 5] = ["task", "heartbeat", "a", "--worker", "old"];
const UNLOCK: [&str; 5] = ["task", "unlock", "a", "--worker", "old"];

/// Runs the program under strace with these injections.
fn traced(tasks: &Tasks, injections: &[String], args: &[&str]) -> Finished {
    trace_to(tasks, Path::new("/dev/null"), injections, args)
}

fn trace_to(tasks: &Tasks, trace: &Path, injections: &[String], args: &[&str]) -> Finished {
    let mut strace = vec!["strace", "-f", "-o", trace.to_str().unwrap()];
    let injections: Vec<String> = injections.iter().map(|one| format!("inject={one}")).collect();
    strace.extend(injections.iter().flat_map(|one| ["-e", one]));
    Finished::of(&mut tasks.world.lockkeeper_under(&strace, args))
}

/// Whether strace works here. Says so when it does not.
fn can_trace() -> bool {
    let can = is_installed("strace")
        && Finished::of(Command::new("strace").args(["-o", "/dev/null", "true"])).succeeded();
    if !can {
        skip("strace, and the right to trace");
    }
    can
}

/// The system calls of a command from its first lock of the folder on: each with its name, and the count of that
/// name until then.
fn calls_under_the_guard(tasks: &Tasks, injections: &[String], args: &[&str]) -> Vec<(String, usize)> {
    let trace = tasks.world.path("trace");
    trace_to(tasks, &trace, injections, args).code(0);
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
    calls
}

/// What is at the path after a kill.
#[derive(Debug, PartialEq, Eq)]
enum Left {
    Nothing,
    Old,
    New,
}

/// Kills the command before each of its calls, from its first lock of the folder on, and looks at what is left.
fn kill_everywhere(also: &[String], args: &[&str], prepare: fn(&Tasks), allowed: &[Left]) {
    if !can_trace() {
        return;
    }
    let tasks = Tasks::new();
    prepare(&tasks);
    let calls = calls_under_the_guard(&tasks, also, args);
    let mut kills = 0;
    for (name, count) in calls {
        if also.iter().any(|injection| injection.starts_with(&name)) {
            continue;
        }
        prepare(&tasks);
        let mut injections = also.to_vec();
        injections.push(format!("{name}:signal=KILL:when={count}"));
        let output = traced(&tasks, &injections, args);
        kills += usize::from(!output.succeeded());
        let left = left(&tasks);
        assert!(allowed.contains(&left), "killed at {name} {count}: {left:?}");
        let strays = tasks.names().into_iter().filter(|name| name != "a.lock").collect::<Vec<_>>();
        let only_temporary = strays.iter().all(|name| name.starts_with(".lockkeeper-"));
        // Where names cannot be exchanged, the old record is aside while the new one waits.
        let most = if also.is_empty() { 1 } else { 2 };
        assert!(strays.len() <= most && only_temporary, "killed at {name} {count}: {strays:?}");
        tasks.write_record("a", "dead", HOUR, 300);
        tasks.run(&TAKE).code(0);
        assert_eq!(tasks.names(), ["a.lock"], "killed at {name} {count}: whatever was left is swept");
    }
    eprintln!("{args:?}: killed at {kills} places");
    assert!(kills > 10, "only {kills} kills");
}

fn left(tasks: &Tasks) -> Left {
    let Ok(bytes) = std::fs::read(tasks.file("a")) else { return Left::Nothing };
    let value: serde_json::Value = serde_json::from_slice(&bytes).expect("a whole record");
    assert_eq!(value.as_object().unwrap().len(), 5);
    let beat = value["heartbeat_at"].as_str().unwrap();
    let is_old = value["worker_id"] == "old" && beat.starts_with("2026-01-31");
    if is_old { Left::Old } else { Left::New }
}

const OLD: &str = r#"{"worker_id":"old","task_id":"a","acquired_at":"2026-01-31T12:00:00.000Z","heartbeat_at":"2026-01-31T12:00:00.000Z","ttl":300}"#;

fn absent(tasks: &Tasks) {
    std::fs::create_dir_all(tasks.locks()).unwrap();
    let _ = std::fs::remove_file(tasks.file("a"));
}

fn old(tasks: &Tasks) {
    tasks.write("a", OLD);
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
    if !can_trace() {
        return;
    }
    let tasks = Tasks::new();
    old(&tasks);
    let run = |args: &[&str]| traced(&tasks, &without_exchange(), args);
    run(&BEAT).code(0);
    run(&TAKE).code(75);
    run(&UNLOCK).code(0);
    assert!(tasks.names().is_empty());
    run(&TAKE).code(0);
    old(&tasks);
    run(&TAKE).code(0);
    assert_eq!(tasks.read("a")["worker_id"], "new");
    let hold = ["task", "hold", "b", "--worker", "w", "--interval", "10ms", "--", "sh", "-c", "sleep 0.1"];
    run(&hold).code(0).says("cannot exchange two file names");
    assert_eq!(tasks.names(), ["a.lock"]);
}

/// A resident worker: this test program again. It takes over the lock and renews it twice.
fn resident(tasks: &Tasks, trace: &Path, injection: Option<&str>) -> Finished {
    let orders = tasks.world.path("orders");
    std::fs::write(&orders, format!("{}\tnew\ntake\nbeat\nbeat\n", tasks.dir().display())).unwrap();
    let mut command = Command::new("strace");
    command.arg("-f").arg("-o").arg(trace);
    injection.map(|injection| command.args(["-e", injection]));
    let worker = this_test("storm::worker_process");
    command.arg(worker.get_program()).args(worker.get_args());
    Finished::of(command.stdin(std::fs::File::open(orders).unwrap()))
}

/// Requirements 64, 201. The heartbeats of a holder that stays: it writes to its spare, and exchanges it in.
#[test]
fn a_resident_holder_that_is_killed_leaves_the_old_or_the_new_record() {
    // Only these: the test harness around the worker makes others too, on another thread.
    const NAMES: [&str; 6] = ["flock", "fallocate", "newfstatat", "pread64", "pwrite64", "renameat2"];
    if !can_trace() {
        return;
    }
    let tasks = Tasks::new();
    old(&tasks);
    let trace = tasks.world.path("trace");
    let answers = resident(&tasks, &trace, None).code(0).stdout();
    assert_eq!(answers.matches("@won").count() + answers.matches("@kept").count(), 3, "{answers}");
    let text = std::fs::read_to_string(&trace).unwrap();
    let worker = text.lines().find(|line| line.contains(" flock(")).unwrap().split(' ').next().unwrap();
    let mut kills = 0;
    for name in NAMES {
        let called = |line: &&str| line.starts_with(worker) && line.contains(&format!(" {name}("));
        for count in 1..=text.lines().filter(called).count() {
            old(&tasks);
            let injection = format!("inject={name}:signal=KILL:when={count}");
            let output = resident(&tasks, Path::new("/dev/null"), Some(&injection));
            kills += usize::from(!output.succeeded());
            assert_ne!(left(&tasks), Left::Nothing, "killed at {name} {count}");
            assert!(tasks.names().len() <= 2, "killed at {name} {count}: {:?}", tasks.names());
            tasks.write_record("a", "dead", HOUR, 300);
            tasks.run(&TAKE).code(0);
            assert_eq!(tasks.names(), ["a.lock"], "killed at {name} {count}");
        }
    }
    eprintln!("a resident holder: killed at {kills} places");
    assert!(kills > 15, "only {kills} kills");
}

/// Invariant 6. A record that cannot be written is not half there, and the old one stays.
#[test]
fn a_failing_disk_leaves_everything_as_it_was() {
    if !can_trace() {
        return;
    }
    let tasks = Tasks::new();
    old(&tasks);
    let calls = [
        "pwrite64:error=ENOSPC",
        "pwrite64:error=EIO",
        "renameat2:error=EIO",
        "renameat2:error=EACCES",
        "flock:error=ENOLCK",
    ];
    for call in calls {
        let before = record("a", "old", HOUR, 300);
        tasks.write("a", &before);
        traced(&tasks, &[call.to_owned()], &TAKE).code(1);
        assert_eq!(std::fs::read_to_string(tasks.file("a")).unwrap(), before, "{call}");
        assert_eq!(tasks.names(), ["a.lock"], "{call}");
    }
}
