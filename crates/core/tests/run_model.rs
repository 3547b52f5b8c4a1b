//! Random lives of a run, with stale claims and wrong expectations, compared step by step with a model.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use lockkeeper_core::id::{HolderId, WorkerId};
use lockkeeper_core::liveness::ProcessRef;
use lockkeeper_core::retry::RetryPolicy;
use lockkeeper_core::run::life::{self, Lost, Mark, Moved, Seen, Taker, Terms};
use lockkeeper_core::run::{Ending, EventKind, Reason, Run, Stamp, Status};
use lockkeeper_core::time::Moment;
use proptest::prelude::*;

/// How long a run may wait, and an attempt may take, in seconds.
const QUEUE: u64 = 30;
const EXECUTION: u64 = 20;
/// The longest wait between two attempts.
const BACKOFF: u64 = 8;

/// What can be tried on a run. A claim is meant as so many behind the present one.
#[derive(Clone, Debug)]
enum Step {
    Claim,
    Started { behind: u64 },
    Finish { behind: u64, seen: Seen },
    Cancel,
    TimeOut,
    Adopt { behind: u64 },
    Help,
    Mark { to: Status, expect: Option<Status>, behind: Option<u64> },
    Pass { seconds: u64 },
}

fn ending() -> impl Strategy<Value = Ending> {
    prop_oneof![
        3 => Just(Ending::Exited(0)),
        3 => Just(Ending::Exited(1)),
        1 => Just(Ending::Exited(75)),
        1 => Just(Ending::Exited(life::NEEDS_INPUT_CODE)),
        1 => Just(Ending::Signaled(9)),
    ]
}

fn seen() -> impl Strategy<Value = Seen> {
    prop_oneof![
        6 => ending().prop_map(Seen::Ended),
        2 => prop::option::of(ending()).prop_map(Seen::Stopped),
        1 => Just(Seen::NotStarted(127, "no such program".to_owned())),
        1 => Just(Seen::Vanished),
        1 => Just(Seen::Replaced),
        1 => prop::option::of(ending()).prop_map(Seen::LeaseLost),
    ]
}

fn status() -> impl Strategy<Value = Status> {
    prop::sample::select(Status::ALL.to_vec())
}

/// Mostly the present one.
fn behind() -> impl Strategy<Value = u64> {
    prop_oneof![4 => Just(0_u64), 1 => 1_u64..3]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Claim),
        2 => behind().prop_map(|behind| Step::Started { behind }),
        5 => (behind(), seen()).prop_map(|(behind, seen)| Step::Finish { behind, seen }),
        1 => Just(Step::Cancel),
        2 => Just(Step::TimeOut),
        2 => behind().prop_map(|behind| Step::Adopt { behind }),
        1 => Just(Step::Help),
        2 => (status(), prop::option::of(status()), prop::option::of(behind()))
            .prop_map(|(to, expect, behind)| Step::Mark { to, expect, behind }),
        4 => (0_u64..12).prop_map(|seconds| Step::Pass { seconds }),
    ]
}

/// What counts of a run, in the plainest words.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Model {
    status: Status,
    claim: u64,
    attempt: u32,
    /// Whether somebody executes it.
    executed: bool,
    help: bool,
    /// When the attempt began, in seconds.
    began: u64,
}

impl Model {
    fn of(run: &Run) -> Self {
        let began = run.started_at.map_or(0, |at| at.moment.as_micros().cast_unsigned() / 1_000_000);
        let executed = run.worker.is_some();
        let (status, claim, attempt, help) = (run.status, run.claim, run.attempt, run.help);
        Self { status, claim, attempt, executed, help, began }
    }

    fn ended(&self, status: Status) -> Option<Self> {
        Some(Self { status, executed: false, ..self.clone() })
    }

    /// Where it goes, or none when it stays. `due`: whether its next attempt may begin.
    fn next(&self, step: &Step, policy: &RetryPolicy, now: u64, due: bool) -> Option<Self> {
        let current = |behind: u64| behind == 0;
        match step {
            Step::Pass { .. } => None,
            Step::Claim => self.claimed(now, due),
            Step::Started { behind } => (current(*behind) && self.is_executed()).then(|| self.clone()),
            Step::Adopt { behind } => (current(*behind) && self.is_executed())
                .then(|| Self { claim: self.claim + 1, ..self.clone() }),
            Step::Help => self.status.is_active().then(|| Self { help: true, ..self.clone() }),
            Step::Finish { behind, seen } => {
                if current(*behind) && self.is_executed() {
                    self.finished(seen, policy)
                } else {
                    None
                }
            }
            Step::Cancel => self.canceled(),
            Step::TimeOut => match self.status {
                Status::Queued if now >= QUEUE => self.ended(Status::TimedOut),
                Status::Running if self.executed && now >= self.began + EXECUTION => {
                    self.ended(Status::TimedOut)
                }
                _ => None,
            },
            Step::Mark { to, expect, behind } => {
                let meant = behind.is_none_or(current) && expect.is_none_or(|expect| expect == self.status);
                let legal = legal(self.status, *to);
                match (meant && legal, to) {
                    (false, _) => None,
                    (true, Status::Running) => self.claimed(now, due),
                    (true, Status::Cancelling) => self.canceled(),
                    (true, to) => self.ended(*to),
                }
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
            attempt: self.attempt + 1,
            executed: true,
            help: false,
            began: now,
        })
    }

