//! Processes of the machine: which live, which have ended, which belong to a state folder.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use crate::{until, until_seen};

/// A number that Linux never gives to a process: `PID_MAX_LIMIT`.
pub const NEVER_A_PID: u32 = 1 << 22;

/// Whether a process of this number runs. A zombie does not.
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    lockkeeper_platform::process::identify(pid).is_ok()
}

/// The number of a process that has ended and was waited for.
#[must_use]
pub fn exited_pid() -> u32 {
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    child.id()
}

/// Sends a signal to a process.
#[track_caller]
pub fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).expect("a process number is not 0"), signal).unwrap();
}

/// Kills a process that a test started, and waits until it is gone.
#[track_caller]
pub fn kill(pid: u32) {
    if let Some(number) = Pid::from_raw(pid.cast_signed()) {
        let _ = kill_process(number, Signal::KILL);
    }
    until("the killed process is gone", || !is_alive(pid));
}

/// Whether all threads of a process are stopped.
#[must_use]
pub fn is_stopped(pid: u32) -> bool {
    let mut threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    threads.all(|thread| {
        let stat = fs::read_to_string(thread.unwrap().path().join("stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
    })
}

/// Waits until a file holds a process number and a newline, and returns the number.
#[track_caller]
pub fn pid_in(file: &Path) -> u32 {
    let text = until_seen(
        &format!("a process number in {}", file.display()),
        || fs::read_to_string(file).unwrap_or_default(),
        |text| text.strip_suffix('\n').is_some_and(|number| number.trim().parse::<u32>().is_ok()),
    );
    text.trim().parse().expect("a number was seen")
}

/// The processes that run for a run of this state folder. Their environment names both.
#[must_use]
pub fn of_runs(state: &Path) -> Vec<u32> {
    let folder = format!("LOCKKEEPER_DIR={}", state.display());
    let belongs = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let entries: Vec<&[u8]> = environment.split(|byte| *byte == 0).collect();
        entries.contains(&folder.as_bytes())
            && entries.iter().any(|entry| entry.starts_with(b"LOCKKEEPER_RUN_ID="))
    };
    let entries = fs::read_dir("/proc").unwrap();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(belongs).filter(|pid| is_alive(*pid)).collect()
}
