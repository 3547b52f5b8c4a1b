//! 64 programs at the same time, each with connections of its own.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use crate::bare::{Bare, project};
use crate::measure::Row;
use crate::user::User;

const PROGRAMS: usize = 64;
/// How often both sides take turns. Medians count.
const ROUNDS: usize = 3;
/// How long one round takes, and before it the time that does not count: 64 programs that come at the same moment first have to
/// get into line.
const SHORT: Duration = Duration::from_secs(3);
const BEFORE: Duration = Duration::from_secs(5);
/// How long a round on one name takes: each program needs several turns, so that shares mean something.
const LONG: Duration = Duration::from_secs(30);

/// Each program with a name of its own, against connections that insert and delete a row of their own, each committed.
pub fn on_their_own_names(server: &str) -> Row {
    let project = project();
    let setup = Bare::connect(server);
    setup.execute(
        "DROP TABLE IF EXISTS bare_name; CREATE TABLE bare_name (name text PRIMARY KEY, owner text)",
    );
    let users: Vec<User> =
        (0..PROGRAMS).map(|number| User::new(server, &project, &number.to_string())).collect();
    let bare: Vec<Bare> = (0..PROGRAMS).map(|_| Bare::connect(server)).collect();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(rate(
            &turns(&users, (Duration::ZERO, SHORT), |number, user| {
                let name = format!("name-{number}");
                Box::new(move || user.acquire_and_release(&name))
            }),
            SHORT,
        ));
        theirs.push(rate(
            &turns(&bare, (Duration::ZERO, SHORT), |number, bare| {
                let name = format!("name-{number}");
                let insert = bare.prepare("INSERT INTO bare_name VALUES ($1, 'worker:bench')");
                let delete = bare.prepare("DELETE FROM bare_name WHERE name = $1");
                Box::new(move || {
                    bare.run(&insert, &[&name]);
                    bare.run(&delete, &[&name]);
                })
            }),
            SHORT,
        ));
    }
    Row::at_least("64 programs, 64 names, against INSERT, DELETE", middle(ours), middle(theirs), "/s", 0.3)
}

/// All programs on one name, against two commits and a notification a turn.
pub fn on_one_name(server: &str) -> Vec<Row> {
    let project = project();
    let users: Vec<User> =
        (0..PROGRAMS).map(|number| User::new(server, &project, &number.to_string())).collect();
    let bare = Bare::connect(server);
    bare.execute("DROP TABLE IF EXISTS bare_turn; CREATE TABLE bare_turn (turn bigint); INSERT INTO bare_turn VALUES (0)");
    let counts =
        turns(&users, (BEFORE, LONG), |_, user| Box::new(|| user.release(&user.wait_for("db", &mut || ()))));
    let theirs = turns(std::slice::from_ref(&bare), (Duration::ZERO, SHORT), |_, bare| {
        let update = bare.prepare("UPDATE bare_turn SET turn = turn + 1");
        Box::new(move || {
            bare.run(&update, &[]);
            bare.run(&update, &[]);
            bare.execute("NOTIFY bare");
        })
    });
    vec![
        Row::at_least(
            "64 programs, one name, against 2 commits and NOTIFY",
            rate(&counts, LONG),
            rate(&theirs, SHORT),
            "/s",
            0.4,
        ),
        Row::at_least("  smallest share of the largest", share(&counts), 1.0, "", 0.9),
    ]
}

/// How often each of them takes a turn within the span.
fn turns<P: Sync>(
    programs: &[P],
    (before, span): (Duration, Duration),
    turn: impl for<'p> Fn(usize, &'p P) -> Box<dyn FnMut() + 'p> + Sync,
) -> Vec<u64> {
    let barrier = Barrier::new(programs.len());
    thread::scope(|scope| {
        let threads: Vec<_> = programs
            .iter()
            .enumerate()
            .map(|(number, program)| {
                let (barrier, turn) = (&barrier, &turn);
                scope.spawn(move || {
                    let mut turn = turn(number, program);
                    barrier.wait();
                    let from = Instant::now() + before;
                    let mut count = 0;
                    while Instant::now() < from + span {
                        turn();
                        count += u64::from((from..from + span).contains(&Instant::now()));
                    }
                    count
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn rate(counts: &[u64], span: Duration) -> f64 {
    counts.iter().sum::<u64>() as f64 / span.as_secs_f64()
}

fn share(counts: &[u64]) -> f64 {
    counts.iter().min().map_or(0.0, |least| *least as f64)
        / counts.iter().max().map_or(1.0, |most| *most as f64)
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
