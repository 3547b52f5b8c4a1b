//! What a server costs that nobody asks anything: time of the processor, and how often it wakes up.

use std::fs;
use std::time::Duration;

use crate::client::Client;
use crate::place::Server;
use crate::streams::{Listeners, STREAMS};

/// How long it is watched.
const WATCH: Duration = Duration::from_secs(30);
/// How often it may wake up meanwhile, alone and with streams that are told now and then that they live.
const WAKE_UPS: [u64; 2] = [10, 2_000];
/// How long it may compute meanwhile, in milliseconds.
const COMPUTES: [f64; 2] = [20.0, 300.0];

/// What a process has used so far.
pub struct Usage {
    pub milliseconds: f64,
    pub wake_ups: u64,
    pub kilobytes: f64,
}

pub fn usage(pid: u32) -> Usage {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: f64 = [11, 12].iter().map(|at| fields[*at].parse::<f64>().unwrap()).sum();
    let number = |text: &str, key: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let wake_ups = tasks.map(|task| {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap_or_default();
        if status.is_empty() { 0.0 } else { number(&status, "voluntary_ctxt_switches:") }
    });
    let wake_ups = wake_ups.sum::<f64>() as u64;
    let memory = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    Usage { milliseconds: ticks * 1e3 / per_second, wake_ups, kilobytes: number(&memory, "Pss:") }
}

/// Says how many limits were missed.
pub fn measure() -> usize {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    Client::connect(server.address).get("/api/locks");
    println!("\nidle for {} s", WATCH.as_secs());
    let mut missed = watch(&server, "nobody connected", 0);
    let _listeners = Listeners::open(&server, STREAMS);
    missed += watch(&server, &format!("{STREAMS} event streams"), 1);
    missed
}

fn watch(server: &Server, what: &str, row: usize) -> usize {
    // The threads that answered go to sleep for good a while after the last request.
    std::thread::sleep(Duration::from_secs(12));
    let before = usage(server.pid());
    std::thread::sleep(WATCH);
    let after = usage(server.pid());
    let (computed, woken) = (after.milliseconds - before.milliseconds, after.wake_ups - before.wake_ups);
    let (most, often) = (COMPUTES[row], WAKE_UPS[row]);
    println!("{what:<52} {computed:>9.0} ms (≤ {most})  {woken:>6} wake-ups (≤ {often})");
    usize::from(computed > most) + usize::from(woken > often)
}
