//! The takeover protocol step by step, and with foreign programs in between.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::safe_open::{FileName, Snapshot};
use crate::{HeldReason, StaleReason, Verdict};

fn lock_in(dir: &Path) -> LockFile {
    LockFile::new(Folder::open(dir).unwrap(), FileName::new("a.lock").unwrap(), 0o600, |content| {
        content.starts_with(b"record")
    })
}

fn stale(_: &Snapshot) -> Verdict {
    Verdict::Stale(StaleReason::Expired)
}

fn held(_: &Snapshot) -> Verdict {
    Verdict::Held(HeldReason::InTime)
}

fn take(dir: &Path, content: &str, judge: fn(&Snapshot) -> Verdict) -> Take {
    lock_in(dir).take(content.as_bytes(), &mut |snapshot| judge(snapshot)).unwrap()
}

fn taken(take: Take) -> Held {
    match take {
        Take::Taken { held, .. } => held,
        Take::Busy { verdict, .. } => panic!("busy: {verdict}"),
    }
}

fn names(dir: &Path) -> Vec<PathBuf> {
    let mut names: Vec<PathBuf> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into()).collect();
    names.sort();
    names
}

#[test]
fn a_lock_is_taken_held_and_released_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let first = taken(take(dir.path(), "record 1", held));
    let path = dir.path().join("a.lock");
    assert_eq!(fs::read_to_string(&path).unwrap(), "record 1");
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    match take(dir.path(), "record 2", held) {
        Take::Busy { snapshot: Some(snapshot), verdict: Verdict::Held(HeldReason::InTime) } => {
            assert_eq!(snapshot.bytes(), b"record 1");
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(first.release().unwrap(), Removal::Removed(_)));
    assert!(names(dir.path()).is_empty());
}

#[test]
fn a_stale_record_is_replaced_and_its_holder_learns_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut old = taken(take(dir.path(), "record 1", held));
    assert!(matches!(old.heartbeat(b"record 1b").unwrap(), Heartbeat::Kept));
    match take(dir.path(), "record 2", stale) {
        Take::Taken { replaced: Some(replaced), .. } => assert_eq!(replaced.bytes(), b"record 1b"),
        other => panic!("{other:?}"),
    }
    match old.heartbeat(b"record 1c").unwrap() {
        Heartbeat::Lost(Some(instead)) => assert_eq!(instead.bytes(), b"record 2"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(old.release().unwrap(), Removal::Lost(_)));
    assert_eq!(fs::read_to_string(dir.path().join("a.lock")).unwrap(), "record 2");
    assert_eq!(names(dir.path()), [Path::new("a.lock")]);
}

#[test]
fn heartbeats_alternate_between_two_files_and_never_make_one_shorter() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.lock");
    let mut lock = taken(take(dir.path(), "record long", held));
    let mut inodes = vec![path.metadata().unwrap().ino()];
    for content in ["record b", "record c", "record d much longer", "record e"] {
        assert!(matches!(lock.heartbeat(content.as_bytes()).unwrap(), Heartbeat::Kept));
        assert_eq!(fs::read_to_string(&path).unwrap().trim_end(), content);
        inodes.push(path.metadata().unwrap().ino());
        assert_eq!(names(dir.path()).len(), 2);
    }
    assert_eq!(inodes[0], inodes[2]);
    assert_eq!(inodes[1], inodes[3]);
    assert!(matches!(lock.release().unwrap(), Removal::Removed(_)));
    assert!(names(dir.path()).is_empty());
}

#[test]
fn files_of_killed_processes_are_swept_and_the_spare_of_a_live_holder_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let orphan = dir.path().join(".lockkeeper-0123456789abcdef.tmp");
    let strangers = [".lockkeeper-notes.tmp", ".lockkeeper-0123456789abcdeg.tmp", "b.lock", "b.tmp"];
    fs::write(&orphan, "half a rec").unwrap();
    for stranger in strangers {
        fs::write(dir.path().join(stranger), "").unwrap();
    }
    let mut living = taken(take(dir.path(), "record 1", held));
    living.heartbeat(b"record 1b").unwrap();
    assert!(!orphan.exists());
    let other =
        LockFile::new(Folder::open(dir.path()).unwrap(), FileName::new("other.lock").unwrap(), 0o600, |_| {
            true
        });
    drop(other.take(b"record", &mut |snapshot| held(snapshot)).unwrap());
    assert!(matches!(living.heartbeat(b"record 1c").unwrap(), Heartbeat::Kept));
    for stranger in strangers {
        assert!(dir.path().join(stranger).exists(), "{stranger}");
    }
}

