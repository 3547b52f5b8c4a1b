//! A folder of one's own to run the command in, and what came of it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// The program under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_lockkeeper");

/// Where the command is run, with nothing of the machine's own settings.
pub struct Env {
    temp: TempDir,
    cwd: PathBuf,
    variables: Vec<(String, String)>,
}

impl Env {
    /// An empty folder.
    pub fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let cwd = temp.path().join("work");
        fs::create_dir(&cwd).unwrap();
        fs::create_dir(temp.path().join("home")).unwrap();
        Self { temp, cwd, variables: Vec::new() }
    }

    /// Makes it a git repository with one commit.
    pub fn git(self) -> Self {
        self.git_run(&["init", "-q"]);
        self.git_run(&[
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@t",
            "commit",
            "-q",
            "--allow-empty",
            "-m",
            "t",
        ]);
        self
    }

    pub fn git_run(&self, args: &[&str]) {
        let mut git = self.command("git");
        assert!(git.args(args).status().unwrap().success(), "git {args:?}");
    }

    pub fn set(mut self, name: &str, value: impl Into<String>) -> Self {
        self.variables.push((name.to_owned(), value.into()));
        self
    }

    pub fn write(self, path: &str, text: &str) -> Self {
        let path = self.cwd.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    /// Goes to a folder below, which is made.
    pub fn at(mut self, folder: &str) -> Self {
        self.cwd = self.cwd.join(folder);
        fs::create_dir_all(&self.cwd).unwrap();
        self
    }

    pub fn cwd(&self) -> &Path {
        &self.cwd
    }

    pub fn home(&self) -> PathBuf {
        self.temp.path().join("home")
    }

    /// Any program, in the same surroundings.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.cwd).env_clear().env("HOME", self.home()).env("TERM", "dumb");
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs the command to its end, with nothing to read.
    #[must_use]
    pub fn run<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(&self, args: I) -> Done {
        let mut command = self.command(PROGRAM);
        let output = command.args(args).stdin(Stdio::null()).output().unwrap();
        Done { shown: format!("{command:?}"), output }
    }

    /// Runs a line of shell in which `lockkeeper` is the program under test.
    #[must_use]
    pub fn shell(&self, line: &str) -> Done {
        let mut command = self.command("bash");
        let line = format!("lockkeeper() {{ '{PROGRAM}' \"$@\"; }}; {line}");
        let output = command.args(["-c", &line]).stdin(Stdio::null()).output().unwrap();
        Done { shown: line, output }
    }

    /// Runs a line of shell on a terminal of its own; both streams come as one.
    #[must_use]
    pub fn on_terminal(&self, line: &str) -> Done {
        let mut command = self.command("script");
        let output = command.args(["-qec", line, "/dev/null"]).stdin(Stdio::null()).output();
        Done { shown: line.to_owned(), output: output.expect("these tests need script(1)") }
    }

    /// Runs the command in the background.
    pub fn start<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(&self, args: I) -> Running {
        let mut command = self.command(PROGRAM);
        command.args(args);
        Running::start(command)
    }

    /// Holds something until [`Running::finish`].
    pub fn hold(&self, args: &[&str]) -> Running {
        let all = [&["exec"], args, &["--", "sh", "-c", "echo up; read -r line; exit 0"]].concat();
        let mut running = self.start(all);
        assert_eq!(running.line(), "up");
        running
    }

    /// Waits until `count` are in line: the only sign of it is in the listing, whose changes `--watch` tells.
    pub fn until_waiting(&self, count: usize) {
        let mut watch = self.start(["locks", "--watch", "--json"]);
        loop {
            let listing: Value = serde_json::from_str(&watch.line()).unwrap();
            if listing["waiters"].as_array().unwrap().len() == count {
                break;
            }
        }
        watch.kill();
    }

    /// The id of a lease taken by time alone.
    pub fn acquire(&self, args: &[&str]) -> String {
        let all = [&["acquire", "--ttl", "10m"], args].concat();
        self.run(all).code(0).stdout().trim_end().to_owned()
    }

    /// Every file and folder there is, with its content.
    pub fn tree(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut tree = BTreeMap::new();
        let mut folders = vec![self.temp.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let (path, kind) = entry.map(|entry| (entry.path(), entry.file_type().unwrap())).unwrap();
                let content = if kind.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
                if kind.is_dir() {
                    folders.push(path.clone());
                }
                tree.insert(path, content);
            }
        }
        tree
    }
}

/// A command that has ended.
pub struct Done {
    shown: String,
    output: Output,
}

impl Done {
    pub fn code(self, code: i32) -> Self {
        assert_eq!(
            self.output.status.code(),
            Some(code),
            "{}\n{}{}",
            self.shown,
            self.stdout(),
            self.stderr()
        );
        self
    }

    pub fn stdout(&self) -> String {
        String::from_utf8(self.output.stdout.clone()).unwrap()
    }

    pub fn bytes(&self) -> &[u8] {
        &self.output.stdout
    }

    /// It ended by Ctrl-C, or as a shell says that.
    pub fn is_interrupted(&self) -> bool {
        let status = self.output.status;
        status.signal() == Some(2) || status.code() == Some(130)
    }

    pub fn stderr(&self) -> String {
        String::from_utf8(self.output.stderr.clone()).unwrap()
    }

    /// stdout has this in it.
    pub fn prints(self, text: &str) -> Self {
        assert!(self.stdout().contains(text), "{}: no {text:?} in {}", self.shown, self.stdout());
        self
    }

    /// stderr has this in it.
    pub fn says(self, text: &str) -> Self {
        assert!(self.stderr().contains(text), "{}: no {text:?} in {}", self.shown, self.stderr());
        self
    }

    pub fn in_silence(self) -> Self {
        assert_eq!((self.stdout(), self.stderr()), (String::new(), String::new()), "{}", self.shown);
        self
    }

    /// The one object on stdout; nothing else is there.
    pub fn json(&self) -> Value {
        let text = self.stdout();
        assert_eq!(text.lines().count(), 1, "{}: {text}", self.shown);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error} in {text}", self.shown))
    }
}

/// A command that runs.
pub struct Running {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Running {
    fn start(mut command: Command) -> Self {
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Self { process, output }
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The next line on stdout.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "it ended early: {}", self.errors());
        line.trim_end().to_owned()
    }

    pub fn signal(&self, name: &str) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Gives it a line to read, and waits for its end.
    #[must_use]
    pub fn finish(mut self) -> Done {
        // Who has ended already reads nothing.
        let _ = self.process.stdin.take().unwrap().write_all(b"go\n");
        self.wait()
    }

    /// Waits for its end.
    #[must_use]
    pub fn wait(mut self) -> Done {
        let mut stdout = Vec::new();
        self.output.read_to_end(&mut stdout).unwrap();
        let stderr = self.errors().into_bytes();
        let status = self.process.wait().unwrap();
        Done { shown: "in the background".to_owned(), output: Output { status, stdout, stderr } }
    }

    fn errors(&mut self) -> String {
        let mut text = String::new();
        if let Some(mut stderr) = self.process.stderr.take() {
            stderr.read_to_string(&mut text).unwrap();
        }
        text
    }
}
