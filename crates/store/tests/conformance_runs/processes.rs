//! The same contract between processes: the test program starts itself again as another user of the store.

use lockkeeper_testing::Started;

use super::moves::ask;
use super::sample::{SUCCESS, all_runs, claim, execute, request, run, store, submit};
use super::{Harness, backends, other_process};

const ROUNDS: u32 = 25;
const PROCESSES: u32 = 4;

/// Not a test of its own: the main function of the other processes.
#[test]
#[ignore = "other tests start it"]
fn other_process() {
    let (role, backend, address) = other_process::given();
    let store = backends::named(&backend).open(&address);
    match role.as_str() {
        "count" => {
            let id = all_runs(&*store).remove(0).id;
            other_process::say("ready");
            other_process::wait_for_end_of_input();
            (0..ROUNDS).for_each(|round| ask(&*store, &id, &format!("{} {round}", std::process::id())));
        }
        "be killed" => {
            for number in 0.. {
                execute(&*store, &request(&format!("r{number}")), SUCCESS);
                if number == 3 {
                    other_process::say("writing");
                }
            }
        }
        _ => panic!("{role} is no role"),
    }
}

pub(super) fn no_update_of_another_process_is_lost(harness: &dyn Harness) {
    let (place, store) = store(harness);
    let Some(address) = other_process::address(harness.name(), place.address()) else { return };
    let claimed = claim(&*store, &submit(&*store, &request("a")));
    let mut others: Vec<Started> =
        (0..PROCESSES).map(|_| other_process::start(harness.name(), &address, "count", "ready")).collect();
    others.iter_mut().for_each(Started::close_input);
    (0..ROUNDS).for_each(|round| ask(&*store, &claimed.id, &format!("ours {round}")));
    others.iter_mut().for_each(|other| assert!(other.end().success()));
    assert_eq!(run(&*store, &claimed.id).version, claimed.version + (PROCESSES + 1) * ROUNDS);
}

/// It is killed between two writes, or in the middle of one.
pub(super) fn a_killed_process_leaves_whole_records(harness: &dyn Harness) {
    let (place, store) = store(harness);
    let Some(address) = other_process::address(harness.name(), place.address()) else { return };
    let mut other = other_process::start(harness.name(), &address, "be killed", "writing");
    other.kill();
    let runs = all_runs(&*store);
    assert!(runs.len() >= 4);
    for run in &runs {
        let events = store.snapshot().unwrap().events_of(&run.id, 0, usize::MAX).unwrap();
        assert_eq!(events.len(), run.version as usize);
        assert_eq!(events.last().unwrap().to, run.status().as_str());
    }
    assert_eq!(store.examine(true).unwrap().flaws, [""; 0]);
    // Other processes can still use the store.
    execute(&*store, &request("after"), SUCCESS);
}
