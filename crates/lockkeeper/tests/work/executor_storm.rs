//! Executors of every kind, two servers among them, ended by signals at random. In the end nothing runs, nothing is held,
//! and every run has ended once.

use std::collections::BTreeMap;
use std::time::Duration;

use lockkeeper_core::id::RunId;
use lockkeeper_core::request::Request;
use lockkeeper_core::retry::RetryPolicy;
use lockkeeper_core::run::Reason;
use lockkeeper_testing::{Dice, Signal};

use super::executors::{Executor, KINDS, serve};
use super::site::{Site, until};

/// The signals that end an executor. It handles only SIGTERM.
const SIGNALS: [Signal; 3] = [Signal::KILL, Signal::TERM, Signal::QUIT];

/// Runs that are short, hold a lock, fail once, or take too long.
fn submit(site: &Site, round: usize) -> Vec<RunId> {
    let noted = |rest: &str| format!("echo $LOCKKEEPER_RUN_ID $LOCKKEEPER_ATTEMPT >> record; {rest}");
    let retry = RetryPolicy { limit: 2, base: Duration::from_millis(100), ..RetryPolicy::default() };
    let id = |name: &str| format!("{name}{round}");
    let held = |request: Request| Request { locks: vec!["db".parse().unwrap()], ..request };
    vec![
        site.submit(&held(site.script(&id("held"), &noted("sleep 0.2")))),
        site.submit(&site.script(&id("short"), &noted("exit 0"))),
        site.submit(&Request {
            retry,
            ..held(site.script(&id("again"), &noted("[ $LOCKKEEPER_ATTEMPT -gt 1 ]")))
        }),
        site.submit(&Request {
            timeout: Some(Duration::from_millis(300)),
            ..site.script(&id("late"), &noted("exec sleep 300"))
        }),
    ]
}

/// Requirements 85, 86, 88, 89, 91, 92. Invariants 9, 10.
#[test]
fn a_storm_of_killed_executors_leaves_nothing_running_and_nothing_held() {
    let site = Site::new();
    let mut dice = Dice::from_environment();
    let mut runs = Vec::new();
    let mut round = 0;
    // One server is there all the time, and looks after what the others leave behind.
    let server = serve(&site, &[]);
    for signal in SIGNALS {
        for kind in KINDS {
            round += 1;
            runs.extend(submit(&site, round));
            let executor = Executor::start(&site, kind, &format!("held{round}"));
            // At any moment of its work.
            std::thread::sleep(Duration::from_millis(dice.below(400)));
            executor.end_by(signal);
        }
    }
    site.drain("2");
    until("everything has ended", || runs.iter().all(|id| site.run(id).status().is_terminal()));
    until("everything is settled", || {
        site.runs.store().snapshot().unwrap().active_runs().unwrap().is_empty()
    });
    drop(server);
    let mut executed: BTreeMap<String, u32> = BTreeMap::new();
    for line in site.record() {
        *executed.entry(line).or_default() += 1;
    }
    assert!(executed.values().all(|times| *times == 1), "an attempt was executed twice: {executed:?}");
    for id in &runs {
        let run = site.run(id);
        let ends = site.kinds(id).iter().filter(|kind| *kind == "ended").count();
        assert_eq!(ends, 1, "{run:?}");
        let was_executed = executed.keys().any(|line| line.starts_with(id.as_str()));
        assert!(was_executed || run.reason() == Some(Reason::Lost), "it was never executed: {run:?}");
    }
    site.assert_settled("after the storm");
}
