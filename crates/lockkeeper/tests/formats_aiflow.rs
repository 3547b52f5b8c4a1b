//! Request and queue locks of aiflow: the files, who may take them over, and the passes that recover stale ones.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lockkeeper::clock::WallTime;
use lockkeeper::core::time::Ttl;
use lockkeeper::lockfile::aiflow::{
    Aiflow, AiflowError, AiflowLock, Attempt, DEFAULT_TTL, Pass, Recovered, Subject, Terms,
};
use lockkeeper::lockfile::guard::GuardError;
use lockkeeper::lockfile::{HeldReason, StaleReason, Verdict};
use serde_json::{Value, json};
use tempfile::TempDir;

const HOUR: Duration = Duration::from_secs(3600);

struct Project {
    root: TempDir,
}

impl Project {
    fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap() }
    }

    fn aiflow(&self) -> Aiflow {
        Aiflow::new(self.root.path())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.root.path().join(".aiflow/locks").join(name)
    }

    fn write(&self, name: &str, content: &str) {
        fs::create_dir_all(self.file("")).unwrap();
        fs::write(self.file(name), content).unwrap();
    }

    fn read(&self, name: &str) -> Value {
        serde_json::from_slice(&fs::read(self.file(name)).unwrap()).unwrap()
    }

    fn lock(&self, subject: &Subject, now: WallTime) -> Attempt {
        self.aiflow().lock(subject, terms(), now).unwrap()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
        command.args(args).current_dir(self.root.path());
        command
    }
}

fn terms() -> Terms<'static> {
    Terms { run_id: Some("RUN-1"), pid: std::process::id(), ttl: Ttl::new(DEFAULT_TTL).unwrap() }
}

fn request(id: &str) -> Subject {
    Subject::Request(id.to_owned())
}

fn locked(attempt: Attempt) -> AiflowLock {
    match attempt {
        Attempt::Locked { lock, .. } => lock,
        Attempt::Busy(standing) => panic!("{standing:?}"),
    }
}

fn ago(span: Duration) -> WallTime {
    WallTime::from_micros(WallTime::now().as_micros() - i64::try_from(span.as_micros()).unwrap())
}

/// A record of request RQ-1 that ran out an hour ago.
fn expired(pid: &Value, host: &str) -> Value {
    json!({
        "version": "1.0", "lock_type": "request", "request_id": "RQ-1", "run_id": "RUN-0", "pid": pid, "host": host,
        "created_at": ago(2 * HOUR).local(), "expires_at": ago(HOUR).local(),
    })
}

/// A process that runs until it is dropped, or has ended and been waited for already.
struct Other(Child);

impl Other {
    fn running() -> Self {
        Self(Command::new("cat").stdin(Stdio::piped()).spawn().unwrap())
    }

