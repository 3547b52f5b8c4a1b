//! The guardian of a worker: if either of them is killed, the exit code of a command is known, and no command runs twice.

use std::time::Duration;

use lockkeeper_core::id::RunId;
use lockkeeper_core::request::Request;
use lockkeeper_core::retry::RetryPolicy;
use lockkeeper_core::run::{Reason, Run, Status};
use rustix::process::{Pid, Signal, kill_process};

use super::site::{Site, Worker, lives, number_in, until};

/// Notes that it runs, and ends as the test says.
fn script(end: &str) -> String {
    format!(
        "echo $LOCKKEEPER_ATTEMPT >> record; echo $$ > started; until [ -e go ]; do sleep 0.01; done; {end}"
    )
}

fn go(site: &Site) {
    std::fs::write(site.dir().join("go"), "").unwrap();
}

/// A request that may be tried again, so that a lost end would show.
fn submit(site: &Site, end: &str) -> RunId {
    let retry = RetryPolicy { limit: 3, ..site.script("a", "true").retry };
    site.submit(&Request { retry, ..site.script("a", &script(end)) })
}

pub(crate) fn kill(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}

/// The worker of a command, in a shell script: the guardian stands between them.
pub(crate) const WORKER: &str = "$(cut -d ' ' -f 4 /proc/$PPID/stat)";

/// The guardian of a worker, if it has one.
pub(crate) fn guardian_of(worker: u32) -> Option<u32> {
    let numbers =
        std::fs::read_dir("/proc").unwrap().filter_map(|one| one.ok()?.file_name().to_str()?.parse().ok());
    numbers.filter(|pid| parent(*pid) == Some(worker)).find(|pid| {
        std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == b"lockkeeper\0guardian\0")
    })
}

fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

fn parent_of(pid: u32) -> u32 {
    parent(pid).unwrap()
}

/// Starts a worker with one run. Returns the worker, the pid of its guardian and of the command.
fn begin(site: &Site) -> (Worker, u32, u32) {
    let worker = site.worker(&["--jobs", "2"]);
    let command = number_in(&site.dir().join("started"));
    let guardian = parent_of(command);
    assert_eq!(parent_of(guardian), worker.pid(), "it stands between the worker and its command");
    (worker, guardian, command)
}

/// Waits until the worker knows its command. Until then nobody knows whether it began if the guardian is killed.
fn until_known(site: &Site, run: &RunId) {
    until("the process is recorded", || site.run(run).process().is_some_and(|one| one.command.is_some()));
}

fn end_as(run: &Run) -> (Status, Option<Reason>, Option<u8>, u32) {
    (run.status(), run.reason(), run.ending().map(|ending| ending.exit_code()), run.attempt())
}

/// Requirement 92. The worker is killed, and the command ends before anybody looks.
#[test]
fn the_end_of_a_command_is_known_although_its_worker_was_killed() {
    let ends = [
        ("exit 0", (Status::Succeeded, None, Some(0), 1)),
        ("exit 10", (Status::Failed, Some(Reason::NeedsInput), Some(10), 1)),
    ];
    for (end, expected) in ends {
        let site = Site::new();
        let run = submit(&site, end);
        let (mut worker, guardian, command) = begin(&site);
        worker.kill();
        assert!(lives(command) && lives(guardian), "neither notices");
        go(&site);
        until("the guardian has ended", || !lives(guardian));
        assert!(!lives(command));
        site.drain("1");
        assert_eq!(end_as(&site.run(&run)), expected, "{end}: {:?}", site.runs.show(&run).unwrap().events);
        assert_eq!(site.record(), ["1"], "{end}: it ran once");
        site.assert_settled(end);
    }
}

/// A cleaner removes the file of kernel locks: then the process of the worker, and what the guardian wrote, are proof.
#[test]
fn the_end_of_a_command_is_known_although_the_liveness_file_was_removed() {
    for removed_before_the_run in [false, true] {
        let site = Site::new();
        let life = site.store().join("life");
        let mut worker = site.worker(&["--jobs", "2"]);
        if removed_before_the_run {
            until("the worker waits", || !site.runs.workers().unwrap().is_empty());
            std::fs::remove_file(&life).unwrap();
        }
        let run = submit(&site, "exit 0");
        let command = number_in(&site.dir().join("started"));
        let guardian = parent_of(command);
        until_known(&site, &run);
        if !removed_before_the_run {
            std::fs::remove_file(&life).unwrap();
        }
        worker.kill();
        let listed = site.lockkeeper(&["runs"]).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        assert!(listed.contains("its worker is gone"), "{listed}");
        go(&site);
        until("the guardian has ended", || !lives(guardian));
        let waited = site.lockkeeper(&["run", "wait", run.as_str()]).output().unwrap();
        assert_eq!(waited.status.code(), Some(0), "{waited:?}");
        assert_eq!(end_as(&site.run(&run)), (Status::Succeeded, None, Some(0), 1));
        assert_eq!(site.record(), ["1"], "it ran once");
    }
}

