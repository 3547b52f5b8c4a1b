//! How runs end: by themselves, by a call, by a clock, and never in two ways.

use std::time::Duration;

use lockkeeper_core::request::Request;
use lockkeeper_core::retry::RetryPolicy;
use lockkeeper_core::run::{Reason, Run, Status};
use rustix::process::Signal;

use super::site::{Site, lives, number_in, until};

fn outcome(run: &Run) -> (Status, Option<Reason>, Option<u8>) {
    (run.status(), run.reason(), run.ending().map(|ending| ending.exit_code()))
}

/// Requirements 77, 84.
#[test]
fn what_cannot_be_started_fails_with_the_code_of_a_shell_and_says_why() {
    let site = Site::new();
    let plain = site.dir().join("plain");
    std::fs::write(&plain, "no program\n").unwrap();
    let plain = plain.to_str().unwrap().to_owned();
    let elsewhere = |request: Request| Request { dir: "/nowhere/at/all".to_owned(), ..request };
    let cases = [
        (site.submit(&site.command("missing", &["no-such-program-at-all"])), 127, "no-such-program-at-all"),
        (site.submit(&site.command("plain", &[&plain])), 126, "cannot execute"),
        (site.submit(&site.command("folder", &["/"])), 126, "cannot execute"),
        (site.submit(&elsewhere(site.command("elsewhere", &["true"]))), 127, "/nowhere/at/all is not there"),
    ];
    let retried = Request {
        retry: RetryPolicy { limit: 3, ..RetryPolicy::default() },
        ..site.command("again", &["nope"])
    };
    let again = site.submit(&retried);
    site.drain("2");
    for (id, code, words) in cases {
        let run = site.run(&id);
        assert_eq!(outcome(&run), (Status::Failed, Some(Reason::CommandNotStarted), Some(code)), "{run:?}");
        assert!(run.message().as_ref().unwrap().contains(words), "{run:?}");
    }
    // Trying once more would not help.
    assert_eq!(site.run(&again).attempt(), 1);
    site.assert_settled("after the failures");
}

/// Requirements 86, 87.
#[test]
fn a_failed_attempt_is_made_again_and_stays_running_meanwhile() {
    let site = Site::new();
    let script = "echo $LOCKKEEPER_ATTEMPT >> record; [ $LOCKKEEPER_ATTEMPT = 3 ] || exit 75";
    let retry =
        RetryPolicy { limit: 5, base: Duration::from_millis(10), codes: vec![75], ..RetryPolicy::default() };
    let run = site.submit(&Request { retry, ..site.script("a", script) });
    // A worker that drains the queue waits for the attempts that are still to come.
    site.drain("1");
    assert_eq!(outcome(&site.run(&run)), (Status::Succeeded, None, Some(0)));
    assert_eq!(site.record(), ["1", "2", "3"]);
    let events = site.runs.show(&run).unwrap().events;
    let told: Vec<_> = events.iter().map(|one| (one.kind.as_str(), one.to.as_str())).collect();
    let expected = [
        ("submitted", "queued"),
        ("claimed", "running"),
        ("retrying", "running"),
        ("retried", "running"),
        ("retrying", "running"),
        ("retried", "running"),
        ("ended", "succeeded"),
    ];
    assert_eq!(told.into_iter().filter(|one| one.0 != "started").collect::<Vec<_>>(), expected);
    let output = site.runs.folder_of(&run);
    assert!(output.output().exists() && output.output_of(1).exists() && output.output_of(2).exists());
}

/// Requirements 78, 80, 90. Invariant 9.
#[test]
fn a_run_that_is_called_off_is_canceled_whatever_its_command_returns() {
    let site = Site::new();
    let polite = "trap 'exit 0' TERM; echo $$ > started; while :; do sleep 0.01; done";
    let run = site.submit(&site.script("polite", polite));
    let mut worker = site.worker(&[]);
    number_in(&site.dir().join("started"));
    assert_eq!(site.runs.cancel(&run, None).unwrap().run.status(), Status::Cancelling);
    assert_eq!(outcome(&site.end_of(&run)), (Status::Canceled, Some(Reason::UserCanceled), Some(0)));
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait(), Some(0));
    site.assert_settled("after the cancel");
}

