//! Whatever may lie at a lock file's path: a clear error, at once, and never a free lock.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::time::Duration;

use lockkeeper_formats::guard::GuardError;
use lockkeeper_formats::safe_open::UnsafeFile;
use lockkeeper_formats::swarm::{Attempt, SwarmError};
use lockkeeper_platform::wall_clock::WallTime;

use crate::support::{HOUR, Nest, age_file, names, record};

/// Every command answers with an error, and whatever is there stays as it is.
fn refuses(nest: &Nest, expected: fn(&UnsafeFile) -> bool) {
    let (swarm, now) = (nest.swarm(), WallTime::now());
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
    assert_eq!(nest.code(&["task", "lock", "a", "--worker", "w"]), 1);
    assert_eq!(
        nest.json(&["task", "lock", "a", "--worker", "w"])["error"]["reason_code"],
        "LOCK_FILE_HOSTILE"
    );
    assert_eq!(nest.names(), ["a.lock"]);
}

fn nest() -> Nest {
    let nest = Nest::new();
    fs::create_dir(nest.locks()).unwrap();
    nest
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
    let nest = nest();
    assert!(Command::new("mkfifo").arg(nest.file("a")).status().unwrap().success());
    refuses(&nest, is_kind);
}

#[test]
fn a_socket_is_refused() {
    let nest = nest();
    let _listener = UnixListener::bind(nest.file("a")).unwrap();
    refuses(&nest, is_kind);
}

#[test]
fn a_folder_is_refused() {
    let nest = nest();
    fs::create_dir(nest.file("a")).unwrap();
    refuses(&nest, is_kind);
}

#[test]
fn a_device_is_refused_where_one_can_be_made() {
    let nest = nest();
    let made = Command::new("mknod").arg(nest.file("a")).args(["c", "1", "5"]).output().unwrap();
    if !made.status.success() {
        eprintln!("skipped: making a device needs root: {}", String::from_utf8_lossy(&made.stderr));
        return;
    }
    refuses(&nest, is_kind);
}

/// A link is not followed, be it dangling, to a stale record or to a file of the user.
#[test]
fn a_symbolic_link_is_refused_and_what_it_leads_to_stays() {
    let nest = nest();
    let outside = nest.dir().join("outside");
    let stale = record("a", "w", HOUR, 1);
    for content in [None, Some(stale.as_str())] {
        if let Some(content) = content {
            fs::write(&outside, content).unwrap();
        }
        symlink(&outside, nest.file("a")).unwrap();
        refuses(&nest, is_kind);
        assert_eq!(fs::read_to_string(&outside).ok().as_deref(), content);
        fs::remove_file(nest.file("a")).unwrap();
    }
}

#[test]
fn a_hard_link_is_refused_and_what_it_shares_stays() {
    let nest = nest();
    let outside = nest.dir().join("outside");
    let stale = record("a", "w", HOUR, 1);
    fs::write(&outside, &stale).unwrap();
    fs::hard_link(&outside, nest.file("a")).unwrap();
    refuses(&nest, |error| matches!(error, UnsafeFile::Linked(2)));
    assert_eq!(fs::read_to_string(&outside).unwrap(), stale);
}

#[test]
fn a_huge_file_is_refused_unread() {
    let nest = nest();
    fs::File::create(nest.file("a")).unwrap().set_len(1 << 30).unwrap();
    refuses(&nest, |error| matches!(error, UnsafeFile::TooLarge(_)));
    fs::File::create(nest.file("a")).unwrap().set_len(64 * 1024 + 1).unwrap();
    refuses(&nest, |error| matches!(error, UnsafeFile::TooLarge(_)));
}

#[test]
fn a_file_of_another_user_is_refused_where_one_can_be_made() {
    let nest = nest();
    nest.write_record("a", "w", HOUR, 1);
    match std::os::unix::fs::chown(nest.file("a"), Some(stranger()), None) {
        Ok(()) => refuses(&nest, |error| matches!(error, UnsafeFile::Owner(owner) if *owner == stranger())),
        Err(error) => eprintln!("skipped: giving a file away needs root: {error}"),
    }
}

/// A folder that a stranger made where everybody may write is not used.
#[test]
fn a_folder_of_another_user_is_refused_where_one_can_be_made() {
    let nest = nest();
    if let Err(error) = std::os::unix::fs::chown(nest.dir(), Some(stranger()), None) {
        eprintln!("skipped: giving a folder away needs root: {error}");
        return;
    }
    let error = nest.swarm().lock("a", "w", None, WallTime::now()).map(drop).unwrap_err();
    let expected = matches!(error, SwarmError::ForeignFolder { owner, .. } if owner == stranger());
    assert!(expected, "{error:?}");
    assert!(nest.names().is_empty());
}

