//! The library within one process, against bare SQLite.

use std::path::Path;

use lockkeeper::{Guard, Keeper};
use rusqlite::Connection;

use crate::measure::{Row, alternate};

/// Acquire and release a lease, against two commits of one row. With few and with many other leases.
pub fn acquire_and_release() -> Vec<Row> {
    let folder = tempfile::tempdir().expect("a folder");
    let bare = bare_database(folder.path());
    let (few, few_guards) = store_with(&folder.path().join("few"), 10);
    let (many, many_guards) = store_with(&folder.path().join("many"), 10_000);
    let mut number = 0;
    let mut commits = || {
        for _ in 0..2 {
            number += 1;
            bare.prepare_cached("BEGIN IMMEDIATE").and_then(|mut begin| begin.execute([])).expect("begin");
            let sql = "UPDATE counter SET value = ?1 WHERE id = 1";
            bare.prepare_cached(sql).and_then(|mut update| update.execute([number])).expect("update");
            bare.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([])).expect("commit");
        }
    };
    let mut with_few = || drop(few.lock("db").try_acquire().expect("it is free"));
    let mut with_many = || drop(many.lock("db").try_acquire().expect("it is free"));
    let mut pattern_few = || drop(few.path("src/api/*.rs").try_acquire().expect("it is free"));
    let mut pattern_many = || drop(many.path("src/api/*.rs").try_acquire().expect("it is free"));
    let [commits, with_few, with_many, pattern_few, pattern_many] =
        alternate(4000, [&mut commits, &mut with_few, &mut with_many, &mut pattern_few, &mut pattern_many]);
    drop((few_guards, many_guards));
    vec![
        Row::times("acquire + release, against two bare WAL commits", with_few, commits, 2.5),
        Row::times("the same among 10,000 leases, against among 10", with_many, with_few, 1.5),
        Row::times("a pattern among 10,000 leases, against among 10", pattern_many, pattern_few, 1.5),
    ]
}

fn store_with(folder: &Path, leases: usize) -> (Keeper, Vec<Guard>) {
    let keeper = Keeper::open(folder).expect("a store");
    let guards = (0..leases)
        .map(|number| match number % 2 {
            0 => keeper.lock(&format!("n{number}")).try_acquire(),
            _ => keeper.path(&format!("group{number}/**/*.rs")).try_acquire(),
        })
        .collect::<Result<_, _>>()
        .expect("they do not meet");
    (keeper, guards)
}

/// As a program would use SQLite for one small record: WAL, no fsync at each commit.
fn bare_database(folder: &Path) -> Connection {
    let connection = Connection::open(folder.join("bare.db")).expect("a database");
    connection
        .execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;
             CREATE TABLE counter (id INTEGER PRIMARY KEY, value INTEGER NOT NULL);
             INSERT INTO counter VALUES (1, 0);",
        )
        .expect("a table");
    connection
}
