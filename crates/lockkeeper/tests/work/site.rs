//! A state folder, requests in it, and workers on it.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use lockkeeper_core::id::RunId;
use lockkeeper_core::request::Request;
use lockkeeper_core::retry::RetryPolicy;
use lockkeeper_core::run::Run;
use lockkeeper_engine::runs::Runs;
use lockkeeper_platform::process;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Far longer than anything here takes, however loaded the machine is.
pub(crate) const PATIENCE: Duration = Duration::from_secs(100);

/// A folder with requests and a record of what their commands did.
pub(crate) struct Site {
    folder: tempfile::TempDir,
    pub(crate) runs: Runs,
}

impl Site {
    pub(crate) fn new() -> Self {
        Self::in_folder(tempfile::tempdir().unwrap())
    }

    pub(crate) fn in_folder(folder: tempfile::TempDir) -> Self {
        std::fs::create_dir(folder.path().join("work")).unwrap();
        let runs = Runs::open(&folder.path().join("store")).unwrap();
        Self { folder, runs }
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// A path beside the store.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Where commands run.
    pub(crate) fn dir(&self) -> PathBuf {
        self.path("work")
    }

    /// A request that runs a shell script in [`Site::dir`].
    pub(crate) fn script(&self, id: &str, script: &str) -> Request {
        self.command(id, &["sh", "-c", script])
    }

    pub(crate) fn command(&self, id: &str, command: &[&str]) -> Request {
        let command = command.iter().map(|word| (*word).to_owned()).collect();
        let dir = self.dir().to_str().unwrap().to_owned();
        Request {
            title: format!("do {id}"),
            env: vec![("PATH".to_owned(), std::env::var("PATH").unwrap())],
            retry: RetryPolicy { base: Duration::from_millis(20), ..RetryPolicy::default() },
            ..Request::new(id.parse().unwrap(), command, dir)
        }
    }

    pub(crate) fn submit(&self, request: &Request) -> RunId {
        self.runs.submit(request, None).unwrap().run
    }

    pub(crate) fn run(&self, id: &RunId) -> Run {
        self.runs.show(id).unwrap().run
    }

    /// Waits until a run has ended.
    pub(crate) fn end_of(&self, id: &RunId) -> Run {
        let run = self.runs.wait(id, Some(Instant::now() + PATIENCE), None).unwrap();
        assert!(run.status().is_terminal(), "it does not end: {:#?}", self.runs.show(id).unwrap());
        run
    }

    /// The kinds of a run's events, in order.
    pub(crate) fn kinds(&self, id: &RunId) -> Vec<String> {
        self.runs.show(id).unwrap().events.into_iter().map(|event| event.kind).collect()
    }

    /// `lockkeeper work` on this store.
    pub(crate) fn worker(&self, args: &[&str]) -> Worker {
        self.worker_under(&[], args)
    }

    /// The same under another program, such as `strace`.
    pub(crate) fn worker_under(&self, wrapper: &[&str], args: &[&str]) -> Worker {
        let mut command = self.lockkeeper_under(wrapper, &[&["--json", "work"], args].concat());
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Worker { process, output }
    }

    /// Any command of `lockkeeper` on this store.
    pub(crate) fn lockkeeper(&self, args: &[&str]) -> Command {
        self.lockkeeper_under(&[], args)
    }

    /// The same under another program, such as `unshare`.
    pub(crate) fn lockkeeper_under(&self, wrapper: &[&str], args: &[&str]) -> Command {
        let line = [wrapper, &[env!("CARGO_BIN_EXE_lockkeeper")], args].concat();
        let mut command = Command::new(line[0]);
        command.args(&line[1..]).current_dir(self.folder.path()).stdin(Stdio::null());
        command.env("LOCKKEEPER_DIR", self.store()).env("AI_SWARM_DIR", self.path("swarm"));
        command.env("LOCKKEEPER_GRACE", "2s").env_remove("LOCKKEEPER_STORE").env_remove("LOCKKEEPER_UNDER");
        command
    }

    /// The same, for workers that tell more than anybody reads.
    pub(crate) fn unheard_worker(&self, args: &[&str]) -> Worker {
        let mut worker = self.worker(args);
        let output = std::mem::replace(&mut worker.output, BufReader::new(nothing()));
        std::thread::spawn(move || std::io::copy(&mut { output }, &mut std::io::sink()));
        worker
    }

    /// Works until nothing is left to do. Runs may fail.
    pub(crate) fn drain(&self, jobs: &str) {
        let mut worker = self.worker(&["--jobs", jobs, "--drain"]);
        while worker.try_told().is_some() {}
        assert!(matches!(worker.wait(), Some(0 | 1)));
    }

    /// The lines that commands wrote to `record`.
    pub(crate) fn record(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.dir().join("record")).unwrap_or_default();
        text.lines().map(ToOwned::to_owned).collect()
    }

