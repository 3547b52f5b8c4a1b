//! Many short runs, one after the other: each is executed once and has its own end and output, whatever happens to the
//! worker in between.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lockkeeper_core::id::RunId;
use lockkeeper_core::record::Priority;
use lockkeeper_core::request::Request;
use lockkeeper_core::retry::RetryPolicy;
use lockkeeper_core::run::{Reason, Run, Status};
use lockkeeper_engine::runs::output::Output;
use rustix::process::Signal;

use super::guardians::WORKER;
use super::site::{Site, is_stopped, until};

/// A request whose command says that it ran, and goes on with `rest`.
fn recorded(site: &Site, id: &str, rest: &str) -> Request {
    site.script(id, &format!("echo $LOCKKEEPER_REQUEST_ID $LOCKKEEPER_ATTEMPT >> record; {rest}"))
}

/// Submits short runs; every third fails with the code 3.
fn short(site: &Site, name: &str, count: usize) -> Vec<RunId> {
    let rest = |number: usize| if number.is_multiple_of(3) { "exit 3" } else { "exit 0" };
    let request = |number| recorded(site, &format!("{name}{number}"), rest(number));
    let requests: Vec<Request> = (0..count).map(request).collect();
    site.runs.submit_all(&requests, None).unwrap().into_iter().map(|submitted| submitted.run).collect()
}

/// Its own end, with the times of its command.
fn check_end(run: &Run) {
    let number: usize = run.request.as_str()[1..].parse().unwrap();
    let expected = if number.is_multiple_of(3) {
        (Status::Failed, Some(Reason::ExitCode), Some(3))
    } else {
        (Status::Succeeded, None, Some(0))
    };
    assert_eq!(
        (run.status(), run.reason(), run.ending().map(|ending| ending.exit_code())),
        expected,
        "{run:?}"
    );
    assert!(run.started_at().unwrap().moment < run.completed_at().unwrap().moment, "{run:?}");
}

/// Requirements 88, 92. Invariants 9, 10. Only of the command that killed its worker nobody may have seen the end.
#[test]
fn a_killed_worker_loses_no_end_that_it_saw_and_nothing_that_had_not_begun() {
    let site = Site::new();
    let mut all = short(&site, "a", 24);
    let killer = site.submit(&recorded(&site, "killer", &format!("kill -9 {WORKER}")));
    all.extend(short(&site, "b", 15));
    assert_eq!(site.worker(&["--jobs", "1"]).wait(), Some(128 + 9));
    site.drain("2");
    let mut times: BTreeMap<String, u32> = BTreeMap::new();
    for line in site.record() {
        *times.entry(line).or_default() += 1;
    }
    assert_eq!(times.len(), all.len() + 1);
    assert!(times.iter().all(|(line, times)| *times == 1 && line.ends_with(" 1")), "{times:?}");
    for id in &all {
        check_end(&site.run(id));
        // A command that takes long, as all do on a loaded machine, is also reported as started.
        let mut kinds = site.kinds(id);
        kinds.retain(|kind| kind != "started");
        assert_eq!(kinds, ["submitted", "claimed", "ended"]);
    }
    assert!(site.run(&killer).status().is_terminal());
    site.assert_settled("after the kill");
}

/// Requirements 86, 89. Invariant 7. Nothing is claimed behind a long command, and all keeps its order.
#[test]
fn what_waits_behind_a_long_command_is_queued_and_keeps_its_order() {
    let site = Site::new();
    short(&site, "a", 20);
    let long = site.submit(&recorded(&site, "long", "until [ -e go ]; do sleep 0.01; done"));
    let after = short(&site, "b", 12);
    let mut worker = site.worker(&["--jobs", "1"]);
    until("the long command runs", || {
        site.run(&long).process().is_some_and(|process| process.command.is_some())
    });
    assert!(after.iter().all(|id| site.run(id).status() == Status::Queued));
    let urgent = Request { priority: Priority::new(5).unwrap(), ..recorded(&site, "urgent", "exit 0") };
    let urgent = site.submit(&urgent);
    std::fs::write(site.dir().join("go"), "").unwrap();
    after.iter().for_each(|id| check_end(&site.end_of(id)));
    assert_eq!(site.end_of(&urgent).status(), Status::Succeeded);
    worker.signal(Signal::TERM);
    worker.wait();
    let order = (0..20).map(|n| format!("a{n} 1")).chain(["long 1".to_owned(), "urgent 1".to_owned()]);
    let order: Vec<String> = order.chain((0..12).map(|n| format!("b{n} 1"))).collect();
    assert_eq!(site.record(), order);
}

