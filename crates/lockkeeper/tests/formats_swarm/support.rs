//! A swarm in a folder of its own, and the command that works on it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use lockkeeper_core::time::Ttl;
use lockkeeper_formats::swarm::{DEFAULT_TTL, Swarm};
use lockkeeper_platform::wall_clock::WallTime;
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) struct Nest {
    dir: TempDir,
}

impl Nest {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
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

    /// The command, in the folder of this swarm and with nothing of the surroundings.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
        command.args(args).current_dir(self.dir());
        command.env("AI_SWARM_DIR", self.dir()).env_remove("AI_SWARM_LOCK_TTL");
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    pub(crate) fn code(&self, args: &[&str]) -> i32 {
        self.run(args).status.code().unwrap()
    }

    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let output = self.command(args).arg("--json").output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    }

    pub(crate) fn write(&self, task: &str, content: impl AsRef<[u8]>) {
        fs::create_dir_all(self.locks()).unwrap();
        fs::write(self.file(task), content).unwrap();
    }

    /// Puts a lock there whose heartbeat is this old.
    pub(crate) fn write_record(&self, task: &str, worker: &str, age: Duration, ttl: u64) {
        self.write(task, record(task, worker, age, ttl));
    }

    pub(crate) fn read(&self, task: &str) -> Value {
        serde_json::from_slice(&fs::read(self.file(task)).unwrap()).unwrap()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        names(&self.locks())
    }
}

pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

pub(crate) fn record(task: &str, worker: &str, age: Duration, ttl: u64) -> String {
    let heartbeat = ago(age).to_string();
    json!({
        "worker_id": worker, "task_id": task, "acquired_at": heartbeat, "heartbeat_at": heartbeat, "ttl": ttl,
    })
    .to_string()
}

pub(crate) fn ago(age: Duration) -> WallTime {
    let now = WallTime::now().as_micros();
    WallTime::from_micros(now - i64::try_from(age.as_micros()).unwrap())
}

/// Makes a file look as if it had been written that long ago.
pub(crate) fn age_file(path: &Path, age: Duration) {
    let micros = ago(age).as_micros();
    let time = std::time::UNIX_EPOCH + Duration::from_micros(micros.cast_unsigned());
    fs::File::open(path).unwrap().set_modified(time).unwrap();
}

pub(crate) const HOUR: Duration = Duration::from_secs(3600);
