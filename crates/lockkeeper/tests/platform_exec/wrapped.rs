//! A wrapper in a process of its own: this test program again.

use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lockkeeper_core::id::HolderId;
use lockkeeper_platform::exec::{Event, Next, Spec, start};
use lockkeeper_platform::liveness_lock::LivenessFile;
use lockkeeper_testing::{Signal, Started, this_test, this_test_line};

pub const SCRIPT: &str = "PLATFORM_EXEC_SCRIPT";
const UNTIL_TOLD: &str = "PLATFORM_EXEC_UNTIL_TOLD";
const DIR: &str = "PLATFORM_EXEC_DIR";
const HOLDER: &str = "PLATFORM_EXEC_HOLDER";

/// Not a test, but the wrapper that the tests start.
#[test]
#[ignore = "a process that other tests start"]
fn wrapper() {
    let script = std::env::var_os(SCRIPT).unwrap();
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

fn command() -> Command {
    this_test("wrapped::wrapper")
}

/// The line of shell that starts a wrapper. The script is in the variable [`SCRIPT`].
pub fn command_line() -> String {
    this_test_line("wrapped::wrapper")
}

/// A running wrapper.
pub struct Wrapped {
    process: Started,
}

impl Wrapped {
    pub fn run(script: &str) -> Self {
        Self::start(command().env(SCRIPT, script))
    }

    /// Runs `before` in a shell, which then turns into the wrapper.
    pub fn run_after(before: &str, script: &str) -> Self {
        let line = format!("{before}; exec {}", command_line());
        Self::start(Command::new("sh").args(["-c", &line]).env(SCRIPT, script))
    }

    /// The wrapper stops its command at [`Wrapped::tell`].
    pub fn run_until_told(script: &str) -> Self {
        Self::start(command().env(SCRIPT, script).env(UNTIL_TOLD, "1"))
    }

    pub fn run_holding(dir: &Path, holder: HolderId, script: &str) -> Self {
        Self::start(command().env(SCRIPT, script).env(DIR, dir).env(HOLDER, holder.0.to_string()))
    }

    fn start(command: &mut Command) -> Self {
        let mut wrapped = Self { process: Started::of(command) };
        wrapped.expect("wrapper");
        wrapped
    }

    pub fn line(&mut self) -> String {
        self.process.line()
    }

    pub fn expect(&mut self, wanted: &str) {
        while self.line() != wanted {}
    }

    pub fn tell(&mut self) {
        self.process.send("!");
    }

    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// How the command ended, as the wrapper says it.
    pub fn ended(mut self) -> String {
        let ending = self.process.line_with("ended: ");
        self.process.end();
        ending
    }
}
