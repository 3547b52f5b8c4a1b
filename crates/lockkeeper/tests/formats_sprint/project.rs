//! A project with a lock file, and the command run in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

/// The name of the lock file.
pub const FILE: &str = ".sprint-running";

/// A folder of its own.
pub struct Project {
    root: tempfile::TempDir,
}

/// What a command answered.
#[derive(Debug)]
pub struct Reply {
    pub code: i32,
    pub document: Value,
    pub stderr: String,
}

impl Reply {
    pub fn of(output: &Output) -> Self {
        let stdout = String::from_utf8(output.stdout.clone()).unwrap();
        let stderr = String::from_utf8(output.stderr.clone()).unwrap();
        let document =
            serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout} {stderr}"));
        Self { code: output.status.code().unwrap(), document, stderr }
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
        Self { root: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self) -> &Path {
        self.root.path()
    }

    pub fn file(&self) -> PathBuf {
        self.path().join(FILE)
    }

    pub fn lock(&self) -> Option<String> {
        fs::read_to_string(self.file()).ok()
    }

    /// Everything that lies in the project.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Puts down a lock file that nobody is writing any more.
    pub fn has_lock(&self, content: &str) {
        fs::write(self.file(), content).unwrap();
        let file = fs::File::options().write(true).open(self.file()).unwrap();
        file.set_modified(UNIX_EPOCH).unwrap();
    }

    /// `lockkeeper sprint MODE` here, with `--json`; the test itself stands for what it acquires.
    pub fn command(&self, mode: &str, args: &[&str]) -> Command {
        let mut command = bare(Path::new(env!("CARGO_BIN_EXE_lockkeeper")));
        command.args(["--json", "sprint", mode, "--project-root"]).arg(self.path()).args(args);
        command.current_dir(self.path());
        command
    }

    pub fn run(&self, mode: &str, args: &[&str]) -> Reply {
        Reply::of(&self.command(mode, args).stdin(Stdio::null()).output().unwrap())
    }

    pub fn acquire(&self, session: &str, args: &[&str]) -> Reply {
        let acquire = ["--session-id", session, "--epic-spec", "epic5"];
        self.run("acquire", &[&acquire, args].concat())
    }

    /// Starts to acquire, with pipes on every side.
    pub fn start_acquire(&self, session: &str, args: &[&str]) -> Child {
        let acquire = ["--session-id", session, "--epic-spec", "epic5"];
        let mut command = self.command("acquire", &[&acquire, args].concat());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }
}

/// A program that sees none of the settings of whoever runs the tests.
pub fn bare(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("LOCKKEEPER_") || name.starts_with("GIT_") || name == "CLAUDE_PID" {
            command.env_remove(name);
        }
    }
    command.env("XDG_CONFIG_HOME", "/nonexistent").env("HOME", "/nonexistent");
    command
}

/// A record as another program writes it.
pub fn record(pid: u32, session: &str, age: Duration) -> String {
    let started_at = utc(age);
    format!(
        "pid: {pid}\nsession_id: \"{session}\"\nstarted_at: \"{started_at}\"\nepic_spec: \"epic4\"\nlock_version: 1\n"
    )
}

/// A time of the wall clock, as `date` writes it.
pub fn utc(ago: Duration) -> String {
    #[expect(clippy::disallowed_methods, reason = "the test plays a program that knows only the wall clock")]
    let now = SystemTime::now();
    let seconds = (now - ago).duration_since(UNIX_EPOCH).unwrap().as_secs();
    let output = Command::new("date").args(["-u", "-d", &format!("@{seconds}"), "+%FT%TZ"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// The number of a process that is gone for good: the largest that a record may name, which Linux never gives.
pub const GONE: u32 = 1 << 22;

/// An hour.
pub const HOUR: Duration = Duration::from_secs(3600);
