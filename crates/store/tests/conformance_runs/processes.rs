//! The same promises between processes: the test program starts itself again as another user of the store.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use super::moves::ask;
use super::sample::{SUCCESS, all_runs, claim, execute, request, run, store, submit};
use super::{Harness, engines};

const ROLE: &str = "LOCKKEEPER_CONFORMANCE_ROLE";
const ENGINE: &str = "LOCKKEEPER_CONFORMANCE_ENGINE";
const ADDRESS: &str = "LOCKKEEPER_CONFORMANCE_ADDRESS";
const ROUNDS: u32 = 25;
const PROCESSES: u32 = 4;

/// Not a test of its own: what the other processes do.
#[test]
fn other_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let harness = engines::named(&std::env::var(ENGINE).unwrap());
    let store = harness.open(&std::env::var(ADDRESS).unwrap());
    match role.as_str() {
        "count" => {
            let id = all_runs(&*store).remove(0).id;
            say("ready");
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            (0..ROUNDS).for_each(|round| ask(&*store, &id, &format!("{} {round}", std::process::id())));
        }
        "be killed" => {
            for number in 0.. {
                execute(&*store, &request(&format!("r{number}")), SUCCESS);
                if number == 3 {
                    say("writing");
                }
            }
        }
        _ => panic!("{role} is no role"),
    }
}

pub(super) fn no_update_of_another_process_is_lost(harness: &dyn Harness) {
    let (place, store) = store(harness);
    let Some(address) = address(harness, place.address()) else { return };
    let claimed = claim(&*store, &submit(&*store, &request("a")));
    let mut others: Vec<Other> =
        (0..PROCESSES).map(|_| Other::start(harness, &address, "count", "ready")).collect();
    others.iter_mut().for_each(Other::go);
    (0..ROUNDS).for_each(|round| ask(&*store, &claimed.id, &format!("ours {round}")));
    others.into_iter().for_each(Other::ends_well);
    assert_eq!(run(&*store, &claimed.id).version, claimed.version + (PROCESSES + 1) * ROUNDS);
}

/// It is killed between two writes, or in the middle of one.
pub(super) fn a_killed_process_leaves_whole_records(harness: &dyn Harness) {
    let (place, store) = store(harness);
    let Some(address) = address(harness, place.address()) else { return };
    let mut other = Other::start(harness, &address, "be killed", "writing");
    other.process.kill().unwrap();
    other.process.wait().unwrap();
    let runs = all_runs(&*store);
    assert!(runs.len() >= 4);
    for run in &runs {
        let events = store.snapshot().unwrap().events_of(&run.id, 0, usize::MAX).unwrap();
        assert_eq!(events.len(), run.version as usize);
        assert_eq!(events.last().unwrap().to, run.status().as_str());
    }
    assert_eq!(store.examine(true).unwrap().flaws, [""; 0]);
    // Others go on.
    execute(&*store, &request("after"), SUCCESS);
}

fn address(harness: &dyn Harness, address: Option<String>) -> Option<String> {
    if address.is_none() {
        println!("{}: left out, since it lives in one process", harness.name());
    }
    address
}

struct Other {
    process: Child,
    _output: BufReader<ChildStdout>,
}

impl Other {
    /// Starts another process, and waits until it says this word.
    fn start(harness: &dyn Harness, address: &str, role: &str, says: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "processes::other_process", "--nocapture"]);
        command.env(ROLE, role).env(ENGINE, harness.name()).env(ADDRESS, address);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        while line.trim_end() != says {
            line.clear();
            assert_ne!(output.read_line(&mut line).unwrap(), 0, "the other process ended early");
        }
        Self { process, _output: output }
    }

    fn go(&mut self) {
        drop(self.process.stdin.take());
    }

    fn ends_well(mut self) {
        assert!(self.process.wait().unwrap().success());
    }
}

fn say(word: &str) {
    // The test runner writes no end of line before a test.
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{word}").unwrap();
    out.flush().unwrap();
}
