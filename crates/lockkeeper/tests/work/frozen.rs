//! Workers that die or freeze, and those that take over from them.

use std::time::{Duration, Instant};

use lockkeeper_core::request::Request;
use lockkeeper_core::retry::RetryPolicy;
use lockkeeper_core::run::{Reason, Status};
use rustix::process::Signal;

use super::site::{Site, lives, number_in, until};

const LONG: &str =
    "echo $$ > started; echo $LOCKKEEPER_ATTEMPT >> record; until [ -e go ]; do sleep 0.01; done; exit 7";

fn with_lock(site: &Site, id: &str, script: &str) -> Request {
    Request { locks: vec!["db".parse().unwrap()], ..site.script(id, script) }
}

fn go(site: &Site) {
    std::fs::write(site.dir().join("go"), "").unwrap();
}

/// Requirements 88, 92. Invariants 9, 10.
#[test]
fn a_killed_workers_command_is_looked_after_by_the_next_and_its_end_is_known() {
    let site = Site::new();
    let run = site.submit(&with_lock(&site, "a", LONG));
    let mut first = site.worker(&[]);
    let pid = number_in(&site.dir().join("started"));
    until("the process was noted", || site.run(&run).process().is_some_and(|one| one.command.is_some()));
    first.kill();
    assert!(lives(pid), "the command does not notice");
    let mut second = site.worker(&[]);
    second.until("adopted");
    // Nobody else gets what it holds.
    let other = site.submit(&with_lock(&site, "b", "echo b >> record"));
    second.until("waiting");
    assert_eq!(site.record(), ["1"]);
    go(&site);
    let ended = site.end_of(&run);
    let expected = if ended.reason() == Some(Reason::Lost) {
        eprintln!("this kernel does not tell how others' children ended");
        None
    } else {
        Some(7)
    };
    assert_eq!(ended.ending().map(|ending| ending.exit_code()), expected);
    assert_eq!(ended.status(), Status::Failed);
    assert_eq!(site.end_of(&other).status(), Status::Succeeded);
    assert_eq!(site.record(), ["1", "b"]);
    site.assert_settled("after the adoption");
}

/// Requirement 92. The command ended while no worker looked: its guardian knows how.
#[test]
fn an_end_that_no_worker_saw_is_known_and_what_was_left_behind_is_ended() {
    let site = Site::new();
    let script = format!(
        "(setsid sh -c 'echo $$ > left; exec sleep 300' &); until [ -s left ]; do sleep 0.01; done; {LONG}"
    );
    let run = site.submit(&with_lock(&site, "a", &script));
    let mut first = site.worker(&[]);
    let pid = number_in(&site.dir().join("started"));
    let left = number_in(&site.dir().join("left"));
    until("the process was noted", || site.run(&run).process().is_some_and(|one| one.command.is_some()));
    first.kill();
    go(&site);
    until("the command has ended", || !lives(pid));
    assert!(lives(left));
    site.drain("1");
    let ended = site.run(&run);
    assert_eq!((ended.status(), ended.reason()), (Status::Failed, Some(Reason::ExitCode)));
    assert_eq!(ended.ending().map(|ending| ending.exit_code()), Some(7));
    assert!(!lives(left));
    site.assert_settled("after the end");
}

/// Requirement 86. An attempt that was killed with its worker is made again if there may be another.
#[test]
fn an_attempt_that_was_killed_is_made_again_where_that_is_allowed() {
    let site = Site::new();
    let retry = RetryPolicy { limit: 1, base: Duration::from_millis(10), ..RetryPolicy::default() };
    let run = site.submit(&Request { retry, ..with_lock(&site, "a", LONG) });
    let mut first = site.worker(&[]);
    let pid = number_in(&site.dir().join("started"));
    first.kill();
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL)
        .unwrap();
    until("the command is gone", || !lives(pid));
    go(&site);
    site.drain("1");
    let ended = site.run(&run);
    assert_eq!((ended.attempt(), ended.ending().map(|ending| ending.exit_code())), (2, Some(7)));
    assert_eq!(site.record(), ["1", "2"]);
    site.assert_settled("after the second attempt");
}

