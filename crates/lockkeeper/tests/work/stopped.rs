//! Processes that are stopped (SIGSTOP, Ctrl-Z) at bad moments, and those that wait for them.

use std::process::Command;
use std::time::Duration;

use lockkeeper_core::request::Request;
use lockkeeper_core::retry::RetryPolicy;
use lockkeeper_core::run::Status;
use lockkeeper_testing::{Finished, Started};
use rustix::process::Signal;

use super::executors::Executor;
use super::site::{Site, Worker, is_stopped, number_in, until};

/// Writes its number into a file of this name, and ends with 7 once there is a file `go`.
fn long(name: &str) -> String {
    format!("echo $$ > {name}; until [ -e go ]; do sleep 0.01; done; exit 7")
}

fn go(site: &Site) {
    std::fs::write(site.dir().join("go"), "").unwrap();
}

/// Reads events until the worker says that somebody else is stopped inside a write.
fn until_it_names_the_writer(worker: &mut Worker) {
    while !worker.until("trouble").to_string().contains("is stopped while it writes") {}
}

/// Workers go on when the process that is stopped inside a write goes on. One that is to end does not wait for that.
#[test]
fn workers_outlast_a_process_that_is_stopped_inside_a_write() {
    let site = Site::new();
    let runs = ["a", "b"].map(|name| site.submit(&site.script(name, &long(name))));
    let mut workers = ["a", "b"].map(|name| {
        let worker = site.worker(&["--jobs", "1"]);
        // The first worker has one run, so the second worker gets the other one.
        number_in(&site.dir().join(name));
        worker
    });
    runs.iter().for_each(|run| {
        until("the process was noted", || site.run(run).process().is_some_and(|one| one.command.is_some()));
    });
    let script = "exec 9<>\"$1\"; flock 9; kill -STOP $$";
    let gate = site.store().join("runs.gate");
    let writer = Started::of(Command::new("sh").args(["-c", script, "writer"]).arg(gate));
    until("it is stopped", || is_stopped(writer.pid()));
    go(&site);
    let [ended, survivor] = &mut workers;
    until_it_names_the_writer(ended);
    until_it_names_the_writer(survivor);
    ended.signal(Signal::TERM);
    ended.until("draining");
    ended.signal(Signal::TERM);
    ended.wait();
    assert!(runs.iter().all(|run| site.run(run).status() == Status::Running), "nobody could write an end");
    writer.signal(Signal::CONT);
    for run in &runs {
        let run = site.end_of(run);
        assert_eq!((run.attempt(), run.ending().map(|ending| ending.exit_code())), (1, Some(7)), "{run:?}");
    }
    assert!(!survivor.has_ended());
    site.assert_settled("after the writer");
}

/// A wait for a run says what keeps it.
#[test]
fn a_wait_for_the_run_of_a_stopped_worker_says_so() {
    let site = Site::new();
    let run = site.submit(&site.script("a", &long("a")));
    let worker = site.worker(&[]);
    number_in(&site.dir().join("a"));
    site.freeze(&worker);
    let mut wait = Started::of(&mut site.lockkeeper(&["run", "wait", run.as_str()]));
    wait.until_stderr(&format!("its worker, process {0}, is stopped: `kill -CONT {0}`", worker.pid()));
    worker.signal(Signal::CONT);
    go(&site);
    assert_eq!(wait.end().code(), Some(7));
}

/// Requirement 86. A stopped worker that has nothing to do keeps nobody from the next attempt.
#[test]
fn an_attempt_is_made_beside_a_stopped_worker() {
    let site = Site::new();
    let mut idle = site.worker(&[]);
    until("it is registered", || !site.runs.store().snapshot().unwrap().workers().unwrap().is_empty());
    site.freeze(&idle);
    let retry = RetryPolicy { limit: 1, base: Duration::from_secs(2), ..RetryPolicy::default() };
    let script = "echo $LOCKKEEPER_ATTEMPT >> record; [ $LOCKKEEPER_ATTEMPT = 2 ]";
    let run = site.submit(&Request { retry, ..site.script("a", script) });
    let executor = Executor::start(&site, "queue run-next", "a");
    until("the first attempt failed", || site.run(&run).waits_for_retry());
    executor.end_by(Signal::KILL);
    Finished::of(&mut site.lockkeeper(&["run", "wait", run.as_str()])).code(0);
    assert_eq!(site.record(), ["1", "2"]);
    idle.kill();
    site.assert_settled("after the attempt");
}