/// A long command does not keep back others while another worker is free.
#[test]
fn nobody_waits_behind_a_long_command_while_another_worker_is_free() {
    let site = Site::new();
    short(&site, "a", 20);
    let wait = "until [ $(ls after* 2>/dev/null | wc -l) = 20 ]; do sleep 0.01; done";
    let long = site.submit(&site.script("long", wait));
    for number in 0..20 {
        site.submit(&site.script(&format!("after{number}"), "> $LOCKKEEPER_REQUEST_ID"));
    }
    let _one = site.worker(&["--jobs", "1"]);
    let _other = site.worker(&["--jobs", "1"]);
    assert_eq!(site.end_of(&long).status(), Status::Succeeded);
}

/// Requirements 78, 80. A run that was canceled before its command begins is not started.
#[test]
fn a_run_that_is_canceled_before_it_begins_is_not_started() {
    let (site, mut worker, stopper, after) = loop {
        let site = Site::new();
        short(&site, "a", 20);
        // It stops its worker, as a debugger or a container that is frozen does.
        let stopper = site.submit(&recorded(&site, "stopper", &format!("kill -STOP {WORKER}")));
        let after = short(&site, "b", 12);
        let worker = site.worker(&["--jobs", "1"]);
        until("the worker was stopped", || {
            site.record().contains(&"stopper 1".to_owned()) && is_stopped(worker.pid())
        });
        // If it was stopped while it wrote, nobody can write, and so cancel, until it goes on.
        if site.can_be_written() {
            break (site, worker, stopper, after);
        }
    };
    // The last one is certainly not under way, whatever the worker could do before it was stopped.
    let canceled = after.last().unwrap();
    assert_eq!(site.runs.cancel(canceled, None).unwrap().run.status(), Status::Canceled);
    worker.signal(Signal::CONT);
    after[..11].iter().for_each(|id| check_end(&site.end_of(id)));
    assert!(site.end_of(&stopper).status().is_terminal());
    worker.signal(Signal::TERM);
    worker.wait();
    let lines = site.record();
    assert!(!lines.contains(&"b11 1".to_owned()), "{lines:?}");
    assert_eq!(lines.len(), 32, "{lines:?}");
}

/// Requirement 84. One slot executes one run at a time, in the order of the queue, and each has the times of its own
/// command.
#[test]
fn one_slot_executes_one_run_at_a_time_in_order() {
    let site = Site::new();
    let ids = short(&site, "a", 60);
    let since = Instant::now();
    site.drain("1");
    let all = since.elapsed();
    let runs: Vec<Run> = ids.iter().map(|id| site.run(id)).collect();
    runs.iter().for_each(check_end);
    for pair in runs.windows(2) {
        let (ended, began) = (pair[0].completed_at().unwrap().moment, pair[1].started_at().unwrap().moment);
        assert!(ended <= began, "{pair:?}");
    }
    let order: Vec<String> = (0..60).map(|number| format!("a{number} 1")).collect();
    assert_eq!(site.record(), order);
    let stats = site.runs.stats(0).unwrap();
    assert!(stats.durations.mean * 60 <= all, "{stats:?} in {all:?}");
}

/// Requirement 92. A worker that is told to end executes what it has claimed, and leaves the rest queued.
#[test]
fn a_worker_that_is_told_to_end_leaves_nothing_that_it_has_claimed() {
    for jobs in ["1", "3"] {
        let site = Site::new();
        let ids = short(&site, "a", 300);
        let mut worker = site.worker(&["--jobs", jobs]);
        for _ in 0..40 {
            worker.until("started");
        }
        worker.signal(Signal::TERM);
        while worker.try_told().is_some() {}
        assert_eq!(worker.wait(), Some(0));
        let runs: Vec<Run> = ids.iter().map(|id| site.run(id)).collect();
        let (ended, others): (Vec<&Run>, Vec<&Run>) = runs.iter().partition(|run| run.status().is_terminal());
        ended.into_iter().for_each(check_end);
        assert!(!others.is_empty(), "it was too fast");
        assert!(others.iter().all(|run| run.status() == Status::Queued), "{others:?}");
        site.drain("2");
        ids.iter().for_each(|id| check_end(&site.run(id)));
        assert_eq!(site.record().len(), ids.len());
    }
}

