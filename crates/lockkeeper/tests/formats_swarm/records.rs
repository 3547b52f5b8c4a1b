//! The content of lock files, and when a lock is stale.

use std::time::Duration;

use lockkeeper_core::time::Ttl;
use lockkeeper_formats::swarm::{Attempt, TaskLock, UpdateOutcome};
use lockkeeper_formats::{HeldReason, StaleReason, Verdict};
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_testing::files;
use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};

use crate::tasks::{HOUR, Tasks, record};

fn locked(attempt: Attempt) -> Box<TaskLock> {
    match attempt {
        Attempt::Locked { lock, .. } => lock,
        Attempt::Busy(standing) => panic!("{standing:?}"),
    }
}

/// Requirements 59, 61. Invariant 11. The original reader rejects keys that it does not know.
#[test]
fn a_lock_has_exactly_the_five_keys_of_the_format() {
    let tasks = Tasks::new();
    let now = WallTime::from_micros(1_769_860_800_000_000);
    drop(locked(tasks.swarm().lock("task-123", "worker-1", None, now).unwrap()));
    let text = std::fs::read_to_string(tasks.dir().join("locks/task-123.lock")).unwrap();
    assert_eq!(
        text,
        r#"{
  "worker_id": "worker-1",
  "task_id": "task-123",
  "acquired_at": "2026-01-31T12:00:00.000Z",
  "heartbeat_at": "2026-01-31T12:00:00.000Z",
  "ttl": 300
}
"#
    );
}

/// Requirements 58, 62.
#[test]
fn tasks_are_independent_and_nobody_waits_for_one() {
    let tasks = Tasks::new();
    let (swarm, now) = (tasks.swarm(), WallTime::from_micros(1_769_860_800_000_000));
    let first = locked(swarm.lock("a", "w1", None, now).unwrap());
    locked(swarm.lock("b", "w2", None, now).unwrap());
    match swarm.lock("a", "w1", None, now).unwrap() {
        Attempt::Busy(standing) => {
            assert_eq!(standing.record.as_ref(), Some(first.record()));
            assert_eq!(standing.verdict, Verdict::Held(HeldReason::InTime));
        }
        Attempt::Locked { .. } => panic!("locked twice"),
    }
}

