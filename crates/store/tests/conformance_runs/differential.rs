//! One random history on two backends: both return the same answers and the same records.

use lockkeeper_core::id::{HolderId, RunId};
use lockkeeper_core::record::Priority;
use lockkeeper_core::request::{Request, RequestStatus};
use lockkeeper_core::run::admission::Submission;
use lockkeeper_core::run::transition::{self, AttemptOutcome, Transition};
use lockkeeper_core::run::{Ending, Run};
use lockkeeper_store::RunStore;
use lockkeeper_store::runs::{ClaimOrder, Claims, Listing, Moved, RequestFilter, Requeue};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::backends::{POSTGRES, SQLITE};
use super::harness::{Harness, skip};
use super::sample::{all_events, all_runs, claim_of, end_of, request, worker};

#[derive(Clone, Debug)]
enum Step {
    /// Submits requests: numbers of their ids, each with the numbers of those it comes after.
    Submit {
        ids: Vec<(usize, Vec<usize>)>,
        kind: usize,
        limit: Option<u64>,
    },
    /// Ends the run with this number among the active ones, and claims the next runs.
    EndAndClaim {
        run: usize,
        code: u8,
        claims: u64,
        skip_leased: bool,
    },
    /// Claims a run by its number, in any state.
    ClaimById {
        run: usize,
    },
    Cancel {
        run: usize,
    },
    /// Runs a request again.
    Requeue {
        run: usize,
        is_expected: bool,
    },
    ClearProcesses {
        run: usize,
    },
    Prune,
}

fn step() -> impl Strategy<Value = Step> {
    let ids = prop::collection::vec((0..8_usize, prop::collection::vec(0..8_usize, 0..3)), 1..4);
    prop_oneof![
        4 => (ids, 0..6_usize, prop::option::weighted(0.2, 0..6_u64))
            .prop_map(|(ids, kind, limit)| Step::Submit { ids, kind, limit }),
        5 => (0..9_usize, 0..3_u8, 0..4_u64, any::<bool>())
            .prop_map(|(run, code, claims, skip_leased)| Step::EndAndClaim { run, code, claims, skip_leased }),
        1 => (0..9_usize).prop_map(|run| Step::ClaimById { run }),
        1 => (0..9_usize).prop_map(|run| Step::Cancel { run }),
        2 => (0..9_usize, any::<bool>()).prop_map(|(run, is_expected)| Step::Requeue { run, is_expected }),
        1 => (0..9_usize).prop_map(|run| Step::ClearProcesses { run }),
        1 => Just(Step::Prune),
    ]
}

/// A request of one of some kinds: keys, locks, retries, priorities, a stage.
fn request_of(id: usize, after: &[usize], kind: usize) -> Request {
    let plain = Request {
        after: after
            .iter()
            .filter(|other| **other != id)
            .map(|other| format!("q{other}").parse().unwrap())
            .collect(),
        ..request(&format!("q{id}"))
    };
    match kind {
        1 => Request { key: Some(format!("key-{}", id % 3)), ..plain },
        2 => Request { locks: vec!["db".parse().unwrap()], ..plain },
        3 => Request { retry: super::sample::request_with_retries("any", 1).retry, ..plain },
        4 => Request { priority: Priority::new(3).unwrap(), ..plain },
        5 => Request { origin: Some("stage:build.1".to_owned()), ..plain },
        _ => plain,
    }
}

/// The run with this number, if there is any.
fn nth(store: &dyn RunStore, number: usize) -> Option<Run> {
    let runs = all_runs(store);
    (!runs.is_empty()).then(|| runs[number % runs.len()].clone())
}

/// A transition without times.
fn moved(store: &dyn RunStore, transitions: &[Transition]) -> String {
    shown(&store.move_runs(transitions).unwrap())
}

fn shown(moved: &[Moved]) -> String {
    let words = moved.iter().map(|moved| match moved {
        Moved::Applied => "applied".to_owned(),
        Moved::Conflict(run) => format!("{:?}", run.as_ref().map(|run| (run.id.clone(), run.version))),
    });
    words.collect::<Vec<_>>().join(", ")
}

