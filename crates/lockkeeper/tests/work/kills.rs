//! Kill -9 of a worker at every step of its work. Whatever it was about to do, the next worker brings every run to
//! exactly one end, and no command ran twice without being allowed to.

use std::collections::BTreeMap;
use std::time::Duration;

use lockkeeper_core::id::RunId;
use lockkeeper_core::request::Request;
use lockkeeper_core::retry::RetryPolicy;
use lockkeeper_core::run::{Reason, Run, Status};

use super::site::Site;

/// Calls that change something, or stand between two that do.
const STEPS: [&str; 12] = [
    "pwrite64",
    "write",
    "flock",
    "fcntl",
    "openat",
    "mkdir",
    "unlink",
    "rename",
    "fdatasync",
    "clone,clone3,vfork",
    "wait4",
    "close",
];
/// Steps of one kind that are tried; there are hundreds, most of them of the same few transactions.
const TRIES: usize = 12;

/// Commands that write down that they ran; one is killed by its clock, one fails once, one holds a lock.
fn submit(site: &Site, round: usize) -> Vec<RunId> {
    let retry = RetryPolicy { limit: 2, base: Duration::from_millis(5), ..RetryPolicy::default() };
    let noted = |rest: &str| format!("echo $LOCKKEEPER_RUN_ID $LOCKKEEPER_ATTEMPT >> record; {rest}");
    let id = |name: &str| format!("{name}{round}");
    let held = |request: Request| Request { locks: vec!["db".parse().unwrap()], ..request };
    vec![
        site.submit(&site.script(&id("plain"), &noted("exit 0"))),
        site.submit(&held(site.script(&id("held"), &noted("sleep 0.03")))),
        site.submit(&Request {
            retry,
            ..held(site.script(&id("again"), &noted("[ $LOCKKEEPER_ATTEMPT = 2 ]")))
        }),
        site.submit(&Request {
            timeout: Some(Duration::from_millis(60)),
            ..site.script(&id("late"), &noted("exec sleep 300"))
        }),
    ]
}

/// Each attempt was executed at most once, and not more attempts were made than the record says.
fn check(site: &Site, about: &str, runs: &[RunId]) {
    let mut executed: BTreeMap<String, u32> = BTreeMap::new();
    for line in site.record() {
        *executed.entry(line).or_insert(0) += 1;
    }
    for id in runs {
        let run = site.run(id);
        assert!(run.status().is_terminal(), "{about}: {run:?}");
        assert_eq!(site.kinds(id).iter().filter(|kind| *kind == "ended").count(), 1, "{about}: {run:?}");
        check_end(about, &run);
        for attempt in 1..=run.attempt() {
            let times = executed.remove(&format!("{id} {attempt}")).unwrap_or(0);
            assert!(times <= 1, "{about}: attempt {attempt} of {id} was executed {times} times");
            let finished = attempt == run.attempt() && run.reason() != Some(Reason::Lost);
            assert!(
                times == 1 || !finished || run.reason() == Some(Reason::ExecutionTimeout),
                "{about}: {run:?}"
            );
        }
        assert!(!executed.keys().any(|line| line.starts_with(id.as_str())), "{about}: {executed:?}");
    }
    site.assert_settled(about);
}

fn check_end(about: &str, run: &Run) {
    let name = run.request.as_str();
    let good = match (run.status(), run.reason()) {
        (Status::Succeeded, None) => !name.starts_with("late"),
        (Status::TimedOut, Some(Reason::ExecutionTimeout)) => name.starts_with("late"),
        // A worker that died in between could not say it; one of its commands may have been hit as well.
        (Status::Failed, Some(Reason::Lost | Reason::Signal)) => true,
        // Its third attempt fails, if the second was lost.
        (Status::Failed, Some(Reason::ExitCode)) => name.starts_with("again") && run.attempt() == 3,
        _ => false,
    };
    assert!(good, "{about}: {run:?}");
}

/// Many short commands, so that the worker claims one run together with the end of another.
fn submit_many(site: &Site, round: usize) -> Vec<RunId> {
    let noted = "echo $LOCKKEEPER_RUN_ID $LOCKKEEPER_ATTEMPT >> record";
    let requests: Vec<Request> =
        (0..30).map(|number| site.script(&format!("short{round}-{number}"), noted)).collect();
    site.runs.submit_all(&requests, None).unwrap().into_iter().map(|submitted| submitted.run).collect()
}

/// Kills a worker at steps of these kinds, each time with other runs in the queue. Which steps
/// is told by `apart`.
fn kill_at(calls: &[&str], submit: fn(&Site, usize) -> Vec<RunId>, apart: fn(usize) -> usize) {
    let site = Site::new();
    let (mut killed, mut round) = (0, 0);
    for calls in calls {
        for tried in 1..=TRIES {
            round += 1;
            let step = apart(tried);
            let runs = submit(&site, round);
            let about = format!("killed at call {step} of {calls}");
            let (trace, inject) =
                (format!("trace={calls}"), format!("inject={calls}:signal=KILL:when={step}"));
            // strace counts for each thread; commands are traced until they begin.
            let strace =
                ["strace", "-f", "-b", "execve", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
            let mut worker = site.worker_under(&strace, &["--jobs", "2", "--drain"]);
            while worker.try_told().is_some() {}
            let survived = matches!(worker.wait(), Some(0 | 1));
            killed += usize::from(!survived);
            site.drain("2");
            check(&site, &about, &runs);
            if survived {
                break;
            }
        }
    }
    eprintln!("killed {killed} times");
    assert!(killed >= calls.len(), "strace did not kill: {killed}");
}

macro_rules! kills {
    ($($name:ident: $place:expr;)*) => { $(
        /// Requirements 88, 91, 92. Invariants 9, 10.
        #[test]
        fn $name() {
            // Dense at first, where everything is done for the first time, then further and further apart.
            kill_at(&STEPS[$place], submit, |tried| tried * tried);
        }
    )* };
}

kills! {
    a_worker_killed_at_any_write_loses_no_run: 0..2;
    a_worker_killed_at_any_lock_loses_no_run: 2..4;
    a_worker_killed_at_any_file_loses_no_run: 4..8;
    a_worker_killed_around_a_command_loses_no_run: 8..12;
}

/// Requirements 88, 91, 92. Invariants 9, 10. At steps of a worker that is well under way.
#[test]
fn a_worker_killed_between_many_short_runs_loses_none() {
    kill_at(&["pwrite64"], submit_many, |tried| 60 + 29 * tried);
    kill_at(&["clone,clone3,vfork", "openat", "wait4"], submit_many, |tried| 4 + 2 * tried);
}
