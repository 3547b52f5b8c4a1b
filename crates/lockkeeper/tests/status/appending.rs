//! Appending to a log that others tore, moved, deleted, or put something else in the place of.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use lockkeeper_formats::status::{Rotation, StatusError, StatusLog};
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_testing::{Finished, files};

use super::{line, tasks, write_foreign};

/// Requirement 57.
#[test]
fn the_folder_is_made_for_its_owner_only_with_the_first_line() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("a/swarm");
    let log = StatusLog::open(&folder).unwrap();
    assert_eq!(tasks(&log), []);
    assert!(!folder.exists(), "who only looks leaves nothing behind");
    log.append(&line("t", 0)).unwrap();
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder), mode(&folder.join("status.log"))), (0o700, 0o600));
    assert_eq!(tasks(&log), [("t".to_owned(), 1)]);
}

/// Requirements 52, 71.
#[test]
fn a_torn_line_costs_itself_only() {
    let folder = tempfile::tempdir().unwrap();
    let log = StatusLog::open(folder.path()).unwrap();
    log.append(&line("a", 10)).unwrap();
    write_foreign(folder.path(), b"{\"state\": \"DO");
    log.append(&line("b", 10)).unwrap();
    write_foreign(folder.path(), b"\xff\xfe garbage");
    let other = StatusLog::open(folder.path()).unwrap();
    other.append(&line("c", 10)).unwrap();
    log.append(&line("d", 10)).unwrap();
    let whole = ["a", "b", "c", "d"].map(|task| (task.to_owned(), 1));
    assert_eq!(tasks(&log), whole);
    assert_eq!(log.summary(WallTime::now()).unwrap().bad_lines, 2);
}

/// Requirement 52.
#[test]
fn a_line_cut_short_by_a_full_disk_does_not_harm_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let log = StatusLog::open(folder.path()).unwrap();
    log.append(&line("before", 100)).unwrap();
    // A limit on the size of files cuts a write short as a full disk does: some bytes, then an error.
    let script = r#"trap '' XFSZ; ulimit -f 8; exec "$0" status emit START --task cut --message "$1""#;
    let message = "x".repeat(20_000);
    let mut cut_short = Command::new("sh");
    cut_short.args(["-c", script, env!("CARGO_BIN_EXE_lockkeeper"), &message]);
    Finished::of(cut_short.env("AI_SWARM_DIR", folder.path())).code(1).says("cannot write to");
    let torn = fs::metadata(log.path()).unwrap().len();
    assert!(torn > 1000, "the line was cut at {torn}, which is what this test is about");
    log.append(&line("after", 100)).unwrap();
    assert_eq!(tasks(&log), [("after".to_owned(), 1), ("before".to_owned(), 1)]);
    assert_eq!(log.summary(WallTime::now()).unwrap().bad_lines, 1);
}

#[test]
fn a_log_that_was_moved_or_deleted_is_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let log = StatusLog::open(folder.path()).unwrap();
    log.append(&line("a", 0)).unwrap();
    fs::rename(log.path(), folder.path().join("elsewhere")).unwrap();
    log.append(&line("b", 0)).unwrap();
    assert_eq!(tasks(&log), [("b".to_owned(), 1)]);
    fs::remove_file(log.path()).unwrap();
    log.append(&line("c", 0)).unwrap();
    assert_eq!(tasks(&log), [("c".to_owned(), 1)]);
    fs::remove_dir_all(folder.path()).unwrap();
    log.append(&line("d", 0)).unwrap();
    assert_eq!(tasks(&log), [("d".to_owned(), 1)]);
}

#[test]
fn rotation_keeps_as_many_as_it_was_told() {
    let folder = tempfile::tempdir().unwrap();
    let rotation = Rotation { limit: 1000, keep: 3 };
    let log = StatusLog::open(folder.path()).unwrap().with_rotation(rotation);
    for number in 0..8 {
        log.append(&line(&number.to_string(), 1200)).unwrap();
    }
    assert_eq!(files::names(folder.path()), ["status.log.1", "status.log.2", "status.log.3"]);
    assert_eq!(tasks(&log), ["5", "6", "7"].map(|task| (task.to_owned(), 1)));
}

#[test]
fn a_gap_that_a_crash_left_is_filled_before_anything_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let log = StatusLog::open(folder.path()).unwrap().with_rotation(Rotation { limit: 1000, keep: 3 });
    for number in 0..3 {
        log.append(&line(&number.to_string(), 1200)).unwrap();
    }
    // As after a death between the second and the third rename.
    fs::rename(folder.path().join("status.log.1"), log.path()).unwrap();
    log.append(&line("3", 1200)).unwrap();
    assert_eq!(tasks(&log), ["0", "1", "2", "3"].map(|task| (task.to_owned(), 1)));
}

#[test]
fn what_is_not_a_log_is_refused_and_nothing_hangs() {
    let temp = tempfile::tempdir().unwrap();
    let outside = temp.path().join("outside");
    let place = |name: &str, make: &dyn Fn(&std::path::Path)| {
        let folder = temp.path().join(name);
        fs::create_dir(&folder).unwrap();
        make(&folder.join("status.log"));
        StatusLog::open(folder).unwrap()
    };
    let logs = [
        place("link", &|path| symlink(&outside, path).unwrap()),
        place("folder", &|path| fs::create_dir(path).unwrap()),
        place("fifo", &|path| files::make_fifo(path)),
        place("socket", &|path| drop(std::os::unix::net::UnixListener::bind(path).unwrap())),
    ];
    for log in logs {
        let path = log.path().to_owned();
        let refused = |error: StatusError| {
            assert!(error.to_string().contains("status.log"), "{error}");
            assert!(error.hint().contains("AI_SWARM_DIR"), "{path:?}");
        };
        refused(log.append(&line("t", 0)).unwrap_err());
        refused(log.summary(WallTime::now()).unwrap_err());
        refused(log.follow().unwrap_err());
    }
    assert!(!outside.exists());
}

#[test]
fn a_folder_that_anybody_could_have_linked_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    let (public, target) = (temp.path().join("public"), temp.path().join("target"));
    fs::create_dir(&public).unwrap();
    fs::create_dir(&target).unwrap();
    let link = public.join("ai_swarm");
    symlink(&target, &link).unwrap();
    StatusLog::open(&link).unwrap().append(&line("own", 0)).unwrap();
    fs::set_permissions(&public, fs::Permissions::from_mode(0o1777)).unwrap();
    assert!(matches!(StatusLog::open(&link), Err(StatusError::PlantedFolder { .. })));
}

#[test]
fn something_else_under_an_old_name_does_not_stop_anybody() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("status.log.1")).unwrap();
    symlink("/dev/zero", folder.path().join("status.log.7")).unwrap();
    fs::write(folder.path().join("status.log.01"), "garbage\n").unwrap();
    let log = StatusLog::open(folder.path()).unwrap().with_rotation(Rotation { limit: 10, keep: 1 });
    log.append(&line("a", 0)).unwrap();
    log.append(&line("b", 0)).unwrap();
    assert_eq!(tasks(&log), ["a", "b"].map(|task| (task.to_owned(), 1)));
    assert_eq!(log.summary(WallTime::now()).unwrap().bad_lines, 0);
}
