//! Hostile files at the path of a lock: a clear error at once, and never a free lock.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::time::Duration;

use lockkeeper_formats::guard::GuardError;
use lockkeeper_formats::safe_open::UnsafeFile;
use lockkeeper_formats::swarm::{Attempt, SwarmError};
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_testing::{Finished, files, is_root, skip};

use crate::tasks::{HOUR, Tasks, record};

/// Asserts that every command refuses the file at the path, and leaves it as it is.
fn refuses(tasks: &Tasks, expected: fn(&UnsafeFile) -> bool) {
    let (swarm, now) = (tasks.swarm(), WallTime::now());
    let errors = [
        swarm.lock("a", "w", None, now).map(drop).unwrap_err(),
        swarm.heartbeat("a", "w", None, now).map(drop).unwrap_err(),
        swarm.unlock("a", "w", now).map(drop).unwrap_err(),
        swarm.show("a", now).map(drop).unwrap_err(),
    ];
    for error in errors {
        match &error {
            SwarmError::Guard(GuardError::UnsafeFile { source, .. }) if expected(source) => {
                assert!(!error.hint().is_empty());
            }
            other => panic!("{other:?}"),
        }
    }
    tasks.run(&["task", "lock", "a", "--worker", "w"]).code(1);
    assert_eq!(
        tasks.json(&["task", "lock", "a", "--worker", "w"])["error"]["reason_code"],
        "LOCK_FILE_HOSTILE"
    );
    assert_eq!(tasks.names(), ["a.lock"]);
}

/// A user that we are not.
fn stranger() -> u32 {
    rustix::process::geteuid().as_raw() + 1
}

fn is_kind(error: &UnsafeFile) -> bool {
    matches!(error, UnsafeFile::Kind(_))
}

#[test]
fn a_fifo_is_refused_and_nobody_hangs() {
    let tasks = Tasks::with_locks();
    files::make_fifo(&tasks.file("a"));
    refuses(&tasks, is_kind);
}

#[test]
fn a_socket_is_refused() {
    let tasks = Tasks::with_locks();
    let _listener = UnixListener::bind(tasks.file("a")).unwrap();
    refuses(&tasks, is_kind);
}

#[test]
fn a_folder_is_refused() {
    let tasks = Tasks::with_locks();
    fs::create_dir(tasks.file("a")).unwrap();
    refuses(&tasks, is_kind);
}

#[test]
fn a_device_is_refused_where_one_can_be_made() {
    let tasks = Tasks::with_locks();
    let made = Finished::of(Command::new("mknod").arg(tasks.file("a")).args(["c", "1", "5"]));
    if !made.succeeded() {
        return skip("root, to make a device");
    }
    refuses(&tasks, is_kind);
}

/// A link is not followed, be it dangling, to a stale record or to a file of the user.
#[test]
fn a_symbolic_link_is_refused_and_what_it_leads_to_stays() {
    let tasks = Tasks::with_locks();
    let outside = tasks.dir().join("outside");
    let stale = record("a", "w", HOUR, 1);
    for content in [None, Some(stale.as_str())] {
        if let Some(content) = content {
            fs::write(&outside, content).unwrap();
        }
        symlink(&outside, tasks.file("a")).unwrap();
        refuses(&tasks, is_kind);
        assert_eq!(fs::read_to_string(&outside).ok().as_deref(), content);
        fs::remove_file(tasks.file("a")).unwrap();
    }
}

#[test]
fn a_hard_link_is_refused_and_what_it_shares_stays() {
    let tasks = Tasks::with_locks();
    let outside = tasks.dir().join("outside");
    let stale = record("a", "w", HOUR, 1);
    fs::write(&outside, &stale).unwrap();
    fs::hard_link(&outside, tasks.file("a")).unwrap();
    refuses(&tasks, |error| matches!(error, UnsafeFile::Linked(2)));
    assert_eq!(fs::read_to_string(&outside).unwrap(), stale);
}

#[test]
fn a_huge_file_is_refused_unread() {
    let tasks = Tasks::with_locks();
    fs::File::create(tasks.file("a")).unwrap().set_len(1 << 30).unwrap();
    refuses(&tasks, |error| matches!(error, UnsafeFile::TooLarge(_)));
    fs::File::create(tasks.file("a")).unwrap().set_len(64 * 1024 + 1).unwrap();
    refuses(&tasks, |error| matches!(error, UnsafeFile::TooLarge(_)));
}

#[test]
fn a_file_of_another_user_is_refused_where_one_can_be_made() {
    let tasks = Tasks::with_locks();
    tasks.write_record("a", "w", HOUR, 1);
    if std::os::unix::fs::chown(tasks.file("a"), Some(stranger()), None).is_err() {
        return skip("root, to give a file to another user");
    }
    refuses(&tasks, |error| matches!(error, UnsafeFile::Owner(owner) if *owner == stranger()));
}

/// A folder that a stranger made where everybody may write is not used.
#[test]
fn a_folder_of_another_user_is_refused_where_one_can_be_made() {
    let tasks = Tasks::with_locks();
    if std::os::unix::fs::chown(tasks.dir(), Some(stranger()), None).is_err() {
        return skip("root, to give a folder to another user");
    }
    let error = tasks.swarm().lock("a", "w", None, WallTime::now()).map(drop).unwrap_err();
    let expected = matches!(error, SwarmError::ForeignFolder { owner, .. } if owner == stranger());
    assert!(expected, "{error:?}");
    assert!(tasks.names().is_empty());
}

