//! Paths that somebody else prepared, and folders that cannot be used.

use std::os::unix::fs::symlink;
use std::process::Command;

use crate::site::{Site, exists, is_installed, text};

/// Requirement 149.
#[test]
fn names_that_leave_the_folder_are_refused_before_anything_is_touched() {
    let site = Site::new();
    let long = "x".repeat(300);
    for name in ["", "..", "../x", "a/b", "/tmp/x", "a:b", "a\nb", &long] {
        let output = site.run(&["exec", "--", "true"]);
        assert_eq!(output.status.code(), Some(2));
        let output = site.run(&["exec", name, "--", "true"]);
        assert_eq!(output.status.code(), Some(2), "{name:?}");
        assert!(text(&output.stderr).contains("hint:"), "{name:?}");
    }
    assert!(!site.locks().exists());
}

/// Requirements 148, 149.
#[test]
fn what_is_not_a_lock_file_is_neither_followed_nor_waited_for() {
    let site = Site::new();
    assert!(site.run(&["path", "first"]).status.success());
    let victim = site.dir.path().join("victim");
    symlink(&victim, site.lock_file("link")).unwrap();
    std::fs::create_dir(site.lock_file("folder")).unwrap();
    symlink("/dev/null", site.lock_file("device")).unwrap();
    assert!(Command::new("mkfifo").arg(site.lock_file("fifo")).status().unwrap().success());
    for name in ["link", "folder", "device", "fifo"] {
        let output = site.run(&["exec", name, "--", "true"]);
        assert_eq!(output.status.code(), Some(1), "{name}: {output:?}");
        assert!(text(&output.stderr).contains("hint:"), "{name}");
    }
    assert!(!exists(&victim) && !exists(&site.fallback()));
}

