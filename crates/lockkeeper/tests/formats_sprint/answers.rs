//! Every status, exit code and message that comes without a question.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lockkeeper_formats::sprint::Record;
use lockkeeper_testing::{Finished, Started, is_root, skip};
use serde_json::json;

use crate::project::{FILE, GONE, HOUR, Project, Reply, record};

const NOBODY: u32 = 65_534;

/// Requirements 7, 8, 10, 14, 15, 36.
#[test]
fn a_lock_is_acquired_and_its_file_is_as_the_seed_says() {
    let project = Project::new();
    let reply = project.acquire("sprint-1", &[]);
    let record = Record::parse(project.lock().unwrap().as_bytes()).unwrap();
    let expected = json!({
        "status": "acquired", "mode": "acquire",
        "lock_info": {
            "exists": true, "pid": std::process::id(), "session_id": "sprint-1",
            "started_at": record.started_at.as_str(), "epic_spec": "epic5", "age_hours": 0, "pid_alive": true,
            "is_zombie": false,
        },
        "message": "Lock acquired successfully for session sprint-1", "errors": [],
    });
    assert_eq!((reply.code, &reply.document), (0, &expected));
    let keys: Vec<&String> = reply.document["lock_info"].as_object().unwrap().keys().collect();
    assert_eq!(keys[..3], ["exists", "pid", "session_id"], "in the order of the seed");
    let lines: Vec<String> = project.lock().unwrap().lines().map(str::to_owned).collect();
    assert_eq!(lines[0], format!("pid: {}", std::process::id()));
    assert_eq!(lines[1], "session_id: \"sprint-1\"");
    assert!(lines[2].starts_with("started_at: \"20") && lines[2].ends_with("Z\""), "{}", lines[2]);
    assert_eq!(lines[3..], ["epic_spec: \"epic5\"", "lock_version: 1"]);
    assert_eq!(project.names(), [FILE]);
    assert!(
        reply.stderr.contains(&std::process::id().to_string()),
        "it says who stands for it: {}",
        reply.stderr
    );
}

/// Requirements 1, 2, 3, 4, 9.
#[test]
fn bad_input_is_a_failure_with_exit_code_2_and_touches_nothing() {
    let project = Project::new();
    let all = ["--session-id", "s", "--epic-spec", "e"];
    let missing = project.path().join("missing");
    for (mode, root, args, sentence) in [
        ("status", Some(project.path()), &all[..], "Invalid mode"),
        ("acquire", None, &all[..], "Project root not accessible"),
        ("check", Some(&missing), &[], "Project root not accessible"),
        ("acquire", Some(project.path()), &all[2..], "session_id required for acquire mode"),
        (
            "acquire",
            Some(project.path()),
            &["--session-id", "", "--epic-spec", "e"],
            "session_id required for acquire mode",
        ),
        ("acquire", Some(project.path()), &all[..2], "epic_spec required for acquire mode"),
        ("release", Some(project.path()), &["--lock-file-name", "../x"], "Invalid lock_file_name"),
        (
            "acquire",
            Some(project.path()),
            &["--session-id", "s", "--epic-spec", "e", "--pid", "0"],
            "Invalid pid",
        ),
        (
            "acquire",
            Some(project.path()),
            &["--session-id", "s", "--epic-spec", "e", "--pid", "x"],
            "Invalid pid",
        ),
    ] {
        let mut command = project.world.lockkeeper(["--json", "sprint", mode]);
        command.args(args);
        if let Some(root) = root {
            command.arg("--project-root").arg(root);
        }
        let reply = Reply::of(&Finished::of(&mut command));
        assert_eq!((reply.code, reply.status(), reply.errors()), (2, "failure", vec![sentence]));
        assert_eq!(reply.document["mode"], mode);
        assert!(reply.message().starts_with(sentence) && reply.stderr.contains("hint: "), "{reply:?}");
        assert!(project.names().is_empty());
    }
}

