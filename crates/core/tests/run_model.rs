//! Model test: random transitions of a run, with stale claims and wrong expectations, compared step by step with a model.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use lockkeeper_core::id::{HolderId, LeaseId, Token, WorkerId};
use lockkeeper_core::liveness::ProcessRef;
use lockkeeper_core::request::Request;
use lockkeeper_core::retry::RetryPolicy;
use lockkeeper_core::run::transition::{
    self, AttemptOutcome, Claimant, FinishPolicy, Mark, NEEDS_INPUT_CODE, Transition, TransitionError,
};
use lockkeeper_core::run::{Ending, EventKind, Reason, Run, RunRow, Stamp, Status};
use lockkeeper_core::time::Moment;
use proptest::prelude::*;

/// How long a run may wait, and an attempt may take, in seconds.
const QUEUE: u64 = 30;
const EXECUTION: u64 = 20;
/// The longest wait between two attempts.
const BACKOFF: u64 = 8;

/// A transition to try. `behind` says how many claims the caller is behind the current one.
#[derive(Clone, Debug)]
enum Step {
    Claim,
    Started { behind: u64 },
    Finish { behind: u64, outcome: AttemptOutcome },
    Cancel,
    TimeOut,
    Adopt { behind: u64 },
    GiveUpAttempt,
    Help,
    Mark { to: Status, expect: Option<Status>, behind: Option<u64>, exit_code: Option<u8> },
    Pass { seconds: u64 },
}

fn ending() -> impl Strategy<Value = Ending> {
    prop_oneof![
        3 => Just(Ending::Exited(0)),
        3 => Just(Ending::Exited(1)),
        1 => Just(Ending::Exited(75)),
        1 => Just(Ending::Exited(NEEDS_INPUT_CODE)),
        1 => Just(Ending::Signaled(9)),
    ]
}

fn outcome() -> impl Strategy<Value = AttemptOutcome> {
    prop_oneof![
        6 => ending().prop_map(AttemptOutcome::Ended),
        2 => prop::option::of(ending()).prop_map(AttemptOutcome::Stopped),
        1 => Just(AttemptOutcome::NotStarted(127, "no such program".to_owned())),
        1 => Just(AttemptOutcome::Vanished),
        1 => Just(AttemptOutcome::Replaced),
        2 => Just(AttemptOutcome::NotBegun),
        1 => prop::option::of(ending()).prop_map(AttemptOutcome::TimedOut),
        1 => prop::option::of(ending()).prop_map(AttemptOutcome::LeaseLost),
    ]
}

fn status() -> impl Strategy<Value = Status> {
    prop::sample::select(Status::ALL.to_vec())
}

/// Mostly the current claim.
fn behind() -> impl Strategy<Value = u64> {
    prop_oneof![4 => Just(0_u64), 1 => 1_u64..3]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Claim),
        2 => behind().prop_map(|behind| Step::Started { behind }),
        5 => (behind(), outcome()).prop_map(|(behind, outcome)| Step::Finish { behind, outcome }),
        1 => Just(Step::Cancel),
        2 => Just(Step::TimeOut),
        2 => behind().prop_map(|behind| Step::Adopt { behind }),
        1 => Just(Step::GiveUpAttempt),
        1 => Just(Step::Help),
        2 => (status(), prop::option::of(status()), prop::option::of(behind()), prop::option::of(Just(3)))
            .prop_map(|(to, expect, behind, exit_code)| Step::Mark { to, expect, behind, exit_code }),
        4 => prop_oneof![4 => 0_u64..12, 1 => Just(QUEUE)].prop_map(|seconds| Step::Pass { seconds }),
    ]
}

/// The model of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Model {
    status: Status,
    claim: u64,
    attempt: u32,
    /// Whether a worker executes it.
    executed: bool,
    help: bool,
    /// When the attempt was claimed, in seconds.
    began: u64,
    /// Whether the attempt is still to be made, because its worker died before the command began.
    returned: bool,
    /// The claim that took its kernel lock and its lease, and whether the process of its command is recorded.
    holds: Option<(u64, bool)>,
    ending: Option<Ending>,
    reason: Option<Reason>,
}