    pub(crate) fn output_of(&self, id: &RunId) -> Vec<u8> {
        std::fs::read(self.runs.folder_of(id).output()).unwrap()
    }

    /// Nobody holds or waits for anything, nothing of a run is thought to live, and no process carries its mark.
    pub(crate) fn assert_settled(&self, about: &str) {
        let leases = lockkeeper_engine::open::open_engine(&self.store()).unwrap();
        leases.clean_up().unwrap();
        let listing = leases.listing().unwrap();
        assert!(listing.holders.is_empty() && listing.waiters.is_empty(), "{about}: {listing:?}");
        let living = self.runs.store().snapshot().unwrap().active_runs().unwrap();
        assert!(living.is_empty(), "{about}: {living:?}");
        let left = marked(&self.store());
        assert!(left.is_empty(), "{about}: processes {left:?} are left");
    }
}

/// Processes that were started for a run of this store.
pub(crate) fn marked(store: &Path) -> Vec<u32> {
    let mark = format!("LOCKKEEPER_DIR={}", store.display());
    let is_marked = |pid: &u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let entries: Vec<&[u8]> = environment.split(|byte| *byte == 0).collect();
        entries.contains(&mark.as_bytes())
            && entries.iter().any(|entry| entry.starts_with(b"LOCKKEEPER_RUN_ID="))
    };
    let numbers =
        std::fs::read_dir("/proc").unwrap().filter_map(|one| one.ok()?.file_name().to_str()?.parse().ok());
    numbers.filter(is_marked).filter(|pid| lives(*pid)).collect()
}

/// A worker that runs, and what it tells.
pub(crate) struct Worker {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Worker {
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The next thing that it tells; none when it has ended.
    pub(crate) fn try_told(&mut self) -> Option<Value> {
        let mut line = String::new();
        match self.output.read_line(&mut line).unwrap() {
            0 => None,
            _ => Some(serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))),
        }
    }

    /// Reads on until it tells this of a run.
    pub(crate) fn until(&mut self, event: &str) -> Value {
        loop {
            let told = self.try_told().unwrap_or_else(|| panic!("it ended before it told `{event}`"));
            if told["event"] == event {
                return told;
            }
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    /// Ends it as nobody expects.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Its exit code, or 128 and the signal.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        let status = self.process.wait().unwrap();
        status.code().or_else(|| status.signal().map(|signal| 128 + signal))
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.process.try_wait().unwrap().is_some()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An output of somebody who has nothing to say.
fn nothing() -> ChildStdout {
    let mut process = Command::new("true").stdout(Stdio::piped()).spawn().unwrap();
    process.wait().unwrap();
    process.stdout.take().unwrap()
}

/// Looks until something is so, for things that nobody tells of.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let limit = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < limit, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process of that number is there and not a zombie.
pub(crate) fn lives(pid: u32) -> bool {
    process::identify(pid).is_ok()
}

/// A process number that a command wrote to a file, once it is there whole.
pub(crate) fn number_in(path: &Path) -> u32 {
    let mut number = None;
    until("a command wrote its number", || {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        number = text.strip_suffix('\n').and_then(|text| text.trim().parse().ok());
        number.is_some()
    });
    number.unwrap()
}
