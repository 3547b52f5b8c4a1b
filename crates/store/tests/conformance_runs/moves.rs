//! Transitions: compare-and-set of one run, and of many in one call.

use std::thread;

use lockkeeper_core::id::{HolderId, LeaseId, RunId, Token};
use lockkeeper_core::liveness::ProcessRef;
use lockkeeper_core::run::transition::{self, AttemptOutcome, Claimant};
use lockkeeper_core::run::{Run, RunState, Status};
use lockkeeper_store::RunStore;
use lockkeeper_store::runs::Moved;

use super::Harness;
use super::sample::{
    FAILURE, SUCCESS, all_events, all_runs, apply, cancel, claim, claim_of, end_of, execute, finish,
    new_run_id, request, request_with_retries, run, store, submit, worker,
};

/// Each state with all its data.
pub(super) fn every_state_comes_back(harness: &dyn Harness) {
    let (place, store) = store(harness);
    let other = place.open();
    let check = |written: Run, state: &str| {
        assert!(format!("{:?}", written.state).starts_with(state), "{:?}", written.state);
        assert_eq!(run(&*other, &written.id), written);
        written
    };
    let retried = request_with_retries("a", 2);
    let queued = check(submit(&*store, &retried), "Queued");
    let lease = Some((LeaseId(7), Token(8)));
    let claimant = Claimant { worker: worker("W-1"), holder: Some(HolderId(u64::MAX)), lease };
    let running = apply(&*store, transition::claim(&queued, claimant, store.now()).unwrap());
    let running = check(running, "Running");
    let process = ProcessRef { pid: 77, started: u64::MAX };
    let now = || store.now();
    let started = transition::record_process(&running, running.claim(), process, now()).unwrap();
    let started = check(apply(&*store, started), "Running");
    let helped = transition::ask_for_help(&started, Some("help".to_owned()), now()).unwrap().unwrap();
    let helped = check(apply(&*store, helped), "Running");
    let adopted = transition::adopt(&helped, helped.claim(), worker("W-2"), now()).unwrap();
    let adopted = check(apply(&*store, adopted), "Running");
    let killed = AttemptOutcome::LeaseLost(Some(lockkeeper_core::run::Ending::Signaled(9)));
    let waiting = apply(&*store, end_of(&*store, &adopted, &retried, killed));
    let waiting = check(waiting, "WaitingForRetry");
    check(cancel(&*store, &waiting), "CancellingRetry");
    let canceled = cancel(&*store, &run(&*store, &queued.id));
    check(canceled, "Ended");
    let cancelling = cancel(&*store, &claim(&*store, &submit(&*store, &request("b"))));
    let cancelling = check(cancelling, "Cancelling");
    check(finish(&*store, &cancelling, AttemptOutcome::Stopped(None)), "Ended");
    for (id, outcome, status) in [
        ("c", SUCCESS, Status::Succeeded),
        ("d", FAILURE, Status::Failed),
        ("e", AttemptOutcome::NotStarted(127, "no program".to_owned()), Status::Failed),
        ("f", AttemptOutcome::Vanished, Status::Failed),
    ] {
        let ended = check(execute(&*store, &request(id), outcome), "Ended");
        assert_eq!(ended.status(), status);
    }
}

pub(super) fn no_update_is_lost(harness: &dyn Harness) {
    const THREADS: u32 = 4;
    const ROUNDS: u32 = 25;
    let (place, first) = store(harness);
    let claimed = claim(&*first, &submit(&*first, &request("a")));
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (store, id) = (place.open(), claimed.id.clone());
            scope
                .spawn(move || (0..ROUNDS).for_each(|round| ask(&*store, &id, &format!("{number} {round}"))));
        }
    });
    assert_eq!(run(&*first, &claimed.id).version, claimed.version + THREADS * ROUNDS);
    let events = first.snapshot().unwrap().events_of(&claimed.id, 0, usize::MAX).unwrap();
    let numbers: Vec<u32> = events.iter().map(|event| event.id.seq).collect();
    assert_eq!(numbers, (1..=claimed.version + THREADS * ROUNDS).collect::<Vec<_>>());
}

/// Records a message in a run, with retries while others change the run.
pub(super) fn ask(store: &dyn RunStore, id: &RunId, message: &str) {
    let mut current = run(store, id);
    loop {
        let asked = transition::ask_for_help(&current, Some(message.to_owned()), store.now());
        match store.move_runs(&[asked.unwrap().unwrap()]).unwrap().remove(0) {
            Moved::Applied => return,
            Moved::Conflict(found) => current = *found.expect("the run exists"),
        }
    }
}

