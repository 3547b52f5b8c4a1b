//! Many processes at once: one of them gets the lock, in every round.

use std::io::{Read, Write};
use std::process::Child;
use std::time::Duration;

use lockkeeper_formats::sprint::Record;

use crate::project::{FILE, GONE, HOUR, Project, Reply, record};

const ROUNDS: usize = 100;
const PROCESSES: usize = 8;

/// Waits for all, checks that one acquired and that the file is its own, and leaves the project empty.
fn settle(project: &Project, children: Vec<Child>, round: usize) {
    let replies: Vec<Reply> =
        children.into_iter().map(|child| Reply::of(&child.wait_with_output().unwrap())).collect();
    let acquired: Vec<&Reply> = replies.iter().filter(|reply| reply.status() == "acquired").collect();
    let blocked = replies.iter().filter(|reply| reply.status() == "blocked").count();
    assert_eq!((acquired.len(), blocked), (1, replies.len() - 1), "round {round}: {replies:?}");
    let record = Record::parse(project.lock().unwrap().as_bytes()).unwrap();
    assert_eq!(acquired[0].info("session_id"), record.session_id.unwrap().as_str());
    assert_eq!(project.names(), [FILE], "round {round}: nothing is left behind");
    std::fs::remove_file(project.file()).unwrap();
}

fn storm(prepare: impl Fn(&Project), args: &[&str]) {
    let project = Project::new();
    for round in 0..ROUNDS {
        prepare(&project);
        let children =
            (0..PROCESSES).map(|number| project.start_acquire(&format!("s{number}"), args)).collect();
        settle(&project, children, round);
    }
}

/// Requirements 51, 151.
#[test]
fn of_many_that_acquire_at_once_exactly_one_does() {
    storm(|_| {}, &[]);
}

/// Requirement 200.
#[test]
fn of_many_that_take_over_a_zombie_with_a_yes_exactly_one_does() {
    storm(|project| project.has_lock(&record(GONE, "gone", HOUR)), &["--yes"]);
}

/// Requirement 200.
#[test]
fn of_many_that_take_over_a_zombie_by_force_exactly_one_does() {
    storm(|project| project.has_lock("torn"), &["--force"]);
}

/// Requirements 151, 200.
#[test]
fn of_many_that_answer_yes_at_the_same_moment_exactly_one_takes_over() {
    let project = Project::new();
    for round in 0..20 {
        project.has_lock(&record(GONE, "gone", HOUR));
        let mut children: Vec<Child> =
            (0..16).map(|number| project.start_acquire(&format!("s{number}"), &[])).collect();
        // All have seen the same zombie before any of them may act.
        for child in &mut children {
            read_until(child, "[y/N] ");
        }
        for child in &mut children {
            child.stdin.take().unwrap().write_all(b"y\n").unwrap();
        }
        settle(&project, children, round);
    }
}

fn read_until(child: &mut Child, text: &str) {
    let stderr = child.stderr.as_mut().unwrap();
    let mut seen = Vec::new();
    while !seen.ends_with(text.as_bytes()) {
        let mut byte = [0];
        stderr.read_exact(&mut byte).unwrap();
        seen.push(byte[0]);
    }
}

/// A process that is killed may have taken the lock or not, but nobody is ever told that they have it beside it, no
/// record is torn, and what it leaves behind goes with the next one.
///
/// Requirements 200, 201.
#[test]
fn processes_killed_at_any_moment_leave_one_whole_lock() {
    let mut seed = u64::from(std::process::id()) << 32 | 0x9e37_79b9;
    println!("seed {seed}");
    let project = Project::new();
    for round in 0..ROUNDS {
        project.has_lock(&record(GONE, "gone", HOUR));
        let mut children: Vec<Child> =
            (0..PROCESSES).map(|number| project.start_acquire(&format!("s{number}"), &["--yes"])).collect();
        for child in children.iter_mut().step_by(2) {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            std::thread::sleep(Duration::from_micros((seed >> 33) % 1_500));
            child.kill().unwrap();
        }
        let outputs = children.into_iter().map(|child| child.wait_with_output().unwrap());
        let told = outputs.filter(|output| output.status.code() == Some(0)).map(|output| Reply::of(&output));
        let acquired: Vec<Reply> = told.collect();
        assert!(acquired.len() <= 1, "round {round}: {acquired:?}");
        let held = Record::parse(project.lock().unwrap().as_bytes()).unwrap();
        if let [reply] = &acquired[..] {
            assert_eq!(reply.info("session_id"), held.session_id.unwrap().as_str(), "round {round}");
        }
        let reply = project.acquire("last", &["--force", "--yes"]);
        assert_eq!(reply.status(), "acquired", "round {round}: {reply:?}");
        assert_eq!(project.names(), [FILE], "round {round}");
    }
}
