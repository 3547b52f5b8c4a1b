//! The lock of another user, and what root may do with it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::time::UNIX_EPOCH;

use lockkeeper_testing::{Finished, files, is_root, skip};

use crate::project::{FILE, GONE, HOUR, Project, Reply, record};

const ALICE: u32 = 65_531;
const BOB: u32 = 65_532;

/// A project that everybody may write to, with a lock of Alice, and a copy of the program that everybody may start.
fn shared(pid: u32) -> Project {
    let project = Project::new();
    let folders = [project.path(), project.path().parent().unwrap()];
    for folder in folders {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
    }
    fs::copy(project.world.program(), project.world.beside("lockkeeper")).unwrap();
    project.has_lock(&record(pid, "of-alice", HOUR));
    chown(project.file(), Some(ALICE), None).unwrap();
    files::set_modified(&project.file(), UNIX_EPOCH);
    project
}

/// `sprint` as this user.
fn sprint(project: &Project, user: u32, args: &[&str]) -> Reply {
    let mut command = project.world.command("setpriv");
    command.args(["--reuid", &user.to_string(), "--clear-groups"]).arg(project.world.beside("lockkeeper"));
    command.args(["--json", "sprint"]).args(args).arg("--project-root").arg(project.path());
    Reply::of(&Finished::of(&mut command))
}

const ACQUIRE: [&str; 5] = ["acquire", "--session-id", "of-bob", "--epic-spec", "e"];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&ACQUIRE, more].concat()
}

/// Requirements 11, 25, 32, 50.
#[test]
fn the_lock_of_another_user_blocks_with_its_fields() {
    if !is_root() {
        return skip("root, to be two users");
    }
    let project = shared(std::process::id());
    let before = project.lock();
    for args in [vec!["check"], with(&[]), with(&["--force", "--yes"])] {
        let reply = sprint(&project, BOB, &args);
        assert_eq!((reply.code, reply.status()), (75, "blocked"), "{args:?}: {reply:?}");
        assert_eq!((reply.info("session_id"), reply.info("pid_alive")), (&"of-alice".into(), &true.into()));
        assert_eq!(reply.errors(), [format!("Lock file belongs to another user (uid {ALICE})")]);
        assert!(reply.message().starts_with("Sprint already running (PID: "), "{reply:?}");
        assert!(reply.stderr.contains("hint: only that user or root"), "{reply:?}");
    }
    let reply = sprint(&project, BOB, &["release"]);
    assert_eq!((reply.code, reply.status()), (1, "failure"));
    assert!(reply.errors().contains(&"Cannot delete lock file: permission denied"), "{reply:?}");
    assert_eq!(reply.info("session_id"), "of-alice");
    assert_eq!(project.lock(), before, "nobody changed it");
}

/// Requirements 25, 50.
#[test]
fn a_zombie_of_another_user_is_shown_and_left_to_its_user() {
    if !is_root() {
        return skip("root, to be two users");
    }
    let project = shared(GONE);
    let reply = sprint(&project, BOB, &["check"]);
    assert_eq!((reply.code, reply.status()), (75, "zombie-detected"), "{reply:?}");
    let reply = sprint(&project, BOB, &with(&["--force"]));
    assert_eq!((reply.code, reply.status()), (75, "blocked"), "{reply:?}");
    assert!(reply.message().starts_with("Zombie lock of another user"), "{reply:?}");
    assert_eq!(sprint(&project, ALICE, &with(&["--force"])).status(), "acquired");
}

/// Requirements 27, 30, 50.
#[test]
fn root_overrides_the_lock_of_another_user_by_force() {
    if !is_root() {
        return skip("root, to be two users");
    }
    for (pid, args) in [(GONE, with(&["--force"])), (std::process::id(), with(&["--force", "--yes"]))] {
        let project = shared(pid);
        let reply = sprint(&project, 0, &args);
        assert_eq!((reply.code, reply.status()), (0, "acquired"), "{reply:?}");
        assert!(project.lock().unwrap().contains("of-bob"));
        assert_eq!(project.names(), [FILE]);
    }
    let project = shared(std::process::id());
    assert_eq!(sprint(&project, 0, &with(&[])).status(), "blocked", "not without --force");
    assert_eq!(sprint(&project, 0, &["release"]).status(), "released");
    assert!(project.names().is_empty());
}