/// Requirements 80, 90. Killed while the command was being ended: the next worker ends it.
#[test]
fn a_worker_killed_during_a_cancel_leaves_it_to_the_next() {
    let site = Site::new();
    let script = "trap 'echo asked >> record' TERM; echo $$ > started; while :; do sleep 0.01; done";
    let run = site.submit(&with_lock(&site, "a", script));
    let mut first = site.worker(&[]);
    let pid = number_in(&site.dir().join("started"));
    site.runs.cancel(&run, None).unwrap();
    until("it was asked to end", || !site.record().is_empty());
    first.kill();
    assert_eq!(site.run(&run).status(), Status::Cancelling);
    let _second = site.worker(&[]);
    let ended = site.end_of(&run);
    assert_eq!((ended.status(), ended.reason()), (Status::Canceled, Some(Reason::UserCanceled)));
    assert!(!lives(pid));
    site.assert_settled("after the cancel");
}

/// Requirement 79. Killed after the time was up and before the command was ended.
#[test]
fn a_worker_killed_after_a_timeout_leaves_the_command_to_the_next() {
    let site = Site::new();
    let script = "trap 'echo asked >> record' TERM; echo $$ > started; while :; do sleep 0.01; done";
    let timeout = Some(Duration::from_millis(300));
    let run = site.submit(&Request { timeout, ..with_lock(&site, "a", script) });
    let mut second = site.worker(&[]);
    let mut first = site.worker(&[]);
    let pid = number_in(&site.dir().join("started"));
    until("it was asked to end", || !site.record().is_empty());
    // Whichever has it.
    let owner = site.runs.store().snapshot().unwrap().events_of(&run, 0, 100).unwrap();
    let message =
        owner.iter().find(|event| event.kind == "claimed").and_then(|event| event.message.clone()).unwrap();
    let workers = site.runs.store().snapshot().unwrap().workers().unwrap();
    let busy = workers.iter().find(|worker| message.contains(worker.id.as_str())).unwrap();
    if busy.process.pid == first.pid() {
        first.kill();
    } else {
        second.kill();
    }
    until("the command is gone", || !lives(pid));
    until("it is settled", || site.run(&run).process().is_none());
    assert_eq!(site.run(&run).reason(), Some(Reason::ExecutionTimeout));
    assert_eq!(site.kinds(&run).iter().filter(|kind| *kind == "ended").count(), 1);
    site.assert_settled("after the timeout");
}

/// Requirement 88. Invariants 9, 10.
#[test]
fn a_frozen_worker_is_replaced_and_its_word_does_not_count_any_more() {
    let site = Site::new();
    let retry = RetryPolicy { limit: 1, base: Duration::from_millis(10), ..RetryPolicy::default() };
    let run = site.submit(&Request { retry, ..with_lock(&site, "a", LONG) });
    let mut frozen = site.worker(&["--heartbeat", "500ms"]);
    let pid = number_in(&site.dir().join("started"));
    site.freeze(&frozen);
    std::fs::remove_file(site.dir().join("started")).unwrap();
    let mut other = site.worker(&["--heartbeat", "500ms"]);
    // Its child is stopped, and the next attempt holds the lock although the frozen one still lives.
    let second = number_in(&site.dir().join("started"));
    assert!(!lives(pid) && second != pid);
    frozen.signal(Signal::CONT);
    frozen.until("superseded");
    assert_eq!(site.run(&run).status(), Status::Running);
    assert!(lives(second), "the one that came back ended what is not its own");
    go(&site);
    let ended = site.end_of(&run);
    assert_eq!((ended.attempt(), ended.ending().map(|ending| ending.exit_code())), (2, Some(7)));
    assert_eq!(site.record(), ["1", "2"]);
    for worker in [&mut frozen, &mut other] {
        worker.signal(Signal::TERM);
        assert_eq!(worker.wait(), Some(0));
    }
    site.assert_settled("after the replacement");
}

/// A worker that beats slowly, or whose disk is full, is not silent.
#[test]
fn a_slower_heartbeat_is_no_silence() {
    let site = Site::new();
    let run = site.submit(&site.script("a", LONG));
    let _slow = site.worker(&["--heartbeat", "1h"]);
    number_in(&site.dir().join("started"));
    let mut hasty = site.worker(&["--heartbeat", "50ms"]);
    // The hasty one works through twenty of its own while it listens to the slow one all the time.
    for round in 0..20 {
        let short = site.submit(&site.script(&format!("short{round}"), "sleep 0.05"));
        assert_eq!(site.end_of(&short).status(), Status::Succeeded);
    }
    assert!(!site.kinds(&run).contains(&"adopted".to_owned()));
    assert!(!hasty.has_ended());
    go(&site);
    assert_eq!(site.end_of(&run).ending().map(|ending| ending.exit_code()), Some(7));
}