/// Requirements 11, 13, 25, 31, 32.
#[test]
fn check_tells_the_three_states_and_changes_nothing() {
    let project = Project::new();
    let reply = project.run("check", &[]);
    assert_eq!((reply.code, reply.status()), (0, "clean"));
    assert_eq!(reply.document["lock_info"], json!({ "exists": false }));

    for (content, status, alive) in [
        (record(std::process::id(), "s1", 2 * HOUR), "blocked", true),
        (record(std::process::id(), "s1", 25 * HOUR), "zombie-detected", true),
        (record(GONE, "s1", HOUR), "zombie-detected", false),
    ] {
        project.has_lock(&content);
        let before = fs::metadata(project.file()).unwrap();
        let reply = project.run("check", &[]);
        assert_eq!((reply.code, reply.status()), (75, status));
        let zombie = status == "zombie-detected";
        assert_eq!((reply.info("pid_alive"), reply.info("is_zombie")), (&json!(alive), &json!(zombie)));
        assert_eq!((reply.info("session_id"), reply.info("epic_spec")), (&json!("s1"), &json!("epic4")));
        let after = fs::metadata(project.file()).unwrap();
        assert_eq!((before.ino(), before.mtime()), (after.ino(), after.mtime()));
        assert_eq!((project.lock().unwrap(), project.names()), (content, vec![FILE.to_owned()]));
    }
}

/// Requirements 25, 31.
#[test]
fn a_running_sprint_is_described_with_its_process_and_age() {
    let project = Project::new();
    project.has_lock(&record(std::process::id(), "s1", 2 * HOUR));
    let reply = project.run("check", &[]);
    assert!(reply.message().starts_with("Sprint already running (PID: "), "{}", reply.message());
    // Hours, with one place behind the point. A loaded machine may take minutes for this test.
    let age = reply.info("age_hours").as_f64().unwrap();
    assert!((2.0..2.5).contains(&age), "{age}");
}

/// Requirements 18, 25.
#[test]
fn a_broken_file_that_was_just_written_is_a_zombie_after_its_time() {
    let project = Project::new();
    fs::write(project.file(), "pid: [").unwrap();
    let reply = project.run("check", &[]);
    assert_eq!((reply.code, reply.status()), (75, "zombie-detected"));
    assert_eq!(reply.errors(), ["Lock file exists but has invalid format"]);
    assert!(reply.stderr.contains("warning: Lock file exists but has invalid format"));
}

/// Requirement 203.
#[test]
fn a_lock_that_another_program_wrote_as_json_is_understood() {
    let project = Project::new();
    let pid = std::process::id();
    project.has_lock(&format!(
        r#"{{"mode":"acquire","started_at":"{}","epic_spec":"e","pid":{pid},"session_id":"s"}}"#,
        crate::project::utc(HOUR)
    ));
    let reply = project.run("check", &[]);
    assert_eq!((reply.status(), reply.info("pid")), ("blocked", &json!(pid)));
}

/// Requirements 17, 40, 41, 42, 43, 44.
#[test]
fn release_warns_of_another_session_and_leaves_everything_else() {
    let project = Project::new();
    fs::create_dir(project.path().join(".sprint-session")).unwrap();
    fs::write(project.path().join(".sprint-session/report.md"), "report").unwrap();
    fs::write(project.path().join(".sprint-running.bak"), "mine").unwrap();
    fs::write(project.path().join(".sprint-running.tmp"), "half").unwrap();
    project.acquire("s1", &[]);
    let reply = project.run("release", &["--session-id", "s2"]);
    assert_eq!((reply.code, reply.status(), reply.message()), (0, "released", "Lock released successfully"));
    assert_eq!(reply.errors(), ["Lock session mismatch (expected: s2, actual: s1)"]);
    assert_eq!(reply.document["lock_info"], json!({ "exists": false }));
    assert_eq!(project.names(), [".sprint-running.bak", ".sprint-session"]);
    assert_eq!(fs::read_to_string(project.path().join(".sprint-session/report.md")).unwrap(), "report");
    let reply = project.run("release", &[]);
    assert_eq!((reply.code, reply.status(), reply.errors().len()), (0, "released", 0));
}

