//! The status log with real files and processes: Rust, Python, and processes that are killed.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod appending;
mod commands;
mod following;
mod lines;
mod storm;
mod summing;
mod workers;

use std::fs;
use std::path::Path;

use lockkeeper_formats::status::{State, StatusLine, StatusLog};
use lockkeeper_platform::wall_clock::WallTime;

/// A line about a task, with a message that makes it this long or longer.
fn line(task: &str, length: usize) -> StatusLine {
    StatusLine::new(State::Start, task, WallTime::now()).unwrap().with_message("é".repeat(length / 2))
}

/// The tasks of the lines that `log` has, with how often each is there.
fn tasks(log: &StatusLog) -> Vec<(String, u64)> {
    let summary = log.summary(WallTime::now()).unwrap();
    let mut tasks: Vec<_> = summary.tasks.into_iter().map(|task| (task.task, task.lines)).collect();
    tasks.sort();
    tasks
}

/// Appends what another program wrote.
fn write_foreign(folder: &Path, bytes: &[u8]) {
    use std::io::Write;
    let mut file = fs::OpenOptions::new().append(true).create(true).open(folder.join("status.log")).unwrap();
    file.write_all(bytes).unwrap();
}
