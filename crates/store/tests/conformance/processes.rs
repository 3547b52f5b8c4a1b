//! The same promises between processes: the test program starts itself again as another user of the store.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use super::atomic::{count_one, counted, fill, put_counter};
use super::{Harness, decide, engines, everything};

const ROLE: &str = "LOCKKEEPER_CONFORMANCE_ROLE";
const ENGINE: &str = "LOCKKEEPER_CONFORMANCE_ENGINE";
const ADDRESS: &str = "LOCKKEEPER_CONFORMANCE_ADDRESS";
const ROUNDS: usize = 25;
const PROCESSES: usize = 4;

/// Not a test of its own: what the other processes do.
#[test]
fn other_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let harness = engines::named(&std::env::var(ENGINE).unwrap());
    let store = harness.open(&std::env::var(ADDRESS).unwrap());
    match role.as_str() {
        "count" => {
            say("ready");
            wait_for_end_of_input();
            (0..ROUNDS).for_each(|_| count_one(&*store));
        }
        "be killed" => {
            let mut transaction = store.begin().unwrap();
            transaction.next_number().unwrap();
            let changes = fill(&mut *transaction);
            say("inside");
            wait_for_end_of_input();
            let _ = transaction.commit(changes, &[]);
        }
        _ => panic!("{role} is no role"),
    }
}

pub(super) fn no_update_of_another_process_is_lost(harness: &dyn Harness) {
    let place = harness.place();
    let Some(address) = address(harness, place.address()) else { return };
    let store = place.open();
    put_counter(&*store);
    let mut others: Vec<Other> =
        (0..PROCESSES).map(|_| Other::start(harness, &address, "count", "ready")).collect();
    others.iter_mut().for_each(Other::go);
    (0..ROUNDS).for_each(|_| count_one(&*store));
    others.into_iter().for_each(Other::ends_well);
    assert_eq!(counted(&*store), i64::try_from((PROCESSES + 1) * ROUNDS).unwrap());
}

pub(super) fn a_killed_process_leaves_nothing(harness: &dyn Harness) {
    let place = harness.place();
    let Some(address) = address(harness, place.address()) else { return };
    let store = place.open();
    put_counter(&*store);
    let before = everything(&*store);
    let number = decide(&*store, |records| Ok((Vec::new(), records.next_number()?))).unwrap();
    let mut other = Other::start(harness, &address, "be killed", "inside");
    other.process.kill().unwrap();
    other.process.wait().unwrap();
    count_one(&*store);
    let (mut leases, tickets) = everything(&*store);
    leases[0].heartbeat_at = before.0[0].heartbeat_at;
    assert_eq!((leases, tickets), before);
    assert!(decide(&*store, |records| Ok((Vec::new(), records.next_number()?))).unwrap() > number);
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
    // The harness of tests writes without a line's end before a test.
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{word}").unwrap();
    out.flush().unwrap();
}

fn wait_for_end_of_input() {
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}
