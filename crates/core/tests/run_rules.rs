//! The rules of runs, one claim a test: what each transition records and reports.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use lockkeeper_core::id::{HolderId, LeaseId, Token};
use lockkeeper_core::liveness::ProcessRef;
use lockkeeper_core::request::Request;
use lockkeeper_core::retry::RetryPolicy;
use lockkeeper_core::run::transition::{self, AttemptOutcome, Claimant, FinishPolicy, Transition};
use lockkeeper_core::run::{Ending, EventKind, Process, Reason, Run, Stamp, Status};
use lockkeeper_core::time::Moment;

const LEASE: (LeaseId, Token) = (LeaseId(3), Token(4));

fn stamp(seconds: i64) -> Stamp {
    Stamp { moment: Moment::from_micros(seconds * 1_000_000), unix_micros: seconds * 1_000_000 }
}

/// Submitted at second 0. It may wait for 30 seconds, and an attempt may take 20.
fn queued() -> Run {
    let request = Request {
        queue_timeout: Some(Duration::from_secs(30)),
        timeout: Some(Duration::from_secs(20)),
        ..Request::new("RQ-1".parse().unwrap(), vec!["true".to_owned()], "/".to_owned())
    };
    transition::submit(&request, "RUN-1".parse().unwrap(), stamp(0)).run
}

fn claimed(run: &Run, seconds: i64) -> Transition {
    let claimant = Claimant { worker: "w".parse().unwrap(), holder: Some(HolderId(2)), lease: Some(LEASE) };
    transition::claim(run, claimant, stamp(seconds)).unwrap()
}

fn running() -> Run {
    claimed(&queued(), 1).run
}

/// Ends the attempt at second 5. There are two attempts, and codes 0 and 7 are a success.
fn finished(run: &Run, outcome: AttemptOutcome) -> Transition {
    let retry = RetryPolicy { limit: 1, ..RetryPolicy::default() };
    let policy = FinishPolicy { success: &[0, 7], retry: &retry, random: 0 };
    transition::finish(run, run.claim(), outcome, policy, stamp(5)).unwrap()
}

fn failed(run: &Run) -> Transition {
    finished(run, AttemptOutcome::Ended(Ending::Exited(1)))
}

#[test]
fn a_retry_is_claimed_from_the_very_moment_that_it_is_due() {
    let waiting = failed(&running()).run;
    let due = waiting.retry_at().unwrap();
    let at = |moment| {
        let claimant = Claimant { worker: "w".parse().unwrap(), holder: None, lease: None };
        transition::claim(&waiting, claimant, Stamp { moment, unix_micros: 0 })
            .map(|claimed| claimed.event.kind)
    };
    assert_eq!(at(Moment::from_micros(due.as_micros() - 1)), Err(transition::TransitionError::NotDue));
    assert_eq!(at(due), Ok(EventKind::Retried));
}

#[test]
fn a_run_is_timed_out_from_the_very_moment_that_its_time_is_up_and_says_how_long_it_took() {
    assert_eq!(transition::time_out(&queued(), stamp(29)), None);
    let waited = transition::time_out(&queued(), stamp(30)).unwrap();
    assert_eq!(waited.run.message(), Some("it waited for 30s"));
    assert_eq!(transition::time_out(&running(), stamp(20)), None);
    let ran = transition::time_out(&running(), stamp(21)).unwrap();
    assert_eq!(ran.run.message(), Some("it ran for 20s"));
    let stopped = finished(&running(), AttemptOutcome::TimedOut(None));
    assert_eq!(stopped.run.message(), Some("it ran for 20s"));
}

/// Its processes may live after the end of the record.
#[test]
fn a_run_that_has_timed_out_keeps_its_processes_and_its_lease_until_they_are_cleared() {
    let command = ProcessRef { pid: 7, started: 1 };
    let started = transition::record_process(&running(), 1, command, stamp(2)).unwrap().run;
    let process = Process { holder: HolderId(2), command: Some(command) };
    assert_eq!((started.process(), started.lease()), (Some(process), Some(LEASE)));
    assert_eq!(transition::clear_processes(&started), started);
    let ended = transition::time_out(&started, stamp(60)).unwrap().run;
    assert_eq!((ended.process(), ended.lease()), (Some(process), Some(LEASE)));
    let cleared = transition::clear_processes(&ended);
    assert_eq!((cleared.process(), cleared.lease()), (None, None));
    assert_eq!((cleared.version, cleared.completed_at()), (ended.version, ended.completed_at()));
}

#[test]
fn a_cancel_records_why_in_every_state() {
    let waiting = failed(&running()).run;
    for run in [queued(), running(), waiting] {
        let canceled = transition::cancel(&run, stamp(6), Some("no longer needed".to_owned())).unwrap();
        assert_eq!(canceled.run.message(), Some("no longer needed"), "{run:?}");
        assert_eq!(canceled.event.message.as_deref(), Some("no longer needed"), "{run:?}");
    }
}

