//! A wrapper in a process of its own: the test program starts itself again in that role.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use lockkeeper_core::id::HolderId;
use lockkeeper_platform::exec::{Event, Next, Spec, start};
use lockkeeper_platform::liveness_lock::LivenessFile;

pub const SCRIPT: &str = "PLATFORM_EXEC_SCRIPT";
const UNTIL_TOLD: &str = "PLATFORM_EXEC_UNTIL_TOLD";
const DIR: &str = "PLATFORM_EXEC_DIR";
const HOLDER: &str = "PLATFORM_EXEC_HOLDER";

/// Not a test of its own: the wrapper that the tests start.
#[test]
fn wrapper() {
    let Some(script) = std::env::var_os(SCRIPT) else { return };
    println!("\nwrapper");
    let lock = std::env::var_os(DIR).map(|dir| {
        let holder = std::env::var(HOLDER).unwrap().parse().unwrap();
        LivenessFile::open(Path::new(&dir)).unwrap().hold(HolderId(holder)).unwrap()
    });
    let spec = Spec { program: "sh".into(), args: vec!["-c".into(), script], ..Spec::default() };
    let running = start(&spec, lock.as_ref()).unwrap();
    let stdin = std::io::stdin();
    let told: &[_] = if std::env::var_os(UNTIL_TOLD).is_some() { &[stdin.as_fd()] } else { &[] };
    let ending = running.supervise(told, &mut |event| match event {
        Event::Started | Event::Deadline => Next::Wait,
        Event::Ready(_) => Next::Stop(Duration::from_millis(100)),
    });
    let ending = ending.unwrap();
    println!("ended: {ending}");
    ending.pass_on_interrupt().unwrap();
}

/// The command line of a wrapper around `sh -c SCRIPT`, for shells that have the script in `PLATFORM_EXEC_SCRIPT`.
pub fn command_line() -> String {
    format!("'{}' --exact wrapped::wrapper --nocapture --test-threads=1", own_path().display())
}

pub struct Wrapped {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Wrapped {
    pub fn run(script: &str) -> Self {
        Self::start(Command::new(own_path()).args(arguments()).env(SCRIPT, script))
    }

    /// Runs `before` in the shell that then turns into the wrapper.
    pub fn run_after(before: &str, script: &str) -> Self {
        let line = format!("{before}; exec {}", command_line());
        Self::start(Command::new("sh").args(["-c", &line]).env(SCRIPT, script))
    }

    pub fn run_until_told(script: &str) -> Self {
        Self::start(Command::new(own_path()).args(arguments()).env(SCRIPT, script).env(UNTIL_TOLD, "1"))
    }

    pub fn run_holding(dir: &Path, holder: HolderId, script: &str) -> Self {
        let mut command = Command::new(own_path());
        command.args(arguments()).env(SCRIPT, script).env(DIR, dir).env(HOLDER, holder.0.to_string());
        Self::start(&mut command)
    }

    fn start(command: &mut Command) -> Self {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let mut wrapped = Self { process, output };
        wrapped.expect("wrapper");
        wrapped
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the wrapper ended early");
        line.trim_end().to_owned()
    }

    pub fn expect(&mut self, wanted: &str) {
        while self.line() != wanted {}
    }

    pub fn tell(&mut self) {
        self.process.stdin.take().unwrap().write_all(b"!").unwrap();
    }

    pub fn signal(&self, name: &str) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// How the command ended, by the wrapper's word.
    pub fn ended(mut self) -> String {
        let ending = loop {
            if let Some(ending) = self.line().strip_prefix("ended: ") {
                break ending.to_owned();
            }
        };
        self.process.wait().unwrap();
        ending
    }
}

fn own_path() -> PathBuf {
    std::env::current_exe().unwrap()
}

fn arguments() -> [&'static OsStr; 4] {
    ["--exact", "wrapped::wrapper", "--nocapture", "--test-threads=1"].map(OsStr::new)
}
