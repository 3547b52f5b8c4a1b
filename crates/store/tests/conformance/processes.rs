//! The same contract between processes: the test program starts itself again as another user of the store.

use lockkeeper_testing::Started;

use super::atomic::{count_one, counted, fill, put_counter};
use super::{Harness, backends, decide, everything, other_process};

const ROUNDS: usize = 25;
const PROCESSES: usize = 4;

/// Not a test of its own: the main function of the other processes.
#[test]
#[ignore = "other tests start it"]
fn other_process() {
    let (role, backend, address) = other_process::given();
    let store = backends::named(&backend).open(&address);
    match role.as_str() {
        "count" => {
            other_process::say("ready");
            other_process::wait_for_end_of_input();
            (0..ROUNDS).for_each(|_| count_one(&*store));
        }
        "be killed" => {
            let mut transaction = store.begin().unwrap();
            transaction.next_number().unwrap();
            let changes = fill(&mut *transaction);
            other_process::say("inside");
            other_process::wait_for_end_of_input();
            let _ = transaction.commit(changes, &[]);
        }
        _ => panic!("{role} is no role"),
    }
}

pub(super) fn no_update_of_another_process_is_lost(harness: &dyn Harness) {
    let place = harness.place();
    let Some(address) = other_process::address(harness.name(), place.address()) else { return };
    let store = place.open();
    put_counter(&*store);
    let mut others: Vec<Started> =
        (0..PROCESSES).map(|_| other_process::start(harness.name(), &address, "count", "ready")).collect();
    others.iter_mut().for_each(Started::close_input);
    (0..ROUNDS).for_each(|_| count_one(&*store));
    others.iter_mut().for_each(|other| assert!(other.end().success()));
    assert_eq!(counted(&*store), i64::try_from((PROCESSES + 1) * ROUNDS).unwrap());
}

pub(super) fn a_killed_process_leaves_nothing(harness: &dyn Harness) {
    let place = harness.place();
    let Some(address) = other_process::address(harness.name(), place.address()) else { return };
    let store = place.open();
    put_counter(&*store);
    let before = everything(&*store);
    let number = decide(&*store, |records| Ok((Vec::new(), records.next_number()?))).unwrap();
    let mut other = other_process::start(harness.name(), &address, "be killed", "inside");
    other.kill();
    count_one(&*store);
    let (mut leases, tickets) = everything(&*store);
    leases[0].heartbeat_at = before.0[0].heartbeat_at;
    assert_eq!((leases, tickets), before);
    assert!(decide(&*store, |records| Ok((Vec::new(), records.next_number()?))).unwrap() > number);
}