#[test]
fn a_link_in_place_of_the_lock_folder_is_not_followed() {
    let tasks = Tasks::new();
    let outside = tempfile::tempdir().unwrap();
    symlink(outside.path(), tasks.locks()).unwrap();
    let error = tasks.swarm().lock("a", "w", None, WallTime::now()).map(drop).unwrap_err();
    assert!(matches!(error, SwarmError::Guard(GuardError::Folder { .. })), "{error:?}");
    assert!(files::names(outside.path()).is_empty());
}

/// Invariants 5, 12. Whole JSON that is no record of ours counts as held, at any age.
#[test]
fn what_cannot_be_understood_is_never_free() {
    let now = WallTime::now();
    let deep = format!("{}{}", "[".repeat(30_000), "]".repeat(30_000));
    let deep_object = format!("{}1{}", "{\"a\":".repeat(9_000), "}".repeat(9_000));
    let stale = record("a", "w", HOUR, 1);
    let contents = [
        deep,
        deep_object,
        "[]".to_owned(),
        "{}".to_owned(),
        "null".to_owned(),
        "lock".to_owned(),
        "\u{feff}{}".to_owned(),
        stale.replace("worker_id", "worker"),
        stale.replace("\"ttl\":1", "\"ttl\":-1"),
        stale.replace("\"ttl\":1", "\"ttl\":\"1\""),
        stale.replace("\"ttl\":1", "\"ttl\":null"),
        stale.replace("heartbeat_at", "heartbeat"),
        stale.replace("\"task_id\":\"a\"", "\"task_id\":\"b\""),
        format!("{stale}{stale}"),
    ];
    for content in contents {
        let tasks = Tasks::new();
        tasks.write("a", &content);
        files::set_age(&tasks.file("a"), 24 * HOUR);
        let shown: String = content.chars().take(60).collect();
        let error = tasks.swarm().lock("a", "w", None, now).map(drop).unwrap_err();
        let expected = matches!(error, SwarmError::NotUnderstood { .. } | SwarmError::AnotherTask { .. });
        assert!(expected, "{shown}: {error:?}");
        tasks.run(&["task", "lock", "a", "--worker", "w"]).code(1);
        assert_eq!(fs::read_to_string(tasks.file("a")).unwrap(), content);
    }
}

/// Requirement 204.
#[test]
fn ids_that_are_no_file_names_are_refused_before_anything_is_touched() {
    let tasks = Tasks::new();
    let long = "x".repeat(251);
    for task in [
        "",
        ".",
        "-rf",
        "a/b",
        "/etc/passwd",
        "..",
        "../x",
        "a..b",
        "a\0b",
        "a\nb",
        "a\u{1b}[2J",
        "a\u{7f}",
        &long,
    ] {
        let error = tasks.swarm().lock(task, "w", None, WallTime::now()).map(drop).unwrap_err();
        assert!(matches!(error, SwarmError::Task(_)), "{task:?}: {error:?}");
    }
    for worker in ["", "a\nb", "a\0", &"x".repeat(256)] {
        let error = tasks.swarm().lock("a", worker, None, WallTime::now()).map(drop).unwrap_err();
        assert!(matches!(error, SwarmError::Worker(_)), "{worker:?}: {error:?}");
    }
    assert_eq!(files::names(&tasks.dir()), [""; 0]);
}

/// Requirement 204. Two ids never share a file.
#[test]
fn odd_ids_have_files_of_their_own() {
    let tasks = Tasks::new();
    let longest = "x".repeat(250);
    let ids = ["a", "A.", ".a", "a.lock", " a", "任务 1", "a\\b", "%2F", "*", &longest];
    for task in ids {
        let attempt = tasks.swarm().lock(task, "w", None, WallTime::now()).unwrap();
        assert!(matches!(attempt, Attempt::Locked { .. }), "{task}");
    }
    assert_eq!(tasks.names().len(), ids.len());
    let mut sorted: Vec<String> = ids.iter().map(|task| (*task).to_owned()).collect();
    sorted.sort();
    assert_eq!(tasks.swarm().tasks().unwrap(), sorted);
}

/// When another process keeps the folder locked, the command fails after ten seconds.
#[test]
fn a_folder_that_stays_locked_is_an_error_after_a_while() {
    let tasks = Tasks::with_locks();
    let folder = fs::File::open(tasks.locks()).unwrap();
    folder.lock().unwrap();
    let began = std::time::Instant::now();
    let error = tasks.swarm().lock("a", "w", None, WallTime::now()).map(drop).unwrap_err();
    assert!(matches!(error, SwarmError::Guard(GuardError::Stuck { .. })), "{error:?}");
    assert!(began.elapsed() >= Duration::from_secs(9));
    folder.unlock().unwrap();
    assert!(matches!(tasks.swarm().lock("a", "w", None, WallTime::now()).unwrap(), Attempt::Locked { .. }));
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error_and_a_held_lock_in_it_is_seen() {
    if is_root() {
        return skip("a user who is not root: root may write anywhere");
    }
    let tasks = Tasks::with_locks();
    tasks.write_record("held", "w", Duration::ZERO, 300);
    fs::set_permissions(tasks.locks(), fs::Permissions::from_mode(0o500)).unwrap();
    let error = tasks.swarm().lock("a", "w", None, WallTime::now()).map(drop).unwrap_err();
    assert!(matches!(error, SwarmError::Guard(GuardError::Write { .. })), "{error:?}");
    assert!(matches!(tasks.swarm().lock("held", "w2", None, WallTime::now()).unwrap(), Attempt::Busy(_)));
    fs::set_permissions(tasks.locks(), fs::Permissions::from_mode(0o700)).unwrap();
}