/// Requirements 6, 14.
#[test]
fn another_file_name_is_another_lock_in_every_mode() {
    let project = Project::new();
    let other = ["--lock-file-name", ".other"];
    assert_eq!(project.acquire("s1", &other).status(), "acquired");
    assert_eq!(project.names(), [".other"]);
    assert_eq!(project.run("check", &[]).status(), "clean");
    assert_eq!(project.run("check", &other).status(), "blocked");
    assert_eq!(project.acquire("s2", &other).status(), "blocked");
    assert_eq!(project.run("release", &other).status(), "released");
    assert!(project.names().is_empty());
}

/// Requirement 33.
#[test]
fn the_recorded_process_is_the_script_that_calls() {
    let project = Project::new();
    let script = project.path().join("sprint.sh");
    let lockkeeper = project.world.program();
    let call = format!("'{lockkeeper}' sprint acquire --project-root . --session-id s --epic-spec e >&2");
    fs::write(&script, format!("echo $$\n{call}\n{call}\ntrue\n")).unwrap();
    let finished = Finished::of(project.world.command("sh").arg(&script));
    let shell: i64 = finished.stdout().trim().parse().unwrap();
    assert_eq!(Record::parse(project.lock().unwrap().as_bytes()).unwrap().pid, shell);
    // The lock is held as long as the script runs.
    finished.says("Sprint already running");
    assert_eq!(project.run("check", &[]).status(), "zombie-detected", "and no longer");
}

/// Requirement 48.
#[test]
fn a_script_that_fails_can_release_on_its_way_out() {
    let project = Project::new();
    let lockkeeper = project.world.program();
    let script = format!(
        "trap \"'{lockkeeper}' sprint release --project-root . --session-id s\" EXIT\n\
         '{lockkeeper}' sprint acquire --project-root . --session-id s --epic-spec e || exit 9\nfalse || exit 3\n"
    );
    Finished::of(project.world.command("sh").args(["-c", &script])).code(3);
    assert_eq!(project.run("check", &[]).status(), "clean");
}

/// Requirement 16.
#[test]
fn git_is_asked_about_the_file_and_nothing_is_edited() {
    let project = Project::new();
    project.world.git_run(&["init", "-q"]);
    let reply = project.acquire("s", &[]);
    assert!(reply.stderr.contains("hint: git does not ignore .sprint-running"), "{}", reply.stderr);
    assert!(!project.path().join(".gitignore").exists());
    project.run("release", &[]);
    fs::write(project.path().join(".gitignore"), ".sprint-running\n").unwrap();
    let reply = project.acquire("s", &[]);
    assert!(!reply.stderr.contains(".gitignore"), "{}", reply.stderr);
}

/// Requirements 37, 49.
#[test]
fn a_record_that_cannot_be_written_leaves_nothing_behind() {
    let project = Project::new();
    let lockkeeper = project.world.program();
    // No file may grow: the same as a full disk, without one.
    let script = format!(
        "trap '' XFSZ; ulimit -f 0; '{lockkeeper}' --json sprint acquire --project-root . --session-id s --epic-spec e"
    );
    let reply = Reply::of(&Finished::of(project.world.command("sh").args(["-c", &script])));
    assert_eq!(
        (reply.code, reply.status(), reply.errors()),
        (1, "failure", vec!["Failed to write lock file"])
    );
    assert!(project.names().is_empty());
}

