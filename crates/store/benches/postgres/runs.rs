//! Runs: claim and end, among many, and round trips.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockkeeper_core::id::{HolderId, RunId, WorkerId};
use lockkeeper_core::request::Request;
use lockkeeper_core::run::admission::Submission;
use lockkeeper_core::run::transition::{self, AttemptOutcome, FinishPolicy, Transition};
use lockkeeper_core::run::{Ending, Run};
use lockkeeper_platform::random;
use lockkeeper_store::runs::{ClaimOrder, Claims};
use lockkeeper_store::{PostgresRunStore, RunStore};
use lockkeeper_testing::ServerProxy;

use crate::bare::{Bare, at_once, counted, project};
use crate::measure::{Row, alternate, median};

const ROUNDS: usize = 5;

/// How many runs a number of workers execute.
fn runs(workers: usize) -> usize {
    200 * workers.min(6)
}

fn open_runs(server: &str, project: &str) -> PostgresRunStore {
    PostgresRunStore::open(server.parse::<tokio_postgres::Config>().unwrap(), project, Duration::from_secs(5))
        .expect("the store opens")
}

/// Queues requests.
fn fill(store: &PostgresRunStore, count: usize) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut left = count;
    while left > 0 {
        let size = left.min(2_000);
        let number = || NEXT.fetch_add(1, Ordering::Relaxed);
        let requests: Vec<Request> = (0..size)
            .map(|_| {
                Request::new(
                    format!("r{}", number()).parse().unwrap(),
                    vec!["true".to_owned()],
                    "/".to_owned(),
                )
            })
            .collect();
        let runs: Vec<RunId> = (0..size).map(|_| format!("RUN-{}", number()).parse().unwrap()).collect();
        let submission = Submission { requests: &requests, runs: &runs, queue_limit: None, forbidden: None };
        store.submit(&submission).expect("the store answers").expect("they come in");
        left -= size;
    }
}

fn end_of(store: &PostgresRunStore, run: &Run, request: &Request) -> Transition {
    let policy = FinishPolicy { success: &request.success, retry: &request.retry, random: 0 };
    let outcome = AttemptOutcome::Ended(Ending::Exited(0));
    transition::finish(run, run.claim(), outcome, policy, store.now()).expect("it ends")
}

/// Runs a second, and what share of a bare loop that has to be (see docs/decisions/0040-runs-in-postgresql.md for what the rest is). Each is claimed, with the claim on the disk before it begins, and ended; or one call ends it and claims the next.
pub fn claim_and_end(server: &str, workers: usize, limits: [f64; 2]) -> Vec<Row> {
    let [mut apart, mut together, mut bare] = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        apart.push(our_runs(server, workers, false));
        together.push(our_runs(server, workers, true));
        bare.push(bare_runs(server, workers));
    }
    let a_second = |spans: Vec<Duration>| runs(workers) as f64 / median(spans).as_secs_f64();
    let (apart, together, bare) = (a_second(apart), a_second(together), a_second(bare));
    let what = format!("claim, end of a run, {workers} workers, against SKIP LOCKED");
    let what_together = format!("the end with the next claim, {workers} workers");
    vec![
        Row::at_least(what, apart, bare, "/s", limits[0]),
        Row::at_least(what_together, together, bare, "/s", limits[1]),
    ]
}

/// Each worker claims a run, ends it, and claims the next one: in two calls, or in one.
fn our_runs(server: &str, workers: usize, together: bool) -> Duration {
    let project = project();
    let stores: Vec<PostgresRunStore> = (0..workers).map(|_| open_runs(server, &project)).collect();
    fill(&stores[0], runs(workers));
    // As the server does by itself within a minute, and as for the bare table.
    Bare::connect(server).execute(
        "ANALYZE lockkeeper_runs.request; ANALYZE lockkeeper_runs.run; ANALYZE lockkeeper_runs.event",
    );
    at_once(stores, |store| {
        let worker: WorkerId = format!("W-{:x}", random::number().unwrap()).parse().unwrap();
        let mut ends = Vec::new();
        loop {
            let locks = [HolderId(random::number().unwrap())];
            let claims = Claims { worker: &worker, locks: &locks, order: ClaimOrder::Strict };
            let claimed = store.move_and_claim(&ends, Some(&claims)).expect("the store answers").claimed;
            let Some((run, request)) = claimed.first() else { return };
            ends = vec![end_of(&store, run, request)];
            if !together {
                let _ = store.move_runs(&ends).expect("the store answers");
                ends.clear();
            }
        }
    })
}

