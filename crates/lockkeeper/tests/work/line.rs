//! Runs that wait for leases.

use std::fs::OpenOptions;
use std::time::Duration;

use lockkeeper_core::record::Priority;
use lockkeeper_core::request::Request;
use lockkeeper_core::run::Status;
use lockkeeper_engine::runs::Blocked;
use lockkeeper_testing::{Signal, files};

use super::site::{Site, number_in, until};

fn holding(site: &Site, id: &str, name: &str, script: &str) -> Request {
    Request { locks: vec![name.parse().unwrap()], ..site.script(id, script) }
}

/// A reader who does not read, or a terminal that was stopped, stops nothing.
#[test]
fn what_nobody_reads_does_not_stop_the_work() {
    let site = Site::new();
    let pipe = site.path("pipe");
    files::make_fifo(&pipe);
    // It is open for reading, but nobody reads the events. A pipe takes far less than all of them.
    let _reader = OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    let into_the_pipe = ["sh", "-c", "exec \"$@\" > pipe", "sh"];
    let _worker = site.worker_under(&into_the_pipe, &["--jobs", "4"]);
    let many: Vec<Request> =
        (0..400).map(|n| site.command(&format!("r{n}-{}", "x".repeat(60)), &["true"])).collect();
    let many = site.runs.submit_all(&many, None).unwrap();
    for one in &many {
        assert_eq!(site.end_of(&one.run).status(), Status::Succeeded);
    }
}

/// A run that needs labels waits for a worker that has all of them. Others go on meanwhile, and lists say what is missing.
#[test]
fn a_run_that_needs_labels_is_executed_by_a_worker_that_has_them() {
    let site = Site::new();
    let needing = |id: &str, labels: &[&str]| Request {
        needs: labels.iter().map(|label| label.parse().unwrap()).collect(),
        ..site.command(id, &["true"])
    };
    let both = site.submit(&needing("both", &["big", "gpu"]));
    let one = site.submit(&needing("one", &["gpu"]));
    let locked = site.submit(&Request { locks: vec!["db".parse().unwrap()], ..needing("locked", &["gpu"]) });
    let plain = site.submit(&site.command("plain", &["true"]));
    let mut other = site.worker(&["--label", "arm"]);
    assert_eq!(site.end_of(&plain).status(), Status::Succeeded);
    let blocked = site.runs.show(&both).unwrap().blocked;
    assert_eq!(
        blocked,
        Some(Blocked::NoWorkerWith(["big", "gpu"].map(|label| label.parse().unwrap()).to_vec()))
    );
    let mut gpu = site.worker(&["--label", "gpu"]);
    for run in [&one, &locked] {
        assert_eq!(site.end_of(run).status(), Status::Succeeded);
    }
    assert_eq!(site.run(&both).status(), Status::Queued);
    let _both = site.worker(&["--label", "gpu", "--label", "big"]);
    assert_eq!(site.end_of(&both).status(), Status::Succeeded);
    for worker in [&mut other, &mut gpu] {
        worker.kill();
    }
}

/// Thousands that want the same are one wait, and those behind them that want something else begin at once.
#[test]
fn thousands_that_wait_for_one_lock_hold_up_nobody_else() {
    let site = Site::new();
    let first = site.submit(&holding(&site, "first", "db", "echo $$ > started; exec sleep 300"));
    let mut worker = site.worker(&["--jobs", "2"]);
    number_in(&site.dir().join("started"));
    let crowd: Vec<Request> = (0..5000).map(|n| holding(&site, &format!("r{n}"), "db", "exit 0")).collect();
    site.runs.submit_all(&crowd, None).unwrap();
    for round in 0..10 {
        let other = site.submit(&holding(&site, &format!("o{round}"), "other", "exit 0"));
        // The lock of the crowd is held for longer than this waits.
        assert_eq!(site.end_of(&other).status(), Status::Succeeded);
    }
    // Its turn comes with the end of the one before.
    site.runs.cancel(&first, None).unwrap();
    until("the first of the crowd has ended", || site.runs.find("r0").unwrap().status().is_terminal());
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait(), Some(0));
    assert_eq!(site.run(&first).status(), Status::Canceled);
}

/// Invariant 7. By priority, then first come first served, also among those that wait for one lock.
#[test]
fn runs_begin_by_priority_and_then_in_turn() {
    let site = Site::new();
    let order = [("low", -5), ("first", 0), ("second", 0), ("urgent", 7)];
    for (id, priority) in order {
        let request = holding(&site, id, "db", &format!("echo {id} >> record"));
        site.submit(&Request { priority: Priority::new(priority).unwrap(), ..request });
    }
    site.drain("3");
    assert_eq!(site.record(), ["urgent", "first", "second", "low"]);
}

