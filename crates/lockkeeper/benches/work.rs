//! Workers against the bare things: how soon a run starts, how many a second, and what an idle worker costs.
//!
//! usage: scripts/bench work. Every figure is taken side by side with what it is compared to, in turns, since the
//! machine may be busy. Exits 1 when a limit is missed.
#![expect(clippy::unwrap_used, reason = "a measurement that cannot go on says so")]

#[path = "work/others.rs"]
mod others;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use lockkeeper_core::request::Request;
use lockkeeper_engine::runs::Runs;
use lockkeeper_platform::wall_clock::WallTime;

/// Runs of one measurement.
const RUNS: usize = 1200;
/// How often each pair is measured; the median counts.
const ROUNDS: usize = 5;
/// The share of bare spawning that a worker has to reach.
const SHARE: f64 = 0.6;
/// A run has to start within this time, in the median.
const START: Duration = Duration::from_millis(10);

fn main() -> ExitCode {
    if !std::env::args().any(|arg| arg == "--bench") {
        return ExitCode::SUCCESS;
    }
    let missed = [starts(), throughput(), idle()].into_iter().filter(|kept| !kept).count();
    others::compare();
    if missed > 0 {
        eprintln!("{missed} limits were missed");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn binary() -> PathBuf {
    env!("CARGO_BIN_EXE_lockkeeper").into()
}

fn request(id: &str, command: &[&str]) -> Request {
    let command = command.iter().map(|word| (*word).to_owned()).collect();
    Request::new(id.parse().unwrap(), command, "/".to_owned())
}

fn worker(folder: &Path, wrapper: &[&str], args: &[&str]) -> Child {
    let binary = binary();
    let mut line: Vec<&std::ffi::OsStr> = wrapper.iter().map(std::ffi::OsStr::new).collect();
    line.push(binary.as_os_str());
    let mut command = Command::new(line[0]);
    command.args(&line[1..]).arg("--dir").arg(folder.join("store")).args(["work", "--quiet"]).args(args);
    command.arg("--status-dir").arg(folder.join("swarm"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
}

fn end(mut worker: Child) {
    rustix::process::kill_process(rustix::process::Pid::from_child(&worker), rustix::process::Signal::TERM)
        .unwrap();
    worker.wait().unwrap();
}

fn median<T: PartialOrd + Copy>(mut values: Vec<T>) -> T {
    values.sort_by(|a, b| a.partial_cmp(b).unwrap());
    values[values.len() / 2]
}

/// From the call of submit to the first word of the command, which says what time it is.
fn starts() -> bool {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(&folder.path().join("store")).unwrap();
    let worker = worker(folder.path(), &[], &["--jobs", "2"]);
    let (mut spans, mut bare) = (Vec::new(), Vec::new());
    for number in 0..60 {
        let since = wall();
        let id = runs.submit(&request(&format!("r{number}"), &["date", "+%s%N"]), None).unwrap().run;
        runs.wait(&id, None, None).unwrap();
        spans.push(told(&std::fs::read_to_string(runs.folder_of(&id).output()).unwrap()) - since);
        let since = wall();
        let output = Command::new("date").arg("+%s%N").output().unwrap();
        bare.push(told(&String::from_utf8(output.stdout).unwrap()) - since);
    }
    end(worker);
    let (p50, bare) = (median(spans), median(bare));
    println!("submit to start, p50: {:.2} ms; the command alone: {:.2} ms", p50 * 1e3, bare * 1e3);
    p50 - bare <= START.as_secs_f64()
}

fn wall() -> f64 {
    WallTime::now().as_micros() as f64 / 1e6
}

fn told(text: &str) -> f64 {
    text.trim().parse::<f64>().unwrap() / 1e9
}

/// No-op runs a second, with the time of the first claim and the last end from the events.
fn throughput() -> bool {
    let mut kept = true;
    for jobs in [1, 2, 4] {
        let (mut shares, mut speeds, mut cpu) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let (bare, bare_cpu) = bare(jobs);
            let (ours, our_cpu) = through_worker(jobs);
            shares.push(ours / bare);
            speeds.push(ours);
            cpu.push(our_cpu.as_secs_f64() / bare_cpu.as_secs_f64());
        }
        let share = median(shares);
        println!(
            "no-op runs with {jobs} jobs: {:.0} a second, {share:.2} of bare spawning (limit {SHARE}), {:.1} times its CPU",
            median(speeds),
            median(cpu),
        );
        kept &= share >= SHARE;
    }
    kept
}

/// Spawns a command as often as a worker does, on as many threads, and does nothing else.
fn bare(jobs: usize) -> (f64, Duration) {
    let (since, cpu) = (Instant::now(), children_cpu());
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                for _ in 0..RUNS / jobs {
                    let mut command = Command::new("true");
                    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                    assert!(command.status().unwrap().success());
                }
            });
        }
    });
    (RUNS as f64 / since.elapsed().as_secs_f64(), children_cpu() - cpu)
}

fn through_worker(jobs: usize) -> (f64, Duration) {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(&folder.path().join("store")).unwrap();
    let requests: Vec<Request> = (0..RUNS).map(|number| request(&format!("r{number}"), &["true"])).collect();
    runs.submit_all(&requests, None).unwrap();
    let cpu = children_cpu();
    let mut worker = worker(folder.path(), &[], &["--drain", "--jobs", &jobs.to_string()]);
    assert!(worker.wait().unwrap().success());
    let events = runs.store().snapshot().unwrap().events_after(0, usize::MAX).unwrap();
    let first = events.iter().find(|event| event.kind == "claimed").unwrap().at;
    let last = events.iter().filter(|event| event.kind == "ended").map(|event| event.at).max().unwrap();
    (RUNS as f64 / (last - first) as f64 * 1e6, children_cpu() - cpu)
}

/// The CPU time of all children that were waited for, and of this process.
fn children_cpu() -> Duration {
    let ticks = rustix::param::clock_ticks_per_second();
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_ascii_whitespace().collect();
    let sum: u64 = fields[11..15].iter().map(|field| field.parse::<u64>().unwrap()).sum();
    Duration::from_millis(sum * 1000 / ticks)
}

/// What a worker with nothing to do asks of the kernel.
fn idle() -> bool {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(&folder.path().join("store")).unwrap();
    let log = folder.path().join("calls");
    let strace = ["strace", "-f", "-qq", "-o", log.to_str().unwrap()];
    if Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_err() {
        println!("idle worker: SKIPPED, needs strace(1)");
        return true;
    }
    let worker = worker(folder.path(), &strace, &["--jobs", "4"]);
    let id = runs.submit(&request("first", &["true"]), None).unwrap().run;
    runs.wait(&id, None, None).unwrap();
    let calls = || std::fs::read_to_string(&log).unwrap_or_default().lines().count();
    std::thread::sleep(Duration::from_secs(2));
    let before = calls();
    std::thread::sleep(Duration::from_secs(3));
    let asked = calls() - before;
    println!("idle worker: {asked} system calls in 3 s");
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", worker.id())).unwrap();
    for pid in children.split_ascii_whitespace() {
        let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
    let mut worker = worker;
    worker.wait().unwrap();
    asked == 0
}
