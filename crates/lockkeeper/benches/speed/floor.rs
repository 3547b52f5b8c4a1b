//! Lower bound for a turn: two commits, like those of a release and a new ticket, and a wake-up.
//!
//! The workers form a ring, and each wakes the next one. They take the write lock of the store before each commit of one row,
//! and sleep on a FIFO. There are no rules and no records.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use lockkeeper_platform::poll;
use lockkeeper_platform::write_lock::WriteLock;
use rusqlite::Connection;

use crate::measure::quiet;

/// How many workers the ring has.
const WORKERS: usize = 64;
/// After this long without a wake-up the ring has ended.
const END: Duration = Duration::from_secs(1);

/// One turn of one worker of the ring. Returns when the turn came.
pub fn turns(state: &Path) -> Box<dyn FnMut() -> u64> {
    let number: usize = std::env::var("BENCH_NUMBER").expect("it is set").parse().expect("a number");
    fs::create_dir_all(state).expect("a folder");
    let lock = WriteLock::open(&state.join("gate")).expect("a lock file");
    let database = {
        let _held = lock.lock().expect("the lock");
        database(state)
    };
    let (mut own, mut next) = (fifo(state, number), fifo(state, (number + 1) % WORKERS));
    if number == 0 {
        own.write_all(b"!").expect("a wake-up");
    }
    let mut value = 0;
    let mut commit = move || {
        let _held = lock.lock().expect("the lock");
        value += 1;
        let run = |sql: &str| database.prepare_cached(sql).and_then(|mut run| run.execute([]));
        run("BEGIN IMMEDIATE").expect("begin");
        let update = "UPDATE counter SET value = ?1 WHERE id = 1";
        database.prepare_cached(update).and_then(|mut update| update.execute([value])).expect("update");
        run("COMMIT").expect("commit");
    };
    Box::new(move || {
        // The first worker whose time is up leaves the ring, and wakes nobody any more.
        if poll::wait(&[own.as_fd()], Some(END)).expect("it sleeps").any() {
            own.read_exact(&mut [0]).expect("a wake-up");
        }
        let came = crate::contention::now();
        commit();
        next.write_all(b"!").expect("a wake-up");
        commit();
        came
    })
}

/// The settings of the store: small pages, no fsync, a short log.
fn database(state: &Path) -> Connection {
    let connection = Connection::open(state.join("floor.db")).expect("a database");
    connection
        .execute_batch(
            "PRAGMA page_size = 1024; PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;
             PRAGMA wal_autocheckpoint = 64;
             CREATE TABLE IF NOT EXISTS counter (id INTEGER PRIMARY KEY, value INTEGER NOT NULL);
             INSERT OR IGNORE INTO counter VALUES (1, 0);",
        )
        .expect("a table");
    connection
}

/// A FIFO, open for reading and writing, so that it never reads an end of file.
fn fifo(state: &Path, number: usize) -> File {
    let path = state.join(number.to_string());
    // Other workers create the same one. Afterwards it is there.
    let _ = quiet("mkfifo").arg(&path).status();
    File::options().read(true).write(true).open(path).expect("a FIFO")
}
