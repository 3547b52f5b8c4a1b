//! A temporary folder to run the command in, isolated from the settings and state of the machine.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::files::{self, Tree};
use crate::{Finished, Started, Terminal};

/// A working folder, a home folder, and environment variables. Dropping it deletes both folders.
///
/// Commands see only these variables: `PATH` of the test, `HOME`, `TERM=dumb`, `LOCK_DIR`, `AI_SWARM_DIR`,
/// and those of [`World::set`].
pub struct World {
    temp: TempDir,
    cwd: PathBuf,
    program: PathBuf,
    variables: Vec<(String, OsString)>,
}

impl World {
    /// An empty working folder for this program. Tests of the command use [`crate::world!`].
    #[must_use]
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self::in_folder(tempfile::tempdir().unwrap(), program)
    }

    /// The same in a given temporary folder, for example on another file system.
    #[must_use]
    pub fn in_folder(temp: TempDir, program: impl Into<PathBuf>) -> Self {
        let cwd = temp.path().join("work");
        std::fs::create_dir(&cwd).unwrap();
        std::fs::create_dir(temp.path().join("home")).unwrap();
        let world = Self { cwd, program: program.into(), variables: Vec::new(), temp };
        let (groups, swarm) = (world.beside("groups"), world.beside("swarm"));
        world.set("LOCK_DIR", groups).set("AI_SWARM_DIR", swarm)
    }

    /// Makes the working folder a git repository with one commit.
    #[must_use]
    pub fn git(self) -> Self {
        self.git_run(&["init", "-q"]);
        let identity = ["-c", "user.name=t", "-c", "user.email=t@t"];
        self.git_run(&[&identity[..], &["commit", "-q", "--allow-empty", "-m", "t"]].concat());
        self
    }

    /// Runs git in the working folder.
    #[track_caller]
    pub fn git_run(&self, args: &[&str]) {
        Finished::of(self.command("git").args(args)).code(0);
    }

    /// Sets an environment variable for all later commands.
    #[must_use]
    pub fn set(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.variables.push((name.to_owned(), value.into()));
        self
    }

    /// Puts the state folder at `state` in the working folder, by `LOCKKEEPER_DIR`.
    #[must_use]
    pub fn with_state(self) -> Self {
        let state = self.path("state");
        self.set("LOCKKEEPER_DIR", state)
    }

    /// Writes a file below the working folder, and makes its folder.
    #[must_use]
    pub fn write(self, path: &str, text: &str) -> Self {
        files::write(&self.path(path), text);
        self
    }

    /// Makes an empty file below the working folder: commands of tests wait for such files.
    pub fn touch(&self, path: &str) {
        files::write(&self.path(path), "");
    }

    /// Makes a folder below the working folder, and goes there.
    #[must_use]
    pub fn at(mut self, folder: &str) -> Self {
        self.cwd = self.cwd.join(folder);
        std::fs::create_dir_all(&self.cwd).unwrap();
        self
    }

    /// The working folder.
    #[must_use]
    pub fn cwd(&self) -> &Path {
        &self.cwd
    }

    /// A path below the working folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.cwd.join(name)
    }

    /// A path beside the working folder.
    #[must_use]
    pub fn beside(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    /// The home folder.
    #[must_use]
    pub fn home(&self) -> PathBuf {
        self.beside("home")
    }

    /// The program under test.
    #[must_use]
    pub fn program(&self) -> &str {
        self.program.to_str().expect("the path of the program is text")
    }

    /// Any program in this world, with nothing on stdin.
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.cwd).env_clear().stdin(Stdio::null());
        command.env("HOME", self.home()).env("TERM", "dumb");
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// The program under test, with arguments.
    #[must_use]
    pub fn lockkeeper<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(&self, args: I) -> Command {
        let mut command = self.command(&self.program);
        command.args(args);
        command
    }

    /// The program under test, started by another program such as `strace`.
    #[must_use]
    pub fn lockkeeper_under(&self, wrapper: &[&str], args: &[&str]) -> Command {
        let mut command = self.command(wrapper[0]);
        command.args(&wrapper[1..]).arg(&self.program).args(args);
        command
    }

    /// How many calls of one kind the dynamic loader makes before the program begins. Faults are injected into later ones.
    #[must_use]
    #[track_caller]
    pub fn calls_of_the_loader(&self, call: &str) -> usize {
        let trace = self.beside("loader.trace");
        let strace = ["strace", "-qq", "-o", trace.to_str().unwrap(), "-e", &format!("trace={call}")];
        Finished::of(&mut self.lockkeeper_under(&strace, &["--version"])).code(0);
        std::fs::read_to_string(trace).unwrap().lines().count()
    }

    /// Runs the program under test to its end.
    #[must_use]
    pub fn run<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(&self, args: I) -> Finished {
        Finished::of(&mut self.lockkeeper(args))
    }

    /// Runs the program under test with `--json`, asserts that it succeeds, and returns what it printed.
    #[must_use]
    #[track_caller]
    pub fn json(&self, args: &[&str]) -> Value {
        self.run([&["--json"], args].concat()).code(0).json()
    }

    /// Runs a line of bash in which `lockkeeper` is the program under test.
    #[must_use]
    pub fn shell(&self, line: &str) -> Finished {
        let line = format!("lockkeeper() {{ '{}' \"$@\"; }}; {line}", self.program());
        Finished::of(self.command("bash").args(["-c", &line]))
    }

    /// Runs a shell command on a terminal of its own to its end. Both outputs come as stdout.
    #[must_use]
    pub fn on_terminal(&self, line: &str) -> Finished {
        Finished::of(self.command("script").args(["-qec", line, "/dev/null"]))
    }

    /// Starts a shell command on a terminal of its own.
    #[must_use]
    pub fn terminal(&self, line: &str) -> Terminal {
        Terminal::of(self.command("script"), line)
    }

    /// Starts the program under test in the background.
    #[must_use]
    pub fn start<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(&self, args: I) -> Started {
        Started::of(&mut self.lockkeeper(args))
    }

    /// Holds a lease with `exec` until [`Started::finish`].
    #[must_use]
    #[track_caller]
    pub fn hold(&self, args: &[&str]) -> Started {
        let all = [&["exec"], args, &["--", "sh", "-c", "echo up; read -r line; exit 0"]].concat();
        let mut started = self.start(all);
        assert_eq!(started.line(), "up");
        started
    }

    /// Takes a lease for ten minutes, without a process, and returns its id.
    #[track_caller]
    pub fn acquire(&self, args: &[&str]) -> String {
        let all = [&["acquire", "--ttl", "10m"], args].concat();
        self.run(all).code(0).stdout().trim_end().to_owned()
    }

    /// Waits until exactly this many owners wait. `locks --watch` prints the listing again when it changes.
    #[track_caller]
    pub fn until_waiting(&self, count: usize) {
        let mut watch = self.start(["locks", "--watch", "--json"]);
        loop {
            let listing = watch.try_json().expect("`locks --watch` goes on");
            if listing["waiters"].as_array().is_some_and(|waiters| waiters.len() == count) {
                return;
            }
        }
    }

    /// Every file and folder of this world, with the content of files.
    #[must_use]
    pub fn tree(&self) -> Tree {
        files::tree(self.temp.path())
    }
}
