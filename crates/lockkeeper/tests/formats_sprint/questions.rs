//! Questions: asked on stderr, answered through a pipe or at a terminal.

use std::time::Duration;

use lockkeeper_testing::Terminal;

use crate::project::{GONE, HOUR, Project, Reply, record};

/// Starts to acquire, writes the answer to the question, and closes the pipe.
fn answer(project: &Project, args: &[&str], line: &str) -> Reply {
    let mut child = project.start_acquire("s2", args);
    child.send(line);
    child.close_input();
    Reply::of(&child.wait())
}

/// Requirements 11, 28, 29.
#[test]
fn a_zombie_is_asked_about_in_chinese_as_the_seed_does() {
    let project = Project::new();
    project.has_lock(&record(GONE, "s1", 2 * HOUR));
    let reply = answer(&project, &["--lang", "zh"], "n\n");
    assert_eq!((reply.code, reply.status()), (75, "blocked"));
    let lines: Vec<&str> = reply.stderr.lines().collect();
    assert_eq!(lines[..3], ["检测到僵尸锁：", &*format!("- PID: {GONE} (进程状态: dead)"), "- Session: s1"]);
    assert!(lines[3].starts_with("- 启动时间: 20") && lines[3].ends_with("h ago)"), "{}", lines[3]);
    assert_eq!(lines[4..7], ["- Epic: epic4", "", "是否覆盖此锁并启动新 Sprint? [y/N] "]);
    assert_eq!(reply.info("session_id"), "s1");
}

/// Requirement 29.
#[test]
fn only_a_yes_overwrites_a_zombie() {
    for (line, status) in [
        ("", "blocked"),
        ("\n", "blocked"),
        ("n\n", "blocked"),
        ("maybe\ny\n", "blocked"),
        ("yikes\n", "blocked"),
        ("y\n", "acquired"),
        ("Y\r\n", "acquired"),
        ("yes", "acquired"),
    ] {
        let project = Project::new();
        let zombie = record(GONE, "s1", HOUR);
        project.has_lock(&zombie);
        assert_eq!(answer(&project, &[], line).status(), status, "{line:?}");
        assert_eq!(project.lock().unwrap() == zombie, status == "blocked", "{line:?}");
    }
}

/// Requirements 27, 30.
#[test]
fn force_asks_only_about_a_running_sprint() {
    let project = Project::new();
    project.has_lock(&record(std::process::id(), "s1", HOUR));
    let reply = answer(&project, &["--force", "--lang", "zh"], "n\n");
    assert_eq!((reply.code, reply.status()), (75, "blocked"));
    assert!(reply.stderr.starts_with("警告: 检测到活跃的 Sprint 进程！\n"), "{}", reply.stderr);
    assert!(reply.stderr.contains("强制覆盖可能导致状态文件损坏。确认覆盖? [y/N] "), "{}", reply.stderr);
    assert_eq!(answer(&project, &["--force"], "y\n").status(), "acquired");

    project.has_lock(&record(GONE, "s1", HOUR));
    let reply = project.acquire("s3", &["--force"]);
    assert_eq!(reply.status(), "acquired");
    assert!(
        !reply.stderr.contains("[y/N]") && reply.stderr.contains("overwritten by --force"),
        "{}",
        reply.stderr
    );
}

/// Requirements 29, 30.
#[test]
fn yes_on_the_command_line_answers_both_questions() {
    let project = Project::new();
    project.has_lock(&record(GONE, "s1", HOUR));
    assert_eq!(project.acquire("s2", &["--yes"]).status(), "acquired");
    assert_eq!(project.acquire("s3", &["--yes"]).status(), "blocked", "it is no force");
    assert_eq!(project.acquire("s3", &["--yes", "--force"]).status(), "acquired");
}

#[test]
fn questions_are_asked_in_every_language() {
    for (lang, words) in
        [("en", "Overwrite this lock and start a new sprint? [y/N]"), ("ja", "開始しますか? [y/N]")]
    {
        let project = Project::new();
        project.has_lock(&record(GONE, "s1", HOUR));
        let reply = answer(&project, &["--lang", lang], "");
        assert!(reply.stderr.contains(words), "{}", reply.stderr);
        assert_eq!(reply.status(), "blocked");
    }
}

/// `sprint acquire` on a terminal. It asks a question.
fn acquire_at_terminal(project: &Project) -> Terminal {
    let line = format!(
        "'{}' sprint acquire --project-root '{}' --session-id s2 --epic-spec e --pid {} --lang zh",
        project.world.program(),
        project.path().display(),
        std::process::id()
    );
    project.world.terminal(&line)
}

/// Requirements 28, 29.
#[test]
fn a_person_at_a_terminal_is_asked_and_heard() {
    for (keys, code, status) in [("y\n", 0, "acquired"), ("n\n", 75, "blocked"), ("\x04", 75, "blocked")] {
        let project = Project::new();
        project.has_lock(&record(GONE, "s1", HOUR));
        let mut terminal = acquire_at_terminal(&project);
        terminal.sees("是否覆盖此锁并启动新 Sprint? [y/N]");
        terminal.types(keys);
        terminal.wait().code(code).prints(&format!("status: \"{status}\""));
    }
}

/// Requirement 46.
#[test]
fn while_a_question_is_open_others_are_not_kept_waiting() {
    let project = Project::new();
    project.has_lock(&record(GONE, "s1", HOUR));
    let mut terminal = acquire_at_terminal(&project);
    terminal.sees("[y/N]");
    let begun = std::time::Instant::now();
    assert_eq!(project.acquire("faster", &["--yes"]).status(), "acquired");
    assert!(begun.elapsed() < Duration::from_secs(20), "the question would last for 30");
    terminal.types("y\n");
    terminal.wait().code(75).prints("session: faster");
    assert!(project.lock().unwrap().contains("faster"));
}