/// Requirements 78, 90. Invariant 9.
#[test]
fn a_command_that_ignores_everything_is_killed_after_its_grace() {
    let site = Site::new();
    let run = site.submit(
        &site.script("deaf", "trap '' TERM INT HUP; echo $$ > started; while :; do sleep 0.05; done"),
    );
    let _worker = site.worker(&[]);
    let pid = number_in(&site.dir().join("started"));
    site.runs.cancel(&run, None).unwrap();
    let run = site.end_of(&run);
    assert_eq!(outcome(&run), (Status::Canceled, Some(Reason::UserCanceled), Some(137)));
    assert!(!lives(pid));
}

/// Requirements 74, 78, 90. Invariant 9. A cancel may come before, at and after the start: there is one end.
#[test]
fn a_cancel_within_milliseconds_of_the_start_gives_exactly_one_end() {
    let site = Site::new();
    let _worker = site.worker(&["--jobs", "2"]);
    let mut ends = std::collections::BTreeMap::new();
    for round in 0..60_u64 {
        let script = "echo $LOCKKEEPER_RUN_ID >> record; exec sleep 300";
        let run = site.submit(&site.script(&format!("r{round}"), script));
        // Not to let something happen, but to hit every moment of the start in the course of the rounds.
        std::thread::sleep(Duration::from_micros(round * 700));
        site.runs.cancel(&run, None).unwrap();
        let ended = site.end_of(&run);
        assert_eq!(
            (ended.status(), ended.reason()),
            (Status::Canceled, Some(Reason::UserCanceled)),
            "round {round}"
        );
        let last = site.kinds(&run).iter().filter(|kind| *kind == "ended").count();
        assert_eq!(last, 1, "round {round}");
        *ends.entry(ended.attempt()).or_insert(0) += 1;
    }
    eprintln!("rounds by attempts made: {ends:?}");
    let record = site.record();
    let mut once = record.clone();
    once.dedup();
    assert_eq!(record, once, "a command ran twice");
    until("all is settled", || site.runs.store().snapshot().unwrap().active_runs().unwrap().is_empty());
    site.assert_settled("after the cancels");
}

/// Requirements 79, 90, 94. Invariant 9.
#[test]
fn timeout_against_finish_gives_exactly_one_end_and_no_success_after_a_signal() {
    let site = Site::new();
    let mut runs = Vec::new();
    for round in 0..1000_u64 {
        // A command that is told to end says so, and pretends to be fine.
        let script = "trap 'echo $LOCKKEEPER_RUN_ID >> record; exit 0' TERM; sleep 0.03 & wait $!; exit 0";
        let timeout = Some(Duration::from_millis(25 + round % 60));
        runs.push(site.submit(&Request { timeout, ..site.script(&format!("r{round}"), script) }));
    }
    site.drain("8");
    let signalled: std::collections::BTreeSet<String> = site.record().into_iter().collect();
    let mut counts = std::collections::BTreeMap::new();
    for id in runs {
        let run = site.run(&id);
        assert_eq!(site.kinds(&id).iter().filter(|kind| *kind == "ended").count(), 1, "{run:?}");
        match run.status() {
            Status::Succeeded => {
                assert!(!signalled.contains(id.as_str()), "a success after a signal: {run:?}");
            }
            Status::TimedOut => assert_eq!(run.reason(), Some(Reason::ExecutionTimeout)),
            other => panic!("{other}: {run:?}"),
        }
        *counts.entry(run.status()).or_insert(0) += 1;
    }
    eprintln!("{counts:?}, {} were signalled", signalled.len());
    site.assert_settled("after the timeouts");
}

/// Requirements 75, 94.
#[test]
fn any_worker_times_out_a_run_that_waited_too_long() {
    let site = Site::new();
    let blocker = site.submit(&site.script("blocker", "echo $$ > started; exec sleep 300"));
    let _worker = site.worker(&[]);
    number_in(&site.dir().join("started"));
    let queue_timeout = Some(Duration::from_millis(150));
    let late = site.submit(&Request { queue_timeout, ..site.script("late", "echo late >> record") });
    until("the late one was given up", || site.run(&late).status().is_terminal());
    assert_eq!(outcome(&site.run(&late)), (Status::TimedOut, Some(Reason::QueueTimeout), None));
    site.runs.cancel(&blocker, None).unwrap();
    site.end_of(&blocker);
    assert!(site.record().is_empty());
}

