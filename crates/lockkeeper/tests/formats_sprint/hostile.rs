//! Hostile files at the path of the lock: never followed, never waited for, never destroyed.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use lockkeeper_testing::files;

use crate::project::{FILE, GONE, HOUR, Project, record};

fn refused_everywhere(project: &Project) {
    for mode in ["acquire", "check", "release"] {
        let reply = project.run(mode, &["--session-id", "s", "--epic-spec", "e", "--force", "--yes"]);
        assert_eq!(
            (reply.code, reply.status(), reply.errors()),
            (1, "failure", vec!["Cannot read lock file"]),
            "{mode}"
        );
        assert_eq!(reply.info("exists"), true);
        assert!(reply.stderr.contains("hint: "));
    }
}

/// Requirement 149.
#[test]
fn a_symbolic_link_is_not_followed() {
    let (project, elsewhere) = (Project::new(), Project::new());
    let zombie = record(GONE, "s1", HOUR);
    elsewhere.has_lock(&zombie);
    symlink(elsewhere.file(), project.file()).unwrap();
    refused_everywhere(&project);
    assert_eq!(elsewhere.lock().unwrap(), zombie);
    assert!(project.file().symlink_metadata().unwrap().is_symlink());
    fs::remove_file(project.file()).unwrap();
    symlink(elsewhere.path().join("nothing"), project.file()).unwrap();
    refused_everywhere(&project);
    assert_eq!(elsewhere.names(), [FILE]);
}

/// Requirements 148, 149.
#[test]
fn a_fifo_a_folder_a_socket_and_a_second_name_are_refused_at_once() {
    let project = Project::new();
    files::make_fifo(&project.file());
    refused_everywhere(&project);
    fs::remove_file(project.file()).unwrap();

    fs::create_dir(project.file()).unwrap();
    refused_everywhere(&project);
    fs::remove_dir(project.file()).unwrap();

    let _socket = UnixListener::bind(project.file()).unwrap();
    refused_everywhere(&project);
    fs::remove_file(project.file()).unwrap();

    let precious = project.path().join("precious");
    fs::write(&precious, record(GONE, "s1", HOUR)).unwrap();
    fs::hard_link(&precious, project.file()).unwrap();
    refused_everywhere(&project);
    assert_eq!(project.names(), [FILE, "precious"]);
}

/// Requirement 148.
#[test]
fn a_huge_file_is_refused_and_stays() {
    let project = Project::new();
    fs::File::create(project.file()).unwrap().set_len(1 << 40).unwrap();
    refused_everywhere(&project);
    assert_eq!(project.names(), [FILE]);
}

/// Requirements 20, 148.
#[test]
fn numbers_that_mean_whole_groups_of_processes_are_nobody() {
    for pid in ["0", "-1", "-2", "4194305", "2147483648", "9223372036854775807"] {
        let project = Project::new();
        project.has_lock(&record(1, "s1", HOUR).replace("pid: 1", &format!("pid: {pid}")));
        let reply = project.run("check", &[]);
        assert_eq!((reply.status(), reply.info("pid_alive")), ("zombie-detected", &false.into()), "{pid}");
    }
}

/// Requirements 42, 149.
#[test]
fn a_link_in_place_of_the_temporary_file_is_removed_but_not_followed() {
    let project = Project::new();
    let precious = project.path().join("precious");
    fs::write(&precious, "mine").unwrap();
    symlink(&precious, project.path().join(".sprint-running.tmp")).unwrap();
    assert_eq!(project.acquire("s", &[]).status(), "acquired");
    assert_eq!(project.run("release", &[]).status(), "released");
    assert_eq!(project.names(), ["precious"]);
    assert_eq!(fs::read_to_string(precious).unwrap(), "mine");
}

/// Requirement 49.
#[test]
fn a_folder_in_place_of_the_temporary_file_is_a_warning() {
    let project = Project::new();
    fs::create_dir(project.path().join(".sprint-running.tmp")).unwrap();
    project.acquire("s", &[]);
    let reply = project.run("release", &[]);
    assert_eq!((reply.code, reply.status()), (0, "released"));
    assert_eq!(reply.errors(), ["Cannot delete temporary lock file"]);
}

#[test]
fn what_a_file_says_cannot_steer_a_terminal() {
    let project = Project::new();
    let evil = record(GONE, "a\\e[2J\\a", HOUR);
    project.has_lock(&evil);
    let reply = project.acquire("s2", &[]);
    assert_eq!(reply.status(), "blocked");
    assert_eq!(reply.info("session_id"), "a\u{1b}[2J\u{7}");
    let steers = |text: &str| text.contains(['\u{1b}', '\u{7}']);
    assert!(!steers(&reply.stderr), "{:?}", reply.stderr);
    let reply = project.run("release", &["--session-id", "s2"]);
    assert_eq!(reply.errors(), ["Lock session mismatch (expected: s2, actual: a\u{1b}[2J\u{7})"]);
    assert!(reply.stderr.contains("mismatch") && !steers(&reply.stderr), "{:?}", reply.stderr);
}
