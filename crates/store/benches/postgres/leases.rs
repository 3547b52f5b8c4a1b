//! Leases: one program, among many, hand-offs, and round trips.

use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use lockkeeper_core::records::Change;
use lockkeeper_store::{Commit, LeaseStore};
use lockkeeper_testing::ServerProxy;

use crate::bare::{Bare, counted, project};
use crate::measure::{Row, alternate, median};
use crate::one_lease::lease;
use crate::user::User;

const ROUNDS: usize = 300;

/// One lease at a time, against the insertion and deletion of one row, each committed; beside it an advisory lock, which is not
/// written anywhere.
pub fn acquire_and_release(server: &str) -> Vec<Row> {
    let (user, bare) = (User::new(server, &project(), "one"), Bare::connect(server));
    bare.execute(
        "DROP TABLE IF EXISTS bare_lease; CREATE TABLE bare_lease (name text PRIMARY KEY, owner text)",
    );
    let [insert, delete, lock, unlock] = [
        "INSERT INTO bare_lease VALUES ('db', 'worker:bench')",
        "DELETE FROM bare_lease WHERE name = 'db'",
        "SELECT pg_advisory_lock(1)",
        "SELECT pg_advisory_unlock(1)",
    ]
    .map(|sql| bare.prepare(sql));
    let run = |statements: [&_; 2]| statements.iter().for_each(|statement| bare.run(statement, &[]));
    let [ours, rows, locks] = alternate(
        ROUNDS,
        [&mut || user.acquire_and_release("db"), &mut || run([&insert, &delete]), &mut || {
            run([&lock, &unlock]);
        }],
    );
    vec![
        Row::times("acquire and release a lease, against INSERT, DELETE", ours, rows, 2.5),
        Row { limit: None, ..Row::times("  (against an advisory lock)", ours, locks, 0.0) },
    ]
}

/// The same among many other leases.
pub fn among_many(server: &str) -> Row {
    let users = [10_u64, 10_000].map(|count| {
        let user = User::new(server, &project(), "one");
        for first in (0..count).step_by(500) {
            let some = first + 1..=count.min(first + 500);
            let some = some.map(|id| Change::AddLease(lease(id, &format!("name-{id}")))).collect();
            assert!(user.store.begin().unwrap().commit(some, &[]).unwrap() == Commit::Committed);
        }
        user
    });
    // As the server does by itself within a minute.
    Bare::connect(server)
        .execute("ANALYZE lockkeeper.record; ANALYZE lockkeeper.key; ANALYZE lockkeeper.part");
    let [few, many] = alternate(
        ROUNDS,
        [&mut || users[0].acquire_and_release("db"), &mut || users[1].acquire_and_release("db")],
    );
    Row::times("the same among 10,000 leases, against among 10", many, few, 1.5)
}

/// From the release of one client until another one that waits has the lease, against a notification from one connection to
/// another. The server sends a bare notification without waiting for the disk, and the new holder must be on the disk before it
/// begins: so the limit is for a notification after a commit.
pub fn hand_off(server: &str) -> Vec<Row> {
    let project = project();
    let (holder, waiter) = (User::new(server, &project, "holder"), User::new(server, &project, "waiter"));
    let (bare, notified) = (Bare::connect(server), Bare::listen(server, "bare"));
    bare.execute("DROP TABLE IF EXISTS bare_turn; CREATE TABLE bare_turn (turn bigint); INSERT INTO bare_turn VALUES (0)");
    let commit = bare.prepare("UPDATE bare_turn SET turn = turn + 1");
    let (in_line, is_in_line) = mpsc::channel();
    let (has_it, had_at) = mpsc::channel();
    let (start, starts) = mpsc::channel();
    let [mut ours, mut committed, mut theirs] = [const { Vec::new() }; 3];
    thread::scope(|scope| {
        scope.spawn(move || {
            for () in starts {
                let grant = waiter.wait_for("db", &mut || {
                    let _ = in_line.send(());
                });
                let came = Instant::now();
                waiter.release(&grant);
                has_it.send(came).unwrap();
            }
        });
        for _ in 0..ROUNDS {
            let grant = holder.acquire("db");
            start.send(()).unwrap();
            is_in_line.recv().unwrap();
            let begun = Instant::now();
            holder.release(&grant);
            ours.push(had_at.recv().unwrap().saturating_duration_since(begun));
            while is_in_line.try_recv().is_ok() {}
            let notify = |spans: &mut Vec<_>, begun: Instant| {
                bare.execute("NOTIFY bare");
                spans.push(notified.recv().unwrap().saturating_duration_since(begun));
            };
            notify(&mut theirs, Instant::now());
            let begun = Instant::now();
            bare.run(&commit, &[]);
            notify(&mut committed, begun);
        }
        drop(start);
    });
    let ours = median(ours);
    vec![
        Row::times("hand-off, against a commit and a NOTIFY", ours, median(committed), 3.0),
        Row { limit: None, ..Row::times("  (against a NOTIFY without a commit)", ours, median(theirs), 0.0) },
    ]
}

/// How often a program waits for the server.
pub fn round_trips(server: &str) -> Vec<Row> {
    let project = project();
    let proxies = [ServerProxy::start(server), ServerProxy::start(server)];
    let [one, other] = [(&proxies[0], "one"), (&proxies[1], "other")]
        .map(|(proxy, name)| User::new(proxy.address(), &project, name));
    let mut held = None;
    let mut rows = vec![
        counted(&proxies[0], "acquire a lease", 2, || held = Some(one.acquire("db"))),
        counted(&proxies[0], "release it", 1, || one.release(&held.take().unwrap())),
        counted(&proxies[0], "acquire a name used before", 1, || held = Some(one.acquire("db"))),
    ];
    let (in_line, is_in_line) = mpsc::channel();
    thread::scope(|scope| {
        let waiter = scope.spawn(move || other.wait_for("db", &mut || in_line.send(()).unwrap()));
        is_in_line.recv().unwrap();
        proxies[1].reset();
        one.release(&held.take().unwrap());
        waiter.join().unwrap();
    });
    rows.push(Row::exactly("round trips: a waiter that is granted", proxies[1].round_trips(), 0));
    rows
}