/// Requirement 92. The first signal lets what runs come to its end, the second ends it.
#[test]
fn the_first_signal_drains_and_the_second_stops() {
    let site = Site::new();
    let first = site.submit(&site.script("first", "echo $$ > started; read line < go; exit 0"));
    let second = site.submit(&site.script("second", "echo second >> record"));
    assert!(std::process::Command::new("mkfifo").arg(site.dir().join("go")).status().unwrap().success());
    let mut worker = site.worker(&[]);
    number_in(&site.dir().join("started"));
    worker.signal(Signal::TERM);
    worker.until("draining");
    std::fs::write(site.dir().join("go"), "\n").unwrap();
    assert_eq!(worker.wait(), Some(0));
    assert_eq!(site.run(&first).status(), Status::Succeeded);
    assert_eq!(site.run(&second).status(), Status::Queued, "a draining worker took another run");
    site.runs.cancel(&second, None).unwrap();

    std::fs::remove_file(site.dir().join("started")).unwrap();
    let third = site.submit(&site.script("third", "echo $$ > started; exec sleep 300"));
    let mut worker = site.worker(&[]);
    let pid = number_in(&site.dir().join("started"));
    worker.signal(Signal::INT);
    worker.until("draining");
    worker.signal(Signal::TERM);
    worker.until("stopping");
    assert_eq!(worker.wait(), Some(0));
    assert_eq!(site.run(&third).status(), Status::Canceled);
    assert!(!lives(pid));
    site.assert_settled("after both signals");
}

/// Requirements 76, 77. A run that somebody outside said to be over has no process left.
#[test]
fn a_run_that_is_marked_from_outside_is_ended() {
    use lockkeeper_core::run::transition::Mark;
    let site = Site::new();
    let run = site.submit(&site.script("a", "echo $$ > started; exec sleep 300"));
    let _worker = site.worker(&[]);
    let pid = number_in(&site.dir().join("started"));
    let mark = Mark {
        to: Status::Failed,
        expect: None,
        claim: None,
        exit_code: None,
        worker: "me".parse().unwrap(),
    };
    site.runs.mark(&run, &mark).unwrap();
    until("its process is gone", || !lives(pid));
    until("it is settled", || site.run(&run).process().is_none());
    assert_eq!(outcome(&site.run(&run)).0, Status::Failed);
    site.assert_settled("after the mark");
}

/// Requirement 93.
#[test]
fn no_outside_service_is_asked() {
    let site = Site::new();
    let run = site.submit(&Request { locks: vec!["db".parse().unwrap()], ..site.script("a", "exit 0") });
    let log = site.path("calls");
    let calls = ["-e", "trace=socket,connect,openat", "-o", log.to_str().unwrap()];
    let strace = [["strace", "-f", "-b", "execve", "-qq"].as_slice(), &calls].concat();
    let mut worker = site.worker_under(&strace, &["--drain"]);
    while worker.try_told().is_some() {}
    assert_eq!(worker.wait(), Some(0));
    assert_eq!(site.run(&run).status(), Status::Succeeded);
    let calls = std::fs::read_to_string(&log).unwrap();
    assert!(
        calls.contains("runs.db") && !calls.contains("socket(") && !calls.contains("connect("),
        "{calls}"
    );
}

/// Requirements 191, 192.
#[test]
fn the_stage_file_names_who_holds_the_lock_of_a_run() {
    let site = Site::new();
    let script = "cat $LOCKKEEPER_DIR/runs/$LOCKKEEPER_RUN_ID/stage.json > seen 2>/dev/null || sleep 0.01";
    let script = format!("until [ -s seen ]; do {script}; done");
    let run = site.submit(&Request { locks: vec!["db".parse().unwrap()], ..site.script("a", &script) });
    let worker = site.worker(&[]);
    assert_eq!(site.end_of(&run).status(), Status::Succeeded);
    let seen: serde_json::Value =
        serde_json::from_slice(&std::fs::read(site.dir().join("seen")).unwrap()).unwrap();
    let lock = &seen["lock"];
    assert_eq!((seen["status"].as_str(), seen["run_id"].as_str()), (Some("running"), Some(run.as_str())));
    assert_eq!(lock["holder"]["pid"], worker.pid());
    assert_eq!(lock["resources"][0], "db");
    assert!(lock["token"].as_u64().is_some() && lock["lease"].as_str().is_some(), "{seen}");
    until("the lock is released", || {
        let leases = lockkeeper_engine::open::open_engine(&site.store()).unwrap();
        leases.listing().unwrap().holders.is_empty()
    });
}
