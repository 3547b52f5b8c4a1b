//! Signals: every change wakes a process that sleeps.

use lockkeeper_platform::poll;
use lockkeeper_store::runs::ChangeSignal;
use lockkeeper_testing::until;

use super::sample::{SUCCESS, claim, execute, finish, request, store, submit};
use super::{Harness, LIMIT};

/// Whether a signal came. True for a backend that cannot signal: its users poll.
fn is_signaled(signal: &dyn ChangeSignal) -> bool {
    let Some(descriptor) = signal.as_fd() else { return true };
    poll::wait(&[descriptor], Some(LIMIT)).unwrap().contains(0)
}

pub(super) fn a_change_signals(harness: &dyn Harness) {
    let (place, store) = store(harness);
    let queued = submit(&*store, &request("a"));
    let signal = store.subscribe().unwrap();
    let other = place.open();
    let claimed = claim(&*other, &queued);
    assert!(is_signaled(&*signal));
    signal.drain();
    finish(&*other, &claimed, SUCCESS);
    assert!(is_signaled(&*signal));
}

pub(super) fn a_signal_can_be_forgotten(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    let signal = store.subscribe().unwrap();
    execute(&*store, &request("a"), SUCCESS);
    assert!(is_signaled(&*signal));
    if let Some(descriptor) = signal.as_fd() {
        // A late signal of the changes so far may still come.
        until("the changes so far are forgotten", || {
            signal.drain();
            !poll::wait(&[descriptor], Some(std::time::Duration::from_millis(50))).unwrap().contains(0)
        });
    }
    execute(&*store, &request("b"), SUCCESS);
    assert!(is_signaled(&*signal));
}
