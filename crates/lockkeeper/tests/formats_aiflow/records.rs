//! The content of lock files, who may lock, and how a lock is released.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use lockkeeper_formats::aiflow::{AiflowError, Attempt, DEFAULT_TTL, Subject};
use lockkeeper_formats::guard::GuardError;
use lockkeeper_formats::{HeldReason, Verdict};
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_testing::Finished;
use serde_json::{Value, json};

use crate::project::{Project, expired, locked, request, terms};

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
    let mut command = project.world.lockkeeper(["locks", "--format", "aiflow", "--json"]);
    let listing = Finished::of(command.env("TZ", "Asia/Tokyo")).code(0).json();
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
    project.world.git_run(&["init", "-q"]);
    let _lock = locked(project.lock(&Subject::Queue, WallTime::now()));
    assert!(project.file("queue.lock.json").exists());
    project.world.git_run(&["check-ignore", "-q", ".aiflow/locks/queue.lock.json"]);
    let status = Finished::of(project.world.command("git").args(["status", "--porcelain"]));
    assert_eq!(status.code(0).stdout(), "");
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
    assert!(lock.heartbeat(later).unwrap());
    let record = project.read("request.RQ-1.lock.json");
    assert_eq!(record["expires_at"], later.after(DEFAULT_TTL).local());
    assert_eq!(record["created_at"], now.local());
    let stranger = expired(&json!(1), "elsewhere").to_string();
    project.write("beside", &stranger);
    fs::rename(project.file("beside"), project.file("request.RQ-1.lock.json")).unwrap();
    assert!(!lock.heartbeat(later).unwrap());
    drop(lock);
    assert_eq!(fs::read_to_string(project.file("request.RQ-1.lock.json")).unwrap(), stranger);
}

/// Requirement 172. One lock of the queue serves one request after the other.
#[test]
fn the_queues_lock_names_the_request_that_it_has_come_to() {
    let project = Project::new();
    let now = WallTime::now();
    let mut queue = locked(project.lock(&Subject::Queue, now));
    assert_eq!(project.read("queue.lock.json")["request_id"], Value::Null);
    let later = now.after(Duration::from_secs(60));
    assert!(queue.set_current("RQ-7", "RUN-20260131-120000-abcd", later).unwrap());
    let record = project.read("queue.lock.json");
    assert_eq!(
        (&record["request_id"], &record["run_id"]),
        (&json!("RQ-7"), &json!("RUN-20260131-120000-abcd"))
    );
    assert_eq!(record["expires_at"], later.after(DEFAULT_TTL).local());
    assert!(queue.release().unwrap());
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
    assert!(!project.root().join(".aiflow").exists());
}

#[test]
fn a_link_in_place_of_a_folder_is_not_followed() {
    let outside = tempfile::tempdir().unwrap();
    for part in [".aiflow", ".aiflow/locks"] {
        let project = Project::new();
        fs::create_dir_all(project.root().join(part).parent().unwrap()).unwrap();
        symlink(outside.path(), project.root().join(part)).unwrap();
        let error = project.aiflow().lock(&Subject::Queue, terms(), WallTime::now()).map(drop).unwrap_err();
        assert!(matches!(error, AiflowError::Guard(GuardError::Folder { .. })), "{part}: {error:?}");
        assert!(fs::read_dir(outside.path()).unwrap().next().is_none());
    }
}
