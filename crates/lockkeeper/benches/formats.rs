//! What the lock files of other programs cost through the library, against those programs' own procedures.
//!
//! `scripts/bench formats` runs it. The bare side is a Python process that does what the documents say, and `flock(1)`
//! and a plain shell script for groups. Rounds of the two sides alternate; numbers are medians of one lock and unlock.
//! Where a document says how long something may take, it exits 1 when we take longer.
#![expect(clippy::unwrap_used, reason = "a measurement that fails may panic")]

#[expect(dead_code, reason = "the other measurements use the rest")]
#[path = "speed/measure.rs"]
mod measure;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use lockkeeper_core::time::Ttl;
use lockkeeper_formats::aiflow::{self, Aiflow, Subject, Terms};
use lockkeeper_formats::sprint::{self, Caller, Input, Lang, Machine, Record, Status};
use lockkeeper_formats::swarm::{self, Swarm};
use lockkeeper_platform::wall_clock::WallTime;

use measure::{Row, alternate, lockkeeper, median, quiet, run};

const ROUNDS: usize = 20;
const LOCKS: usize = 50;
const GROUP_ROUNDS: usize = 100;
/// A number that no process has.
const GONE: u32 = 4_000_001;

fn main() -> ExitCode {
    // `cargo test --benches` only wants to know that it starts.
    if std::env::args().any(|argument| argument == "--test") {
        return ExitCode::SUCCESS;
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
    let timed = group_times(folder.path());
    timed.iter().for_each(|row| println!("{row}"));
    if timed.iter().all(Row::holds) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
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
            answer_lang: Lang::En,
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

/// What the document of the group locks times, with eight groups held: each against a shell script that does what the
/// document describes, and against the longest time that it allows.
fn group_times(folder: &Path) -> Vec<Row> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/group.sh");
    let sides = [
        ("timed", [lockkeeper().into(), OsString::from("group")]),
        ("timed-bare", ["bash".into(), script.into()]),
    ];
    let mut samples = [[vec![], vec![]], [vec![], vec![]], [vec![], vec![]]];
    let held: Vec<Side> = sides.iter().map(|(name, program)| Side::new(folder.join(name), program)).collect();
    for _ in 0..GROUP_ROUNDS {
        for (place, side) in held.iter().enumerate() {
            let number = side.descriptor.as_raw_fd().to_string();
            let ours = place == 0;
            let option: &[&str] = if ours { &["--fd"] } else { &[] };
            for (step, verb) in ["acquire", "release"].into_iter().enumerate() {
                let mut command = side.command();
                command.arg(verb).arg("timed").args(option).arg(&number);
                samples[step][place].push(timed(&mut command));
            }
            let mut command = side.command();
            samples[2][place].push(timed(command.arg(if ours { "check-deadlock" } else { "check" })));
        }
    }
    let mut rows = Vec::new();
    for ([ours, bare], (what, allowed)) in
        samples.into_iter().zip([("acquire", 10.0), ("release", 5.0), ("check-deadlock", 50.0)])
    {
        let ours = median(ours);
        rows.push(unlimited(format!("group {what}, against a shell script"), ours, median(bare)));
        let milliseconds = ours.as_secs_f64() * 1e3;
        let what = format!("group {what}, against the time that is allowed");
        rows.push(Row::at_most(what, milliseconds, allowed, "ms", 1.0));
    }
    rows
}

/// One side of the comparison: its own lock folder, with seven groups held and the file of another open.
struct Side {
    folder: PathBuf,
    program: [OsString; 2],
    descriptor: File,
    _held: Vec<File>,
}

impl Side {
    fn new(folder: PathBuf, program: &[OsString; 2]) -> Self {
        fs::create_dir(&folder).unwrap();
        let now = WallTime::now().as_micros() / 1_000_000;
        let open = |name: &str| {
            let path = folder.join(format!("{name}.lock"));
            File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
        };
        let mut registry = String::from("# Format: lock_id:pid:group_id:timestamp:status\n");
        let held = (0..7).map(|number| {
            let (name, file) = (format!("g{number}"), open(&format!("g{number}")));
            file.lock().unwrap();
            registry.push_str(&format!("{name}:{}:{name}:{now}:ACTIVE\n", std::process::id()));
            file
        });
        let held: Vec<File> = held.collect();
        fs::write(folder.join("registry.log"), registry).unwrap();
        let descriptor = open("timed");
        // Commands find it under its own number.
        rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::empty()).unwrap();
        Self { folder, program: program.clone(), descriptor, _held: held }
    }

    fn command(&self) -> Command {
        let mut command = quiet(&self.program[0]);
        command.arg(&self.program[1]).env("LOCK_DIR", &self.folder);
        command
    }
}

fn timed(command: &mut Command) -> Duration {
    let begun = Instant::now();
    run(command);
    begun.elapsed()
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
