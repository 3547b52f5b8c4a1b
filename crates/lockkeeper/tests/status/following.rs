//! Following a log through everything that happens to its files.

use std::fs;
use std::time::Duration;

use lockkeeper_formats::status::{Follow, Rotation, StatusLog};
use lockkeeper_testing::LIMIT;

use super::{line, write_foreign};

fn next(follow: &mut Follow) -> String {
    follow.next(Some(LIMIT)).unwrap().expect("the line was appended already").task().to_owned()
}

fn nothing_more(follow: &mut Follow) -> bool {
    follow.take().unwrap().is_none()
}

/// Requirement 69.
#[test]
fn a_waiting_follower_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let log = StatusLog::open(folder.path()).unwrap();
    log.append(&line("before", 0)).unwrap();
    let mut follow = log.follow().unwrap();
    assert!(nothing_more(&mut follow), "it follows from now on");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| next(&mut follow));
        log.append(&line("after", 0)).unwrap();
        assert_eq!(waiting.join().unwrap(), "after");
    });
    let mut from_start = log.follow_from_start().unwrap();
    assert_eq!([next(&mut from_start), next(&mut from_start)], ["before", "after"]);
}

/// Requirement 69.
#[test]
fn a_limit_ends_the_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let mut follow = StatusLog::open(folder.path()).unwrap().follow().unwrap();
    assert!(follow.next(Some(Duration::from_millis(20))).unwrap().is_none());
}

/// Requirement 69.
#[test]
fn a_folder_that_does_not_exist_yet_is_waited_for() {
    let temp = tempfile::tempdir().unwrap();
    let log = StatusLog::open(temp.path().join("later")).unwrap();
    let mut follow = log.follow().unwrap();
    assert!(nothing_more(&mut follow));
    log.append(&line("first", 0)).unwrap();
    assert_eq!(next(&mut follow), "first");
    fs::remove_dir_all(temp.path().join("later")).unwrap();
    log.append(&line("second", 0)).unwrap();
    assert_eq!(next(&mut follow), "second");
}

/// Requirements 69, 71.
#[test]
fn an_unfinished_line_is_waited_for_and_garbage_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let log = StatusLog::open(folder.path()).unwrap();
    let mut follow = log.follow_from_start().unwrap();
    let text = format!("{}\n", line("slow", 100).to_text());
    let (begin, end) = text.as_bytes().split_at(60);
    write_foreign(folder.path(), begin);
    assert!(nothing_more(&mut follow));
    write_foreign(folder.path(), end);
    assert_eq!(next(&mut follow), "slow");
    write_foreign(folder.path(), b"\n\n  \r\nnonsense\n\xff\n{}\n[1]\n");
    write_foreign(folder.path(), &b"x".repeat(3_000_000));
    write_foreign(folder.path(), b"\n");
    log.append(&line("after", 0)).unwrap();
    assert_eq!(next(&mut follow), "after");
    assert_eq!(follow.bad_lines(), 5);
}

/// Requirement 69.
#[test]
fn who_begins_in_the_middle_of_a_line_does_not_see_its_rest() {
    let folder = tempfile::tempdir().unwrap();
    let log = StatusLog::open(folder.path()).unwrap();
    write_foreign(folder.path(), b"{\"state\": ");
    let mut follow = log.follow().unwrap();
    write_foreign(folder.path(), b"\"DONE\"}\n");
    log.append(&line("next", 0)).unwrap();
    assert_eq!(next(&mut follow), "next");
    assert_eq!(follow.bad_lines(), 0);
}

/// Requirement 69.
#[test]
fn truncation_deletion_and_renaming_are_survived() {
    let folder = tempfile::tempdir().unwrap();
    let log = StatusLog::open(folder.path()).unwrap();
    let mut follow = log.follow_from_start().unwrap();
    log.append(&line("a", 500)).unwrap();
    assert_eq!(next(&mut follow), "a");
    fs::File::options().write(true).open(log.path()).unwrap().set_len(0).unwrap();
    log.append(&line("b", 0)).unwrap();
    assert_eq!(next(&mut follow), "b");
    fs::remove_file(log.path()).unwrap();
    log.append(&line("c", 0)).unwrap();
    assert_eq!(next(&mut follow), "c");
    fs::rename(log.path(), folder.path().join("status.log.1")).unwrap();
    log.append(&line("d", 0)).unwrap();
    assert_eq!(next(&mut follow), "d");
    assert!(nothing_more(&mut follow));
}

/// Requirements 52, 69.
#[test]
fn who_goes_on_writing_to_a_rotated_log_is_heard() {
    use std::io::Write;
    let folder = tempfile::tempdir().unwrap();
    let log = StatusLog::open(folder.path()).unwrap().with_rotation(Rotation { limit: 1000, keep: 2 });
    write_foreign(folder.path(), b"");
    let mut held_open = fs::File::options().append(true).open(log.path()).unwrap();
    let mut follow = log.follow().unwrap();
    log.append(&line("rotates", 1200)).unwrap();
    log.append(&line("new", 0)).unwrap();
    assert_eq!([next(&mut follow), next(&mut follow)], ["rotates", "new"]);
    writeln!(held_open, "{}", line("late", 0).to_text()).unwrap();
    assert_eq!(next(&mut follow), "late");
    assert!(nothing_more(&mut follow));
    assert!(super::tasks(&log).iter().any(|(task, lines)| task == "late" && *lines == 1));
}

/// Requirements 52, 69.
#[test]
fn every_line_is_seen_once_through_many_rotations() {
    let folder = tempfile::tempdir().unwrap();
    let log = StatusLog::open(folder.path()).unwrap().with_rotation(Rotation { limit: 2000, keep: 200 });
    let mut follow = log.follow_from_start().unwrap();
    let mut seen = Vec::new();
    for number in 0..600 {
        log.append(&line(&format!("{number:03}"), 300)).unwrap();
        if number % 7 == 0 {
            while let Some(line) = follow.take().unwrap() {
                seen.push(line.task().to_owned());
            }
        }
    }
    while let Some(line) = follow.take().unwrap() {
        seen.push(line.task().to_owned());
    }
    assert_eq!(seen, (0..600).map(|number| format!("{number:03}")).collect::<Vec<_>>());
}