/// Requirement 86.
#[test]
fn a_call_for_help_is_recorded_once_and_again_with_another_message() {
    let help = |run: &Run, message: &str| transition::ask_for_help(run, Some(message.to_owned()), stamp(2));
    let asked = help(&running(), "which one?").unwrap().unwrap().run;
    assert_eq!(help(&asked, "which one?"), Ok(None));
    let again = help(&asked, "the left one?").unwrap().unwrap();
    assert_eq!((again.run.help(), again.run.message()), (true, Some("the left one?")));
    assert!(help(&queued(), "which one?").is_err());
    let waiting = failed(&running()).run;
    let stopping = transition::cancel(&waiting, stamp(6), None).unwrap().run;
    for run in [waiting, stopping] {
        let asked = help(&run, "which one?").unwrap().unwrap().run;
        assert_eq!((asked.help(), asked.message(), asked.ending()), (true, Some("which one?"), run.ending()));
    }
    let ended = finished(&again.run, AttemptOutcome::Ended(Ending::Exited(0))).run;
    assert_eq!((ended.reason(), ended.message()), (Some(Reason::NeedsInput), Some("the left one?")));
}

#[test]
fn an_attempt_that_failed_says_which_it_was_and_how_many_there_are() {
    let first = failed(&running());
    assert_eq!(first.event.kind, EventKind::Retrying);
    assert!(first.event.message.unwrap().starts_with("attempt 1 of 2: the next in "));
    let second = failed(&claimed(&first.run, 100).run);
    assert_eq!((second.run.status(), second.run.reason()), (Status::Failed, Some(Reason::ExitCode)));
}

#[test]
fn every_code_of_success_is_one_and_a_command_that_does_not_start_says_why() {
    let seven = finished(&running(), AttemptOutcome::Ended(Ending::Exited(7)));
    assert_eq!(seven.run.status(), Status::Succeeded);
    let missing = finished(&running(), AttemptOutcome::NotStarted(127, "no such program".to_owned()));
    assert_eq!(missing.run.message(), Some("no such program"));
}

#[test]
fn each_transition_records_who_did_what() {
    let claimed = claimed(&queued(), 1);
    assert_eq!(claimed.event.message.as_deref(), Some("worker w, attempt 1"));
    let command = ProcessRef { pid: 7, started: 1 };
    let started = transition::record_process(&claimed.run, 1, command, stamp(2)).unwrap();
    assert_eq!(
        (started.event.kind, started.event.message.as_deref()),
        (EventKind::Started, Some("process 7"))
    );
    let adopted = transition::adopt(&claimed.run, 1, "other".parse().unwrap(), stamp(3)).unwrap();
    assert_eq!(adopted.event.message.as_deref(), Some("worker other"));
    assert_eq!(adopted.run.worker().unwrap().as_str(), "other");
    let returned = finished(&claimed.run, AttemptOutcome::NotBegun);
    assert_eq!(returned.event.message.as_deref(), Some("worker w died before the command began"));
}

#[test]
fn an_open_run_on_another_clock_is_as_old_as_before_and_one_that_has_ended_is_the_same() {
    let (here, there) = (Moment::from_micros(7_000_000), Moment::from_micros(-93_000_000));
    let waiting = failed(&running()).run;
    for run in [queued(), running(), waiting] {
        let moved = run.on_clock(here, there);
        let age = |run: &Run, now: Moment| {
            let moments = [
                Some(run.queued_at.moment),
                run.started_at().map(|at| at.moment),
                run.give_up_at(),
                run.retry_at(),
                run.times_out_at(),
            ];
            moments.map(|at| at.map(|at| at.as_micros() - now.as_micros()))
        };
        assert_eq!(age(&moved, there), age(&run, here));
        assert_eq!(moved.on_clock(there, here), run);
        assert_eq!(moved.queued_at.unix_micros, run.queued_at.unix_micros);
    }
    let ended = finished(&running(), AttemptOutcome::Ended(Ending::Exited(0))).run;
    assert_eq!(ended.on_clock(here, there), ended);
}

/// A store that was restored from a backup has lost the claim, or a part of it.
#[test]
fn a_worker_writes_its_claim_again_where_the_store_has_an_earlier_state() {
    let known = running();
    for found in [queued(), failed(&running()).run] {
        let known = if found.claim() == 0 { known.clone() } else { claimed(&found, 60).run };
        let again = transition::write_again(&found, &known, stamp(90)).unwrap().unwrap();
        assert_eq!((again.run.state, again.run.version), (known.state, found.version + 1));
        assert_eq!((again.event.kind, again.event.to), (EventKind::Adopted, Status::Running));
    }
    assert_eq!(transition::write_again(&known, &known, stamp(90)), Ok(None), "nothing was lost");
    // Its cancellation came after the loss of a second claim.
    let canceling = transition::cancel(&known, stamp(3), None).unwrap().run;
    let adopted = transition::adopt(&known, known.claim(), "x".parse().unwrap(), stamp(2)).unwrap().run;
    let again = transition::write_again(&canceling, &adopted, stamp(90)).unwrap().unwrap();
    assert_eq!((again.run.status(), again.run.worker()), (Status::Cancelling, adopted.worker()));
}

#[test]
fn a_worker_does_not_write_its_claim_again_over_an_end_or_the_claim_of_another() {
    let known = running();
    let other = Claimant { worker: "x".parse().unwrap(), holder: Some(HolderId(9)), lease: None };
    let taken = transition::claim(&queued(), other, stamp(60)).unwrap().run;
    let canceled = transition::cancel(&queued(), stamp(60), None).unwrap().run;
    let adopted = transition::adopt(&known, known.claim(), "x".parse().unwrap(), stamp(2)).unwrap().run;
    for found in [taken, canceled, adopted, failed(&known).run] {
        assert!(transition::write_again(&found, &known, stamp(90)).is_err(), "{found:?}");
    }
}
