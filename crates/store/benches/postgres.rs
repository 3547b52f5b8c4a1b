//! What leases and runs in PostgreSQL cost, against bare statements on the same server with the same durability.
//!
//! `scripts/bench postgres` starts a private server and runs this. Numbers are medians of alternating rounds, so that other
//! load on the machine slows both sides.
#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a measurement may fail by panicking")]

#[path = "../../lockkeeper/benches/speed/measure.rs"]
#[expect(dead_code, reason = "other benches use the rest")]
mod measure;
#[path = "support/one_lease.rs"]
mod one_lease;

use std::process::ExitCode;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lockkeeper_core::id::{HolderId, RunId, WorkerId};
use lockkeeper_core::request::Request;
use lockkeeper_core::run::admission::Submission;
use lockkeeper_core::run::transition::{self, AttemptOutcome, FinishPolicy, Transition};
use lockkeeper_core::run::{Ending, Run};
use lockkeeper_platform::random;
use lockkeeper_store::runs::{ClaimOrder, Claims};
use lockkeeper_store::{PostgresRunStore, PostgresStore, RunStore};
use lockkeeper_testing::ServerProxy;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, NoTls};

use measure::{Row, alternate, median};
use one_lease::{acquire, release};

const ROUNDS: usize = 5;

/// How many runs a number of workers execute.
fn runs(workers: usize) -> usize {
    200 * workers.min(6)
}

fn main() -> ExitCode {
    let Ok(server) = std::env::var("LOCKKEEPER_TEST_POSTGRES") else {
        println!("SKIPPED: needs a PostgreSQL server (scripts/bench postgres)");
        return ExitCode::SUCCESS;
    };
    println!("{:<52} {:>12} {:>12} {:>8} {:>8}", "", "ours", "bare", "ratio", "limit");
    let sections: [&dyn Fn() -> Vec<Row>; 7] = [
        &|| claim_and_end(&server, 1),
        &|| claim_and_end(&server, 8),
        &|| claim_and_end(&server, 32),
        &|| vec![claim_among_many(&server)],
        &|| vec![acquire_and_release(&server)],
        &|| round_trips_of_leases(&server),
        &|| round_trips_of_runs(&server),
    ];
    let mut holds = true;
    for section in sections {
        for row in section() {
            println!("{row}");
            holds &= row.holds();
        }
    }
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A store of a new project.
fn project() -> String {
    format!("bench-{:x}", random::number().unwrap())
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

/// Runs a second. Each is claimed, with the claim on the disk before it begins, and ended; or one call ends it and claims the next.
fn claim_and_end(server: &str, workers: usize) -> Vec<Row> {
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
    vec![Row::at_least(what, apart, bare, "/s", 0.6), Row::at_least(what_together, together, bare, "/s", 0.6)]
}

/// Lets workers work at the same time. Returns how long all of them took.
fn at_once<W: Send>(workers: Vec<W>, work: impl Fn(W) + Sync) -> Duration {
    let barrier = Barrier::new(workers.len() + 1);
    thread::scope(|scope| {
        for worker in workers {
            let (barrier, work) = (&barrier, &work);
            scope.spawn(move || {
                barrier.wait();
                work(worker);
            });
        }
        barrier.wait();
        Instant::now()
    })
    .elapsed()
}

/// Each worker claims a run, ends it, and claims the next one: in two calls, or in one.
fn our_runs(server: &str, workers: usize, together: bool) -> Duration {
    let project = project();
    let stores: Vec<PostgresRunStore> = (0..workers).map(|_| open_runs(server, &project)).collect();
    fill(&stores[0], runs(workers));
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

/// A bare connection.
struct Bare {
    runtime: Runtime,
    client: Client,
}

impl Bare {
    fn connect(server: &str) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let client = runtime.block_on(async {
            let config: tokio_postgres::Config = server.parse().unwrap();
            let (client, connection) = config.connect(NoTls).await.expect("the server answers");
            tokio::spawn(connection);
            client
        });
        Self { runtime, client }
    }

    fn execute(&self, sql: &str) {
        self.runtime.block_on(self.client.batch_execute(sql)).expect("the server answers");
    }
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
fn claim_among_many(server: &str) -> Row {
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

fn open_leases(server: &str, project: &str) -> PostgresStore {
    PostgresStore::open(server.parse::<tokio_postgres::Config>().unwrap(), project, Duration::from_secs(5))
        .expect("the store opens")
}

/// One lease at a time, against the insertion and deletion of one row, each committed.
fn acquire_and_release(server: &str) -> Row {
    let store = open_leases(server, &project());
    let bare = Bare::connect(server);
    bare.execute(
        "DROP TABLE IF EXISTS bare_lease; CREATE TABLE bare_lease (name text PRIMARY KEY, owner text)",
    );
    let (insert, delete) = bare.runtime.block_on(async {
        let insert =
            bare.client.prepare("INSERT INTO bare_lease VALUES ('db', 'worker:bench')").await.unwrap();
        (insert, bare.client.prepare("DELETE FROM bare_lease WHERE name = 'db'").await.unwrap())
    });
    let mut ours = || release(&store, acquire(&store, "db"));
    let mut theirs = || {
        bare.runtime.block_on(async {
            bare.client.execute(&insert, &[]).await.unwrap();
            bare.client.execute(&delete, &[]).await.unwrap();
        });
    };
    let [ours, theirs] = alternate(300, [&mut ours, &mut theirs]);
    Row::times("acquire and release a lease, against INSERT, DELETE", ours, theirs, 2.5)
}

/// A store behind a proxy that counts.
fn counted(proxy: &ServerProxy, what: &str, expected: f64, call: impl FnOnce()) -> Row {
    proxy.reset();
    call();
    Row::at_most(format!("round trips: {what}"), proxy.round_trips() as f64, expected, "", 1.0)
}

fn round_trips_of_leases(server: &str) -> Vec<Row> {
    let proxy = ServerProxy::start(server);
    let store = open_leases(proxy.address(), &project());
    let mut held = None;
    let acquired = counted(&proxy, "acquire a lease", 2.0, || held = Some(acquire(&store, "db")));
    vec![acquired, counted(&proxy, "release it", 1.0, || release(&store, held.unwrap()))]
}

fn round_trips_of_runs(server: &str) -> Vec<Row> {
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
    let first = counted(&proxy, "claim a run (and NOTIFY)", 3.0, &mut claim);
    let next = counted(&proxy, "end it and claim the next one (and NOTIFY)", 3.0, &mut claim);
    let end = counted(&proxy, "end a run (and NOTIFY)", 2.0, || {
        let _ = store.move_runs(&ends).unwrap();
    });
    vec![first, next, end]
}