pub(super) fn one_of_many_claims_a_run(harness: &dyn Harness) {
    let (place, first) = store(harness);
    let queued = submit(&*first, &request("a"));
    let winners: Vec<String> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|number| {
                let (store, queued, id) = (place.open(), queued.clone(), format!("W-{number}"));
                scope.spawn(move || {
                    let moved = store.move_runs(&[claim_of(&*store, &queued, &id)]).unwrap();
                    (moved == [Moved::Applied]).then_some(id)
                })
            })
            .collect();
        threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(winners.len(), 1);
    assert_eq!(run(&*first, &queued.id).worker().unwrap().as_str(), winners[0]);
}

pub(super) fn a_conflict_returns_the_current_record(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    let queued = submit(&*store, &request("a"));
    let claimed = claim(&*store, &queued);
    let (runs, events) = (all_runs(&*store), all_events(&*store));
    let moved = store.move_runs(&[claim_of(&*store, &queued, "W-2")]).unwrap();
    assert_eq!(moved, [Moved::Conflict(Some(Box::new(claimed)))]);
    assert_eq!((all_runs(&*store), all_events(&*store)), (runs, events));
}

pub(super) fn a_conflict_does_not_keep_others_from_applying(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    let [a, b, c] = ["a", "b", "c"].map(|id| submit(&*store, &request(id)));
    claim(&*store, &b);
    let moves = [&a, &b, &c].map(|run| claim_of(&*store, run, "W-2"));
    let moved = store.move_runs(&moves).unwrap();
    assert!(matches!(&moved[..], [Moved::Applied, Moved::Conflict(Some(_)), Moved::Applied]), "{moved:?}");
    let workers = [a, b, c].map(|queued| run(&*store, &queued.id).worker().cloned());
    assert_eq!(workers, ["W-2", "W-1", "W-2"].map(|id| Some(worker(id))));
}

pub(super) fn transitions_apply_in_their_order(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    let queued = submit(&*store, &request("a"));
    let claimed = claim_of(&*store, &queued, "W-1");
    let ended = end_of(&*store, &claimed.run, &request("a"), SUCCESS);
    let moved = store.move_runs(&[ended.clone(), claimed, ended.clone()]).unwrap();
    // The end does not apply before the claim.
    assert!(matches!(&moved[..], [Moved::Conflict(Some(_)), Moved::Applied, Moved::Applied]), "{moved:?}");
    assert_eq!(run(&*store, &queued.id), ended.run);
    let kinds: Vec<String> = all_events(&*store).into_iter().map(|event| event.kind).collect();
    assert_eq!(kinds, ["submitted", "claimed", "ended"]);
}

/// A caller that does not know whether a call was committed tries again.
pub(super) fn the_same_transition_applies_once(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    let claimed = claim_of(&*store, &submit(&*store, &request("a")), "W-1");
    assert_eq!(store.move_runs(std::slice::from_ref(&claimed)).unwrap(), [Moved::Applied]);
    let again = store.move_runs(std::slice::from_ref(&claimed)).unwrap();
    assert_eq!(again, [Moved::Conflict(Some(Box::new(claimed.run)))]);
    assert_eq!(all_events(&*store).len(), 2);
}

pub(super) fn an_unknown_run_conflicts(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    let queued = submit(&*store, &request("a"));
    let unknown = Run { id: new_run_id(), ..queued };
    assert_eq!(store.move_runs(&[claim_of(&*store, &unknown, "W-1")]).unwrap(), [Moved::Conflict(None)]);
    assert_eq!(store.move_runs(&[]).unwrap(), []);
}

pub(super) fn clearing_processes_is_no_event(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    let request =
        lockkeeper_core::request::Request { timeout: Some(std::time::Duration::ZERO), ..request("a") };
    let claimed = claim(&*store, &submit(&*store, &request));
    let ended = apply(&*store, transition::time_out(&claimed, store.now()).unwrap());
    assert!(ended.process().is_some());
    assert_eq!(store.snapshot().unwrap().active_runs().unwrap(), std::slice::from_ref(&ended));
    // A record of an earlier version changes nothing.
    store.clear_processes(&claimed).unwrap();
    assert_eq!(run(&*store, &ended.id), ended);
    let events = all_events(&*store);
    store.clear_processes(&ended).unwrap();
    let cleared = run(&*store, &ended.id);
    assert_eq!(cleared, transition::clear_processes(&ended));
    assert!(cleared.process().is_none() && cleared.version == ended.version);
    assert_eq!(all_events(&*store), events);
    assert!(store.snapshot().unwrap().active_runs().unwrap().is_empty());
}

/// Also not if a program writes a wrong record.
pub(super) fn an_ended_run_never_changes(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    let queued = submit(&*store, &request("a"));
    let claimed = claim_of(&*store, &queued, "W-1");
    let ended = finish(&*store, &apply(&*store, claimed.clone()), SUCCESS);
    let mut wrong = claimed;
    wrong.run.version = ended.version + 1;
    assert!(matches!(wrong.run.state, RunState::Running(_)));
    assert!(store.move_runs(&[wrong]).is_err());
    assert_eq!(run(&*store, &ended.id), ended);
    assert_eq!(all_events(&*store).len(), 3);
}