/// The same with a bare table and prepared statements.
fn bare_runs(server: &str, workers: usize) -> Duration {
    let setup = Bare::connect(server);
    setup.execute(&format!(
        "DROP TABLE IF EXISTS job;
         CREATE TABLE job (id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, priority integer NOT NULL, status text NOT NULL,
             command text NOT NULL, worker text);
         CREATE INDEX job_queue ON job (priority DESC, id) WHERE status = 'queued';
         INSERT INTO job (priority, status, command) SELECT 0, 'queued', 'true' FROM generate_series(1, {});
         ANALYZE job",
        runs(workers)
    ));
    let bare: Vec<Bare> = (0..workers).map(|_| Bare::connect(server)).collect();
    at_once(bare, |bare| {
        bare.runtime.block_on(async {
            let claim = bare
                .client
                .prepare(
                    "UPDATE job SET status = 'running', worker = $1 WHERE id = (
                         SELECT id FROM job WHERE status = 'queued' ORDER BY priority DESC, id LIMIT 1 FOR UPDATE SKIP LOCKED)
                     RETURNING id, command",
                )
                .await
                .unwrap();
            let end = bare.client.prepare("UPDATE job SET status = 'done' WHERE id = $1").await.unwrap();
            loop {
                let Some(row) = bare.client.query_opt(&claim, &[&"W-1"]).await.unwrap() else { return };
                bare.client.execute(&end, &[&row.get::<_, i64>(0)]).await.unwrap();
            }
        });
    })
}

/// A claim among a hundred thousand queued runs, against one among a thousand.
pub fn claim_among_many(server: &str) -> Row {
    let stores = [1_000, 100_000].map(|count| {
        let store = open_runs(server, &project());
        fill(&store, count);
        store
    });
    let worker: WorkerId = "W-1".parse().unwrap();
    let claim = |store: &PostgresRunStore| {
        let locks = [HolderId(random::number().unwrap())];
        let claims = Claims { worker: &worker, locks: &locks, order: ClaimOrder::Strict };
        assert_eq!(store.claim(&claims).expect("the store answers").len(), 1);
    };
    let [few, many] = alternate(500, [&mut || claim(&stores[0]), &mut || claim(&stores[1])]);
    Row::times("claim among 100,000 queued, against among 1,000", many, few, 1.5)
}

pub fn round_trips(server: &str) -> Vec<Row> {
    let proxy = ServerProxy::start(server);
    let store = open_runs(proxy.address(), &project());
    fill(&store, 3);
    let worker: WorkerId = "W-1".parse().unwrap();
    let locks = [HolderId(1)];
    let claims = Claims { worker: &worker, locks: &locks, order: ClaimOrder::Strict };
    let mut ends = Vec::new();
    // The first notification of a process is sent at once; the next ones come later.
    let mut claim = || {
        let claimed = store.move_and_claim(&ends, Some(&claims)).unwrap().claimed;
        ends = claimed.iter().map(|(run, request)| end_of(&store, run, request)).collect();
    };
    let first = counted(&proxy, "claim a run (and NOTIFY)", 3, &mut claim);
    let next = counted(&proxy, "end it and claim the next one (and NOTIFY)", 3, &mut claim);
    let end = counted(&proxy, "end a run (and NOTIFY)", 2, || {
        let _ = store.move_runs(&ends).unwrap();
    });
    vec![first, next, end]
}
