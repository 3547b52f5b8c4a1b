//! The Redis store against the usual lock on the same server, in alternating rounds: `SET NX PX`, and a script that deletes the key
//! if it still has the client's value.
#![expect(clippy::unwrap_used, reason = "a measurement may fail by panicking")]

#[path = "../../lockkeeper/benches/speed/measure.rs"]
#[expect(dead_code, reason = "other benches use the rest")]
mod measure;
#[path = "support/one_lease.rs"]
mod one_lease;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::Duration;

use lockkeeper_core::records::Change;
use lockkeeper_platform::random;
use lockkeeper_store::{Commit, LeaseStore, RedisAddress, RedisStore};
use lockkeeper_testing::ServerProxy;

use measure::{Row, alternate};
use one_lease::{acquire, lease, release};

const TURNS: usize = 3_000;

fn main() -> ExitCode {
    let Ok(server) = std::env::var("LOCKKEEPER_TEST_REDIS") else {
        println!("SKIPPED: needs a Redis server (scripts/bench redis)");
        return ExitCode::SUCCESS;
    };
    println!("{:<52} {:>12} {:>12} {:>8} {:>8}", "", "ours", "bare", "ratio", "limit");
    let mut rows = vec![acquire_and_release(&server), among_many(&server)];
    rows.extend(round_trips(&server));
    rows.iter().for_each(|row| println!("{row}"));
    if rows.iter().all(Row::holds) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn open(server: &str) -> RedisStore {
    let address = RedisAddress::parse(server, &|_| None, None).unwrap();
    let project = format!("bench-{:x}", random::number().unwrap());
    RedisStore::open(address, &project, Duration::from_secs(5)).unwrap()
}

/// A bare connection.
struct Bare(BufReader<UnixStream>);

impl Bare {
    fn connect(server: &str) -> Self {
        Self(BufReader::new(UnixStream::connect(server.strip_prefix("unix:").unwrap()).unwrap()))
    }

    /// Runs a command whose reply is one line, or a length and a line.
    fn call(&mut self, words: &[&str]) -> String {
        let words: Vec<String> = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
        let command = format!("*{}\r\n{}", words.len(), words.concat());
        self.0.get_mut().write_all(command.as_bytes()).unwrap();
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        if line.starts_with('$') {
            line.clear();
            self.0.read_line(&mut line).unwrap();
        }
        line.trim_end().to_owned()
    }
}

/// One lease at a time.
fn acquire_and_release(server: &str) -> Row {
    let store = open(server);
    let mut bare = Bare::connect(server);
    let delete =
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
    let delete = bare.call(&["SCRIPT", "LOAD", delete]);
    let mut ours = || release(&store, acquire(&store, "db"));
    let mut theirs = || {
        assert_eq!(bare.call(&["SET", "bare", "worker:bench", "NX", "PX", "30000"]), "+OK");
        assert_eq!(bare.call(&["EVALSHA", &delete, "1", "bare", "worker:bench"]), ":1");
    };
    let [ours, theirs] = alternate(TURNS, [&mut ours, &mut theirs]);
    Row::times("acquire and release a lease, against SET NX PX", ours, theirs, 2.5)
}

/// The same among many other leases.
fn among_many(server: &str) -> Row {
    let stores = [10_u64, 10_000].map(|count| {
        let store = open(server);
        for first in (0..count).step_by(500) {
            let some = first + 1..=count.min(first + 500);
            let some = some.map(|id| Change::AddLease(lease(id, &format!("name-{id}")))).collect();
            assert!(store.begin().unwrap().commit(some, &[]).unwrap() == Commit::Committed);
        }
        store
    });
    let turn = |store: &RedisStore| release(store, acquire(store, "db"));
    let [few, many] = alternate(TURNS, [&mut || turn(&stores[0]), &mut || turn(&stores[1])]);
    Row::times("the same among 10,000 leases, against among 10", many, few, 1.5)
}

fn round_trips(server: &str) -> Vec<Row> {
    let proxy = ServerProxy::start(server);
    let store = open(proxy.address());
    let counted = |what: &str, expected: f64, call: &mut dyn FnMut()| {
        proxy.reset();
        call();
        Row::at_most(format!("round trips: {what}"), proxy.round_trips() as f64, expected, "", 1.0)
    };
    let mut held = None;
    let acquired = counted("acquire a lease", 2.0, &mut || held = Some(acquire(&store, "db")));
    vec![acquired, counted("release it", 1.0, &mut || release(&store, held.take().unwrap()))]
}