impl Model {
    fn of(run: &Run) -> Self {
        let began = run.started_at().map_or(0, |at| at.moment.as_micros().cast_unsigned() / 1_000_000);
        let executed = run.worker().is_some();
        let (status, claim, attempt, help) = (run.status(), run.claim(), run.attempt(), run.help());
        let holds = run.process().map(|process| (process.holder.0, process.command.is_some()));
        assert_eq!(
            run.lease(),
            holds.map(|(claim, _)| lease_of(claim)),
            "the lock and the lease go together"
        );
        let (returned, ending, reason) = (run.was_returned(), run.ending(), run.reason());
        Self { status, claim, attempt, executed, help, began, returned, holds, ending, reason }
    }

    fn ended(&self, status: Status, reason: Option<Reason>) -> Option<Self> {
        Some(Self { status, reason, executed: false, returned: false, ..self.clone() })
    }

    /// The model after a step, or none if the step is refused. `due`: whether its next attempt is due.
    fn next(&self, step: &Step, policy: &RetryPolicy, now: u64, due: bool) -> Option<Self> {
        let current = |behind: u64| behind == 0;
        match step {
            Step::Pass { .. } => None,
            Step::Claim => self.claimed(now, due),
            Step::Started { behind } => (current(*behind) && self.is_executed())
                .then(|| Self { holds: self.holds.map(|(claim, _)| (claim, true)), ..self.clone() }),
            Step::Adopt { behind } => (current(*behind) && self.is_executed())
                .then(|| Self { claim: self.claim + 1, ..self.clone() }),
            Step::GiveUpAttempt if self.status == Status::Running && !self.executed => {
                self.ended(Status::Failed, self.reason.or(Some(Reason::Lost)))
            }
            Step::GiveUpAttempt if self.status == Status::Queued => {
                self.ended(Status::Canceled, Some(Reason::UserCanceled))
            }
            Step::GiveUpAttempt => None,
            Step::Help => self.status.is_active().then(|| Self { help: true, ..self.clone() }),
            Step::Finish { behind, outcome } => {
                if current(*behind) && self.is_executed() {
                    self.finished(outcome, policy)
                } else {
                    None
                }
            }
            Step::Cancel => self.canceled(),
            Step::TimeOut => match self.status {
                Status::Queued if now >= QUEUE => self.ended(Status::TimedOut, Some(Reason::QueueTimeout)),
                Status::Running if self.executed && now >= self.began + EXECUTION => {
                    self.ended(Status::TimedOut, Some(Reason::ExecutionTimeout))
                }
                _ => None,
            },
            Step::Mark { to, expect, behind, exit_code } => {
                let meant = behind.is_none_or(current) && expect.is_none_or(|expect| expect == self.status);
                let legal = legal(self.status, *to);
                let ending = exit_code.map(Ending::Exited).or(self.ending);
                let moved = match (meant && legal, to) {
                    (false, _) => None,
                    (true, Status::Running) => {
                        self.claimed(now, due).map(|claimed| Self { holds: None, ..claimed })
                    }
                    (true, Status::Cancelling) => self.canceled(),
                    (true, Status::Succeeded) => self.ended(Status::Succeeded, None),
                    (true, Status::Canceled) if self.status == Status::Queued => self.canceled(),
                    (true, to) => self.ended(*to, Some(Reason::Marked)),
                };
                moved.map(|moved| Self { ending, ..moved })
            }
        }
    }

    fn is_executed(&self) -> bool {
        self.executed && self.status.is_active()
    }

