//! What the lock files of other programs cost through the library, against those programs' own procedures.
//!
//! `scripts/bench formats` runs it. The bare side is a Python process that does what the documents say, and `flock(1)`
//! for groups. Rounds of the two sides alternate; numbers are medians of one lock and unlock.
#![expect(clippy::unwrap_used, reason = "a measurement that fails may panic")]

#[expect(dead_code, reason = "the other measurements use the rest")]
#[path = "speed/measure.rs"]
mod measure;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use lockkeeper::clock::WallTime;
use lockkeeper::core::time::Ttl;
use lockkeeper::lockfile::aiflow::{self, Aiflow, Subject, Terms};
use lockkeeper::lockfile::sprint::{self, Caller, Input, Lang, Machine, Record, Status};
use lockkeeper::lockfile::swarm::{self, Swarm};

use measure::{Row, alternate, lockkeeper, median, quiet, run};

const ROUNDS: usize = 20;
const LOCKS: usize = 50;
/// A number that no process has.
const GONE: u32 = 4_000_001;

fn main() {
    // `cargo test --benches` only wants to know that it starts.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    println!("{:<52} {:>12} {:>12} {:>8} {:>8}", "", "ours", "bare", "ratio", "limit");
    let folder = tempfile::tempdir().unwrap();
    let mut python = Python::start(folder.path());
    for format in [sprint_file(folder.path()), swarm_file(folder.path()), aiflow_file(folder.path())] {
        for stale in [false, true] {
            println!("{}", compare(&format, stale, &mut python));
        }
    }
    println!("{}", group_exec(folder.path()));
}

/// One format through the library.
struct Format {
    name: &'static str,
    file: PathBuf,
    /// A record that may be taken over.
    stale: String,
    lock_and_unlock: Box<dyn Fn()>,
}

fn sprint_file(folder: &Path) -> Format {
    let root = folder.join("sprint-root");
    fs::create_dir(&root).unwrap();
    let call = |mode: &str| {
        let text = |text: &str| Some(text.to_owned());
        Input {
            mode: mode.to_owned(),
            project_root: Some(root.clone()),
            session_id: text("s"),
            epic_spec: text("e"),
            force: true,
            lock_file_name: None,
        }
        .check()
        .unwrap()
    };
    let (acquire, release) = (call("acquire"), call("release"));
    let lock_and_unlock = move || {
        let mut caller = Caller {
            lang: Lang::En,
            confirm: &mut |question| panic!("{question}"),
            tell: &mut |_| {},
            pid: std::process::id(),
        };
        let machine = Machine::real();
        assert_eq!(sprint::run(&acquire, &machine, &mut caller).status, Status::Acquired);
        assert_eq!(sprint::run(&release, &machine, &mut caller).status, Status::Released);
    };
    Format {
        name: "sprint",
        file: root.join(sprint::LOCK_FILE_NAME),
        stale: Record::new(GONE, "s", "e", WallTime::now()).to_yaml(),
        lock_and_unlock: Box::new(lock_and_unlock),
    }
}

fn swarm_file(folder: &Path) -> Format {
    let swarm = Swarm::new(folder.join("swarm-root"), Ttl::new(swarm::DEFAULT_TTL).unwrap());
    let long_ago = "2026-01-31T12:00:00.000Z";
    Format {
        name: "swarm",
        file: swarm.path("t").unwrap(),
        stale: format!(
            r#"{{"worker_id": "v", "task_id": "t", "acquired_at": "{long_ago}", "heartbeat_at": "{long_ago}", "ttl": 300}}"#
        ),
        lock_and_unlock: Box::new(move || match swarm.lock("t", "w", None, WallTime::now()).unwrap() {
            swarm::Attempt::Locked { lock, .. } => assert!(lock.unlock().unwrap()),
            swarm::Attempt::Busy(standing) => panic!("{standing:?}"),
        }),
    }
}

fn aiflow_file(folder: &Path) -> Format {
    let root = folder.join("aiflow-root");
    fs::create_dir(&root).unwrap();
    let aiflow = Aiflow::new(root);
    let subject = Subject::Request("RQ-1".to_owned());
    let ttl = Ttl::new(aiflow::DEFAULT_TTL).unwrap();
    Format {
        name: "aiflow",
        file: aiflow.path(&subject).unwrap(),
        stale: format!(
            r#"{{"version": "1.0", "lock_type": "request", "request_id": "RQ-1", "run_id": "RUN-0", "pid": {GONE},
            "host": "127.0.0.1", "created_at": "2025-12-14T15:01:02+09:00", "expires_at": "2025-12-14T15:31:02+09:00"}}"#
        ),
        lock_and_unlock: Box::new(move || {
            let terms = Terms { run_id: Some("RUN-1"), pid: std::process::id(), ttl };
            match aiflow.lock(&subject, terms, WallTime::now()).unwrap() {
                aiflow::Attempt::Locked { lock, .. } => assert!(lock.release().unwrap()),
                aiflow::Attempt::Busy(standing) => panic!("{standing:?}"),
            }
        }),
    }
}

fn compare(format: &Format, stale: bool, python: &mut Python) -> Row {
    // The first lock makes the folder.
    (format.lock_and_unlock)();
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        for _ in 0..LOCKS {
            if stale {
                fs::write(&format.file, &format.stale).unwrap();
            }
            let begun = Instant::now();
            (format.lock_and_unlock)();
            ours.push(begun.elapsed());
        }
        bare.push(python.median(format.name, stale));
    }
    let what = if stale { "a stale lock" } else { "no lock there" };
    unlimited(format!("{}, {what}, against Python", format.name), median(ours), median(bare))
}

fn group_exec(folder: &Path) -> Row {
    let (locks, bare_file) = (folder.join("groups"), folder.join("bare.lock"));
    let mut ours = || {
        run(quiet(lockkeeper()).args(["group", "exec", "g", "--", "true"]).env("LOCK_DIR", &locks));
    };
    let mut bare = || run(quiet("flock").arg(&bare_file).arg("true"));
    let [ours, bare] = alternate(200, [&mut ours, &mut bare]);
    unlimited("group exec GROUP -- true, against flock(1)", ours, bare)
}

fn unlimited(what: impl Into<String>, ours: Duration, bare: Duration) -> Row {
    Row { limit: None, ..Row::times(what, ours, bare, 0.0) }
}

/// The programs of the other systems, in a process that stays.
struct Python {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Python {
    fn start(folder: &Path) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/formats.py");
        let mut child = Command::new("python3")
            .arg(script)
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is installed");
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    fn median(&mut self, format: &str, stale: bool) -> Duration {
        let kind = if stale { "stale" } else { "fresh" };
        writeln!(self.input.as_mut().unwrap(), "{format} {kind} {LOCKS}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        Duration::from_nanos(line.trim().parse().expect("the script answers with a number"))
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ended = self.child.wait();
    }
}