/// Requirements 148, 149.
#[test]
fn a_file_of_another_user_is_not_locked() {
    let site = Site::new();
    assert!(site.run(&["path", "g"]).status.success());
    if std::os::unix::fs::chown(site.lock_file("g"), Some(12_345), None).is_err() {
        println!("SKIPPED: needs the right to give files away");
        return;
    }
    let output = site.run(&["exec", "g", "--", "true"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("belongs to user 12345"), "{output:?}");
}

/// Requirement 149.
#[test]
fn a_file_in_place_of_the_folder_is_an_error() {
    let site = Site::new();
    std::fs::write(site.locks(), "mine").unwrap();
    let output = site.run(&["exec", "g", "--", "true"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(std::fs::read_to_string(site.locks()).unwrap(), "mine");
}

/// Runs a script in a mount namespace of its own; none without the right to.
fn in_namespace(site: &Site, script: &str) -> Option<std::process::Output> {
    if !is_installed("unshare") {
        return None;
    }
    let probe = "mkdir -p \"$LOCK_DIR\" && mount -t tmpfs none \"$LOCK_DIR\"";
    let run = |script: &str| site.command("unshare").args(["-m", "sh", "-c", script]).output().unwrap();
    if run(probe).status.success() {
        return Some(run(script));
    }
    println!("SKIPPED: needs the right to mount");
    None
}

/// Requirement 114.
#[test]
fn a_full_folder_gives_way_to_the_cache_folder_and_stays_given_way_to() {
    let site = Site::new();
    // Inodes for the folder, the registry, one lock file and nothing else.
    let script = r#"
        set -e
        mount -t tmpfs -o nr_inodes=3,size=1m none "$LOCK_DIR"
        "$LK" group exec a -- true
        "$LK" group exec b -- sh -c 'test -e "$HOME/.cache/ce_locks/b.lock" && ! flock -n "$HOME/.cache/ce_locks/b.lock" true && echo "b is held there"' 2>told
        grep -q "^warning: .*No space left" told
        "$LK" group exec a -- sh -c 'test -e "$LOCK_DIR/a.lock" && ! flock -n "$LOCK_DIR/a.lock" true && echo "a is held here"'
        mount -o remount,nr_inodes=100 "$LOCK_DIR"
        "$LK" group exec b -- sh -c 'test -e "$HOME/.cache/ce_locks/b.lock" && ! flock -n "$HOME/.cache/ce_locks/b.lock" true && echo "b stays there"' 2>told
        grep -q "could not hold it before" told
        "$LK" group exec c -- sh -c 'test -e "$LOCK_DIR/c.lock" && ! flock -n "$LOCK_DIR/c.lock" true && echo "c is held here"'
        "$LK" group status --json"#;
    let Some(output) = in_namespace(&site, script) else { return };
    assert!(output.status.success(), "{output:?}");
    let told = text(&output.stdout);
    let (lines, status) = told.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(
        lines.lines().collect::<Vec<_>>(),
        ["b is held there", "a is held here", "b stays there", "c is held here"]
    );
    let status: serde_json::Value = serde_json::from_str(status).unwrap();
    let groups: Vec<&str> =
        status["groups"].as_array().unwrap().iter().map(|g| g["group"].as_str().unwrap()).collect();
    assert_eq!(groups, ["a", "c", "b"]);
}

/// Requirement 114.
#[test]
fn a_full_disk_first_loses_its_old_logs() {
    let site = Site::new();
    let script = r#"
        set -e
        mount -t tmpfs -o nr_inodes=4,size=1m none "$LOCK_DIR"
        "$LK" group exec a -- true
        echo "old:1:old:1:RELEASED:2" >"$LOCK_DIR/registry.log.1"
        "$LK" group exec b -- sh -c 'test -e "$LOCK_DIR/b.lock" && ! flock -n "$LOCK_DIR/b.lock" true && echo "b is held here"'
        [ ! -e "$LOCK_DIR/registry.log.1" ]"#;
    let Some(output) = in_namespace(&site, script) else { return };
    assert!(output.status.success(), "{output:?}");
    assert_eq!(text(&output.stdout), "b is held here\n");
}

/// Requirement 114.
#[test]
fn a_read_only_folder_still_locks_what_is_there_and_nothing_is_held_twice() {
    let site = Site::new();
    let script = r#"
        set -e
        mount -t tmpfs none "$LOCK_DIR"
        "$LK" group exec a -- true
        mount -o remount,ro "$LOCK_DIR"
        "$LK" group exec a -- sh -c 'test -e "$LOCK_DIR/a.lock" && ! flock -n "$LOCK_DIR/a.lock" true && echo "a is held here"' 2>told
        grep -q "the registry was not written" told
        [ ! -e "$HOME/.cache/ce_locks/a.lock" ]
        "$LK" group exec b -- sh -c 'test -e "$HOME/.cache/ce_locks/b.lock" && ! flock -n "$HOME/.cache/ce_locks/b.lock" true && echo "b is held there"' 2>told
        grep -q "^warning: .*Read-only file system" told
        mount -o remount,rw "$LOCK_DIR"
        "$LK" group exec b -- sh -c 'test -e "$HOME/.cache/ce_locks/b.lock" && ! flock -n "$HOME/.cache/ce_locks/b.lock" true && echo "b stays there"' 2>told"#;
    let Some(output) = in_namespace(&site, script) else { return };
    assert!(output.status.success(), "{output:?}");
    assert_eq!(text(&output.stdout), "a is held here\nb is held there\nb stays there\n");
}

/// Requirements 114, 148, 152.
#[test]
fn another_users_folder_gives_way_but_a_lock_that_is_there_does_not_become_two() {
    let site = Site::new();
    let open = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    let home = site.dir.path().join("home");
    let may = std::os::unix::fs::chown(&home, Some(65_534), Some(65_534)).is_ok();
    if !may || !is_installed("setpriv") {
        println!("SKIPPED: needs the right to become another user");
        return;
    }
    open(site.dir.path(), 0o755);
    assert!(site.run(&["path", "ours"]).status.success());
    let as_nobody = |group: &str| {
        let mut command = site.command("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", env!("CARGO_BIN_EXE_lockkeeper")]);
        command.args(["group", "exec", group, "--", "true"]).output().unwrap()
    };
    if as_nobody("probe").status.code() == Some(127) {
        println!("SKIPPED: needs a program that other users can run");
        return;
    }
    // It is seen to be there: going elsewhere would make two locks of one.
    open(&site.locks(), 0o755);
    let barred = as_nobody("ours");
    assert_eq!(barred.status.code(), Some(1), "{barred:?}");
    assert!(text(&barred.stderr).contains("others may have locked"), "{barred:?}");
    assert!(!exists(&site.fallback().join("ours.lock")));
    // It is not there and cannot be made, or the whole folder is another user's own.
    for (group, mode) in [("visible", 0o755), ("hidden", 0o700)] {
        open(&site.locks(), mode);
        let moved = as_nobody(group);
        assert!(moved.status.success(), "{moved:?}");
        assert!(text(&moved.stderr).contains("Permission denied"), "{moved:?}");
        assert!(exists(&site.fallback().join(format!("{group}.lock"))));
    }
    std::os::unix::fs::chown(site.locks(), Some(12_345), None).unwrap();
    open(&site.locks(), 0o777);
    let moved = as_nobody("foreign");
    assert!(moved.status.success() && text(&moved.stderr).contains("belongs to user 12345"), "{moved:?}");
}