/// Makes one step. Returns its answer, without times.
fn make(store: &dyn RunStore, place: usize, step: &Step) -> String {
    let new_id = |number: usize| -> RunId { format!("RUN-{place}-{number}").parse().unwrap() };
    match step {
        Step::Submit { ids, kind, limit } => {
            let requests: Vec<Request> =
                ids.iter().map(|(id, after)| request_of(*id, after, *kind)).collect();
            let runs: Vec<RunId> = (0..ids.len()).map(new_id).collect();
            let submission =
                Submission { requests: &requests, runs: &runs, queue_limit: *limit, forbidden: None };
            // Two requests of a batch may have one id or key: admission or the store refuses it.
            format!("{:?}", store.submit(&submission).map_err(|_| "refused"))
        }
        Step::EndAndClaim { run, code, claims, skip_leased } => {
            let active: Vec<Run> = all_runs(store).into_iter().filter(|run| run.worker().is_some()).collect();
            let ends: Vec<Transition> = active
                .get(*run)
                .map(|run| {
                    let stored = store.snapshot().unwrap().request(&run.request).unwrap().unwrap();
                    let outcome = AttemptOutcome::Ended(Ending::Exited(*code));
                    end_of(store, run, &stored.request, outcome)
                })
                .into_iter()
                .collect();
            let locks: Vec<HolderId> = (1..=*claims).map(|lock| HolderId(place as u64 * 10 + lock)).collect();
            let order = if *skip_leased { ClaimOrder::SkipLeased } else { ClaimOrder::Strict };
            let worker = worker("W-9");
            let done =
                store.move_and_claim(&ends, Some(&Claims { worker: &worker, locks: &locks, order })).unwrap();
            let claimed: Vec<_> =
                done.claimed.iter().map(|(run, request)| (&run.id, run.claim(), &request.id)).collect();
            format!("{} {claimed:?}", shown(&done.moved))
        }
        Step::ClaimById { run } => nth(store, *run).map_or_else(String::new, |run| {
            let outside = transition::claim(
                &run,
                transition::Claimant { worker: worker("W-1"), holder: None, lease: None },
                store.now(),
            );
            outside.map_or_else(|_| String::new(), |_| moved(store, &[claim_of(store, &run, "W-1")]))
        }),
        Step::Cancel { run } => nth(store, *run).map_or_else(String::new, |run| {
            let canceled = transition::cancel(&run, store.now(), Some("no".to_owned()));
            canceled.map_or_else(|_| String::new(), |canceled| moved(store, &[canceled.clone(), canceled]))
        }),
        Step::Requeue { run, is_expected } => nth(store, *run).map_or_else(String::new, |run| {
            let stored = store.snapshot().unwrap().request(&run.request).unwrap().unwrap();
            let expected = if *is_expected { stored.latest.clone() } else { Some(new_id(9)) };
            let is_over = !matches!(stored.status, RequestStatus::Queued | RequestStatus::Running);
            let first = transition::submit(&stored.request, new_id(0), store.now());
            if !is_over {
                return String::new();
            }
            let again = Requeue {
                first: transition::submit(&stored.request, new_id(1), store.now()),
                expected: expected.clone(),
            };
            format!("{:?}", store.requeue(&[Requeue { first, expected }, again]).unwrap())
        }),
        Step::ClearProcesses { run } => {
            nth(store, *run).inspect(|run| store.clear_processes(run).unwrap());
            String::new()
        }
        Step::Prune => format!("{:?}", store.prune(i64::MAX).unwrap()),
    }
}

/// Everything that a store shows, without times and positions.
fn state(store: &dyn RunStore) -> Vec<String> {
    let records = store.snapshot().unwrap();
    let runs = all_runs(store).into_iter().map(|run| {
        let (worker, holder) = (run.worker().cloned(), run.process().map(|process| process.holder));
        format!(
            "{} {} {} {} {worker:?} {holder:?} {:?}",
            run.id,
            run.status(),
            run.version,
            run.claim(),
            run.reason()
        )
    });
    let events = all_events(store).into_iter().map(|event| {
        format!(
            "{} {} {:?} {} {:?} {:?}",
            event.id, event.kind, event.from, event.to, event.reason, event.message
        )
    });
    let all = RequestFilter { limit: usize::MAX, ..RequestFilter::default() };
    let requests = records.requests(&all).unwrap().into_iter().map(|stored| {
        let unmet = records.unmet(&stored.request.id).unwrap();
        format!("{} {:?} {:?} {} {unmet:?}", stored.request.id, stored.status, stored.latest, stored.unmet)
    });
    let mut shown: Vec<String> = runs.chain(events).chain(requests).collect();
    for listing in [Listing::EveryRun, Listing::FirstOfEachLease] {
        let claimable = records.claimable(listing, 5).unwrap();
        shown.push(format!("{:?}", claimable.iter().map(|(run, _)| &run.id).collect::<Vec<_>>()));
    }
    shown.push(format!("{:?} {:?}", records.queue_head(9).unwrap(), records.has_work().unwrap()));
    shown.push(format!("{:?}", records.request_counts().unwrap()));
    shown.push(format!("{:?}", records.active_runs().unwrap().iter().map(|run| &run.id).collect::<Vec<_>>()));
    let open = records.open_requests(9, 2).unwrap();
    shown.push(format!("{:?}", open.iter().map(|stored| &stored.request.id).collect::<Vec<_>>()));
    assert_eq!(store.examine(true).unwrap().flaws, [""; 0]);
    shown
}

fn agree(steps: &[Step]) -> Result<(), TestCaseError> {
    let (sqlite, postgres) = (SQLITE.place(), POSTGRES.place());
    let (sqlite, postgres) = (sqlite.open(), postgres.open());
    for (place, step) in steps.iter().enumerate() {
        prop_assert_eq!(make(&*postgres, place, step), make(&*sqlite, place, step), "{:?}", step);
        prop_assert_eq!(state(&*postgres), state(&*sqlite), "{:?}", step);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn sqlite_and_postgres_agree(steps in prop::collection::vec(step(), 1..25)) {
        match POSTGRES.lacks() {
            None => agree(&steps)?,
            Some(what) => skip(what),
        }
    }
}