    fn ended() -> u32 {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        child.id()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Requirements 164, 167, 168, 171. Invariant 11.
#[test]
fn a_lock_has_the_files_keys_and_times_of_the_format() {
    let project = Project::new();
    let now = WallTime::read("2025-12-14T15:01:02+09:00", WallTime::from_micros(0)).unwrap();
    let _request = locked(project.lock(&request("RQ-1"), now));
    let _queue = locked(project.lock(&Subject::Queue, now));
    let record = project.read("request.RQ-1.lock.json");
    let keys: Vec<&str> = record.as_object().unwrap().keys().map(String::as_str).collect();
    let expected =
        ["version", "lock_type", "request_id", "run_id", "pid", "host", "created_at", "expires_at"];
    assert_eq!(keys, expected);
    assert_eq!((&record["version"], &record["lock_type"]), (&json!("1.0"), &json!("request")));
    assert_eq!((&record["request_id"], &record["run_id"]), (&json!("RQ-1"), &json!("RUN-1")));
    assert_eq!((&record["pid"], &record["host"]), (&json!(std::process::id()), &json!("127.0.0.1")));
    let time = |key: &str| {
        let text = record[key].as_str().unwrap();
        assert!(matches!(text.as_bytes()[19], b'+' | b'-') && text.len() == 25, "{text} has an offset");
        WallTime::read(text, now).unwrap()
    };
    assert_eq!(time("created_at"), now);
    assert_eq!(time("expires_at"), now.after(Duration::from_secs(30 * 60)));
    let queue = project.read("queue.lock.json");
    assert_eq!(queue["lock_type"], "queue");
    assert_eq!(queue.as_object().unwrap().len(), 8);
}

/// Requirement 168. The local offset is that of the zone, not always zero.
#[test]
fn times_carry_the_local_offset() {
    let project = Project::new();
    project.write("request.RQ-1.lock.json", &expired(&json!(null), "").to_string());
    let output =
        project.command(&["locks", "--format", "aiflow", "--json"]).env("TZ", "Asia/Tokyo").output().unwrap();
    let listing: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = listing["locks"][0]["record"]["expires_at"].as_str().unwrap();
    assert!(text.ends_with("+09:00"), "{text}");
}

/// Requirements 164, 165, 169.
#[test]
fn a_request_and_the_queue_are_locked_once_each_and_independently() {
    let project = Project::new();
    let now = WallTime::now();
    let _queue = locked(project.lock(&Subject::Queue, now));
    let _first = locked(project.lock(&request("RQ-1"), now));
    let _second = locked(project.lock(&request("RQ-2"), now));
    for subject in [Subject::Queue, request("RQ-1"), request("RQ-2")] {
        match project.lock(&subject, now) {
            Attempt::Busy(standing) => {
                assert_eq!(standing.verdict, Verdict::Held(HeldReason::InTime));
                assert_eq!(standing.record.unwrap().run_id.as_deref(), Some("RUN-1"));
            }
            Attempt::Locked { .. } => panic!("{subject} was locked twice"),
        }
    }
}

/// Requirement 166.
#[test]
fn the_folder_is_made_and_ignored_by_git() {
    let project = Project::new();
    let git =
        |args: &[&str]| Command::new("git").args(args).current_dir(project.root.path()).output().unwrap();
    assert!(git(&["init", "-q"]).status.success());
    let _lock = locked(project.lock(&Subject::Queue, WallTime::now()));
    assert!(project.file("queue.lock.json").exists());
    assert!(git(&["check-ignore", "-q", ".aiflow/locks/queue.lock.json"]).status.success());
    assert_eq!(String::from_utf8(git(&["status", "--porcelain"]).stdout).unwrap(), "");
}

/// Requirement 166. A file that the user wrote stays as it is.
#[test]
fn an_ignore_file_that_is_there_is_left_alone() {
    let project = Project::new();
    project.write(".gitignore", "*.lock.json\n");
    let _lock = locked(project.lock(&Subject::Queue, WallTime::now()));
    assert_eq!(fs::read_to_string(project.file(".gitignore")).unwrap(), "*.lock.json\n");
}

/// Requirements 170, 191.
#[test]
fn a_lock_is_released_when_dropped_and_also_in_a_panic() {
    let project = Project::new();
    let file = project.file("request.RQ-1.lock.json");
    drop(locked(project.lock(&request("RQ-1"), WallTime::now())));
    assert!(!file.exists());
    let panicked = std::panic::catch_unwind(|| {
        let _lock = locked(project.lock(&request("RQ-1"), WallTime::now()));
        assert!(file.exists());
        panic!("on purpose");
    });
    assert!(panicked.is_err() && !file.exists());
    let lock = locked(project.lock(&request("RQ-1"), WallTime::now()));
    assert!(lock.release().unwrap());
    assert!(!file.exists());
}

/// Requirements 172, 202.
#[test]
fn a_heartbeat_extends_the_lock_and_a_lost_one_is_not_overwritten() {
    let project = Project::new();
    let now = WallTime::now();
    let mut lock = locked(project.lock(&request("RQ-1"), now));
    let later = now.after(Duration::from_secs(600));
    assert!(lock.beat(later).unwrap());
    let record = project.read("request.RQ-1.lock.json");
    assert_eq!(record["expires_at"], later.after(DEFAULT_TTL).local());
    assert_eq!(record["created_at"], now.local());
    let stranger = expired(&json!(1), "elsewhere").to_string();
    project.write("beside", &stranger);
    fs::rename(project.file("beside"), project.file("request.RQ-1.lock.json")).unwrap();
    assert!(!lock.beat(later).unwrap());
    drop(lock);
    assert_eq!(fs::read_to_string(project.file("request.RQ-1.lock.json")).unwrap(), stranger);
}

/// Requirement 172. The queue's lock goes on from request to request.
#[test]
fn the_queues_lock_names_the_request_that_it_has_come_to() {
    let project = Project::new();
    let now = WallTime::now();
    let mut queue = locked(project.lock(&Subject::Queue, now));
    assert_eq!(project.read("queue.lock.json")["request_id"], Value::Null);
    let later = now.after(Duration::from_secs(60));
    assert!(queue.move_on("RQ-7", "RUN-20260131-120000-abcd", later).unwrap());
    let record = project.read("queue.lock.json");
    assert_eq!(
        (&record["request_id"], &record["run_id"]),
        (&json!("RQ-7"), &json!("RUN-20260131-120000-abcd"))
    );
    assert_eq!(record["expires_at"], later.after(DEFAULT_TTL).local());
    assert!(queue.release().unwrap());
}

/// Requirements 178, 179, 180. Expired is not enough where the process lives on this machine.
#[test]
fn an_expired_lock_is_stale_only_when_its_process_is_dead_or_unknown() {
    let living = Other::running();
    let host = String::from_utf8(Command::new("uname").arg("-n").output().unwrap().stdout).unwrap();
    let gone = Verdict::Stale(StaleReason::ProcessGone);
    let alive = Verdict::Held(HeldReason::ProcessAlive);
    let by_time = Verdict::Stale(StaleReason::Expired);
    let cases = [
        (json!(living.0.id()), "127.0.0.1", alive),
        (json!(living.0.id()), "localhost", alive),
        (json!(living.0.id()), host.trim_end(), alive),
        (json!(Other::ended()), "127.0.0.1", gone),
        // What another machine's numbers mean is not known here: time alone counts.
        (json!(living.0.id()), "another-machine", by_time),
        (json!(null), "127.0.0.1", by_time),
        (json!(0), "127.0.0.1", by_time),
        (json!(-1), "127.0.0.1", by_time),
        (json!(4_194_305), "127.0.0.1", by_time),
        (json!("12"), "127.0.0.1", by_time),
    ];
    for (pid, host, expected) in cases {
        let project = Project::new();
        let mut record = expired(&pid, host);
        project.write("request.RQ-1.lock.json", &record.to_string());
        let now = WallTime::now();
        let standing = project.aiflow().show(&request("RQ-1"), now).unwrap().unwrap();
        assert_eq!(standing.verdict, expected, "{pid} on {host}");
        match (project.lock(&request("RQ-1"), now), expected.is_stale()) {
            (Attempt::Locked { recovered: Some(recovered), .. }, true) => {
                assert_eq!(recovered.standing.record.unwrap().run_id.as_deref(), Some("RUN-0"));
                assert_eq!(Recovered::REASON_CODE, "LOCK_STALE_RECOVERED");
            }
            (Attempt::Busy(_), false) => {}
            (other, _) => panic!("{pid} on {host}: {other:?}"),
        }
        // Before its time is up, nothing of this matters.
        record["expires_at"] = now.after(HOUR).local().into();
        project.write("request.RQ-1.lock.json", &record.to_string());
        assert!(matches!(project.lock(&request("RQ-1"), now), Attempt::Busy(_)), "{pid} on {host}");
    }
}

/// Requirements 180, 181, 182, 186.
#[test]
fn recovery_puts_away_what_is_stale_and_nothing_else() {
    for (pass, expected) in [(Pass::Quick, vec!["RQ-1"]), (Pass::Full, vec!["RQ-1", "RQ-torn"])] {
        let project = Project::new();
        let living = Other::running();
        let now = WallTime::now();
        let dead = expired(&json!(Other::ended()), "127.0.0.1");
        let named = |id: &str, mut record: Value| {
            record["request_id"] = id.into();
            project.write(&format!("request.{id}.lock.json"), &record.to_string());
        };
        named("RQ-1", dead.clone());
        named("RQ-2", expired(&json!(living.0.id()), "127.0.0.1"));
        project.write("request.RQ-torn.lock.json", "{\"version\": \"1.");
        let long_ago = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        fs::File::open(project.file("request.RQ-torn.lock.json")).unwrap().set_modified(long_ago).unwrap();
        project.write("request.RQ-odd.lock.json", "{\"version\": \"2.0\"}");
        let queue = locked(project.lock(&Subject::Queue, now));
        let recovery = project.aiflow().recover(pass, now).unwrap();
        let ids: Vec<String> = recovery.recovered.iter().map(|one| one.subject.to_string()).collect();
        let expected: Vec<String> = expected.iter().map(|id| format!("request {id}")).collect();
        assert_eq!(ids, expected, "{pass:?}");
        assert_eq!(recovery.problems.len(), usize::from(pass == Pass::Full));
        assert!(!project.file("request.RQ-1.lock.json").exists());
        for name in ["request.RQ-2.lock.json", "request.RQ-odd.lock.json", "queue.lock.json"] {
            assert!(project.file(name).exists(), "{pass:?}: {name}");
        }
        assert!(queue.release().unwrap());
        let again = project.aiflow().recover(pass, now).unwrap();
        assert!(again.recovered.is_empty());
    }
    let nothing = Project::new();
    assert!(nothing.aiflow().recover(Pass::Full, WallTime::now()).unwrap().recovered.is_empty());
    assert!(!nothing.root.path().join(".aiflow").exists());
}

/// Requirement 186. After a crash of everything, first the queue's lock and then the request's is recovered by time.
#[test]
fn after_a_crash_both_locks_are_recovered_once_their_time_is_up() {
    let project = Project::new();
    let (long_ago, now) = (ago(HOUR), WallTime::now());
    let terms = Terms { pid: Other::ended(), ..terms() };
    for subject in [Subject::Queue, request("RQ-1")] {
        // As if the process had been killed: nothing is released.
        std::mem::forget(locked(project.aiflow().lock(&subject, terms, long_ago).unwrap()));
    }
    for subject in [Subject::Queue, request("RQ-1")] {
        match project.lock(&subject, now) {
            Attempt::Locked { recovered: Some(recovered), .. } => assert_eq!(recovered.subject, subject),
            other => panic!("{other:?}"),
        }
    }
}

/// Invariants 5, 12.
#[test]
fn an_unknown_version_or_another_format_is_held_for_good() {
    let stale = expired(&json!(null), "").to_string();
    let contents = [
        stale.replace("1.0", "1.1"),
        stale.replace("\"1.0\"", "1.0"),
        stale.replace("\"version\"", "\"v\""),
        stale.replace("\"request\"", "\"queue\""),
        stale.replace("RQ-1", "RQ-2"),
        stale.replace("expires_at", "until"),
        "[]".to_owned(),
        "rubbish".to_owned(),
    ];
    for content in contents {
        let project = Project::new();
        project.write("request.RQ-1.lock.json", &content);
        let error = project.aiflow().lock(&request("RQ-1"), terms(), WallTime::now()).map(drop).unwrap_err();
        assert!(matches!(error, AiflowError::NotUnderstood { .. }), "{content}: {error:?}");
        assert_eq!(fs::read_to_string(project.file("request.RQ-1.lock.json")).unwrap(), content);
    }
}

/// Requirement 203. The document's own example, and what other writers leave out.
#[test]
fn real_files_are_read() {
    let example = r#"{
"version": "1.0",
"lock_type": "request",
"request_id": "RQ-1",
"run_id": "RUN-20251214-150102-ab",
"pid": 12345,
"host": "127.0.0.1",
"created_at": "2025-12-14T15:01:02+09:00",
"expires_at": "2025-12-14T15:31:02+09:00"
}"#;
    let minimal = r#"{"expires_at":"2025-12-14T06:31:02.000Z","created_at":"2025-12-14T06:01:02.000Z","request_id":"RQ-1","lock_type":"request","version":"1.0","note":"x"}"#;
    for content in [example, minimal] {
        let project = Project::new();
        project.write("request.RQ-1.lock.json", content);
        let during = WallTime::read("2025-12-14T06:31:02Z", WallTime::from_micros(0)).unwrap();
        let standing = project.aiflow().show(&request("RQ-1"), during).unwrap().unwrap();
        assert_eq!(standing.verdict, Verdict::Held(HeldReason::InTime));
        assert_eq!(standing.record.unwrap().expires_at, during);
    }
}

/// Requirement 204.
#[test]
fn ids_that_are_no_file_names_are_refused_before_anything_is_touched() {
    let project = Project::new();
    let long = "x".repeat(238);
    for id in ["", "a/b", "../x", "..", "a\0b", "a\nb", &long] {
        let error = project.aiflow().lock(&request(id), terms(), WallTime::now()).map(drop).unwrap_err();
        assert!(matches!(error, AiflowError::Request(_)), "{id:?}: {error:?}");
    }
    assert!(!project.root.path().join(".aiflow").exists());
}

#[test]
fn a_link_in_place_of_a_folder_is_not_followed() {
    let outside = tempfile::tempdir().unwrap();
    for part in [".aiflow", ".aiflow/locks"] {
        let project = Project::new();
        fs::create_dir_all(project.root.path().join(part).parent().unwrap()).unwrap();
        symlink(outside.path(), project.root.path().join(part)).unwrap();
        let error = project.aiflow().lock(&Subject::Queue, terms(), WallTime::now()).map(drop).unwrap_err();
        assert!(matches!(error, AiflowError::Guard(GuardError::Folder { .. })), "{part}: {error:?}");
        assert!(fs::read_dir(outside.path()).unwrap().next().is_none());
    }
}

/// Requirements 180, 200. Threads are as good as processes here: each has its own open folder.
#[test]
fn a_storm_on_a_stale_lock_has_one_winner_in_every_round() {
    let project = Project::new();
    let dead = Other::ended();
    for round in 0..200 {
        project.write("request.RQ-1.lock.json", &expired(&json!(dead), "127.0.0.1").to_string());
        let gate = std::sync::Barrier::new(8);
        let locks: Vec<Option<AiflowLock>> = std::thread::scope(|scope| {
            let attempt = || {
                gate.wait();
                match project.lock(&request("RQ-1"), WallTime::now()) {
                    Attempt::Locked { lock, .. } => Some(lock),
                    Attempt::Busy(_) => None,
                }
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(attempt)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(locks.iter().flatten().count(), 1, "round {round}");
    }
}

/// Requirements 178, 179.
#[test]
fn locks_lists_each_file_with_its_verdict() {
    let project = Project::new();
    let now = WallTime::now();
    let _queue = locked(project.lock(&Subject::Queue, now));
    project.write("request.RQ-1.lock.json", &expired(&json!(Other::ended()), "127.0.0.1").to_string());
    project.write("request.RQ-9.lock.json", "rubbish");
    let list = |args: &[&str], dir: &Path| {
        let output = project.command(args).current_dir(dir).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let root = project.root.path().to_str().unwrap();
    let text = list(&["locks", "--format", "aiflow", "--project-root", root, "--json"], Path::new("/"));
    let listing: Value = serde_json::from_str(&text).unwrap();
    let rows: Vec<(&str, &str)> = listing["locks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lock| (lock["subject"].as_str().unwrap(), lock["state"].as_str().unwrap()))
        .collect();
    assert_eq!(rows, [("queue", "held"), ("request RQ-1", "stale"), ("request RQ-9", "unknown")]);
    assert_eq!(listing["locks"][0]["record"]["run_id"], "RUN-1");
    let text = list(&["locks", "--format", "aiflow", "--project-root", root], Path::new("/"));
    assert!(text.contains("its process has ended") && text.lines().count() == 4, "{text}");
}