/// Requirement 86.
#[test]
fn short_runs_that_fail_are_tried_again() {
    let site = Site::new();
    let retry = RetryPolicy { limit: 1, base: Duration::from_millis(5), ..RetryPolicy::default() };
    let request = |number: usize| Request {
        retry: retry.clone(),
        ..site.script(&format!("r{number}"), "[ $LOCKKEEPER_ATTEMPT = 2 ]")
    };
    let runs: Vec<RunId> = (0..30).map(|number| site.submit(&request(number))).collect();
    site.drain("2");
    for run in runs.iter().map(|run| site.run(run)) {
        assert_eq!((run.status(), run.attempt()), (Status::Succeeded, 2), "{run:?}");
    }
    site.assert_settled("after the retries");
}

/// Commands that begin have a copy of the kernel lock of every other command for a moment. None is ended for that.
#[test]
fn no_command_is_ended_because_another_one_has_ended() {
    let site = Site::new();
    let script = |number: usize| if number.is_multiple_of(5) { "exec sleep 0.03" } else { "exit 0" };
    let runs: Vec<RunId> =
        (0..240).map(|number| site.submit(&site.script(&format!("r{number}"), script(number)))).collect();
    site.drain("12");
    for run in runs.iter().map(|run| site.run(run)) {
        assert_eq!((run.status(), run.attempt()), (Status::Succeeded, 1), "{run:?}");
    }
    site.assert_settled("after many at once");
}

/// What a command writes is its run's whatever happens to the worker within the first moments.
#[test]
fn what_was_written_before_a_worker_was_killed_is_kept() {
    let site = Site::new();
    for number in 0..3 {
        site.submit(&site.command(&format!("short{number}"), &["true"]));
    }
    // It ends its worker as soon as it has begun, and goes on.
    let script =
        format!("echo before; kill -9 {WORKER}; echo after; until [ -e go ]; do sleep 0.01; done; echo last");
    let run = site.submit(&site.script("a", &script));
    let mut worker = site.worker(&["--jobs", "1"]);
    worker.wait();
    let _next = site.worker(&["--jobs", "1"]);
    until("it is looked after", || site.run(&run).claim() == 2);
    std::fs::write(site.dir().join("go"), "").unwrap();
    assert!(site.end_of(&run).status().is_terminal());
    until("all is there", || site.output_of(&run) == b"before\nafter\nlast\n");
}

/// No log has a byte of another run, also when something goes on writing that nobody could find to end it.
#[test]
fn every_run_has_its_own_output_and_no_others() {
    let site = Site::new();
    // It has neither the lock nor the mark of its run, only its output.
    let stays = "> up; while ! [ -e go ]; do sleep 0.01; done; echo late; > gone";
    let hidden = format!(
        "bash -c \"exec 100>&-; env -i PATH=$PATH setsid sh -c '{stays}' &\"; while ! [ -e up ]; do :; done"
    );
    let mut runs = Vec::new();
    for number in 0..60 {
        let script = match number % 4 {
            0 => "echo $LOCKKEEPER_REQUEST_ID".to_owned(),
            2 if number == 10 => hidden.clone(),
            _ => "exit 0".to_owned(),
        };
        runs.push((number, site.submit(&site.script(&format!("r{number}"), &script))));
    }
    site.drain("2");
    std::fs::write(site.dir().join("go"), "").unwrap();
    until("the hidden process has written", || site.dir().join("gone").exists());
    let more = site.submit(&site.script("more", "echo more"));
    site.drain("1");
    for (number, run) in runs {
        let output = Output::open(&site.runs.folder_of(&run), None).unwrap();
        let text = output.map_or_else(Vec::new, |output| output.read(0, 100).unwrap().bytes);
        let expected = match number {
            10 => "late\n".to_owned(),
            _ if number % 4 == 0 => format!("r{number}\n"),
            _ => String::new(),
        };
        assert_eq!(String::from_utf8(text).unwrap(), expected, "run {number}");
    }
    assert_eq!(site.output_of(&more), b"more\n");
}