/// Requirements 63, 66, 67. Expiry is strict: at the very end of its time a lock still stands.
#[test]
fn a_lock_is_stale_strictly_after_its_ttl_and_then_anyone_takes_it() {
    let tasks = Tasks::new();
    let (swarm, start) = (tasks.swarm(), WallTime::from_micros(1_769_860_800_000_000));
    let ttl = Ttl::new(Duration::from_secs(5)).unwrap();
    drop(locked(swarm.lock("a", "w1", Some(ttl), start).unwrap()));
    let end = start.after(Duration::from_secs(5));
    assert!(matches!(swarm.lock("a", "w2", None, end).unwrap(), Attempt::Busy(_)));
    let past = end.after(Duration::from_micros(1));
    match swarm.lock("a", "w2", None, past).unwrap() {
        Attempt::Locked { lock, replaced: Some(old) } => {
            assert_eq!(old.verdict, Verdict::Stale(StaleReason::Expired));
            assert_eq!(old.record.unwrap().worker_id, "w1");
            assert_eq!(lock.record().worker_id, "w2");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(tasks.names(), ["a.lock"]);
}

/// Requirements 64, 202.
#[test]
fn heartbeats_move_the_end_and_a_lost_lock_is_never_overwritten() {
    let tasks = Tasks::new();
    let (swarm, start) = (tasks.swarm(), WallTime::from_micros(1_769_860_800_000_000));
    let mut lock = locked(swarm.lock("a", "w1", None, start).unwrap());
    let later = start.after(Duration::from_secs(299));
    assert!(lock.heartbeat(later).unwrap());
    assert_eq!(tasks.read("a")["heartbeat_at"], "2026-01-31T12:04:59.000Z");
    assert_eq!(tasks.read("a")["acquired_at"], "2026-01-31T12:00:00.000Z");
    let much_later = later.after(Duration::from_secs(301));
    let mut second = locked(swarm.lock("a", "w2", None, much_later).unwrap());
    assert!(!lock.heartbeat(much_later).unwrap());
    assert!(!lock.unlock().unwrap());
    assert!(second.heartbeat(much_later).unwrap());
    assert_eq!(tasks.read("a")["worker_id"], "w2");
    assert!(second.unlock().unwrap());
    assert!(tasks.names().is_empty());
}

/// Requirement 202. The same for commands, which know each other by the worker's id.
#[test]
fn only_the_worker_itself_renews_and_unlocks() {
    let tasks = Tasks::new();
    let (swarm, now) = (tasks.swarm(), WallTime::now());
    drop(locked(swarm.lock("a", "w1", None, now).unwrap()));
    assert!(matches!(swarm.heartbeat("a", "w2", None, now).unwrap(), UpdateOutcome::Lost(_)));
    assert!(matches!(swarm.unlock("a", "w2", now).unwrap(), UpdateOutcome::Lost(_)));
    let later = now.after(Duration::from_secs(7));
    match swarm.heartbeat("a", "w1", None, later).unwrap() {
        UpdateOutcome::Done(record) => assert_eq!(record.heartbeat_at, later),
        other => panic!("{other:?}"),
    }
    assert!(matches!(swarm.unlock("a", "w1", later).unwrap(), UpdateOutcome::Done(_)));
    assert!(matches!(swarm.unlock("a", "w1", later).unwrap(), UpdateOutcome::Absent));
    assert!(matches!(swarm.heartbeat("a", "w1", None, later).unwrap(), UpdateOutcome::Absent));
}

/// Requirements 71, 203. Files as such programs write them in practice.
#[test]
fn real_files_are_read_whatever_their_order_and_spelling() {
    let now = WallTime::read("2026-01-31T12:00:20Z", WallTime::from_micros(0)).unwrap();
    let held = [
        r#"{"ttl": 300, "heartbeat_at": "2026-01-31T12:00:10.000Z", "worker_id": "w", "task_id": "a", "acquired_at": "2026-01-31T12:00:00.000Z"}"#,
        r#"{"worker_id": "w", "task_id": "a", "acquired_at": "2026-01-31T12:00:00.123456+00:00", "heartbeat_at": "2026-01-31T12:00:10.123456+00:00", "ttl_sec": 300}"#,
        r#"{"worker_id": "w", "task_id": "a", "acquired_at": "2026-01-31T12:00:00.123456", "heartbeat_at": "2026-01-31T12:00:10.123456", "ttl": 300.0}"#,
        r#"{"worker_id": "w", "task_id": "a", "acquired_at": "2026-01-31T21:00:00+09:00", "heartbeat_at": "2026-01-31T21:00:10+09:00", "ttl": 300, "meta": {"retry_count": 1}}"#,
        r#"{"worker_id": "w", "task_id": "a", "acquired_at": "2026-01-31T12:00:00Z", "heartbeat_at": "2026-01-31T12:00:10Z", "ttl": 1, "ttl_sec": 300}"#,
        r#"{"worker_id": "w", "task_id": "a", "acquired_at": "2026-01-31T12:00:00Z", "heartbeat_at": "2026-01-31T12:00:10Z", "ttl": 1e300}"#,
        "\n\n{\"worker_id\": \"w\",\n \"task_id\": \"a\",\n \"acquired_at\": \"2026-01-31T12:00:00Z\",\n \"heartbeat_at\": \"2026-01-31T12:00:10Z\",\n \"ttl\": 300}\n\n",
    ];
    for text in held {
        let tasks = Tasks::new();
        tasks.write("a", text);
        let standing = tasks.swarm().show("a", now).unwrap().unwrap();
        assert_eq!(standing.verdict, Verdict::Held(HeldReason::InTime), "{text}");
        assert_eq!(standing.record.unwrap().worker_id, "w");
        let much_later = now.after(Duration::from_secs(600));
        let standing = tasks.swarm().show("a", much_later).unwrap().unwrap();
        let endless = text.contains("1e300");
        assert_eq!(standing.verdict.is_stale(), !endless, "{text}");
    }
}

/// Requirement 71. What another program keeps beside the five keys survives a heartbeat.
#[test]
fn a_heartbeat_keeps_what_it_does_not_know() {
    let tasks = Tasks::new();
    let now = WallTime::now();
    let text = record("a", "w", Duration::from_secs(5), 300);
    tasks.write("a", text.replace("\"ttl\"", "\"meta\":{\"x\":1},\"ttl_sec\""));
    let ttl = Ttl::new(Duration::from_secs(60)).unwrap();
    assert!(matches!(tasks.swarm().heartbeat("a", "w", Some(ttl), now).unwrap(), UpdateOutcome::Done(_)));
    let value = tasks.read("a");
    assert_eq!(value["meta"]["x"], 1);
    assert_eq!((&value["ttl_sec"], &value["heartbeat_at"]), (&60.into(), &now.to_string().into()));
}

/// Requirement 201. An `O_EXCL` creator that died before it wrote leaves an empty file: held at first, free later.
#[test]
fn a_torn_record_is_held_until_its_ttl_and_then_free() {
    let whole = record("a", "w", HOUR, 300);
    for content in ["", "\0\0\0\0", &whole[..1], &whole[..whole.len() / 2], &whole[..whole.len() - 1]] {
        let tasks = Tasks::new();
        tasks.write("a", content);
        match tasks.swarm().lock("a", "w2", None, WallTime::now()).unwrap() {
            Attempt::Busy(standing) => {
                assert_eq!(standing.verdict, Verdict::Held(HeldReason::BeingWritten), "{content:?}");
            }
            Attempt::Locked { .. } => panic!("took a record that is being written: {content:?}"),
        }
        files::set_age(&tasks.file("a"), Duration::from_secs(10));
        assert!(matches!(tasks.swarm().lock("a", "w2", None, WallTime::now()).unwrap(), Attempt::Busy(_)));
        files::set_age(&tasks.file("a"), Duration::from_secs(301));
        match tasks.swarm().lock("a", "w2", None, WallTime::now()).unwrap() {
            Attempt::Locked { replaced: Some(old), .. } => {
                assert_eq!(old.verdict, Verdict::Stale(StaleReason::Torn));
            }
            other => panic!("{content:?}: {other:?}"),
        }
        assert_eq!(tasks.read("a")["worker_id"], "w2");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Invariants 5, 12. Whatever bytes lie there: they are refused or held, never free, and stay as they are.
    #[test]
    fn random_bytes_are_never_free(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let tasks = Tasks::new();
        tasks.write("a", &bytes);
        let attempt = tasks.swarm().lock("a", "w", None, WallTime::now());
        let taken = matches!(attempt, Ok(Attempt::Locked { .. }));
        prop_assert!(!taken);
        prop_assert_eq!(std::fs::read(tasks.file("a")).unwrap(), bytes);
    }

    /// Requirement 61. Whatever names go in come out again, in a file with exactly the five keys.
    #[test]
    fn records_come_back_as_they_went(worker in "[^\\p{Cc}]{1,60}", seconds in 1_u64..1_000_000, micros in 0..=4_000_000_000_000_000_i64) {
        let tasks = Tasks::new();
        let now = WallTime::from_micros(micros / 1_000 * 1_000);
        let ttl = Ttl::new(Duration::from_secs(seconds)).unwrap();
        let lock = locked(tasks.swarm().lock("a", &worker, Some(ttl), now).unwrap());
        let standing = tasks.swarm().show("a", now).unwrap().unwrap();
        prop_assert_eq!(standing.record.as_ref(), Some(lock.record()));
        prop_assert_eq!(tasks.read("a").as_object().unwrap().len(), 5);
    }
}