/// Invariant 1. Somebody outside holds what a run needs: it begins as soon as that is given back.
#[test]
fn a_run_waits_for_a_lease_of_somebody_else_and_is_woken() {
    let site = Site::new();
    let holder = site.hold(&["db"]);
    let run = site.submit(&holding(&site, "a", "db", "echo a >> record"));
    let mut worker = site.worker(&[]);
    let told = worker.until("waiting");
    let why = told["message"].as_str().unwrap();
    assert!(why.contains("db is held by") && why.contains("position 1"), "{why}");
    // The slot executes other work meanwhile.
    let other = site.submit(&site.script("b", "echo b >> record"));
    assert_eq!(site.end_of(&other).status(), Status::Succeeded);
    assert_eq!(site.run(&run).status(), Status::Queued);
    holder.finish().code(0);
    assert_eq!(site.end_of(&run).status(), Status::Succeeded);
    assert_eq!(site.record(), ["b", "a"]);
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait(), Some(0));
    site.assert_settled("after the wait");
}

/// An attempt that is due and cannot have its lease waits for that, not for time.
#[test]
fn a_due_attempt_that_waits_for_a_lease_costs_nothing() {
    use lockkeeper_core::retry::RetryPolicy;
    let site = Site::new();
    let retry = RetryPolicy { limit: 1, base: Duration::from_millis(1), ..RetryPolicy::default() };
    let script = "[ $LOCKKEEPER_ATTEMPT = 2 ] || { until [ -e fail ]; do sleep 0.01; done; exit 1; }";
    let again = site.submit(&Request { retry, ..holding(&site, "again", "db", script) });
    let mut worker = site.worker(&["--jobs", "2"]);
    worker.until("started");
    let holder = site.submit(&holding(&site, "holder", "db", "echo $$ > started; exec sleep 300"));
    // It has a ticket, so that it is next when the first attempt has failed.
    worker.until("waiting");
    std::fs::write(site.dir().join("fail"), "").unwrap();
    number_in(&site.dir().join("started"));
    until("the next attempt waits", || site.run(&again).waits_for_retry());
    let switches = || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", worker.pid())).unwrap();
        let status = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("status")).unwrap());
        let counts = status.map(|status| {
            let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            line.unwrap().trim().parse::<u64>().unwrap()
        });
        counts.sum::<u64>()
    };
    // A worker that looks all the time wakes up in every window; what else happens to it leaves some of them quiet.
    until("the worker sleeps", || {
        let before = switches();
        std::thread::sleep(Duration::from_millis(500));
        switches() - before < 20
    });
    assert!(site.run(&again).waits_for_retry(), "{:?}", site.run(&again));
    site.runs.cancel(&holder, None).unwrap();
    assert_eq!(site.end_of(&again).status(), Status::Succeeded);
}

/// More different wishes than there are places in line: none is forgotten.
#[test]
fn more_wishes_than_places_are_all_granted_in_the_end() {
    let site = Site::new();
    let all = Request {
        paths: vec!["**".parse().unwrap()],
        ..site.script("all", "echo $$ > started; exec sleep 300")
    };
    let all = site.submit(&all);
    let _worker = site.worker(&["--jobs", "4"]);
    number_in(&site.dir().join("started"));
    let many: Vec<Request> = (0..200)
        .map(|n| {
            let path = format!("part{n}/**").parse().unwrap();
            Request {
                paths: vec![path],
                ..site.script(&format!("r{n}"), "echo $LOCKKEEPER_RUN_ID >> record")
            }
        })
        .collect();
    let many = site.runs.submit_all(&many, None).unwrap();
    site.runs.cancel(&all, None).unwrap();
    for one in &many {
        assert_eq!(site.end_of(&one.run).status(), Status::Succeeded);
    }
    assert_eq!(site.record().len(), many.len());
}

/// A worker that waits for a lock file of another program writes one line about it, however often it looks.
#[test]
fn a_wait_for_a_lock_file_is_written_once() {
    let site = Site::new();
    let lock = |args: &[&str]| {
        let mut command = site.lockkeeper(&[&["task"], args].concat());
        assert!(command.output().unwrap().status.success());
    };
    lock(&["lock", "t1", "--worker", "elsewhere"]);
    let request = site.script("a", "exit 0");
    let run = site.submit(&Request { origin: Some("swarm:t1".to_owned()), ..request });
    let log = || std::fs::read_to_string(site.path("swarm").join("status.log")).unwrap_or_default();
    let waits = || log().lines().filter(|line| line.contains("\"WAIT\"")).count();
    let _worker = site.worker(&[]);
    until("the wait is written", || waits() == 1);
    // It looks again every half second. Other runs come and go meanwhile.
    for round in 0..6 {
        let other = site.submit(&site.script(&format!("o{round}"), "sleep 0.3"));
        assert_eq!(site.end_of(&other).status(), Status::Succeeded);
    }
    assert_eq!(waits(), 1, "{}", log());
    lock(&["unlock", "t1", "--worker", "elsewhere"]);
    assert_eq!(site.end_of(&run).status(), Status::Succeeded);
    assert_eq!(waits(), 1, "{}", log());
}