/// Requirement 202.
#[test]
fn a_record_that_another_program_wrote_into_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let mut lock = taken(take(dir.path(), "record 1", held));
    fs::write(dir.path().join("a.lock"), "record 2").unwrap();
    assert!(matches!(lock.heartbeat(b"record 1b").unwrap(), Heartbeat::Lost(Some(_))));
    assert!(matches!(lock.release().unwrap(), Removal::Lost(_)));
    assert_eq!(fs::read_to_string(dir.path().join("a.lock")).unwrap(), "record 2");
}

/// A foreign program replaces the record after we judged it stale: we have to give way.
#[test]
fn a_record_that_changed_after_it_was_judged_is_put_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.lock");
    let beside = dir.path().join("beside");
    fs::write(&path, "record old").unwrap();
    fs::write(&beside, "record revived").unwrap();
    let mut judge = |snapshot: &Snapshot| {
        let _ = fs::rename(&beside, &path);
        stale(snapshot)
    };
    match lock_in(dir.path()).take(b"record 2", &mut judge).unwrap() {
        Take::Busy { snapshot: Some(snapshot), verdict: Verdict::Held(HeldReason::Changed) } => {
            assert_eq!(snapshot.bytes(), b"record revived");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "record revived");
    assert_eq!(names(dir.path()), [Path::new("a.lock")]);
}

/// A foreign program writes into the record after we judged it: the same file, with other content.
#[test]
fn a_record_that_was_rewritten_in_place_after_it_was_judged_is_put_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.lock");
    fs::write(&path, "record old").unwrap();
    let mut judge = |snapshot: &Snapshot| {
        fs::write(&path, "record new").unwrap();
        stale(snapshot)
    };
    let outcome = lock_in(dir.path()).take(b"record 2", &mut judge).unwrap();
    assert!(matches!(outcome, Take::Busy { verdict: Verdict::Held(HeldReason::Changed), .. }));
    assert_eq!(fs::read_to_string(&path).unwrap(), "record new");
}

#[test]
fn a_stale_record_that_vanishes_is_no_obstacle() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.lock");
    fs::write(&path, "record old").unwrap();
    let mut judge = |snapshot: &Snapshot| {
        fs::remove_file(&path).unwrap();
        stale(snapshot)
    };
    let outcome = lock_in(dir.path()).take(b"record 2", &mut judge).unwrap();
    assert!(matches!(outcome, Take::Taken { .. }), "{outcome:?}");
}

/// Requirement 202. A command that is not the holder neither renews nor removes the record.
#[test]
fn commands_renew_and_remove_only_what_they_recognise() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.lock");
    drop(taken(take(dir.path(), "record 1", held)));
    let lock = lock_in(dir.path());
    assert!(matches!(lock.renew(&mut |_| None).unwrap(), Renewal::Lost(Some(_))));
    assert!(matches!(lock.remove(&mut |_| false).unwrap(), Removal::Lost(_)));
    assert!(matches!(lock.renew(&mut |_| Some(b"record 1b".to_vec())).unwrap(), Renewal::Renewed));
    assert_eq!(fs::read_to_string(&path).unwrap(), "record 1b");
    assert!(matches!(lock.remove(&mut |_| true).unwrap(), Removal::Removed(_)));
    assert!(matches!(lock.remove(&mut |_| true).unwrap(), Removal::Absent));
    assert!(matches!(lock.renew(&mut |_| panic!("nothing is there")).unwrap(), Renewal::Lost(None)));
    assert!(names(dir.path()).is_empty());
}

#[test]
fn content_that_is_not_a_record_is_never_published() {
    let dir = tempfile::tempdir().unwrap();
    let outcome = lock_in(dir.path()).take(b"rubbish", &mut |snapshot| held(snapshot));
    assert!(matches!(outcome, Err(GuardError::ReadBack { .. })));
    assert!(names(dir.path()).is_empty());
}

#[test]
fn a_probe_says_how_records_are_replaced_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let strength = Folder::open(dir.path()).unwrap().probe().unwrap();
    assert!(matches!(strength, ReplaceMethod::Exchange | ReplaceMethod::TwoRenames));
    assert!(names(dir.path()).is_empty());
    assert!(matches!(Folder::open(&dir.path().join("missing")), Err(GuardError::Folder { .. })));
}

/// Requirement 201. A reader that opens the path at any time sees a complete record.
#[test]
fn readers_see_whole_records_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.lock");
    let mut lock = taken(take(dir.path(), "record 0000", held));
    let reads = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            for _ in 0..500 {
                let text = fs::read_to_string(&path).unwrap();
                assert!(text.starts_with("record ") && text.trim_end().len() == 11, "{text:?}");
                reads.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut number = 0;
        while number < 500 || (reads.load(Ordering::Relaxed) < 500 && !reader.is_finished()) {
            let record = format!("record {:04}", number % 10_000);
            assert!(matches!(lock.heartbeat(record.as_bytes()).unwrap(), Heartbeat::Kept));
            number += 1;
        }
    });
}