    fn claimed(&self, now: u64, due: bool) -> Option<Self> {
        let waits =
            self.status == Status::Queued || (self.status == Status::Running && !self.executed && due);
        waits.then(|| Self {
            status: Status::Running,
            claim: self.claim + 1,
            attempt: self.attempt + u32::from(!self.returned),
            executed: true,
            help: false,
            began: now,
            returned: false,
            holds: Some((self.claim + 1, false)),
            ending: None,
            reason: None,
        })
    }

    fn canceled(&self) -> Option<Self> {
        match self.status {
            Status::Cancelling if self.executed => None,
            Status::Queued | Status::Cancelling => self.ended(Status::Canceled, Some(Reason::UserCanceled)),
            Status::Running => Some(Self { status: Status::Cancelling, returned: false, ..self.clone() }),
            _ => None,
        }
    }

    fn finished(&self, outcome: &AttemptOutcome, policy: &RetryPolicy) -> Option<Self> {
        let cancelling = self.status == Status::Cancelling;
        if *outcome == AttemptOutcome::NotBegun && !cancelling {
            return Some(Self { executed: false, returned: true, holds: None, ..self.clone() });
        }
        let ending = match outcome {
            AttemptOutcome::Ended(ending) => Some(*ending),
            AttemptOutcome::Stopped(ending)
            | AttemptOutcome::TimedOut(ending)
            | AttemptOutcome::LeaseLost(ending) => *ending,
            AttemptOutcome::NotStarted(code, _) => Some(Ending::Exited(*code)),
            AttemptOutcome::Vanished | AttemptOutcome::NotBegun | AttemptOutcome::Replaced => None,
        };
        let done = Self { ending, holds: None, ..self.clone() };
        let reason = match outcome {
            AttemptOutcome::Stopped(_) if !cancelling => return None,
            AttemptOutcome::Stopped(_)
            | AttemptOutcome::Vanished
            | AttemptOutcome::NotBegun
            | AttemptOutcome::TimedOut(_)
                if cancelling =>
            {
                return done.ended(Status::Canceled, Some(Reason::UserCanceled));
            }
            AttemptOutcome::TimedOut(_) => {
                return done.ended(Status::TimedOut, Some(Reason::ExecutionTimeout));
            }
            AttemptOutcome::NotStarted(..) => {
                return done.ended(Status::Failed, Some(Reason::CommandNotStarted));
            }
            AttemptOutcome::Ended(Ending::Exited(code)) if self.help || *code == NEEDS_INPUT_CODE => {
                return done.ended(Status::Failed, Some(Reason::NeedsInput));
            }
            AttemptOutcome::Ended(Ending::Exited(0)) => return done.ended(Status::Succeeded, None),
            AttemptOutcome::Ended(Ending::Exited(_)) => Reason::ExitCode,
            AttemptOutcome::Ended(Ending::Signaled(_)) => Reason::Signal,
            AttemptOutcome::LeaseLost(_) => Reason::LeaseLost,
            AttemptOutcome::Replaced => Reason::WorkerSilent,
            AttemptOutcome::Stopped(_) | AttemptOutcome::Vanished | AttemptOutcome::NotBegun => Reason::Lost,
        };
        let code = ending.map(Ending::exit_code);
        let worth_it = policy.codes.is_empty() || code.is_some_and(|code| policy.codes.contains(&code));
        if !cancelling && worth_it && self.attempt <= policy.limit {
            return Some(Self { executed: false, reason: Some(reason), ..done });
        }
        done.ended(Status::Failed, Some(reason))
    }
}

/// The lease that the worker of a claim holds for its run.
fn lease_of(claim: u64) -> (LeaseId, Token) {
    (LeaseId(claim), Token(claim))
}

/// The table of moves, written a second time.
fn legal(from: Status, to: Status) -> bool {
    match from {
        Status::Queued => matches!(to, Status::Running | Status::Canceled | Status::TimedOut),
        Status::Running => {
            matches!(to, Status::Succeeded | Status::Failed | Status::Cancelling | Status::TimedOut)
        }
        Status::Cancelling => matches!(to, Status::Canceled | Status::Succeeded | Status::Failed),
        _ => false,
    }
}

