//! Many processes at the same few runs: every run has one history, and every claim one winner.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};

use lockkeeper_core::id::{RequestId, RunId, WorkerId};
use lockkeeper_core::run::Status;
use lockkeeper_core::run::transition::Mark;
use lockkeeper_engine::runs::{RunError, Runs};
use lockkeeper_store::runs::RunFilter;

use super::world::World;

const FOLDER: &str = "LOCKKEEPER_TEST_FOLDER";
const SEED: &str = "LOCKKEEPER_TEST_SEED";
const PROCESSES: u64 = 16;
const MOVES: usize = 200;
const RUNS: usize = 20;

/// Numbers that can be had again from their seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

/// Not a test of its own: one of the processes.
#[test]
fn one_of_many() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let seed: u64 = std::env::var(SEED).unwrap().parse().unwrap();
    let runs = Runs::open(folder.as_ref()).unwrap();
    say("ready");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let worker: WorkerId = format!("w{seed}").parse().unwrap();
    let mut held: HashMap<RunId, u64> = HashMap::new();
    for _ in 0..MOVES {
        let request: RequestId = format!("r{}", random.below(RUNS)).parse().unwrap();
        let run = runs.find(request.as_str()).unwrap();
        let to = Status::ALL[random.below(Status::ALL.len())];
        let outcome = match random.below(6) {
            0 | 1 => runs.claim(&run.id, worker.clone()).map(|claimed| {
                // Only who wins a claim says so.
                say(&format!("won {} {}", claimed.id, claimed.claim()));
                held.insert(claimed.id.clone(), claimed.claim());
            }),
            2 => runs.cancel(&run.id, None).map(|_| ()),
            3 => runs.run_again(&request).map(|_| ()),
            // A claim of long ago, or none at all.
            _ => {
                let claim = held.get(&run.id).copied().filter(|_| random.below(2) == 0);
                let expect = Some(run.status()).filter(|_| random.below(2) == 0);
                let mark = Mark { to, expect, claim, exit_code: None, worker: worker.clone() };
                runs.mark(&run.id, &mark).map(|marked| {
                    if marked.status() == Status::Running && run.status() == Status::Queued {
                        say(&format!("won {} {}", marked.id, marked.claim()));
                    }
                })
            }
        };
        match outcome {
            Ok(()) | Err(RunError::Refused { .. } | RunError::InProgress { .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{line}").unwrap();
    out.flush().unwrap();
}

fn start(world: &World, seed: u64) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "processes::one_of_many", "--nocapture"]);
    command.env(FOLDER, world.folder.path()).env(SEED, seed.to_string());
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(process.stdout.take().unwrap());
    let mut line = String::new();
    while line.trim_end() != "ready" {
        line.clear();
        assert_ne!(output.read_line(&mut line).unwrap(), 0, "it ended early");
    }
    (process, output)
}

/// Requirements 81, 82, 85, 87, 88, 89, 90, 91, 92, 93. Invariant 9.
#[test]
fn many_processes_make_one_history() {
    let world = World::new();
    (0..RUNS).for_each(|number| drop(world.submit(&format!("r{number}"))));
    let base = u64::from(std::process::id());
    eprintln!("seeds from {base}");
    let mut processes: Vec<_> = (0..PROCESSES).map(|number| start(&world, base + number)).collect();
    processes.iter_mut().for_each(|(process, _)| drop(process.stdin.take()));
    let mut winners: HashMap<(String, u64), usize> = HashMap::new();
    for (mut process, output) in processes {
        for line in output.lines().map(Result::unwrap).filter(|line| line.starts_with("won ")) {
            let words: Vec<&str> = line.split(' ').collect();
            *winners.entry((words[1].to_owned(), words[2].parse().unwrap())).or_default() += 1;
        }
        assert!(process.wait().unwrap().success());
    }
    assert!(winners.len() > RUNS, "only {} claims were won", winners.len());
    assert_eq!(winners.values().max(), Some(&1), "two won the same claim");
    check_histories(&world, &winners);
}

fn check_histories(world: &World, winners: &HashMap<(String, u64), usize>) {
    let all = world.runs.list(&RunFilter { limit: 100_000, ..RunFilter::default() }).unwrap();
    let mut claims = 0;
    for run in &all {
        let events = world.runs.events(&run.id, 0).unwrap();
        let numbers: Vec<u32> = events.iter().map(|event| event.id.seq).collect();
        assert_eq!(numbers, (1..=events.len() as u32).collect::<Vec<_>>(), "{}", run.id);
        assert_eq!((events[0].from.as_deref(), events[0].to.as_str()), (None, "queued"));
        for pair in events.windows(2) {
            assert_eq!(pair[1].from.as_deref(), Some(pair[0].to.as_str()), "{}", pair[1].id);
            assert!(pair[1].position > pair[0].position && pair[1].claim >= pair[0].claim, "{}", pair[1].id);
        }
        let ends = events.iter().filter(|event| event.kind == "ended").count();
        assert_eq!(ends, usize::from(run.status().is_terminal()), "{}", run.id);
        assert_eq!(events.last().unwrap().to, run.status().as_str());
        for event in events.iter().filter(|event| event.kind == "claimed") {
            claims += 1;
            assert!(winners.contains_key(&(run.id.to_string(), event.claim)), "nobody won {}", event.id);
        }
    }
    assert_eq!(claims, winners.len());
}