    fn canceled(&self) -> Option<Self> {
        match self.status {
            Status::Queued => self.ended(Status::Canceled),
            Status::Running => Some(Self { status: Status::Cancelling, ..self.clone() }),
            Status::Cancelling if !self.executed => self.ended(Status::Canceled),
            _ => None,
        }
    }

    fn finished(&self, seen: &Seen, policy: &RetryPolicy) -> Option<Self> {
        let cancelling = self.status == Status::Cancelling;
        let (fate, code) = match seen {
            Seen::Stopped(_) => return if cancelling { self.ended(Status::Canceled) } else { None },
            Seen::Vanished if cancelling => return self.ended(Status::Canceled),
            Seen::NotStarted(..) => return self.ended(Status::Failed),
            Seen::Ended(Ending::Exited(code)) if self.help || *code == life::NEEDS_INPUT_CODE => {
                return self.ended(Status::Failed);
            }
            Seen::Ended(Ending::Exited(0)) => return self.ended(Status::Succeeded),
            Seen::Ended(ending) => (Status::Failed, Some(ending.exit_code())),
            Seen::LeaseLost(ending) => (Status::Failed, ending.map(Ending::exit_code)),
            Seen::Vanished | Seen::Replaced => (Status::Failed, None),
        };
        let worth_it = policy.codes.is_empty() || code.is_some_and(|code| policy.codes.contains(&code));
        if !cancelling && worth_it && self.attempt <= policy.limit {
            return Some(Self { executed: false, ..self.clone() });
        }
        self.ended(fate)
    }
}

/// The table of the document, written out again.
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
    Run {
        id: "RUN-1".parse().unwrap(),
        request: "RQ-1".parse().unwrap(),
        status: Status::Queued,
        attempt: 0,
        claim: 0,
        worker: None,
        process: None,
        lease: None,
        queued_at: stamp(0),
        give_up_at: Some(stamp(QUEUE).moment),
        started_at: None,
        timeout: Some(Duration::from_secs(EXECUTION)),
        retry_at: None,
        completed_at: None,
        ending: None,
        reason: None,
        message: None,
        help: false,
    }
}

