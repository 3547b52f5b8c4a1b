//! Lock files of other programs: stale ones are put away by the full pass, each by the rule of its format.

use std::fs;
use std::process::{Child, Command, Stdio};

use lockkeeper_core::time::Ttl;
use lockkeeper_formats::aiflow::{self, Aiflow, Attempt, Subject, Terms};
use lockkeeper_platform::wall_clock::WallTime;
use serde_json::json;

use crate::clinic::{Clinic, GONE, LONG_AGO};

/// A process that lives until it is dropped.
struct Living(Child);

impl Living {
    fn new() -> Self {
        Self(Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Living {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn request(clinic: &Clinic, id: &str, pid: u32, expires_at: &str) {
    let record = json!({
        "version": "1.0", "lock_type": "request", "request_id": id, "run_id": format!("RUN-{id}"), "pid": pid,
        "host": "127.0.0.1", "created_at": "2025-12-14T15:01:02+09:00", "expires_at": expires_at,
    });
    clinic.write(&clinic.requests().join(format!("request.{id}.lock.json")), &record.to_string());
}

/// Requirements 178, 179, 180, 181, 193.
#[test]
fn stale_request_locks_are_recovered_by_the_full_pass_and_reported() {
    let clinic = Clinic::new();
    let living = Living::new();
    let (past, future) = ("2025-12-14T15:31:02+09:00", "2099-12-14T15:31:02+09:00");
    request(&clinic, "RQ-dead", GONE, past);
    request(&clinic, "RQ-alive", living.pid(), past);
    request(&clinic, "RQ-young", GONE, future);
    clinic.write(&clinic.requests().join("queue.lock.json"), "{\"version\": \"1.");
    let torn = fs::File::options().write(true).open(clinic.requests().join("queue.lock.json")).unwrap();
    torn.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000)).unwrap();
    clinic.write(&clinic.root().join(".gitignore"), ".aiflow/\n");
    let quick = clinic.quick();
    assert_eq!(quick.troubles(), ["aiflow-locks"], "{}", quick.value);
    quick
        .says("aiflow-locks", "WARN", "stale: the queue, request RQ-dead")
        .fix("aiflow-locks", "doctor --full");
    let full = clinic.full();
    assert_eq!(full.recovered("aiflow-locks"), ["the queue", "request RQ-dead, run RUN-RQ-dead"]);
    assert_eq!(full.check("aiflow-locks")["recovered"][1]["why"], "its process has ended");
    assert_eq!(full.troubles(), [""; 0], "{}", full.value);
    let left = |id: &str| clinic.requests().join(format!("request.{id}.lock.json")).exists();
    assert_eq!(["RQ-dead", "RQ-alive", "RQ-young"].map(left), [false, true, true]);
    assert!(clinic.full().recovered("aiflow-locks").is_empty());
    // Free again: the next run gets it.
    let terms = Terms { run_id: None, pid: std::process::id(), ttl: Ttl::new(aiflow::DEFAULT_TTL).unwrap() };
    let project = Aiflow::new(clinic.root());
    let attempt = project.lock(&Subject::Request("RQ-dead".to_owned()), terms, WallTime::now()).unwrap();
    assert!(matches!(attempt, Attempt::Locked { recovered: None, .. }), "{attempt:?}");
}

/// Requirement 181. One that cannot be put away does not hide the others.
#[test]
fn what_cannot_be_put_away_is_told_beside_what_was() {
    let clinic = Clinic::new();
    let past = "2025-12-14T15:31:02+09:00";
    for id in ["RQ-1", "RQ-2", "RQ-3"] {
        request(&clinic, id, GONE, past);
    }
    let log = clinic.env.home().join("strace.log");
    let inject = "inject=renameat:error=EACCES:when=2";
    let strace = ["strace", "-qq", "-o", log.to_str().unwrap(), "-e", "trace=renameat", "-e", inject];
    let full = clinic.under(&strace, &["--full"]);
    assert_eq!(full.recovered("aiflow-locks"), ["request RQ-1, run RUN-RQ-1", "request RQ-3, run RUN-RQ-3"]);
    full.says("aiflow-locks", "WARN", "stale: request RQ-2; cannot rename the lock file");
    full.fix("aiflow-locks", "permissions");
    assert_eq!(clinic.full().recovered("aiflow-locks"), ["request RQ-2, run RUN-RQ-2"]);
}

/// Requirement 67.
#[test]
fn expired_task_locks_are_put_away_by_the_full_pass() {
    let clinic = Clinic::new();
    let write = |task: &str, heartbeat: &str| {
        let text = format!(
            r#"{{"worker_id":"w","task_id":"{task}","acquired_at":"{LONG_AGO}","heartbeat_at":"{heartbeat}","ttl":300}}"#
        );
        clinic.write(&clinic.tasks().join(format!("{task}.lock")), &text);
    };
    write("old", LONG_AGO);
    write("new", &WallTime::now().to_string());
    clinic.quick().says("swarm-locks", "WARN", "stale: task old");
    let full = clinic.full();
    assert_eq!(full.recovered("swarm-locks"), ["task old of worker w"]);
    assert_eq!(full.check("swarm-locks")["recovered"][0]["why"], "its time is up");
    assert!(clinic.tasks().join("new.lock").exists() && !clinic.tasks().join("old.lock").exists());
    let again = clinic.full();
    assert_eq!((again.troubles(), again.recovered("swarm-locks")), (vec![], vec![]));
}

/// Requirements 107, 108, 111.
#[test]
fn lines_of_dead_group_holders_are_ended_by_the_full_pass() {
    let clinic = Clinic::new();
    let now = WallTime::now().as_micros() / 1_000_000;
    let mut holder = clinic.env.start(["group", "exec", "held", "--", "sh", "-c", "echo up; read -r line"]);
    assert_eq!(holder.line(), "up");
    let registry = clinic.groups().join("registry.log");
    let mut text = fs::read_to_string(&registry).unwrap();
    text.push_str(&format!("g:{GONE}:g:{now}:ACTIVE\nold:1:old:{}:ACTIVE\nwhat is this\n", now - 700));
    fs::write(&registry, text).unwrap();
    // Locked, so that the old line is not one that was closed without a word.
    let mut locked = clinic.env.command("flock");
    let mut locked = locked
        .args([clinic.groups().join("old.lock").to_str().unwrap(), "sh", "-c", "echo up; read -r line"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut up = [0; 3];
    std::io::Read::read_exact(locked.stdout.as_mut().unwrap(), &mut up).unwrap();
    let quick = clinic.quick();
    quick.says("group-locks", "WARN", &format!("left of the dead: group g of process {GONE}"));
    quick.says("group-locks", "WARN", "group old of process 1 is held for 11m");
    quick.says("group-locks", "WARN", "is not understood: what is this");
    let full = clinic.full();
    assert_eq!(full.recovered("group-locks"), [format!("group g of process {GONE}")]);
    assert!(!full.text("group-locks", "detail").contains("left of the dead"), "{}", full.value);
    let text = fs::read_to_string(&registry).unwrap();
    assert!(
        text.contains(":ORPHAN_CLEANED") && text.contains(":held:") && text.contains("what is this"),
        "{text}"
    );
    assert!(clinic.full().recovered("group-locks").is_empty());
    drop(locked.stdin.take());
    locked.wait().unwrap();
    let _ = holder.finish().code(0);
}

/// Requirement 48. Only a person decides about a zombie, so it stays until that person does what the fix says.
#[test]
fn a_zombie_sprint_is_reported_and_never_removed() {
    let clinic = Clinic::new();
    let lock = clinic.root().join(".sprint-running");
    let record = format!(
        "pid: {GONE}\nsession_id: \"s\"\nstarted_at: \"{LONG_AGO}\"\nepic_spec: \"e\"\nlock_version: 1\n"
    );
    clinic.write(&lock, &record);
    clinic.write(&clinic.root().join(".gitignore"), ".sprint-running\n");
    for diagnosis in [clinic.quick(), clinic.full(), clinic.full()] {
        assert_eq!(diagnosis.troubles(), ["sprint-lock"], "{}", diagnosis.value);
        diagnosis.says("sprint-lock", "WARN", &format!("PID: {GONE}"));
        assert_eq!(fs::read_to_string(&lock).unwrap(), record);
    }
    let quick = clinic.quick();
    let (_, fix) = quick.text("sprint-lock", "fix").split_once(": ").unwrap();
    let _ = clinic.env.shell(fix).code(0);
    clinic.quick().says("sprint-lock", "PASS", "there is none");
    let living = Living::new();
    let record = format!("pid: {}\nstarted_at: \"{}\"\n", living.pid(), WallTime::now());
    clinic.write(&lock, &record);
    clinic.quick().says("sprint-lock", "PASS", "a sprint that runs has it");
}

/// Requirement 201.
#[test]
fn files_of_killed_writers_are_removed_and_those_of_the_living_kept() {
    let clinic = Clinic::new();
    let mut worker = clinic.env.start([
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
        let names = fs::read_dir(clinic.tasks())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with(".lockkeeper-")).collect::<Vec<_>>()
    };
    let living = spares();
    assert_eq!(clinic.full().troubles(), [""; 0]);
    let orphan = clinic.tasks().join(".lockkeeper-0123456789abcdef.tmp");
    clinic.write(&orphan, "half");
    clinic.write(&clinic.root().join(".lockkeeper-00000000000000aa.tmp"), "half");
    let unfinished = clinic.root().join(".sprint-running.tmp");
    clinic.write(&unfinished, "half");
    clinic.quick().says("leftovers", "WARN", "0123456789abcdef").fix("leftovers", "--full");
    let full = clinic.full();
    assert_eq!(full.recovered("leftovers").len(), 2, "{}", full.value);
    assert_eq!((full.troubles(), spares()), (vec![], living));
    // Another program's own is only told of, once nobody can be writing it any more.
    let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    fs::File::options().write(true).open(&unfinished).unwrap().set_modified(old).unwrap();
    clinic.full().says("leftovers", "WARN", ".sprint-running.tmp was never finished");
    assert!(unfinished.exists());
    let _ = worker.finish().code(0);
}

#[test]
fn folders_that_a_stranger_owns_are_warned_of() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: giving a folder away needs root; nothing was checked");
        return;
    }
    let clinic = Clinic::new();
    fs::create_dir_all(clinic.tasks()).unwrap();
    std::os::unix::fs::chown(clinic.tasks().parent().unwrap(), Some(65534), None).unwrap();
    for diagnosis in [clinic.quick(), clinic.full()] {
        diagnosis.says("swarm-locks", "WARN", "belongs to user 65534").fix("swarm-locks", "AI_SWARM_DIR");
    }
}
