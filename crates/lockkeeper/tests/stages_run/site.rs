//! A folder with a STAGES.yml, and executions of it.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Far longer than anything here takes, however loaded the machine is.
const PATIENCE: Duration = Duration::from_secs(100);

/// What an agent does that is watched: it writes down when it begins and when it ends.
pub(crate) const WATCHED: &str = r#"echo "begin $LOCKKEEPER_GROUP $LOCKKEEPER_AGENT" >> record; sleep 0.05; echo "end $LOCKKEEPER_GROUP $LOCKKEEPER_AGENT" >> record"#;

pub(crate) struct Site {
    folder: tempfile::TempDir,
}

/// What a command left.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    fn of(output: Output) -> Self {
        let status = output.status;
        let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code, out: text(output.stdout), err: text(output.stderr) }
    }

    /// It ended with this code.
    pub(crate) fn code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{}\n{}", self.out, self.err);
        self
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}\n{}", self.out, self.err))
    }
}

impl Site {
    pub(crate) fn new(stages: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("STAGES.yml"), stages).unwrap();
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A command of the program in the folder, with nothing of its surroundings.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
        command.args(args).current_dir(self.folder.path()).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", self.folder.path());
        command.env("LOCKKEEPER_DIR", self.path("state")).env("AI_SWARM_DIR", self.path("swarm"));
        command.env("LOCK_DIR", self.path("locks")).env("LOCKKEEPER_GRACE", "2s");
        command.env("BIN", env!("CARGO_BIN_EXE_lockkeeper"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        Ran::of(self.command(args).output().unwrap())
    }

    /// Executes a phase on a machine that has nothing else to do.
    pub(crate) fn stages(&self, phase: &str, more: &[&str]) -> Ran {
        let mut args = vec!["--json", "stages", "run", "STAGES.yml", phase, "--load", "0"];
        args.extend(more);
        self.run(&args)
    }

    pub(crate) fn start(&self, args: &[&str]) -> Started {
        Started { process: Some(self.command(args).spawn().unwrap()) }
    }

    pub(crate) fn start_stages(&self, phase: &str, more: &[&str]) -> Started {
        let mut args = vec!["--json", "stages", "run", "STAGES.yml", phase, "--load", "0"];
        args.extend(more);
        self.start(&args)
    }

    /// The lines that agents wrote to `record`.
    pub(crate) fn record(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path("record")).unwrap_or_default();
        text.lines().map(ToOwned::to_owned).collect()
    }

    /// The lines of a log.
    pub(crate) fn log(&self, name: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path("logs").join(name)).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The lines of the log of executions that have this status.
    pub(crate) fn told(&self, status: &str) -> Vec<Value> {
        self.log("parallel_execution.log").into_iter().filter(|line| line["status"] == status).collect()
    }

    /// Nobody holds or waits for anything, and no process of an agent is left.
    pub(crate) fn assert_settled(&self) {
        let listing = self.run(&["locks", "--json"]).code(0).json();
        assert_eq!(listing["leases"].as_array().map(Vec::len), Some(0), "{listing}");
        let left = self.processes();
        assert!(left.is_empty(), "processes {left:?} are left");
    }

    /// Processes of agents of this folder.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let mark = format!("LOCKKEEPER_DIR={}", self.path("state").display());
        let is_marked = |pid: &u32| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let entries: Vec<&[u8]> = environment.split(|byte| *byte == 0).collect();
            entries.contains(&mark.as_bytes())
                && entries.iter().any(|entry| entry.starts_with(b"LOCKKEEPER_RUN_ID="))
        };
        let entries = std::fs::read_dir("/proc").unwrap();
        let numbers = entries.filter_map(|one| one.ok()?.file_name().to_str()?.parse().ok());
        let lives = |pid: &u32| lockkeeper_platform::process::identify(*pid).is_ok();
        numbers.filter(is_marked).filter(lives).collect()
    }

    pub(crate) fn until_there(&self, name: &str) {
        until(name, || self.path(name).exists());
    }

    pub(crate) fn touch(&self, name: &str) {
        std::fs::write(self.path(name), "").unwrap();
    }
}

/// A command that runs.
pub(crate) struct Started {
    process: Option<Child>,
}

impl Started {
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(self.process.as_ref().unwrap()), signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Ran {
        Ran::of(self.process.take().unwrap().wait_with_output().unwrap())
    }

    /// Ends it as nobody expects.
    pub(crate) fn kill(self) {
        self.signal(Signal::KILL);
        assert_eq!(self.end().code, Some(137));
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Looks until something is so, for things that nobody tells of.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let limit = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < limit, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
