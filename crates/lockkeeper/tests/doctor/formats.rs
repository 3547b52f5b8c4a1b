//! Lock files of other programs: the full pass removes stale ones, by the rule of each format.

use std::fs;
use std::process::Command;
use std::time::Duration;

use lockkeeper_core::time::Ttl;
use lockkeeper_formats::aiflow::{self, Aiflow, Attempt, Subject, Terms};
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_testing::{Started, files, is_root, skip};
use serde_json::json;

use crate::doctor::{Doctor, GONE, LONG_AGO};

const HOUR: Duration = Duration::from_secs(3600);

fn request(doctor: &Doctor, id: &str, pid: u32, expires_at: &str) {
    let record = json!({
        "version": "1.0", "lock_type": "request", "request_id": id, "run_id": format!("RUN-{id}"), "pid": pid,
        "host": "127.0.0.1", "created_at": "2025-12-14T15:01:02+09:00", "expires_at": expires_at,
    });
    doctor.write(&doctor.requests().join(format!("request.{id}.lock.json")), &record.to_string());
}

/// Requirements 178, 179, 180, 181, 193.
#[test]
fn stale_request_locks_are_recovered_by_the_full_pass_and_reported() {
    let doctor = Doctor::new();
    let living = Started::of(&mut Command::new("cat"));
    let (past, future) = ("2025-12-14T15:31:02+09:00", "2099-12-14T15:31:02+09:00");
    request(&doctor, "RQ-dead", GONE, past);
    request(&doctor, "RQ-alive", living.pid(), past);
    request(&doctor, "RQ-young", GONE, future);
    doctor.write(&doctor.requests().join("queue.lock.json"), "{\"version\": \"1.");
    files::set_age(&doctor.requests().join("queue.lock.json"), 1_000 * HOUR);
    doctor.write(&doctor.root().join(".gitignore"), ".aiflow/\n");
    let quick = doctor.quick();
    assert_eq!(quick.troubles(), ["aiflow-locks"], "{}", quick.value);
    quick
        .says("aiflow-locks", "WARN", "stale: the queue, request RQ-dead")
        .fix("aiflow-locks", "doctor --full");
    let full = doctor.full();
    assert_eq!(full.recovered("aiflow-locks"), ["the queue", "request RQ-dead, run RUN-RQ-dead"]);
    assert_eq!(full.check("aiflow-locks")["recovered"][1]["why"], "its process has ended");
    assert_eq!(full.troubles(), [""; 0], "{}", full.value);
    let left = |id: &str| doctor.requests().join(format!("request.{id}.lock.json")).exists();
    assert_eq!(["RQ-dead", "RQ-alive", "RQ-young"].map(left), [false, true, true]);
    assert!(doctor.full().recovered("aiflow-locks").is_empty());
    // Free again: the next run gets it.
    let terms = Terms { run_id: None, pid: std::process::id(), ttl: Ttl::new(aiflow::DEFAULT_TTL).unwrap() };
    let project = Aiflow::new(doctor.root());
    let attempt = project.lock(&Subject::Request("RQ-dead".to_owned()), terms, WallTime::now()).unwrap();
    assert!(matches!(attempt, Attempt::Locked { recovered: None, .. }), "{attempt:?}");
}

/// Requirement 181. One that cannot be put away does not hide the others.
#[test]
fn what_cannot_be_put_away_is_told_beside_what_was() {
    let doctor = Doctor::new();
    let past = "2025-12-14T15:31:02+09:00";
    for id in ["RQ-1", "RQ-2", "RQ-3"] {
        request(&doctor, id, GONE, past);
    }
    let log = doctor.world.home().join("strace.log");
    let inject = "inject=renameat:error=EACCES:when=2";
    let strace = ["strace", "-qq", "-o", log.to_str().unwrap(), "-e", "trace=renameat", "-e", inject];
    let full = doctor.under(&strace, &["--full"]);
    assert_eq!(full.recovered("aiflow-locks"), ["request RQ-1, run RUN-RQ-1", "request RQ-3, run RUN-RQ-3"]);
    full.says("aiflow-locks", "WARN", "stale: request RQ-2; cannot rename the lock file");
    full.fix("aiflow-locks", "permissions");
    assert_eq!(doctor.full().recovered("aiflow-locks"), ["request RQ-2, run RUN-RQ-2"]);
}

/// Requirement 67.
#[test]
fn expired_task_locks_are_put_away_by_the_full_pass() {
    let doctor = Doctor::new();
    let write = |task: &str, heartbeat: &str| {
        let text = format!(
            r#"{{"worker_id":"w","task_id":"{task}","acquired_at":"{LONG_AGO}","heartbeat_at":"{heartbeat}","ttl":300}}"#
        );
        doctor.write(&doctor.tasks().join(format!("{task}.lock")), &text);
    };
    write("old", LONG_AGO);
    write("new", &WallTime::now().to_string());
    doctor.quick().says("swarm-locks", "WARN", "stale: task old");
    let full = doctor.full();
    assert_eq!(full.recovered("swarm-locks"), ["task old of worker w"]);
    assert_eq!(full.check("swarm-locks")["recovered"][0]["why"], "its time is up");
    assert!(doctor.tasks().join("new.lock").exists() && !doctor.tasks().join("old.lock").exists());
    let again = doctor.full();
    assert_eq!((again.troubles(), again.recovered("swarm-locks")), (vec![], vec![]));
}