/// Without the guardian nothing is proof any more: everybody says so, and how to end the run.
#[test]
fn a_run_without_any_proof_of_its_end_is_named_with_the_way_out() {
    let site = Site::new();
    let run = submit(&site, "exit 0");
    let (mut worker, guardian, command) = begin(&site);
    until_known(&site, &run);
    std::fs::remove_file(site.store().join("life")).unwrap();
    kill(guardian, Signal::STOP);
    worker.kill();
    kill(guardian, Signal::KILL);
    go(&site);
    until("the command has ended", || !lives(command));
    let says = |args: &[&str], text: &str| {
        let output = site.lockkeeper(args).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8(said).unwrap();
        assert!(said.contains(text), "{args:?}: {said}");
    };
    says(&["doctor", "--full"], "cannot be judged from here");
    says(&["run", "show", run.as_str()], "cannot be judged from here");
    says(&["run", "mark", run.as_str(), "failed"], "");
    assert_eq!(site.run(&run).status(), Status::Failed);
}

/// The same where another attempt follows: by the rules of the request, and not because the end was lost.
#[test]
fn a_failure_that_only_the_guardian_saw_is_retried_as_the_request_says() {
    for (end, reason, code) in [("exit 3", Reason::ExitCode, 3), ("kill -9 $$", Reason::Signal, 137)] {
        let site = Site::new();
        let retry = RetryPolicy { limit: 3, codes: vec![9], ..site.script("a", "true").retry };
        let run = site.submit(&Request { retry, ..site.script("a", &script(end)) });
        let (mut worker, guardian, _) = begin(&site);
        worker.kill();
        go(&site);
        until("the guardian has ended", || !lives(guardian));
        site.drain("1");
        assert_eq!(end_as(&site.run(&run)), (Status::Failed, Some(reason), Some(code), 1), "{end}");
        assert_eq!(site.record(), ["1"], "{end}");
        site.assert_settled(end);
    }
}

/// The doctor repairs it in the same way, without a worker.
#[test]
fn the_doctor_writes_the_end_that_the_guardian_saw() {
    let site = Site::new();
    let run = submit(&site, "exit 0");
    let (mut worker, guardian, _) = begin(&site);
    worker.kill();
    go(&site);
    until("the guardian has ended", || !lives(guardian));
    let output = site.lockkeeper(&["doctor", "--full"]).output().unwrap();
    assert_eq!(end_as(&site.run(&run)), (Status::Succeeded, None, Some(0), 1), "{output:?}");
}

