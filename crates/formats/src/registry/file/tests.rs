//! The registry while other programs change it at the same time.

use std::os::unix::fs::symlink;

use super::*;
use crate::registry::Status;

fn registry() -> (tempfile::TempDir, Registry) {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::new(dir.path());
    (dir, registry)
}

fn text(registry: &Registry) -> String {
    fs::read_to_string(registry.path()).unwrap()
}

/// Requirements 101, 112.
#[test]
fn a_new_registry_starts_with_its_header() {
    let (_dir, registry) = registry();
    registry.append(&Entry::active("g", 7, 100)).unwrap();
    assert_eq!(text(&registry), format!("{HEADER}\ng:7:g:100:ACTIVE\n"));
    registry.edit(|ledger| ledger.end(Status::Released, 105, |_| true)).unwrap();
    assert_eq!(text(&registry), format!("{HEADER}\ng:7:g:100:RELEASED:105\n"));
    assert!(!registry.folder.join(".registry.tmp").exists());
}

#[test]
fn a_line_after_an_incomplete_one_starts_on_a_new_line() {
    let (_dir, registry) = registry();
    fs::write(registry.path(), "torn:1:to").unwrap();
    registry.append(&Entry::active("g", 7, 100)).unwrap();
    assert_eq!(text(&registry), "torn:1:to\ng:7:g:100:ACTIVE\n");
}

#[test]
fn a_line_that_is_appended_to_the_replaced_file_is_carried_over() {
    let (_dir, registry) = registry();
    registry.append(&Entry::active("g", 7, 100)).unwrap();
    let mut appender = fs::OpenOptions::new().append(true).open(registry.path()).unwrap();
    let mut late = Some(move || {
        appender.write_all(b"foreign:8:foreign:101:ACTIVE\n").unwrap();
    });
    registry
        .edit(|ledger| {
            if let Some(mut write) = late.take() {
                write();
            }
            ledger.end(Status::Released, 105, |entry| entry.pid == 7)
        })
        .unwrap();
    assert_eq!(text(&registry), format!("{HEADER}\ng:7:g:100:RELEASED:105\nforeign:8:foreign:101:ACTIVE\n"));
}

#[test]
fn a_file_that_was_replaced_in_between_is_read_again() {
    let (_dir, registry) = registry();
    registry.append(&Entry::active("g", 7, 100)).unwrap();
    let mut first = true;
    registry
        .edit(|ledger| {
            if std::mem::take(&mut first) {
                let other = registry.folder.join("sedXXXX");
                fs::write(&other, format!("{HEADER}\ng:7:g:100:ACTIVE\nby sed\n")).unwrap();
                fs::rename(&other, registry.path()).unwrap();
            }
            ledger.end(Status::Released, 105, |_| true)
        })
        .unwrap();
    assert_eq!(text(&registry), format!("{HEADER}\ng:7:g:100:RELEASED:105\nby sed\n"));
}

#[test]
fn a_long_registry_is_rotated_and_active_lines_stay() {
    let (_dir, registry) = registry();
    registry.append(&Entry::active("held", 1, 1)).unwrap();
    let finished: String = (0..3_000).map(|n| format!("g{n}:7:g{n}:100:RELEASED:{}\n", 100 + n)).collect();
    let mut file = fs::OpenOptions::new().append(true).open(registry.path()).unwrap();
    file.write_all(finished.as_bytes()).unwrap();
    assert!(text(&registry).len() > ROTATE_ABOVE);
    registry.append(&Entry::active("new", 2, 2)).unwrap();
    let now = text(&registry);
    assert!(now.len() <= ROTATE_ABOVE && now.starts_with(&format!("{HEADER}\nheld:1:held:1:ACTIVE\n")));
    assert!(now.ends_with("g2999:7:g2999:100:RELEASED:3099\nnew:2:new:2:ACTIVE\n"));
    let old = fs::read_to_string(registry.old_path()).unwrap();
    assert_eq!(old.lines().count() + now.lines().count(), 3_003);
}

/// Requirement 149.
#[test]
fn a_link_in_its_place_is_refused() {
    let (dir, registry) = registry();
    let victim = dir.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    symlink(&victim, registry.path()).unwrap();
    let entry = Entry::active("g", 7, 100);
    assert!(matches!(registry.append(&entry), Err(RegistryError::NotRegular { .. })));
    assert!(matches!(
        registry.edit(|ledger| ledger.push(entry.clone())),
        Err(RegistryError::NotRegular { .. })
    ));
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
}

/// Requirement 110.
#[test]
fn a_file_that_a_killed_writer_left_is_replaced() {
    let (_dir, registry) = registry();
    registry.append(&Entry::active("g", 7, 100)).unwrap();
    fs::write(registry.folder.join(".registry.tmp"), "half a li").unwrap();
    registry.edit(|ledger| ledger.end(Status::OrphanCleaned, 105, |_| true)).unwrap();
    assert_eq!(text(&registry), format!("{HEADER}\ng:7:g:100:ORPHAN_CLEANED\n"));
    assert!(!registry.folder.join(".registry.tmp").exists());
}