/// Does a step for real.
fn act(run: &Run, step: &Step, policy: &RetryPolicy, now: Stamp) -> Result<Option<Moved>, Lost> {
    let claim = |behind: u64| run.claim.wrapping_sub(behind);
    let worker: WorkerId = format!("w{}", run.claim).parse().unwrap();
    let terms = Terms { success: &[0], retry: policy, chance: 3 };
    match step {
        Step::Pass { .. } => Ok(None),
        Step::Claim => {
            let taker = Taker { worker, holder: Some(HolderId(run.claim + 1)), lease: None };
            life::claim(run, taker, now).map(Some)
        }
        Step::Started { behind } => {
            life::started(run, claim(*behind), ProcessRef { pid: 7, started: 1 }).map(Some)
        }
        Step::Finish { behind, seen } => {
            life::finish(run, claim(*behind), seen.clone(), terms, now).map(Some)
        }
        Step::Cancel => life::cancel(run, now, None).map(Some),
        Step::TimeOut => Ok(life::time_out(run, now)),
        Step::Adopt { behind } => life::adopt(run, claim(*behind), worker).map(Some),
        Step::Help => life::ask_for_help(run, Some("look".to_owned())),
        Step::Mark { to, expect, behind } => {
            let claim = behind.map(claim);
            life::mark(run, &Mark { to: *to, expect: *expect, claim, exit_code: None, worker }, now).map(Some)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Requirements 76, 77, 81, 83, 85, 86, 87, 89, 90. Invariant 9.
    #[test]
    fn every_life_of_a_run_is_that_of_the_model(
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
            let due = run.retry_at.is_some_and(|at| at <= stamp(now).moment);
            let model = Model::of(&run);
            let expected = model.next(step, &policy, now, due);
            let moved = act(&run, step, &policy, stamp(now)).ok().flatten();
            // Asking for help in the same words again is nothing new.
            let silent = matches!(step, Step::Help) && run.help;
            prop_assert_eq!(
                moved.as_ref().map(|moved| Model::of(&moved.run)),
                expected.filter(|_| !silent || run.message.is_none()),
                "{:?} on {:?}", step, run
            );
            let Some(Moved { run: after, event }) = moved else { continue };
            prop_assert!(after.check().is_ok(), "{:?}: {:?}", step, after.check());
            prop_assert_eq!((event.from, event.to), (Some(run.status), after.status));
            prop_assert!(after.claim >= run.claim && after.attempt >= run.attempt);
            prop_assert!(!run.status.is_terminal(), "{} moved by {:?}", run.status, step);
            if run.status != after.status {
                prop_assert!(legal(run.status, after.status));
            }
            prop_assert_eq!(event.kind == EventKind::Ended, after.status.is_terminal());
            ends += u32::from(event.kind == EventKind::Ended);
            if let Step::Finish { seen: Seen::Stopped(_), .. } = step {
                prop_assert_eq!(after.status, Status::Canceled);
            }
            if after.waits_for_retry() {
                let wait = after.retry_at.unwrap().since(stamp(now).moment);
                prop_assert!(after.status == Status::Running && wait <= policy.longest);
            }
            run = after;
        }
        prop_assert_eq!(ends, u32::from(run.status.is_terminal()));
    }
}

/// Requirement 86. What an attempt said before it was lost does not count for the next.
#[test]
fn a_call_for_help_belongs_to_its_attempt() {
    let policy = RetryPolicy { limit: 1, ..RetryPolicy::default() };
    let terms = Terms { success: &[0], retry: &policy, chance: 0 };
    let taker = || Taker { worker: "w".parse().unwrap(), holder: None, lease: None };
    let first = life::claim(&queued(), taker(), stamp(1)).unwrap().run;
    let asked = life::ask_for_help(&first, Some("which one?".to_owned())).unwrap().unwrap().run;
    let lost = life::finish(&asked, 1, Seen::Ended(Ending::Signaled(9)), terms, stamp(2)).unwrap().run;
    assert!(lost.waits_for_retry());
    let second = life::claim(&lost, taker(), stamp(100)).unwrap().run;
    let ended = life::finish(&second, 2, Seen::Ended(Ending::Exited(0)), terms, stamp(101)).unwrap().run;
    assert_eq!((ended.status, ended.reason), (Status::Succeeded, None::<Reason>));
}

/// Requirement 86. Lockkeeper 0.1.0 gave runs back whose command had not begun: that was no attempt.
#[test]
fn a_run_that_was_given_back_has_the_same_attempt_again() {
    let policy = RetryPolicy { limit: 1, ..RetryPolicy::default() };
    let terms = Terms { success: &[0], retry: &policy, chance: 0 };
    let taker = || Taker { worker: "w".parse().unwrap(), holder: None, lease: None };
    let first = life::claim(&queued(), taker(), stamp(1)).unwrap().run;
    let back = Run { worker: None, process: None, retry_at: Some(stamp(1).moment), ..first };
    back.check().unwrap();
    assert!(back.was_given_back());
    let again = life::claim(&back, taker(), stamp(1)).unwrap();
    assert_eq!((again.event.kind, again.run.attempt, again.run.claim), (EventKind::Claimed, 1, 2));
    let seen = Seen::Ended(Ending::Exited(1));
    let failed = life::finish(&again.run, 2, seen, terms, stamp(2)).unwrap().run;
    assert!(failed.waits_for_retry() && !failed.was_given_back());
    let second = life::claim(&failed, taker(), stamp(100)).unwrap();
    assert_eq!((second.event.kind, second.run.attempt), (EventKind::Retried, 2));
}

/// Requirements 83, 88. Somebody who tells the end of an attempt twice tells it once.
#[test]
fn an_attempt_that_was_told_to_have_failed_cannot_end_again() {
    let policy = RetryPolicy { limit: 1, ..RetryPolicy::default() };
    let terms = Terms { success: &[0], retry: &policy, chance: 0 };
    let taker = Taker { worker: "w".parse().unwrap(), holder: None, lease: None };
    let run = life::claim(&queued(), taker, stamp(1)).unwrap().run;
    let failed = life::finish(&run, 1, Seen::Ended(Ending::Exited(1)), terms, stamp(2)).unwrap().run;
    let again = life::finish(&failed, 1, Seen::Ended(Ending::Exited(0)), terms, stamp(3));
    assert_eq!(again.unwrap_err(), Lost::Nobody);
    assert_eq!(life::adopt(&failed, 1, "x".parse().unwrap()).unwrap_err(), Lost::Nobody);
    assert_eq!(life::started(&failed, 1, ProcessRef { pid: 1, started: 1 }).unwrap_err(), Lost::Nobody);
}