/// Requirements 107, 108, 111.
#[test]
fn lines_of_dead_group_holders_are_ended_by_the_full_pass() {
    let doctor = Doctor::new();
    let now = WallTime::now().as_micros() / 1_000_000;
    let mut holder = doctor.world.start(["group", "exec", "held", "--", "sh", "-c", "echo up; read -r line"]);
    assert_eq!(holder.line(), "up");
    let registry = doctor.groups().join("registry.log");
    let mut text = fs::read_to_string(&registry).unwrap();
    text.push_str(&format!("g:{GONE}:g:{now}:ACTIVE\nold:1:old:{}:ACTIVE\nwhat is this\n", now - 700));
    fs::write(&registry, text).unwrap();
    // The lock is held, so the old line in the registry is not one that its holder forgot to close.
    let mut flock = doctor.world.command("flock");
    flock.arg(doctor.groups().join("old.lock")).args(["sh", "-c", "echo up; read -r line"]);
    let mut locked = Started::of(&mut flock);
    assert_eq!(locked.line(), "up");
    let quick = doctor.quick();
    quick.says("group-locks", "WARN", &format!("held by dead processes: group g of process {GONE}"));
    quick.says("group-locks", "WARN", "group old of process 1 has been held for 11m");
    quick.says("group-locks", "WARN", "cannot be parsed: what is this");
    let full = doctor.full();
    assert_eq!(full.recovered("group-locks"), [format!("group g of process {GONE}")]);
    assert!(!full.text("group-locks", "detail").contains("dead processes"), "{}", full.value);
    let text = fs::read_to_string(&registry).unwrap();
    assert!(
        text.contains(":ORPHAN_CLEANED") && text.contains(":held:") && text.contains("what is this"),
        "{text}"
    );
    assert!(doctor.full().recovered("group-locks").is_empty());
    locked.finish().code(0);
    holder.finish().code(0);
}

/// Requirement 48. Only a person decides about a zombie, so it stays until that person does what the fix says.
#[test]
fn a_zombie_sprint_is_reported_and_never_removed() {
    let doctor = Doctor::new();
    let lock = doctor.root().join(".sprint-running");
    let record = format!(
        "pid: {GONE}\nsession_id: \"s\"\nstarted_at: \"{LONG_AGO}\"\nepic_spec: \"e\"\nlock_version: 1\n"
    );
    doctor.write(&lock, &record);
    doctor.write(&doctor.root().join(".gitignore"), ".sprint-running\n");
    for diagnosis in [doctor.quick(), doctor.full(), doctor.full()] {
        assert_eq!(diagnosis.troubles(), ["sprint-lock"], "{}", diagnosis.value);
        diagnosis.says("sprint-lock", "WARN", &format!("PID: {GONE}"));
        assert_eq!(fs::read_to_string(&lock).unwrap(), record);
    }
    let quick = doctor.quick();
    let (_, fix) = quick.text("sprint-lock", "fix").split_once(": ").unwrap();
    doctor.world.shell(fix).code(0);
    doctor.quick().says("sprint-lock", "PASS", "there is no sprint lock");
    let living = Started::of(&mut Command::new("cat"));
    let record = format!("pid: {}\nstarted_at: \"{}\"\n", living.pid(), WallTime::now());
    doctor.write(&lock, &record);
    doctor.quick().says("sprint-lock", "PASS", "a running sprint holds it");
}

/// Requirement 201.
#[test]
fn files_of_killed_writers_are_removed_and_those_of_the_living_kept() {
    let doctor = Doctor::new();
    let mut worker = doctor.world.start([
        "task",
        "hold",
        "t",
        "--worker",
        "w",
        "--",
        "sh",
        "-c",
        "echo up; read -r line; exit 0",
    ]);
    assert_eq!(worker.line(), "up");
    let spares = || {
        let names = files::names(&doctor.tasks()).into_iter();
        names.filter(|name| name.starts_with(".lockkeeper-")).collect::<Vec<_>>()
    };
    let living = spares();
    assert_eq!(doctor.full().troubles(), [""; 0]);
    let orphan = doctor.tasks().join(".lockkeeper-0123456789abcdef.tmp");
    doctor.write(&orphan, "half");
    doctor.write(&doctor.root().join(".lockkeeper-00000000000000aa.tmp"), "half");
    let unfinished = doctor.root().join(".sprint-running.tmp");
    doctor.write(&unfinished, "half");
    doctor.quick().says("leftovers", "WARN", "0123456789abcdef").fix("leftovers", "--full");
    let full = doctor.full();
    assert_eq!(full.recovered("leftovers").len(), 2, "{}", full.value);
    assert_eq!((full.troubles(), spares()), (vec![], living));
    // The doctor reports an unfinished file of another program once it is old, and does not remove it.
    files::set_age(&unfinished, 1_000 * HOUR);
    doctor.full().says("leftovers", "WARN", ".sprint-running.tmp did not finish it");
    assert!(unfinished.exists());
    worker.finish().code(0);
}

#[test]
fn folders_that_a_stranger_owns_are_warned_of() {
    if !is_root() {
        return skip("root, to give a folder to another user");
    }
    let doctor = Doctor::new();
    fs::create_dir_all(doctor.tasks()).unwrap();
    std::os::unix::fs::chown(doctor.tasks().parent().unwrap(), Some(65534), None).unwrap();
    for diagnosis in [doctor.quick(), doctor.full()] {
        diagnosis.says("swarm-locks", "WARN", "belongs to user 65534").fix("swarm-locks", "AI_SWARM_DIR");
    }
}