#[test]
fn a_link_in_place_of_the_lock_folder_is_not_followed() {
    let nest = Nest::new();
    let outside = tempfile::tempdir().unwrap();
    symlink(outside.path(), nest.locks()).unwrap();
    let error = nest.swarm().lock("a", "w", None, WallTime::now()).map(drop).unwrap_err();
    assert!(matches!(error, SwarmError::Guard(GuardError::Folder { .. })), "{error:?}");
    assert!(names(outside.path()).is_empty());
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
        let nest = Nest::new();
        nest.write("a", &content);
        age_file(&nest.file("a"), 24 * HOUR);
        let shown: String = content.chars().take(60).collect();
        let error = nest.swarm().lock("a", "w", None, now).map(drop).unwrap_err();
        let expected = matches!(error, SwarmError::NotUnderstood { .. } | SwarmError::AnotherTask { .. });
        assert!(expected, "{shown}: {error:?}");
        assert_eq!(nest.code(&["task", "lock", "a", "--worker", "w"]), 1, "{shown}");
        assert_eq!(fs::read_to_string(nest.file("a")).unwrap(), content);
    }
}

/// Requirement 204.
#[test]
fn ids_that_are_no_file_names_are_refused_before_anything_is_touched() {
    let nest = Nest::new();
    let long = "x".repeat(251);
    for task in
        ["", "a/b", "/etc/passwd", "..", "../x", "a..b", "a\0b", "a\nb", "a\u{1b}[2J", "a\u{7f}", &long]
    {
        let error = nest.swarm().lock(task, "w", None, WallTime::now()).map(drop).unwrap_err();
        assert!(matches!(error, SwarmError::Task(_)), "{task:?}: {error:?}");
    }
    for worker in ["", "a\nb", "a\0", &"x".repeat(256)] {
        let error = nest.swarm().lock("a", worker, None, WallTime::now()).map(drop).unwrap_err();
        assert!(matches!(error, SwarmError::Worker(_)), "{worker:?}: {error:?}");
    }
    assert!(names(nest.dir()).iter().all(|name| name == "locks"));
    assert!(!nest.locks().exists());
}

/// Requirement 204. Two ids never share a file.
#[test]
fn odd_ids_have_files_of_their_own() {
    let nest = Nest::new();
    let longest = "x".repeat(250);
    let tasks = ["a", "A.", ".", ".a", "a.lock", "-rf", " a", "任务 1", "a\\b", "%2F", "*", &longest];
    for task in tasks {
        let attempt = nest.swarm().lock(task, "w", None, WallTime::now()).unwrap();
        assert!(matches!(attempt, Attempt::Locked { .. }), "{task}");
    }
    assert_eq!(nest.names().len(), tasks.len());
    let mut sorted: Vec<String> = tasks.iter().map(|task| (*task).to_owned()).collect();
    sorted.sort();
    assert_eq!(nest.swarm().tasks().unwrap(), sorted);
}

/// Somebody who has the folder locked for good is told of, not waited for.
#[test]
fn a_folder_that_stays_locked_is_an_error_after_a_while() {
    let nest = nest();
    let folder = fs::File::open(nest.locks()).unwrap();
    folder.lock().unwrap();
    let began = std::time::Instant::now();
    let error = nest.swarm().lock("a", "w", None, WallTime::now()).map(drop).unwrap_err();
    assert!(matches!(error, SwarmError::Guard(GuardError::Stuck { .. })), "{error:?}");
    assert!(began.elapsed() >= Duration::from_secs(9));
    folder.unlock().unwrap();
    assert!(matches!(nest.swarm().lock("a", "w", None, WallTime::now()).unwrap(), Attempt::Locked { .. }));
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error_and_a_held_lock_in_it_is_seen() {
    if rustix::process::geteuid().is_root() {
        eprintln!("skipped: root may write anywhere");
        return;
    }
    let nest = nest();
    nest.write_record("held", "w", Duration::ZERO, 300);
    fs::set_permissions(nest.locks(), fs::Permissions::from_mode(0o500)).unwrap();
    let error = nest.swarm().lock("a", "w", None, WallTime::now()).map(drop).unwrap_err();
    assert!(matches!(error, SwarmError::Guard(GuardError::Write { .. })), "{error:?}");
    assert!(matches!(nest.swarm().lock("held", "w2", None, WallTime::now()).unwrap(), Attempt::Busy(_)));
    fs::set_permissions(nest.locks(), fs::Permissions::from_mode(0o700)).unwrap();
}
