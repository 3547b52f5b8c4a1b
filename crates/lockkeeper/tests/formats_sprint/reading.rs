//! What `check` reads, and what it says of what it found.

use std::fs;

use lockkeeper_testing::Started;

use crate::project::{GONE, HOUR, Project, record};

/// Requirements 25, 46, 92.
#[test]
fn a_check_waits_for_nobody_who_has_the_folder_locked() {
    let project = Project::new();
    let mut flock = project.world.command("flock");
    let mut stranger = Started::of(flock.arg(project.path()).args(["-c", "echo locked; read x"]));
    assert_eq!(stranger.line(), "locked");
    let reply = project.run("check", &[]);
    assert_eq!((reply.code, reply.status(), reply.info("exists")), (0, "clean", &false.into()));
    project.has_lock(&record(std::process::id(), "s1", HOUR));
    assert_eq!(project.run("check", &[]).status(), "blocked");
    assert_eq!(project.acquire("s2", &[]).status(), "blocked", "a running sprint blocks at once");
    stranger.finish().code(0);
}

/// Requirement 18.
#[test]
fn long_records_and_byte_order_marks_are_read() {
    let project = Project::new();
    let plain = record(std::process::id(), "s1", HOUR);
    let room = 64 * 1024 - plain.len() - "notes: \"\"\n".len();
    let utf16 = |unit: fn(u16) -> [u8; 2]| -> Vec<u8> {
        format!("\u{feff}{plain}").encode_utf16().flat_map(unit).collect()
    };
    let files: [(&str, Vec<u8>); 4] = [
        ("64 KiB", format!("{plain}notes: \"{}\"\n", "x".repeat(room)).into_bytes()),
        ("UTF-8", format!("\u{feff}{plain}").into_bytes()),
        ("UTF-16, little end first", utf16(u16::to_le_bytes)),
        ("UTF-16, big end first", utf16(u16::to_be_bytes)),
    ];
    for (name, bytes) in files {
        fs::write(project.file(), bytes).unwrap();
        let reply = project.run("check", &[]);
        assert_eq!(
            (reply.status(), reply.info("session_id")),
            ("blocked", &"s1".into()),
            "{name}: {reply:?}"
        );
    }
}

/// Requirements 21, 49.
#[test]
fn a_process_that_cannot_be_checked_is_a_warning_and_a_zombie() {
    for pid in ["0", "-1", "99999999999"] {
        let project = Project::new();
        project.has_lock(&record(1, "s1", HOUR).replace("pid: 1", &format!("pid: {pid}")));
        let reply = project.run("check", &[]);
        assert_eq!((reply.code, reply.status()), (75, "zombie-detected"), "{pid}");
        assert_eq!(reply.errors(), [format!("Cannot check PID {pid}, assumed dead")]);
        assert!(reply.stderr.contains(&format!("warning: Cannot check PID {pid}")), "{reply:?}");
    }
}

/// Requirements 18, 28.
#[test]
fn an_invalid_format_is_said_once_and_before_the_question() {
    let project = Project::new();
    project.has_lock("{{{");
    let reply = project.acquire("s", &["--lang", "en"]);
    assert_eq!(reply.status(), "blocked");
    let (before, after) = reply.stderr.split_once("Zombie lock found:").unwrap();
    assert_eq!(before, "warning: Lock file exists but has invalid format\n");
    assert!(!after.contains("warning:"), "{after}");
    assert!(after.contains("- Started: unknown (unknown)\n"), "{after}");
}

/// Requirements 22, 28.
#[test]
fn ages_in_questions_are_hours_with_one_digit() {
    let project = Project::new();
    project.has_lock(&record(GONE, "s1", HOUR * 5 / 2 + std::time::Duration::from_secs(1)));
    let reply = project.acquire("s", &["--lang", "zh"]);
    assert!(reply.stderr.contains(" (2.5h ago)\n"), "{}", reply.stderr);
    let reply = project.run("check", &[]);
    assert!(reply.message().ends_with(", 2.5h ago)"), "{reply:?}");
}
