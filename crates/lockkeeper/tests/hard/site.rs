//! A store in a folder of its own, and commands on it.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Far longer than anything here takes, however loaded the machine is.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A folder with a store.
pub struct Site {
    folder: tempfile::TempDir,
}

impl Site {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// `lockkeeper` on this store, with nothing in the environment that would choose for it.
    pub fn command(&self, args: &[&str]) -> Command {
        self.command_under(&[], args)
    }

    /// The same under another program, such as `strace`.
    pub fn command_under(&self, wrapper: &[&str], args: &[&str]) -> Command {
        let mut line: Vec<&OsStr> = wrapper.iter().map(OsStr::new).collect();
        line.push(OsStr::new(env!("CARGO_BIN_EXE_lockkeeper")));
        line.extend(args.iter().map(OsStr::new));
        let mut command = Command::new(line[0]);
        command.args(&line[1..]).current_dir(self.folder()).env("LOCKKEEPER_DIR", self.store());
        for name in
            ["LOCKKEEPER_PID", "CLAUDE_PID", "LOCKKEEPER_OWNER", "LOCKKEEPER_UNDER", "LOCKKEEPER_STORE"]
        {
            command.env_remove(name);
        }
        command.stdin(Stdio::null());
        command
    }

    pub fn run(&self, args: &[&str]) -> Answer {
        Answer::of(self.command(args).output().unwrap())
    }

    /// Runs a command that has to work, and returns its JSON.
    pub fn json(&self, args: &[&str]) -> Value {
        let mut line = args.to_vec();
        line.insert(0, "--json");
        let answer = self.run(&line);
        assert_eq!(answer.code, Some(0), "{args:?}: {answer:?}");
        serde_json::from_str(&answer.out).unwrap()
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
        assert_eq!(self.run(&["release", &lease]).code, Some(0));
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

    /// Polls until this many wait: a stranger gets no signal.
    pub fn until_waiting(&self, count: usize) {
        until(&format!("{count} in line"), || self.tickets().len() == count);
    }

    /// Nobody holds or waits, and nothing lies about that does not belong to a store.
    pub fn assert_clean(&self, about: &str) {
        assert_store_is_clean(&self.store(), about);
    }
}

/// Fails when a store holds anything, or has files that are not documented, after `locks cleanup`.
pub fn assert_store_is_clean(store: &Path, about: &str) {
    let run = |args: &[&str]| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_lockkeeper")).args(args).arg("--dir").arg(store).output();
        let answer = Answer::of(output.unwrap());
        assert_eq!(answer.code, Some(0), "{about}: {args:?}: {answer:?}");
        serde_json::from_str::<Value>(&answer.out).unwrap()
    };
    run(&["--json", "locks", "cleanup"]);
    let listing = run(&["--json", "locks"]);
    assert_eq!(listing["leases"].as_array().unwrap().len(), 0, "{about}: {listing}");
    assert_eq!(listing["waiters"].as_array().unwrap().len(), 0, "{about}: {listing}");
    assert_eq!(names_in(&store.join("wake")), Vec::<String>::new(), "{about}: wakers are left");
    let documented = ["gate", "leases.db", "leases.db-shm", "leases.db-wal", "life", "tokens", "wake"];
    let strange: Vec<String> =
        names_in(store).into_iter().filter(|name| !documented.contains(&name.as_str())).collect();
    assert!(strange.is_empty(), "{about}: {strange:?} are left");
}

pub fn names_in(folder: &Path) -> Vec<String> {
    match std::fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect(),
        Err(_) => Vec::new(),
    }
}

/// How a command ended and what it said.
#[derive(Debug)]
pub struct Answer {
    pub code: Option<i32>,
    pub status: ExitStatus,
    pub out: String,
    pub err: String,
}

impl Answer {
    pub fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let (out, err) = (text(output.stdout), text(output.stderr));
        Self { code: output.status.code(), status: output.status, out, err }
    }

    /// A failure that a person can act on: the code, one sentence, a hint.
    pub fn assert_failed(&self, codes: &[i32], about: &str) {
        assert!(self.code.is_some_and(|code| codes.contains(&code)), "{about}: {self:?}");
        let errors = self.err.lines().filter(|line| line.starts_with("error: ")).count();
        let hints = self.err.lines().filter(|line| line.starts_with("hint: ")).count();
        assert_eq!((errors, hints), (1, 1), "{about}: {self:?}");
    }
}

/// A command that runs, whose lines are read one by one.
pub struct Started {
    pub process: Child,
    output: BufReader<ChildStdout>,
}

impl Started {
    pub fn new(command: &mut Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Self { process, output }
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "it ended early: {:?}", self.process.wait());
        line.trim_end().to_owned()
    }

    pub fn number(&mut self) -> u32 {
        self.line().parse().unwrap()
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub fn wait(&mut self) -> ExitStatus {
        self.process.wait().unwrap()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Looks until something is so, for things that nobody tells of.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let limit = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < limit, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process of that number is there and not a zombie.
pub fn lives(pid: u32) -> bool {
    lockkeeper_platform::process::identify(pid).is_ok()
}

/// Ends a process that a test started, and sees it gone.
pub fn end(pid: u32) {
    if let Some(number) = Pid::from_raw(pid.cast_signed()) {
        let _ = kill_process(number, Signal::KILL);
    }
    until("the killed process is gone", || !lives(pid));
}
