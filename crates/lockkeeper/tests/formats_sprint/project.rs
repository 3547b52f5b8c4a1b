//! A project of its own for each test, and the command `sprint` in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use lockkeeper_testing::{Finished, Started, World, files, processes, world};
use serde_json::Value;

/// The name of the lock file.
pub const FILE: &str = ".sprint-running";

/// A world whose working folder is a project.
pub struct Project {
    pub world: World,
}

/// The answer of `sprint --json`.
#[derive(Debug)]
pub struct Reply {
    pub code: i32,
    pub document: Value,
    pub stderr: String,
}

impl Reply {
    #[track_caller]
    pub fn of(finished: &Finished) -> Self {
        let code = finished.exit_code().expect("it was not killed");
        Self { code, document: finished.json(), stderr: finished.stderr() }
    }

    pub fn status(&self) -> &str {
        self.document["status"].as_str().unwrap()
    }

    pub fn message(&self) -> &str {
        self.document["message"].as_str().unwrap()
    }

    pub fn errors(&self) -> Vec<&str> {
        self.document["errors"].as_array().unwrap().iter().map(|error| error.as_str().unwrap()).collect()
    }

    pub fn info(&self, key: &str) -> &Value {
        &self.document["lock_info"][key]
    }
}

impl Project {
    pub fn new() -> Self {
        Self { world: world!() }
    }

    pub fn path(&self) -> &Path {
        self.world.cwd()
    }

    pub fn file(&self) -> PathBuf {
        self.path().join(FILE)
    }

    pub fn lock(&self) -> Option<String> {
        fs::read_to_string(self.file()).ok()
    }

    /// The names in the project.
    pub fn names(&self) -> Vec<String> {
        files::names(self.path())
    }

    /// Writes a lock file that is old enough to be whole.
    pub fn has_lock(&self, content: &str) {
        fs::write(self.file(), content).unwrap();
        files::set_modified(&self.file(), UNIX_EPOCH);
    }

    /// `sprint MODE --json` on this project. The lock that it takes is tied to the process of the test.
    pub fn command(&self, mode: &str, args: &[&str]) -> Command {
        let mut command = self.world.lockkeeper(["--json", "sprint", mode, "--project-root"]);
        command.arg(self.path()).args(args);
        command
    }

    #[track_caller]
    pub fn run(&self, mode: &str, args: &[&str]) -> Reply {
        Reply::of(&Finished::of(&mut self.command(mode, args)))
    }

    #[track_caller]
    pub fn acquire(&self, session: &str, args: &[&str]) -> Reply {
        self.run("acquire", &acquire_args(session, args))
    }

    /// Starts to acquire. It may ask a question.
    pub fn start_acquire(&self, session: &str, args: &[&str]) -> Started {
        Started::of(&mut self.command("acquire", &acquire_args(session, args)))
    }
}

fn acquire_args<'a>(session: &'a str, args: &[&'a str]) -> Vec<&'a str> {
    [&["--session-id", session, "--epic-spec", "epic5"], args].concat()
}

/// A record as another program writes it.
pub fn record(pid: u32, session: &str, age: Duration) -> String {
    let started_at = utc(age);
    format!(
        "pid: {pid}\nsession_id: \"{session}\"\nstarted_at: \"{started_at}\"\nepic_spec: \"epic4\"\nlock_version: 1\n"
    )
}

/// The time this long ago, as `date` writes it.
pub fn utc(ago: Duration) -> String {
    let seconds = files::ago(ago).as_micros() / 1_000_000;
    let mut date = Command::new("date");
    Finished::of(date.args(["-u", "-d", &format!("@{seconds}"), "+%FT%TZ"]))
        .code(0)
        .stdout()
        .trim()
        .to_owned()
}

/// The number of a process that never lives. It is the largest that a record may name.
pub const GONE: u32 = processes::NEVER_A_PID;

/// An hour.
pub const HOUR: Duration = Duration::from_secs(3600);