/// Invariant 4. A pid that was given to somebody else is not the worker, nor its command.
#[test]
fn a_reused_pid_is_neither_worker_nor_command() {
    let site = Site::new();
    let run = site.submit(&with_lock(&site, "a", LONG));
    let mut first = site.worker(&[]);
    let pid = number_in(&site.dir().join("started"));
    until("the process was noted", || site.run(&run).process().is_some_and(|one| one.command.is_some()));
    first.kill();
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL)
        .unwrap();
    until("the command is gone", || !lives(pid));
    // As if their numbers were this process's now.
    let own = std::process::id();
    let database = rusqlite::Connection::open(site.runs.folder().join("runs.db")).unwrap();
    assert_eq!(database.execute("UPDATE run SET pid = ?1 WHERE pid = ?2", [own, pid]).unwrap(), 1);
    assert_eq!(database.execute("UPDATE worker SET pid = ?1 WHERE pid = ?2", [own, first.pid()]).unwrap(), 1);
    site.drain("1");
    assert_eq!(site.run(&run).reason(), Some(Reason::Signal));
    site.assert_settled("after the reuse");
}

/// The environment in which the wall clock is off. `faketime` itself would stand between a test and its worker.
fn shifted(shift: &str) -> Vec<String> {
    let output = std::process::Command::new("faketime").args(["-f", shift, "env"]).output();
    let text = String::from_utf8(output.expect("these tests need faketime(1)").stdout).unwrap();
    let wanted = text.lines().filter(|line| line.starts_with("LD_PRELOAD=") || line.starts_with("FAKETIME="));
    let wanted: Vec<String> = wanted.map(ToOwned::to_owned).collect();
    assert!(wanted.len() >= 2, "{text}");
    wanted
}

/// Requirement 94. The wall clock counts for nothing: not for timeouts, not for heartbeats, not for retries.
#[test]
fn a_wall_clock_that_jumps_ends_nothing_and_delays_nothing() {
    for shift in ["+2d", "-2d"] {
        let site = Site::new();
        let timeout = Some(Duration::from_secs(3600));
        let long = site.submit(&Request { timeout, ..with_lock(&site, "long", LONG) });
        let mut first = site.worker(&["--heartbeat", "500ms"]);
        number_in(&site.dir().join("started"));
        let since = Instant::now();
        let quick = Some(Duration::from_millis(200));
        let short = site.submit(&Request { timeout: quick, ..site.script("short", "exec sleep 300") });
        // A second worker on which it is another day.
        let shifted = shifted(shift);
        let shifted: Vec<&str> = std::iter::once("env").chain(shifted.iter().map(String::as_str)).collect();
        let _second = site.worker_under(&shifted, &["--heartbeat", "500ms"]);
        assert_eq!(site.end_of(&short).reason(), Some(Reason::ExecutionTimeout), "{shift}");
        assert!(since.elapsed() < Duration::from_secs(60), "{shift}");
        assert_eq!(site.run(&long).status(), Status::Running, "{shift}");
        first.kill();
        until("it was adopted", || site.kinds(&long).contains(&"adopted".to_owned()));
        assert_eq!(site.run(&long).status(), Status::Running, "{shift}");
        go(&site);
        assert_eq!(site.end_of(&long).status(), Status::Failed, "{shift}");
    }
}

/// A worker in another pid namespace: its numbers mean nothing here, its kernel locks do.
#[test]
fn a_worker_of_another_pid_namespace_is_seen_to_live_and_to_die() {
    let possible =
        std::process::Command::new("unshare").args(["--pid", "--fork", "--mount-proc", "true"]).status();
    if !possible.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: another pid namespace needs root (or CAP_SYS_ADMIN); nothing was checked");
        return;
    }
    let site = Site::new();
    let run = site.submit(&with_lock(&site, "a", LONG));
    let unshare = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let mut inside = site.worker_under(&unshare, &["--heartbeat", "500ms"]);
    inside.until("started");
    let _outside = site.worker(&["--heartbeat", "500ms"]);
    for round in 0..5 {
        let short = site.submit(&site.script(&format!("short{round}"), "sleep 0.5"));
        site.end_of(&short);
    }
    assert_eq!(site.run(&run).claim(), 1, "a live worker was replaced");
    // Everything in there dies with its first process.
    inside.kill();
    let ended = site.end_of(&run);
    assert_eq!(ended.reason(), Some(Reason::Lost), "{ended:?}");
    site.assert_settled("after the namespace");
}
