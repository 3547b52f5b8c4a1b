//! A lock folder of its own for each test, and processes that hold a lock until they are told to let go.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Long enough for two loaded cores; reached only when something is wrong.
const LIMIT: Duration = Duration::from_secs(60);

pub struct Site {
    pub dir: tempfile::TempDir,
}

impl Site {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("home")).unwrap();
        Self { dir }
    }

    pub fn locks(&self) -> PathBuf {
        self.dir.path().join("locks")
    }

    pub fn lock_file(&self, group: &str) -> PathBuf {
        self.locks().join(format!("{group}.lock"))
    }

    pub fn fallback(&self) -> PathBuf {
        self.dir.path().join("home/.cache/ce_locks")
    }

    /// Any program, in these surroundings.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for name in
            ["LOCK_TIMEOUT", "MAX_LOCK_AGE", "DEADLOCK_CHECK_INTERVAL", "XDG_CACHE_HOME", "LOCKKEEPER_PID"]
        {
            command.env_remove(name);
        }
        command
            .env("LOCK_DIR", self.locks())
            .env("HOME", self.dir.path().join("home"))
            .env("LOCKKEEPER_DIR", self.dir.path().join("state"))
            .env("LK", env!("CARGO_BIN_EXE_lockkeeper"))
            .current_dir(self.dir.path())
            .stdin(Stdio::null());
        command
    }

    pub fn group(&self, args: &[&str]) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_lockkeeper"));
        command.arg("group").args(args);
        command
    }

    pub fn run(&self, args: &[&str]) -> Output {
        self.group(args).output().unwrap()
    }

    pub fn json(&self, args: &[&str]) -> Value {
        let output = self.group(&["--json"]).args(args).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }

    pub fn sh(&self, script: &str) -> Output {
        self.command("bash").args(["-c", script]).output().unwrap()
    }

    /// Makes the folder with its registry, and adds lines to it.
    pub fn write_registry(&self, lines: &str) {
        assert!(self.run(&["path", "first"]).status.success());
        let mut file = std::fs::File::options().append(true).open(self.locks().join("registry.log")).unwrap();
        file.write_all(lines.as_bytes()).unwrap();
    }

    pub fn registry(&self) -> String {
        std::fs::read_to_string(self.locks().join("registry.log")).unwrap()
    }

    /// The status of each line of a group.
    pub fn statuses(&self, group: &str) -> Vec<String> {
        let registry = self.registry();
        let fields = registry.lines().map(|line| line.split(':').collect::<Vec<_>>());
        fields.filter(|fields| fields.get(2) == Some(&group)).map(|fields| fields[4].to_owned()).collect()
    }

    pub fn flock_is_free(&self, group: &str) -> bool {
        let path = self.lock_file(group);
        Command::new("flock").arg("-n").arg(path).arg("true").status().unwrap().success()
    }

    /// Holds a group with our own command.
    pub fn hold(&self, group: &str) -> Holder {
        Holder::start(self.group(&["exec", group, "--", "sh", "-c", "echo held; read line || :"]))
    }
}

/// A process that says `held` and ends when it is told to.
pub struct Holder {
    pub process: Child,
    output: BufReader<ChildStdout>,
}

impl Holder {
    pub fn start(mut command: Command) -> Self {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let mut holder = Self { process, output };
        assert_eq!(holder.line(), "held");
        holder
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Lets go and returns the exit code.
    pub fn end(mut self) -> Option<i32> {
        drop(self.process.stdin.take());
        self.process.wait().unwrap().code()
    }

    pub fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// A process that waits for a lock, seen to wait.
pub struct Waiter {
    pub process: Child,
    talk: BufReader<ChildStderr>,
}

impl Waiter {
    pub fn start(mut command: Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut talk = BufReader::new(process.stderr.take().unwrap());
        let mut line = String::new();
        talk.read_line(&mut line).unwrap();
        assert!(line.starts_with("waiting for group"), "{line}");
        Self { process, talk }
    }

    pub fn end(mut self) -> (Option<i32>, String, String) {
        let (mut told, mut data) = (String::new(), String::new());
        self.talk.read_to_string(&mut told).unwrap();
        self.process.stdout.take().unwrap().read_to_string(&mut data).unwrap();
        (self.process.wait().unwrap().code(), data, told)
    }
}

/// Waits for something that nothing can tell us of.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let limit = Instant::now() + LIMIT;
    while !condition() {
        assert!(Instant::now() < limit, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub fn signal(name: &str, pid: u32) {
    assert!(Command::new("kill").args(["-s", name, &pid.to_string()]).status().unwrap().success());
}

/// The number of a process that has ended and was waited for.
pub fn dead_pid() -> u32 {
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    child.id()
}

pub fn now() -> i64 {
    lockkeeper_platform::wall_clock::epoch_seconds()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    if !found {
        println!("SKIPPED: needs {program}");
    }
    found
}

pub fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}
