//! A swarm folder of its own for each test, and the command `task` on it.

use std::path::PathBuf;
use std::time::Duration;

use lockkeeper_core::time::Ttl;
use lockkeeper_formats::swarm::{DEFAULT_TTL, Swarm};
use lockkeeper_testing::{Finished, World, files, world};
use serde_json::{Value, json};

pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// A world, and task locks in its swarm folder.
pub(crate) struct Tasks {
    pub(crate) world: World,
}

impl Tasks {
    /// A swarm folder without a lock folder.
    pub(crate) fn new() -> Self {
        let tasks = Self { world: world!() };
        std::fs::create_dir(tasks.dir()).unwrap();
        tasks
    }

    /// A swarm folder with an empty lock folder.
    pub(crate) fn with_locks() -> Self {
        let tasks = Self::new();
        std::fs::create_dir(tasks.locks()).unwrap();
        tasks
    }

    /// The swarm folder.
    pub(crate) fn dir(&self) -> PathBuf {
        self.world.beside("swarm")
    }

    pub(crate) fn swarm(&self) -> Swarm {
        Swarm::new(self.dir(), Ttl::new(DEFAULT_TTL).unwrap())
    }

    pub(crate) fn locks(&self) -> PathBuf {
        self.dir().join("locks")
    }

    pub(crate) fn file(&self, task: &str) -> PathBuf {
        self.locks().join(format!("{task}.lock"))
    }

    pub(crate) fn run(&self, args: &[&str]) -> Finished {
        self.world.run(args)
    }

    /// What a command prints as JSON, whatever its exit code is.
    #[track_caller]
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        self.run(&[args, &["--json"]].concat()).json()
    }

    pub(crate) fn write(&self, task: &str, content: impl AsRef<[u8]>) {
        files::write(&self.file(task), content);
    }

    /// Writes a lock whose heartbeat is this old.
    pub(crate) fn write_record(&self, task: &str, worker: &str, age: Duration, ttl: u64) {
        self.write(task, record(task, worker, age, ttl));
    }

    pub(crate) fn read(&self, task: &str) -> Value {
        serde_json::from_slice(&std::fs::read(self.file(task)).unwrap()).unwrap()
    }

    /// The names in the lock folder.
    pub(crate) fn names(&self) -> Vec<String> {
        files::names(&self.locks())
    }
}

/// The content of a lock whose heartbeat is this old.
pub(crate) fn record(task: &str, worker: &str, age: Duration, ttl: u64) -> String {
    let heartbeat = files::ago(age).to_string();
    json!({
        "worker_id": worker, "task_id": task, "acquired_at": heartbeat, "heartbeat_at": heartbeat, "ttl": ttl,
    })
    .to_string()
}
