//! What queueing and moving runs costs, against a queue that is empty and against bare SQLite with the same promises.
//!
//! `scripts/bench runs` runs this. Numbers are medians of rounds that take turns, so that what else the machine does
//! hits both sides.

#[path = "speed/measure.rs"]
#[expect(dead_code, reason = "other sections use the rest")]
mod measure;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use lockkeeper_core::id::{RunId, WorkerId};
use lockkeeper_core::request::Request;
use lockkeeper_core::run::Status;
use lockkeeper_core::run::transition::Mark;
use lockkeeper_engine::runs::Runs;
use rusqlite::Connection;

use measure::{Row, alternate, median};

const QUEUED: usize = 100_000;
const ROUNDS: usize = 300;
/// How many runs each of the movers moves, and how many movers there are at once.
const RUNS: usize = 150;
const MOVERS: usize = 8;
const SERIES: usize = 7;

fn main() -> ExitCode {
    println!("{:<52} {:>12} {:>12} {:>8} {:>8}", "", "ours", "bare", "ratio", "limit");
    let rows = [submit_among_many(), moves(1), moves(MOVERS)];
    for row in &rows {
        println!("{row}");
    }
    if rows.iter().all(Row::holds) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn request(id: &str) -> Request {
    let command = vec!["true".to_owned()];
    Request {
        title: "bench".to_owned(),
        env: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
        queue_timeout: Some(Duration::from_secs(86_400)),
        ..Request::new(id.parse().expect("an id"), command, "/".to_owned())
    }
}

/// A submit into a queue of a hundred thousand, against one into a queue that is as good as empty.
fn submit_among_many() -> Row {
    let folder = tempfile::tempdir().expect("a folder");
    let (few, many) = (open(&folder.path().join("few")), open(&folder.path().join("many")));
    for batch in 0..QUEUED / 5_000 {
        let requests: Vec<Request> =
            (0..5_000).map(|number| request(&format!("old-{batch}-{number}"))).collect();
        many.submit_all(&requests, None).expect("they come in");
    }
    let submit = |runs: &Runs, number: &mut usize| {
        *number += 1;
        runs.submit(&request(&format!("new-{number}")), None).expect("it comes in");
    };
    let (mut among_few, mut among_many) = (0, 0);
    let [into_few, into_many] =
        alternate(ROUNDS, [&mut || submit(&few, &mut among_few), &mut || submit(&many, &mut among_many)]);
    Row::times("submit into 100,000 queued, against into none", into_many, into_few, 1.5)
}

/// Moves of runs a second, each forced to the disk, against conditional updates of one bare row with `synchronous=FULL`.
fn moves(movers: usize) -> Row {
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..SERIES {
        ours.push(our_moves(movers));
        bare.push(bare_moves(movers));
    }
    let a_second = |spans: Vec<Duration>| (2 * movers * RUNS) as f64 / median(spans).as_secs_f64();
    let what = format!("moves by compare-and-set, {movers} at once, against UPDATE");
    Row::at_least(what, a_second(ours), a_second(bare), "/s", 0.7)
}

fn open(folder: &Path) -> Runs {
    Runs::open(folder).expect("a store")
}

/// How long it takes all movers together, from the moment that all are ready.
fn together(movers: usize, work: impl Fn(usize, &Barrier) + Sync) -> Duration {
    let barrier = Barrier::new(movers + 1);
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..movers)
            .map(|mover| {
                scope.spawn({
                    let (work, barrier) = (&work, &barrier);
                    move || work(mover, barrier)
                })
            })
            .collect();
        barrier.wait();
        let begun = Instant::now();
        for one in all {
            one.join().expect("no mover fails");
        }
        begun.elapsed()
    })
}

fn our_moves(movers: usize) -> Duration {
    let folder = tempfile::tempdir().expect("a folder");
    let runs = open(folder.path());
    let requests: Vec<Request> = (0..movers * RUNS).map(|number| request(&format!("r{number}"))).collect();
    let submitted = runs.submit_all(&requests, None).expect("they come in");
    let ids: Vec<RunId> = submitted.into_iter().map(|one| one.run).collect();
    drop(runs);
    together(movers, |mover, barrier| {
        let runs = open(folder.path());
        let worker: WorkerId = format!("w{mover}").parse().expect("an id");
        barrier.wait();
        for id in &ids[mover * RUNS..(mover + 1) * RUNS] {
            runs.claim(id, worker.clone()).expect("it is queued");
            let (to, worker) = (Status::Succeeded, worker.clone());
            let mark = Mark { to, expect: Some(Status::Running), claim: None, exit_code: Some(0), worker };
            runs.mark(id, &mark).expect("it runs");
        }
    })
}

fn bare_moves(movers: usize) -> Duration {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bare.db");
    let connect = || {
        let connection = Connection::open(&path).expect("a database");
        connection.busy_timeout(Duration::from_secs(60)).expect("a timeout");
        connection
            .execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;")
            .expect("the same promises");
        connection
    };
    let connection = connect();
    connection
        .execute_batch("CREATE TABLE run (id TEXT PRIMARY KEY, status TEXT NOT NULL, at INTEGER)")
        .expect("a table");
    connection.execute_batch("BEGIN").expect("begin");
    for number in 0..movers * RUNS {
        let sql = "INSERT INTO run VALUES (?1, 'queued', 0)";
        connection.execute(sql, [format!("RUN-20260131-120000-{number:06}")]).expect("a row");
    }
    connection.execute_batch("COMMIT").expect("commit");
    together(movers, |mover, barrier| {
        let connection = connect();
        barrier.wait();
        for number in mover * RUNS..(mover + 1) * RUNS {
            for (from, to) in [("queued", "running"), ("running", "succeeded")] {
                let sql = "UPDATE run SET status = ?1, at = ?2 WHERE id = ?3 AND status = ?4";
                let id = format!("RUN-20260131-120000-{number:06}");
                let mut update = connection.prepare_cached(sql).expect("a statement");
                assert_eq!(update.execute((to, 7, id, from)).expect("an update"), 1);
            }
        }
    })
}
