//! Many processes want one stale lock at the same moment. In every round exactly one gets it.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lockkeeper_core::time::Ttl;
use lockkeeper_formats::swarm::{Attempt, DEFAULT_TTL, Swarm, TaskLock};
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_testing::{Dice, Signal, Started, files, this_test};

use crate::tasks::{HOUR, Tasks};

/// A process that reads one order in each line, and answers each with a line that begins with `@`.
pub(crate) struct Worker {
    process: Started,
}

impl Worker {
    /// This test program again, as [`worker_process`].
    pub(crate) fn ours(dir: &Path, name: &str) -> Self {
        Self::start(&mut this_test("storm::worker_process"), dir, name)
    }

    pub(crate) fn start(command: &mut Command, dir: &Path, name: &str) -> Self {
        let mut worker = Self { process: Started::of(command) };
        worker.order(&format!("{}\t{name}", dir.display()));
        assert_eq!(worker.answer(), "ready");
        worker
    }

    pub(crate) fn order(&mut self, order: &str) {
        self.process.send(&format!("{order}\n"));
    }

    pub(crate) fn answer(&mut self) -> String {
        self.process.line_with("@")
    }
}

/// Not a test, but the process that [`Worker::ours`] starts. It ends with its input.
#[test]
#[ignore = "a process of the storms, started by them"]
fn worker_process() {
    let mut lines = std::io::stdin().lines().map(Result::unwrap);
    let Some(first) = lines.next() else { return };
    let (dir, name) = first.split_once('\t').unwrap();
    let swarm = Swarm::new(dir, Ttl::new(DEFAULT_TTL).unwrap());
    let mut held: Option<Box<TaskLock>> = None;
    println!("@ready");
    for order in lines {
        let answer = match order.as_str() {
            "take" => match swarm.lock("a", name, None, WallTime::now()) {
                Ok(Attempt::Locked { lock, .. }) => {
                    held = Some(lock);
                    "won".to_owned()
                }
                Ok(Attempt::Busy(_)) => "busy".to_owned(),
                Err(error) => format!("error {error:?}"),
            },
            "beat" => match held.as_mut().map(|lock| lock.heartbeat(WallTime::now())) {
                Some(Ok(true)) => "kept".to_owned(),
                Some(Ok(false)) => "lost".to_owned(),
                Some(Err(error)) => format!("error {error:?}"),
                None => "none".to_owned(),
            },
            "unlock" => match held.take().map(|lock| lock.unlock()) {
                Some(Ok(true)) => "unlocked".to_owned(),
                Some(Ok(false)) => "lost".to_owned(),
                Some(Err(error)) => format!("error {error:?}"),
                None => "none".to_owned(),
            },
            "forget" => {
                held = None;
                "forgotten".to_owned()
            }
            other => panic!("{other}"),
        };
        println!("@{answer}");
    }
}

pub(crate) fn all(workers: &mut [Worker], order: &str) -> Vec<String> {
    for worker in workers.iter_mut() {
        worker.order(order);
    }
    workers.iter_mut().map(Worker::answer).collect()
}

fn count(answers: &[String], what: &str) -> usize {
    answers.iter().filter(|answer| *answer == what).count()
}

/// Requirements 63, 200. Ten processes, 300 rounds, each of a stale, an absent and a torn lock.
#[test]
fn a_storm_of_takeovers_has_one_winner_in_every_round() {
    let tasks = Tasks::new();
    let mut workers: Vec<Worker> =
        (0..10).map(|number| Worker::ours(&tasks.dir(), &format!("w{number}"))).collect();
    for round in 0..300 {
        match round % 3 {
            0 => tasks.write_record("a", "old", HOUR, 300),
            1 => {
                tasks.write("a", "{\"worker_id\": \"ol");
                files::set_age(&tasks.file("a"), HOUR);
            }
            _ => {
                let _ = std::fs::remove_file(tasks.file("a"));
            }
        }
        let answers = all(&mut workers, "take");
        assert_eq!((count(&answers, "won"), count(&answers, "busy")), (1, 9), "round {round}: {answers:?}");
        let winner = answers.iter().position(|answer| answer == "won").unwrap();
        assert_eq!(tasks.read("a")["worker_id"], format!("w{winner}"));
        let beats = all(&mut workers, "beat");
        assert_eq!(count(&beats, "kept"), 1, "round {round}: {beats:?}");
        let forgotten =
            if round % 2 == 0 { all(&mut workers, "unlock") } else { all(&mut workers, "forget") };
        assert_eq!(forgotten.len(), 10);
    }
    drop(workers);
    tasks.write_record("a", "old", HOUR, 300);
    tasks.run(&["task", "lock", "a", "--worker", "last"]).code(0);
    assert_eq!(tasks.names(), ["a.lock"], "everything else was swept");
}

/// Requirements 63, 200. The test stops processes at random moments, also while they hold the guard, and continues them later.
#[test]
fn stopped_processes_delay_a_takeover_but_never_double_it() {
    let tasks = Tasks::new();
    let mut workers: Vec<Worker> =
        (0..8).map(|number| Worker::ours(&tasks.dir(), &format!("w{number}"))).collect();
    let mut dice = Dice::from_environment_or(0x5eed);
    for round in 0..200 {
        tasks.write_record("a", "old", HOUR, 300);
        for worker in &mut workers {
            worker.order("take");
        }
        let stopped: Vec<usize> = (0..3).map(|_| dice.index(8)).collect();
        for place in &stopped {
            workers[*place].process.signal(Signal::STOP);
            std::thread::sleep(dice.span_below(Duration::from_micros(300)));
        }
        for place in &stopped {
            workers[*place].process.signal(Signal::CONT);
        }
        let answers: Vec<String> = workers.iter_mut().map(Worker::answer).collect();
        assert_eq!((count(&answers, "won"), count(&answers, "busy")), (1, 7), "round {round}: {answers:?}");
        assert_eq!(count(&all(&mut workers, "beat"), "kept"), 1, "round {round}");
        all(&mut workers, "forget");
    }
}

/// Requirements 63, 200. The test kills processes at random moments. At most one of the others wins, and no lock stays lost.
#[test]
fn killed_processes_never_double_nor_lose_a_lock() {
    let tasks = Tasks::new();
    let mut dice = Dice::from_environment_or(0xdead);
    for round in 0..30 {
        let mut workers: Vec<Worker> =
            (0..6).map(|number| Worker::ours(&tasks.dir(), &format!("w{number}"))).collect();
        tasks.write_record("a", "old", HOUR, 300);
        for worker in &mut workers {
            worker.order("take");
        }
        for _ in 0..3 {
            std::thread::sleep(dice.span_below(Duration::from_micros(200)));
            let place = dice.index(workers.len());
            drop(workers.swap_remove(place));
        }
        let answers: Vec<String> = workers.iter_mut().map(Worker::answer).collect();
        assert!(count(&answers, "won") <= 1, "round {round}: {answers:?}");
        let record = tasks.read("a");
        // When no living process won, a killed one did, and its record is whole.
        assert_ne!(record["worker_id"], "old", "round {round}: {answers:?}");
        assert_eq!(record.as_object().unwrap().len(), 5);
        drop(workers);
        tasks.write_record("a", "old", HOUR, 300);
        tasks.run(&["task", "lock", "a", "--worker", "next"]).code(0);
        assert_eq!(tasks.names(), ["a.lock"], "round {round}");
    }
}
