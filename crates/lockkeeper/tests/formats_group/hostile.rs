//! Hostile files at lock paths, and folders that cannot be used.

use std::os::unix::fs::symlink;

use lockkeeper_testing::{Finished, files, skip};

use crate::groups::{Groups, set_mode};

/// Requirement 149.
#[test]
fn names_that_leave_the_folder_are_refused_before_anything_is_touched() {
    let groups = Groups::new();
    let long = "x".repeat(300);
    groups.run(&["exec", "--", "true"]).code(2);
    for name in ["", "..", "../x", "a/b", "/tmp/x", "a:b", "a\nb", &long] {
        groups.run(&["exec", name, "--", "true"]).code(2).says("hint:");
    }
    assert!(!groups.locks().exists());
}

/// Requirements 148, 149.
#[test]
fn what_is_not_a_lock_file_is_neither_followed_nor_waited_for() {
    let groups = Groups::new();
    groups.run(&["path", "first"]).code(0);
    let victim = groups.path("victim");
    symlink(&victim, groups.lock_file("link")).unwrap();
    std::fs::create_dir(groups.lock_file("folder")).unwrap();
    symlink("/dev/null", groups.lock_file("device")).unwrap();
    files::make_fifo(&groups.lock_file("fifo"));
    for name in ["link", "folder", "device", "fifo"] {
        groups.run(&["exec", name, "--", "true"]).code(1).says("hint:");
    }
    assert!(!files::is_there(&victim) && !files::is_there(&groups.fallback()));
}

/// Requirements 148, 149.
#[test]
fn a_file_of_another_user_is_not_locked() {
    let groups = Groups::new();
    groups.run(&["path", "g"]).code(0);
    if std::os::unix::fs::chown(groups.lock_file("g"), Some(12_345), None).is_err() {
        return skip("the right to give files away");
    }
    groups.run(&["exec", "g", "--", "true"]).code(1).says("belongs to user 12345");
}

/// Requirement 149.
#[test]
fn a_file_in_place_of_the_folder_is_an_error() {
    let groups = Groups::new();
    std::fs::write(groups.locks(), "mine").unwrap();
    groups.run(&["exec", "g", "--", "true"]).code(1);
    assert_eq!(std::fs::read_to_string(groups.locks()).unwrap(), "mine");
}

/// Runs a script in a mount namespace of its own. None without the right to mount.
fn in_namespace(groups: &Groups, script: &str) -> Option<Finished> {
    let probe = "mkdir -p \"$LOCK_DIR\" && mount -t tmpfs none \"$LOCK_DIR\"";
    let run = |script: &str| Finished::of(groups.world.command("unshare").args(["-m", "sh", "-c", script]));
    if !run(probe).succeeded() {
        skip("the right to mount: root or CAP_SYS_ADMIN");
        return None;
    }
    Some(run(script))
}

/// Requirement 114.
#[test]
fn a_full_folder_gives_way_to_the_cache_folder_and_stays_given_way_to() {
    let groups = Groups::new();
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
        grep -q "could not be used before" told
        "$LK" group exec c -- sh -c 'test -e "$LOCK_DIR/c.lock" && ! flock -n "$LOCK_DIR/c.lock" true && echo "c is held here"'
        "$LK" group status --json"#;
    let Some(output) = in_namespace(&groups, script) else { return };
    let output = output.code(0);
    let told = output.stdout();
    let (lines, status) = told.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(
        lines.lines().collect::<Vec<_>>(),
        ["b is held there", "a is held here", "b stays there", "c is held here"]
    );
    let status: serde_json::Value = serde_json::from_str(status).unwrap();
    let names: Vec<&str> =
        status["groups"].as_array().unwrap().iter().map(|group| group["group"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "c", "b"]);
}

/// Requirement 114.
#[test]
fn a_full_disk_first_loses_its_old_logs() {
    let groups = Groups::new();
    let script = r#"
        set -e
        mount -t tmpfs -o nr_inodes=4,size=1m none "$LOCK_DIR"
        "$LK" group exec a -- true
        echo "old:1:old:1:RELEASED:2" >"$LOCK_DIR/registry.log.1"
        "$LK" group exec b -- sh -c 'test -e "$LOCK_DIR/b.lock" && ! flock -n "$LOCK_DIR/b.lock" true && echo "b is held here"'
        [ ! -e "$LOCK_DIR/registry.log.1" ]"#;
    let Some(output) = in_namespace(&groups, script) else { return };
    let output = output.code(0);
    assert_eq!(output.stdout(), "b is held here\n");
}

/// Requirement 114.
#[test]
fn a_read_only_folder_still_locks_what_is_there_and_nothing_is_held_twice() {
    let groups = Groups::new();
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
    let Some(output) = in_namespace(&groups, script) else { return };
    let output = output.code(0);
    assert_eq!(output.stdout(), "a is held here\nb is held there\nb stays there\n");
}

/// Requirements 114, 148, 152.
#[test]
fn another_users_folder_gives_way_but_a_lock_that_is_there_does_not_become_two() {
    let groups = Groups::new();
    if std::os::unix::fs::chown(groups.world.home(), Some(65_534), Some(65_534)).is_err() {
        return skip("the right to become another user");
    }
    set_mode(&groups.world.beside(""), 0o755);
    groups.run(&["path", "ours"]).code(0);
    let as_nobody = |group: &str| {
        let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
        Finished::of(&mut groups.world.lockkeeper_under(&nobody, &["group", "exec", group, "--", "true"]))
    };
    if as_nobody("probe").exit_code() == Some(127) {
        return skip("a program that other users can run");
    }
    // The lock file is there. A lock file elsewhere would make two locks of one.
    set_mode(&groups.locks(), 0o755);
    as_nobody("ours").code(1).says("others may have locked");
    assert!(!files::is_there(&groups.fallback().join("ours.lock")));
    // The lock file is not there and cannot be made; or the whole folder belongs to another user.
    for (group, mode) in [("visible", 0o755), ("hidden", 0o700)] {
        set_mode(&groups.locks(), mode);
        as_nobody(group).code(0).says("Permission denied");
        assert!(files::is_there(&groups.fallback().join(format!("{group}.lock"))));
    }
    std::os::unix::fs::chown(groups.locks(), Some(12_345), None).unwrap();
    set_mode(&groups.locks(), 0o777);
    as_nobody("foreign").code(0).says("belongs to user 12345");
}
