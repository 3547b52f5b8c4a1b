//! Many processes want the lock at once. In every round exactly one gets it.

use std::time::Duration;

use lockkeeper_formats::sprint::Record;
use lockkeeper_testing::{Dice, Finished, Started};

use crate::project::{FILE, GONE, HOUR, Project, Reply, record};

const ROUNDS: usize = 100;
const PROCESSES: usize = 8;

/// Waits for all, asserts that exactly one acquired the lock and that the file is its own, and removes the file.
fn settle(project: &Project, children: Vec<Started>, round: usize) {
    let replies: Vec<Reply> = children.into_iter().map(|child| Reply::of(&child.wait())).collect();
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
        let mut children: Vec<Started> =
            (0..16).map(|number| project.start_acquire(&format!("s{number}"), &[])).collect();
        // All have seen the same zombie before one of them may act.
        for child in &mut children {
            child.until_stderr("[y/N] ");
        }
        for child in &mut children {
            child.send("y\n");
        }
        settle(&project, children, round);
    }
}

/// A killed process may have taken the lock or not. But no other process is told that it has the lock too, no record
/// is torn, and the next process removes what the killed one left.
///
/// Requirements 200, 201.
#[test]
fn processes_killed_at_any_moment_leave_one_whole_lock() {
    let mut dice = Dice::from_environment();
    let mut winners = 0;
    let project = Project::new();
    for round in 0..ROUNDS {
        project.has_lock(&record(GONE, "gone", HOUR));
        let mut children: Vec<Started> =
            (0..PROCESSES).map(|number| project.start_acquire(&format!("s{number}"), &["--yes"])).collect();
        for child in children.iter_mut().step_by(2) {
            std::thread::sleep(dice.span_below(Duration::from_micros(1_500)));
            child.kill();
        }
        let finished = children.into_iter().map(Started::wait);
        let told: Vec<Finished> = finished.filter(Finished::succeeded).collect();
        assert!(told.len() <= 1, "round {round}: {told:?}");
        let held = Record::parse(project.lock().unwrap().as_bytes()).unwrap();
        for finished in &told {
            winners += 1;
            let session = Reply::of(finished).info("session_id").clone();
            assert_eq!(session, held.session_id.as_deref().unwrap(), "round {round}");
        }
        let reply = project.acquire("last", &["--force", "--yes"]);
        assert_eq!(reply.status(), "acquired", "round {round}: {reply:?}");
        assert_eq!(project.names(), [FILE], "round {round}");
    }
    assert!(winners > 0, "in some round a process that was not killed wins");
}
