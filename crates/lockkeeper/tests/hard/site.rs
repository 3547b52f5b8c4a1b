//! A world with a store, what it shows, and what it must not leave behind.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lockkeeper_testing::{Finished, World, files, world};
use serde_json::Value;

pub use lockkeeper_testing::processes::{is_alive as lives, kill as end};
pub use lockkeeper_testing::{LIMIT as PATIENCE, Started, until};

/// A world whose store is at `store` in the working folder.
pub struct Site {
    world: World,
}

impl Site {
    pub fn new() -> Self {
        let world = world!();
        let store = world.path("store");
        Self { world: world.set("LOCKKEEPER_DIR", store) }
    }

    /// The working folder.
    pub fn folder(&self) -> &Path {
        self.world.cwd()
    }

    pub fn store(&self) -> PathBuf {
        self.world.path("store")
    }

    /// `lockkeeper` on this store.
    pub fn command(&self, args: &[&str]) -> Command {
        self.world.lockkeeper(args)
    }

    /// The same under another program, such as `strace`.
    pub fn command_under(&self, wrapper: &[&str], args: &[&str]) -> Command {
        self.world.lockkeeper_under(wrapper, args)
    }

    /// How many calls of one kind the dynamic loader makes before the program begins.
    pub fn calls_of_the_loader(&self, call: &str) -> usize {
        self.world.calls_of_the_loader(call)
    }

    /// Starts the command in the background.
    pub fn start(&self, args: &[&str]) -> Started {
        self.world.start(args)
    }

    pub fn run(&self, args: &[&str]) -> Finished {
        self.world.run(args)
    }

    /// Runs a command that has to work, and returns its JSON.
    pub fn json(&self, args: &[&str]) -> Value {
        self.world.json(args)
    }

    /// Takes a lease that stays with this process, and returns its id and token.
    pub fn acquire(&self, name: &str) -> (String, u64) {
        let pid = std::process::id().to_string();
        let reply = self.json(&["acquire", name, "--pid", &pid]);
        let lease = &reply["lease"];
        (lease["id"].as_str().unwrap().to_owned(), lease["token"].as_u64().unwrap())
    }

    /// Takes a name and gives it back; returns the token.
    pub fn pass_through(&self, name: &str) -> u64 {
        let (lease, token) = self.acquire(name);
        self.run(&["release", &lease]).code(0);
        token
    }

    /// The leases as `locks` shows them.
    pub fn leases(&self) -> Vec<Value> {
        self.json(&["locks"])["leases"].as_array().unwrap().clone()
    }

    /// The tickets as `locks` shows them, in order.
    pub fn tickets(&self) -> Vec<Value> {
        self.json(&["locks"])["waiters"].as_array().unwrap().clone()
    }

    /// Waits until this many owners wait.
    pub fn until_waiting(&self, count: usize) {
        self.world.until_waiting(count);
    }

    /// Nobody holds or waits, and nothing lies about that does not belong to a store.
    pub fn assert_clean(&self, about: &str) {
        assert_store_is_clean(&self.store(), about);
    }
}

/// Fails when a store holds anything, or has files that are not documented, after `locks cleanup`.
pub fn assert_store_is_clean(store: &Path, about: &str) {
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
        let done = Finished::of(command.args(args).arg("--dir").arg(store));
        assert!(done.succeeded(), "{about}: {done:?}");
        done.json()
    };
    run(&["--json", "locks", "cleanup"]);
    let listing = run(&["--json", "locks"]);
    assert_eq!(listing["leases"].as_array().unwrap().len(), 0, "{about}: {listing}");
    assert_eq!(listing["waiters"].as_array().unwrap().len(), 0, "{about}: {listing}");
    assert_eq!(files::names(&store.join("wake")), [""; 0], "{about}: wakers are left");
    let documented = ["gate", "leases.db", "leases.db-shm", "leases.db-wal", "life", "tokens", "wake"];
    let strange: Vec<String> =
        files::names(store).into_iter().filter(|name| !documented.contains(&name.as_str())).collect();
    assert!(strange.is_empty(), "{about}: {strange:?} are left");
}

/// Most of these waits were over long before the timer of a waiter, which is five seconds. A loaded machine may delay a few.
#[track_caller]
pub fn assert_mostly_at_once(mut waits: Vec<Duration>) {
    waits.sort();
    assert!(waits[waits.len() / 2] < Duration::from_secs(1), "{waits:?}");
}

/// A failure that a person can act on: the exit code, one sentence, a hint.
#[track_caller]
pub fn assert_failed(done: &Finished, codes: &[i32], about: &str) {
    assert!(done.exit_code().is_some_and(|code| codes.contains(&code)), "{about}: {done:?}");
    let talk = done.stderr();
    let count = |start: &str| talk.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!((count("error: "), count("hint: ")), (1, 1), "{about}: {done:?}");
}
