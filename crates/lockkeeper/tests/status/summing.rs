//! The summary: what is latest, who needs help, and how much memory it takes.

use std::fs;
use std::time::Duration;

use lockkeeper_formats::status::{State, StatusLine, StatusLog};
use lockkeeper_platform::wall_clock::WallTime;

use super::write_foreign;

fn at(second: u64) -> WallTime {
    let noon: WallTime = "2026-01-31T12:00:00Z".parse().unwrap();
    noon.after(Duration::from_secs(second))
}

fn say(log: &StatusLog, second: u64, worker: &str, state: State, task: &str) {
    let line = StatusLine::new(state, task, at(second)).unwrap();
    log.append(&line.with_message(format!("{task} {state}")).with_worker(worker).unwrap()).unwrap();
}

/// Requirement 70.
#[test]
fn the_latest_state_of_each_task_and_worker_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let log = StatusLog::open(folder.path()).unwrap();
    say(&log, 1, "w1", State::Start, "a");
    say(&log, 2, "w2", State::Start, "b");
    say(&log, 3, "w1", State::Done, "a");
    say(&log, 4, "w1", State::Help, "c");
    say(&log, 5, "w2", State::Error, "b");
    say(&log, 6, "w2", State::Skip, "d");
    write_foreign(folder.path(), b"no status line\n");
    let summary = log.summary(at(10)).unwrap();
    let tasks: Vec<_> =
        summary.tasks.iter().map(|task| (task.task.as_str(), task.state, task.lines)).collect();
    let expected =
        [("d", State::Skip, 1), ("b", State::Error, 2), ("c", State::Help, 1), ("a", State::Done, 2)];
    assert_eq!(tasks, expected);
    let workers: Vec<_> = summary
        .workers
        .iter()
        .map(|worker| (worker.worker.as_str(), worker.task.as_str(), worker.lines))
        .collect();
    assert_eq!(workers, [("w2", "d", 3), ("w1", "c", 3)]);
    let help: Vec<&str> = summary.needs_help().map(|task| task.task.as_str()).collect();
    assert_eq!(help, ["b", "c"]);
    assert_eq!((summary.lines, summary.bad_lines), (6, 1));
    assert_eq!(summary.tasks[1].message.as_deref(), Some("b ERROR"));
}

/// Requirement 70.
#[test]
fn late_lines_of_an_old_file_are_not_the_latest() {
    let folder = tempfile::tempdir().unwrap();
    let log = StatusLog::open(folder.path()).unwrap();
    say(&log, 5, "w", State::Done, "a");
    fs::rename(log.path(), folder.path().join("status.log.2")).unwrap();
    say(&log, 1, "w", State::Start, "a");
    assert_eq!(log.summary(at(10)).unwrap().tasks[0].state, State::Done);
    say(&log, 5, "w", State::Error, "a");
    assert_eq!(
        log.summary(at(10)).unwrap().tasks[0].state,
        State::Error,
        "of one time the later line counts"
    );
}

/// Requirement 70.
#[test]
fn a_line_from_the_future_is_not_the_latest_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let log = StatusLog::open(folder.path()).unwrap();
    say(&log, 1, "w", State::Start, "a");
    say(&log, 1_000_000_000, "w", State::Wait, "a");
    assert_eq!(log.summary(at(10)).unwrap().tasks[0].state, State::Wait);
    say(&log, 2, "w", State::Done, "a");
    let summary = log.summary(at(10)).unwrap();
    assert_eq!((summary.tasks[0].state, summary.workers[0].state), (State::Done, State::Done));
}

/// Requirement 71.
#[test]
fn a_last_line_without_its_newline_counts_when_it_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let log = StatusLog::open(folder.path()).unwrap();
    say(&log, 1, "w", State::Start, "a");
    let bytes = fs::read(log.path()).unwrap();
    fs::write(log.path(), &bytes[..bytes.len() - 1]).unwrap();
    assert_eq!((log.summary(at(2)).unwrap().lines, log.summary(at(2)).unwrap().bad_lines), (1, 0));
    fs::write(log.path(), &bytes[..bytes.len() - 2]).unwrap();
    assert_eq!((log.summary(at(2)).unwrap().lines, log.summary(at(2)).unwrap().bad_lines), (0, 0));
    fs::rename(log.path(), folder.path().join("status.log.1")).unwrap();
    say(&log, 2, "w", State::Start, "b");
    assert_eq!(log.summary(at(3)).unwrap().bad_lines, 1, "an old file grows no more");
}

/// Linux reports the peak memory of a process.
#[cfg(target_os = "linux")]
mod memory {
    use std::io::Write;

    use lockkeeper_testing::{Started, this_test};

    use super::*;

    const MEASURED: &str = "STATUS_SUMMARY_FOLDER";

    /// Not a test, but the process whose memory is measured.
    #[test]
    #[ignore = "a process that another test starts"]
    fn measured() {
        let folder = std::env::var_os(MEASURED).unwrap();
        let summary = StatusLog::open(folder).unwrap().summary(at(10)).unwrap();
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let peak = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        println!("\nsummed {} tasks {} {peak}", summary.lines, summary.tasks.len());
    }

    /// Requirement 70.
    #[test]
    fn memory_grows_with_tasks_and_not_with_lines() {
        let block: String = (0..100)
            .map(|number| {
                let line = StatusLine::new(State::Wait, format!("task-{number}"), at(1)).unwrap();
                line.with_message("x".repeat(400)).to_text() + "\n"
            })
            .collect();
        let peak_of = |blocks: usize| {
            let folder = tempfile::tempdir().unwrap();
            let mut file = fs::File::create(folder.path().join("status.log")).unwrap();
            for _ in 0..blocks {
                file.write_all(block.as_bytes()).unwrap();
            }
            let mut command = this_test("summing::memory::measured");
            let line = Started::of(command.env(MEASURED, folder.path())).line_with("summed ");
            assert!(line.starts_with(&format!("{} tasks 100 ", blocks * 100)), "{line}");
            line.split_whitespace().rev().nth(1).unwrap().parse::<u64>().unwrap()
        };
        let (few, many) = (peak_of(2), peak_of(500));
        println!("peak memory of a summary: {few} kB for 200 lines, {many} kB for 50,000 lines of 23 MB");
        assert!(many < few + 4_000, "{few} kB for 200 lines, {many} kB for 50,000 lines");
    }
}
