//! The least that a turn can cost which is written down: two commits, as a release and a new ticket are, and a ring.
//!
//! The workers stand in a circle and hand on to the next one, with the store's gate before each commit of one row and a
//! FIFO to sleep on. No rules, no records, nothing to look for.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use lockkeeper::platform::poll;
use lockkeeper::platform::write_lock::WriteLock;
use rusqlite::Connection;

use crate::measure::quiet;

/// How many stand in the circle.
const WORKERS: usize = 64;
/// After such a silence the circle is broken.
const END: Duration = Duration::from_secs(1);

/// What one worker of the circle does for a turn; tells when the turn came.
pub fn turns(state: &Path) -> Box<dyn FnMut() -> u64> {
    let number: usize = std::env::var("BENCH_NUMBER").expect("it is set").parse().expect("a number");
    fs::create_dir_all(state).expect("a folder");
    let gate = WriteLock::open(&state.join("gate")).expect("a gate");
    let database = {
        let _alone = gate.lock().expect("it opens");
        database(state)
    };
    let (mut own, mut next) = (bell(state, number), bell(state, (number + 1) % WORKERS));
    if number == 0 {
        own.write_all(b"!").expect("it rings");
    }
    let mut value = 0;
    let mut commit = move || {
        let _alone = gate.lock().expect("it opens");
        value += 1;
        let run = |sql: &str| database.prepare_cached(sql).and_then(|mut run| run.execute([]));
        run("BEGIN IMMEDIATE").expect("begin");
        let update = "UPDATE counter SET value = ?1 WHERE id = 1";
        database.prepare_cached(update).and_then(|mut update| update.execute([value])).expect("update");
        run("COMMIT").expect("commit");
    };
    Box::new(move || {
        // Whose time is up first leaves the circle, and nobody is rung behind it.
        if poll::wait(&[own.as_fd()], Some(END)).expect("it sleeps").any() {
            own.read_exact(&mut [0]).expect("it is rung");
        }
        let came = crate::contention::now();
        commit();
        next.write_all(b"!").expect("it rings");
        commit();
        came
    })
}

/// As the store has it: small pages, no fsync, a short log.
fn database(state: &Path) -> Connection {
    let connection = Connection::open(state.join("floor.db")).expect("a database");
    connection
        .execute_batch(
            "PRAGMA page_size = 1024; PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;
             PRAGMA wal_autocheckpoint = 24;
             CREATE TABLE IF NOT EXISTS counter (id INTEGER PRIMARY KEY, value INTEGER NOT NULL);
             INSERT OR IGNORE INTO counter VALUES (1, 0);",
        )
        .expect("a table");
    connection
}

/// A FIFO, open in both directions, so that it never ends.
fn bell(state: &Path, number: usize) -> File {
    let path = state.join(number.to_string());
    // Others make the same: it is there afterwards, whoever was first.
    let _ = quiet("mkfifo").arg(&path).status();
    File::options().read(true).write(true).open(path).expect("a FIFO")
}