/// A rescuer that adopts the live command and is killed in its turn leaves the same to the next.
#[test]
fn the_end_is_known_after_the_rescuer_was_killed_too() {
    let site = Site::new();
    let run = submit(&site, "exit 0");
    let (mut first, guardian, _) = begin(&site);
    first.kill();
    let mut second = site.worker(&[]);
    second.until("adopted");
    second.kill();
    go(&site);
    until("the guardian has ended", || !lives(guardian));
    site.drain("1");
    assert_eq!(end_as(&site.run(&run)), (Status::Succeeded, None, Some(0), 1));
    assert_eq!(site.record(), ["1"]);
    site.assert_settled("after two kills");
    site.drain("1");
    let left: Vec<_> = std::fs::read_dir(site.store().join("spare")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// The guardian is killed: its commands come to the worker, which has the next ones started by another guardian.
#[test]
fn a_killed_guardian_loses_nothing() {
    let site = Site::new();
    let run = submit(&site, "exit 7");
    let (mut worker, guardian, command) = begin(&site);
    until_known(&site, &run);
    kill(guardian, Signal::KILL);
    until("the worker is the parent", || parent_of(command) == worker.pid());
    let other = site.submit(&site.script("b", "exit 0"));
    assert_eq!(site.end_of(&other).status(), Status::Succeeded);
    let third = site.submit(&site.script("c", "exit 5"));
    assert_eq!(end_as(&site.end_of(&third)).2, Some(5));
    site.runs.cancel(&run, None).unwrap();
    assert_eq!(site.end_of(&run).status(), Status::Canceled);
    assert_eq!(site.record(), ["1"]);
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait(), Some(0));
    site.assert_settled("after the guardian");
}

/// The same, and the command ends by itself.
#[test]
fn a_command_whose_guardian_was_killed_has_its_exit_code() {
    let site = Site::new();
    let run = site.submit(&site.script("a", &script("exit 7")));
    let (_worker, guardian, _) = begin(&site);
    until_known(&site, &run);
    kill(guardian, Signal::KILL);
    until("it is gone", || !lives(guardian));
    go(&site);
    assert_eq!(end_as(&site.end_of(&run)), (Status::Failed, Some(Reason::ExitCode), Some(7), 1));
}

/// A run whose worker was killed, and whose command then ended after its time limit. Only the guardian saw its end.
fn ended_after_its_time_limit(end: &str) -> (Site, RunId) {
    let site = Site::new();
    let timeout = Some(Duration::from_millis(300));
    let run = site.submit(&Request { timeout, ..site.script("a", &script(end)) });
    let (mut worker, guardian, command) = begin(&site);
    worker.kill();
    let limit = site.run(&run).times_out_at().unwrap();
    until("the time is up", || limit < site.runs.now().moment);
    go(&site);
    until("the command has ended", || !lives(command));
    until("its end is written", || !lives(guardian));
    (site, run)
}

/// Requirement 92. The worker is killed, the command ends after its time limit, and only then a worker comes.
#[test]
fn a_run_that_exceeded_its_time_limit_never_succeeds_also_if_only_the_guardian_saw_its_end() {
    let (site, run) = ended_after_its_time_limit("exit 0");
    site.drain("1");
    assert_eq!(end_as(&site.run(&run)), (Status::TimedOut, Some(Reason::ExecutionTimeout), Some(0), 1));
}

/// Requirement 92. After a reboot nobody can say whether the command exceeded its time limit. Its exit code counts.
#[test]
fn after_a_reboot_the_exit_code_that_the_guardian_saw_counts() {
    let (site, run) = ended_after_its_time_limit("exit 7");
    site.pretend_another_boot();
    site.drain("1");
    assert_eq!(end_as(&site.run(&run)), (Status::Failed, Some(Reason::ExitCode), Some(7), 1));
}

/// Both are killed: nobody knows the end.
#[test]
fn an_end_that_neither_worker_nor_guardian_saw_is_lost() {
    let site = Site::new();
    let run = site.submit(&site.script("a", &script("exit 0")));
    let (mut worker, guardian, command) = begin(&site);
    kill(guardian, Signal::KILL);
    worker.kill();
    go(&site);
    until("the command has ended", || !lives(command));
    site.drain("1");
    assert_eq!(end_as(&site.run(&run)), (Status::Failed, Some(Reason::Lost), None, 1));
    site.assert_settled("after both");
}

/// A guardian that is stopped keeps no worker from its work.
#[test]
fn a_frozen_guardian_is_replaced() {
    let site = Site::new();
    let run = site.submit(&site.script("a", &script("exit 7")));
    let (_worker, guardian, _) = begin(&site);
    until_known(&site, &run);
    kill(guardian, Signal::STOP);
    go(&site);
    assert_eq!(end_as(&site.end_of(&run)), (Status::Failed, Some(Reason::ExitCode), Some(7), 1));
    let other = site.submit(&site.script("b", "exit 5"));
    assert_eq!(end_as(&site.end_of(&other)).2, Some(5));
    until("the guardian was ended", || !lives(guardian));
}

/// Signals for the whole job do not end it before its commands, and it ends with its worker when there are none.
#[test]
fn a_guardian_ends_with_its_worker_and_not_by_signals() {
    let site = Site::new();
    let run = site.submit(&site.script("a", &script("exit 7")));
    let (mut worker, guardian, _) = begin(&site);
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1] {
        kill(guardian, signal);
    }
    let name = std::fs::read_to_string(format!("/proc/{guardian}/cmdline")).unwrap();
    assert_eq!(name, "lockkeeper\0guardian\0");
    // It has what it hands to a command until the command has started.
    until("it holds no lock and no database", || {
        let open = std::fs::read_dir(format!("/proc/{guardian}/fd")).unwrap();
        let mut open = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        !open.any(|file| file.to_string_lossy().contains("life") || file.to_string_lossy().contains(".db"))
    });
    go(&site);
    assert_eq!(end_as(&site.end_of(&run)).2, Some(7));
    assert!(lives(guardian));
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait(), Some(0));
    until("it has ended", || !lives(guardian));
}