/// Runs the command as a user without special rights, also when root runs the tests.
fn as_nobody(project: &Project, mode: &str, args: &[&str]) -> Reply {
    if !is_root() {
        return project.run(mode, args);
    }
    // Another user may not reach the folder of the build, so a copy of the program runs. `cp` makes the copy: a
    // process that this one starts meanwhile could inherit a descriptor that is open for writing to it.
    let copies = tempfile::tempdir().unwrap();
    fs::set_permissions(copies.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(project.world.beside(""), fs::Permissions::from_mode(0o755)).unwrap();
    let program = copies.path().join("lockkeeper");
    Finished::of(Command::new("cp").arg(project.world.program()).arg(&program)).code(0);
    let mut command = project.world.command(&program);
    command.args(project.command(mode, args).get_args()).uid(NOBODY).gid(NOBODY);
    Reply::of(&Finished::of(&mut command))
}

fn give_to_nobody(path: &Path, mode: u32) {
    if is_root() {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Requirements 2, 49.
#[test]
fn a_root_that_cannot_be_written_to_is_refused_in_every_mode() {
    let project = Project::new();
    project.has_lock(&record(std::process::id(), "s1", HOUR));
    give_to_nobody(project.path(), 0o555);
    for mode in ["acquire", "release", "check"] {
        let reply = as_nobody(&project, mode, &["--session-id", "s", "--epic-spec", "e"]);
        assert_eq!((reply.code, reply.errors()), (2, vec!["Project root not accessible"]));
        assert_eq!(reply.info("exists"), &json!(true));
    }
    give_to_nobody(project.path(), 0o755);
    assert_eq!(project.names(), [FILE]);
}

/// Requirements 13, 19.
#[test]
fn a_lock_that_may_not_be_read_is_a_failure() {
    let project = Project::new();
    project.has_lock(&record(std::process::id(), "s1", HOUR));
    give_to_nobody(project.path(), 0o755);
    give_to_nobody(&project.file(), 0o000);
    for mode in ["acquire", "check", "release"] {
        let reply = as_nobody(&project, mode, &["--session-id", "s", "--epic-spec", "e", "--force", "--yes"]);
        assert_eq!(
            (reply.code, reply.status(), reply.errors()),
            (1, "failure", vec!["Cannot read lock file"])
        );
    }
    assert_eq!(project.names(), [FILE]);
}

/// Requirements 45, 49.
#[test]
fn a_lock_that_may_not_be_deleted_stays() {
    if !is_root() {
        return skip("root, to make a file of another user");
    }
    let project = Project::new();
    project.has_lock(&record(std::process::id(), "s1", HOUR));
    fs::set_permissions(project.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    let reply = as_nobody(&project, "release", &[]);
    assert_eq!((reply.code, reply.status()), (1, "failure"));
    assert_eq!(reply.errors(), ["Cannot delete lock file: permission denied"]);
    assert_eq!(project.names(), [FILE]);
}

/// Requirement 7.
#[test]
fn the_answer_is_yaml_unless_json_is_asked_for() {
    let project = Project::new();
    let mut command = project.world.lockkeeper(["sprint", "check", "--project-root"]);
    command.arg(project.path()).args(["--lang", "zh"]);
    let expected = "status: \"clean\"\nmode: \"check\"\nlock_info:\n  exists: false\nmessage: \"没有 Sprint 锁\"\nerrors: []\n";
    assert_eq!(Finished::of(&mut command).code(0).stdout(), expected);
}

/// Requirement 47.
#[test]
fn constants_are_those_of_the_seed() {
    use lockkeeper_formats::sprint::{
        LOCK_FILE_NAME, LOCK_VERSION, USER_CONFIRM_TIMEOUT, ZOMBIE_THRESHOLD_HOURS,
    };
    assert_eq!((LOCK_FILE_NAME, LOCK_VERSION, ZOMBIE_THRESHOLD_HOURS), (".sprint-running", 1, 24));
    assert_eq!(USER_CONFIRM_TIMEOUT, Duration::from_secs(30));
}

/// Requirement 20.
#[test]
fn a_process_that_is_looked_at_gets_no_signal() {
    let project = Project::new();
    // The shell exits with 42 only when it reads a line or the end of its input, and no signal came before.
    let shell = Started::of(Command::new("sh").args(["-c", "read x; exit 42"]));
    project.has_lock(&record(shell.pid(), "s1", HOUR));
    assert_eq!(project.run("check", &[]).status(), "blocked");
    assert_eq!(project.acquire("s2", &["--force"]).status(), "blocked");
    shell.finish().code(42);
    assert_eq!(project.run("check", &[]).status(), "zombie-detected");
}
