//! Many processes that want one stale lock at the same moment: exactly one gets it, in every round.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use lockkeeper_core::time::Ttl;
use lockkeeper_formats::swarm::{Attempt, DEFAULT_TTL, Swarm, TaskLock};
use lockkeeper_platform::wall_clock::WallTime;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{HOUR, Nest};

/// A process that does as it is told on its input, one line an order, one line an answer.
pub(crate) struct Worker {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    /// One of ours: this test program again, as [`worker_process`].
    pub(crate) fn ours(dir: &Path, name: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "storm::worker_process", "--ignored", "--nocapture", "--quiet"]);
        Self::start(command, dir, name)
    }

    pub(crate) fn start(mut command: Command, dir: &Path, name: &str) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let (orders, answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut worker = Self { child, orders, answers };
        worker.order(&format!("{}\t{name}", dir.display()));
        assert_eq!(worker.answer(), "ready");
        worker
    }

    pub(crate) fn order(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
    }

    /// The next answer; what the test harness prints around it is passed over.
    pub(crate) fn answer(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.answers.read_line(&mut line).unwrap(), 0, "the worker ended");
            if let Some(at) = line.find('@') {
                return line[at + 1..].trim_end().to_owned();
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test: what [`Worker::ours`] starts. Without orders it ends at once.
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
    let nest = Nest::new();
    let mut workers: Vec<Worker> =
        (0..10).map(|number| Worker::ours(nest.dir(), &format!("w{number}"))).collect();
    for round in 0..300 {
        match round % 3 {
            0 => nest.write_record("a", "old", HOUR, 300),
            1 => {
                nest.write("a", "{\"worker_id\": \"ol");
                crate::support::age_file(&nest.file("a"), HOUR);
            }
            _ => {
                let _ = std::fs::remove_file(nest.file("a"));
            }
        }
        let answers = all(&mut workers, "take");
        assert_eq!((count(&answers, "won"), count(&answers, "busy")), (1, 9), "round {round}: {answers:?}");
        let winner = answers.iter().position(|answer| answer == "won").unwrap();
        assert_eq!(nest.read("a")["worker_id"], format!("w{winner}"));
        let beats = all(&mut workers, "beat");
        assert_eq!(count(&beats, "kept"), 1, "round {round}: {beats:?}");
        let forgotten =
            if round % 2 == 0 { all(&mut workers, "unlock") } else { all(&mut workers, "forget") };
        assert_eq!(forgotten.len(), 10);
    }
    drop(workers);
    nest.write_record("a", "old", HOUR, 300);
    assert_eq!(nest.code(&["task", "lock", "a", "--worker", "last"]), 0);
    assert_eq!(nest.names(), ["a.lock"], "everything else was swept");
}

/// Requirements 63, 200. Processes are stopped at random moments, also inside of the guard, and go on later.
#[test]
fn stopped_processes_delay_a_takeover_but_never_double_it() {
    let nest = Nest::new();
    let mut workers: Vec<Worker> =
        (0..8).map(|number| Worker::ours(nest.dir(), &format!("w{number}"))).collect();
    let mut seed = 0x5eed_u64;
    eprintln!("seed {seed:#x}");
    let mut draw = move |limit: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % limit
    };
    for round in 0..200 {
        nest.write_record("a", "old", HOUR, 300);
        for worker in &mut workers {
            worker.order("take");
        }
        let stopped: Vec<usize> = (0..3).map(|_| draw(8) as usize).collect();
        for place in &stopped {
            workers[*place].signal(Signal::STOP);
            std::thread::sleep(Duration::from_micros(draw(300)));
        }
        for place in &stopped {
            workers[*place].signal(Signal::CONT);
        }
        let answers: Vec<String> = workers.iter_mut().map(Worker::answer).collect();
        assert_eq!((count(&answers, "won"), count(&answers, "busy")), (1, 7), "round {round}: {answers:?}");
        assert_eq!(count(&all(&mut workers, "beat"), "kept"), 1, "round {round}");
        all(&mut workers, "forget");
    }
}

/// Requirements 63, 200. Processes are killed at random moments; whoever is left wins alone, and no lock stays lost.
#[test]
fn killed_processes_never_double_nor_lose_a_lock() {
    let nest = Nest::new();
    let mut seed = 0xdead_u64;
    eprintln!("seed {seed:#x}");
    let mut draw = move |limit: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % limit
    };
    for round in 0..30 {
        let mut workers: Vec<Worker> =
            (0..6).map(|number| Worker::ours(nest.dir(), &format!("w{number}"))).collect();
        nest.write_record("a", "old", HOUR, 300);
        for worker in &mut workers {
            worker.order("take");
        }
        for _ in 0..3 {
            std::thread::sleep(Duration::from_micros(draw(200)));
            let place = draw(workers.len() as u64) as usize;
            drop(workers.swap_remove(place));
        }
        let answers: Vec<String> = workers.iter_mut().map(Worker::answer).collect();
        assert!(count(&answers, "won") <= 1, "round {round}: {answers:?}");
        let record = nest.read("a");
        // Nobody of the living won: then one of the dead did, and its record stands whole.
        assert_ne!(record["worker_id"], "old", "round {round}: {answers:?}");
        assert_eq!(record.as_object().unwrap().len(), 5);
        drop(workers);
        nest.write_record("a", "old", HOUR, 300);
        assert_eq!(nest.code(&["task", "lock", "a", "--worker", "next"]), 0);
        assert_eq!(nest.names(), ["a.lock"], "round {round}");
    }
}