fn stamp(now: u64) -> Stamp {
    let micros = (now * 1_000_000).cast_signed();
    Stamp { moment: Moment::from_micros(micros), unix_micros: micros }
}

fn queued() -> Run {
    let command = vec!["true".to_owned()];
    let request = Request {
        queue_timeout: Some(Duration::from_secs(QUEUE)),
        timeout: Some(Duration::from_secs(EXECUTION)),
        ..Request::new("RQ-1".parse().unwrap(), command, "/".to_owned())
    };
    transition::submit(&request, "RUN-1".parse().unwrap(), stamp(0)).run
}

/// Does a step with the real functions.
fn act(
    run: &Run,
    step: &Step,
    policy: &RetryPolicy,
    now: Stamp,
) -> Result<Option<Transition>, TransitionError> {
    let claim = |behind: u64| run.claim().wrapping_sub(behind);
    let worker: WorkerId = format!("w{}", run.claim()).parse().unwrap();
    let terms = FinishPolicy { success: &[0], retry: policy, random: 3 };
    match step {
        Step::Pass { .. } => Ok(None),
        Step::Claim => {
            let number = run.claim() + 1;
            let claimant = Claimant { worker, holder: Some(HolderId(number)), lease: Some(lease_of(number)) };
            transition::claim(run, claimant, now).map(Some)
        }
        Step::Started { behind } => {
            transition::record_process(run, claim(*behind), ProcessRef { pid: 7, started: 1 }, now).map(Some)
        }
        Step::Finish { behind, outcome } => {
            transition::finish(run, claim(*behind), outcome.clone(), terms, now).map(Some)
        }
        Step::Cancel => transition::cancel(run, now, None).map(Some),
        Step::TimeOut => Ok(transition::time_out(run, now)),
        Step::Adopt { behind } => transition::adopt(run, claim(*behind), worker, now).map(Some),
        Step::GiveUpAttempt => transition::give_up_attempt(run, "nobody makes it".to_owned(), now).map(Some),
        Step::Help => transition::ask_for_help(run, Some("look".to_owned()), now),
        Step::Mark { to, expect, behind, exit_code } => {
            let (claim, exit_code) = (behind.map(claim), *exit_code);
            transition::mark(run, &Mark { to: *to, expect: *expect, claim, exit_code, worker }, now).map(Some)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Requirements 76, 77, 81, 83, 85, 86, 87, 89, 90. Invariant 9.
    #[test]
    fn every_sequence_of_transitions_matches_the_model(
        steps in prop::collection::vec(step(), 1..60),
        limit in 0_u32..4,
        filtered in any::<bool>(),
    ) {
        let policy = RetryPolicy {
            limit,
            base: Duration::from_secs(BACKOFF / 4),
            longest: Duration::from_secs(BACKOFF),
            codes: if filtered { vec![1] } else { Vec::new() },
        };
        let (mut run, mut now, mut ends) = (queued(), 0_u64, 0);
        for step in &steps {
            if let Step::Pass { seconds } = step {
                now += seconds;
            }
            let due = run.retry_at().is_some_and(|at| at <= stamp(now).moment);
            let model = Model::of(&run);
            let expected = model.next(step, &policy, now, due);
            let moved = act(&run, step, &policy, stamp(now)).ok().flatten();
            // Asking for help with the same message again changes nothing.
            let silent = matches!(step, Step::Help) && run.help();
            prop_assert_eq!(
                moved.as_ref().map(|moved| Model::of(&moved.run)),
                expected.filter(|_| !silent || run.message().is_none()),
                "{:?} on {:?}", step, run
            );
            let Some(Transition { run: after, event }) = moved else { continue };
            prop_assert_eq!(Run::try_from(RunRow::from(&after)), Ok(after.clone()), "{:?}", step);
            prop_assert_eq!(after.version, run.version + 1);
            prop_assert_eq!((&after.id, &after.request), (&run.id, &run.request));
            prop_assert_eq!((after.queued_at, after.timeout), (run.queued_at, run.timeout));
            prop_assert_eq!((event.at, event.reason), (stamp(now), after.reason()));
            prop_assert_eq!(after.completed_at().is_some(), after.status().is_terminal());
            prop_assert_eq!((event.from, event.to), (Some(run.status()), after.status()));
            prop_assert!(after.claim() >= run.claim() && after.attempt() >= run.attempt());
            prop_assert!(!run.status().is_terminal(), "{} moved by {:?}", run.status(), step);
            if run.status() != after.status() {
                prop_assert!(legal(run.status(), after.status()));
            }
            prop_assert_eq!(event.kind == EventKind::Ended, after.status().is_terminal());
            ends += u32::from(event.kind == EventKind::Ended);
            if let Step::Finish { outcome: AttemptOutcome::Stopped(_), .. } = step {
                prop_assert_eq!(after.status(), Status::Canceled);
            }
            if after.waits_for_retry() {
                let wait = after.retry_at().unwrap().since(stamp(now).moment);
                prop_assert!(after.status() == Status::Running && wait <= policy.longest);
            }
            run = after;
        }
        prop_assert_eq!(ends, u32::from(run.status().is_terminal()));
    }
}

/// Requirement 86. The next attempt does not inherit a call for help.
#[test]
fn a_call_for_help_belongs_to_its_attempt() {
    let policy = RetryPolicy { limit: 1, ..RetryPolicy::default() };
    let terms = FinishPolicy { success: &[0], retry: &policy, random: 0 };
    let claimant = || Claimant { worker: "w".parse().unwrap(), holder: None, lease: None };
    let first = transition::claim(&queued(), claimant(), stamp(1)).unwrap().run;
    let asked =
        transition::ask_for_help(&first, Some("which one?".to_owned()), stamp(1)).unwrap().unwrap().run;
    let lost = transition::finish(&asked, 1, AttemptOutcome::Ended(Ending::Signaled(9)), terms, stamp(2))
        .unwrap()
        .run;
    assert!(lost.waits_for_retry());
    let second = transition::claim(&lost, claimant(), stamp(100)).unwrap().run;
    let ended = transition::finish(&second, 2, AttemptOutcome::Ended(Ending::Exited(0)), terms, stamp(101))
        .unwrap()
        .run;
    assert_eq!((ended.status(), ended.reason()), (Status::Succeeded, None::<Reason>));
}

/// Requirement 86. Lockkeeper 0.1.0 returned runs before it started their command: that is no attempt.
#[test]
fn a_returned_run_makes_the_same_attempt_again() {
    let policy = RetryPolicy { limit: 1, ..RetryPolicy::default() };
    let terms = FinishPolicy { success: &[0], retry: &policy, random: 0 };
    let claimant = || Claimant { worker: "w".parse().unwrap(), holder: None, lease: None };
    let first = transition::claim(&queued(), claimant(), stamp(1)).unwrap().run;
    let row = RunRow { worker: None, process: None, retry_at: Some(stamp(1).moment), ..RunRow::from(&first) };
    let back = Run::try_from(row).unwrap();
    assert!(back.was_returned());
    let again = transition::claim(&back, claimant(), stamp(1)).unwrap();
    assert_eq!((again.event.kind, again.run.attempt(), again.run.claim()), (EventKind::Claimed, 1, 2));
    let seen = AttemptOutcome::Ended(Ending::Exited(1));
    let failed = transition::finish(&again.run, 2, seen, terms, stamp(2)).unwrap().run;
    assert!(failed.waits_for_retry() && !failed.was_returned());
    let second = transition::claim(&failed, claimant(), stamp(100)).unwrap();
    assert_eq!((second.event.kind, second.run.attempt()), (EventKind::Retried, 2));
}

/// Requirements 83, 88. A worker that reports the end of an attempt twice is refused the second time.
#[test]
fn an_attempt_that_has_failed_cannot_end_again() {
    let policy = RetryPolicy { limit: 1, ..RetryPolicy::default() };
    let terms = FinishPolicy { success: &[0], retry: &policy, random: 0 };
    let claimant = Claimant { worker: "w".parse().unwrap(), holder: None, lease: None };
    let run = transition::claim(&queued(), claimant, stamp(1)).unwrap().run;
    let failed =
        transition::finish(&run, 1, AttemptOutcome::Ended(Ending::Exited(1)), terms, stamp(2)).unwrap().run;
    let again = transition::finish(&failed, 1, AttemptOutcome::Ended(Ending::Exited(0)), terms, stamp(3));
    assert_eq!(again.unwrap_err(), TransitionError::NotExecuted);
    assert_eq!(
        transition::adopt(&failed, 1, "x".parse().unwrap(), stamp(3)).unwrap_err(),
        TransitionError::NotExecuted
    );
    assert_eq!(
        transition::record_process(&failed, 1, ProcessRef { pid: 1, started: 1 }, stamp(3)).unwrap_err(),
        TransitionError::NotExecuted
    );
}

/// Invariant 12. What a database row says twice must agree.
#[test]
fn rows_that_no_run_can_have_are_rejected() {
    let claimant = || Claimant { worker: "w".parse().unwrap(), holder: Some(HolderId(1)), lease: None };
    let running = RunRow::from(&transition::claim(&queued(), claimant(), stamp(1)).unwrap().run);
    let canceled = RunRow::from(&transition::cancel(&queued(), stamp(1), None).unwrap().run);
    let queued = RunRow::from(&queued());
    let later = Some(stamp(9));
    for (row, what) in [
        (RunRow { version: 0, ..queued.clone() }, "no event"),
        (RunRow { worker: running.worker.clone(), ..queued.clone() }, "a worker executes it"),
        (RunRow { process: running.process, ..queued.clone() }, "has processes"),
        (RunRow { lease: Some((LeaseId(1), Token(1))), ..queued.clone() }, "holds a lease"),
        (RunRow { started_at: later, ..queued.clone() }, "for no attempt"),
        (RunRow { claim: 1, ..queued.clone() }, "at no time"),
        (RunRow { attempt: 1, ..queued.clone() }, "at no time"),
        (RunRow { completed_at: later, ..queued.clone() }, "it has ended"),
        (RunRow { retry_at: Some(stamp(9).moment), ..queued.clone() }, "waits for its next attempt"),
        (RunRow { status: Status::Running, ..queued.clone() }, "never claimed"),
        (RunRow { status: Status::Rejected, ..queued.clone() }, "has not ended"),
        (RunRow { status: Status::Rejected, completed_at: later, ..queued }, "no reason"),
        (RunRow { status: Status::Queued, ..running.clone() }, "it was claimed"),
        (RunRow { attempt: 2, ..running.clone() }, "more attempts than claims"),
        (RunRow { started_at: None, ..running.clone() }, "at no time"),
        (RunRow { worker: None, ..running.clone() }, "no worker executes it"),
        (RunRow { retry_at: Some(stamp(9).moment), ..running.clone() }, "a worker executes it and it waits"),
        (RunRow { status: Status::Succeeded, ..running.clone() }, "a worker executes it"),
        (RunRow { status: Status::Failed, worker: None, completed_at: later, ..running }, "no reason"),
        (RunRow { reason: None, ..canceled.clone() }, "no reason"),
        (RunRow { completed_at: None, ..canceled.clone() }, "has not ended"),
        (RunRow { status: Status::Failed, ..canceled }, "never claimed"),
    ] {
        let error = Run::try_from(row.clone()).unwrap_err();
        assert!(error.to_string().contains(what), "{row:?}: {error}");
    }
}
