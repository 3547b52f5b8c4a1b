//! Executors of every kind, ended by signals at random beside two servers: pools, queues, stages, workers in pid namespaces
//! of their own, and now and then only the guardian. In the end nothing runs, nothing is held, and every run has ended once.

use std::collections::BTreeMap;
use std::time::Duration;

use lockkeeper_core::id::RunId;
use lockkeeper_core::request::Request;
use lockkeeper_core::retry::RetryPolicy;
use lockkeeper_core::run::Reason;
use lockkeeper_engine::runs::RunFilter;
use lockkeeper_testing::{Dice, Finished, Signal, Started, skip};

use super::executors::{Executor, KINDS, serve};
use super::guardians::{guardian_of, kill};
use super::site::{Site, until};

/// The signals that end an executor. It handles SIGTERM and SIGHUP: what it executes comes to its end.
const SIGNALS: [Signal; 4] = [Signal::KILL, Signal::TERM, Signal::QUIT, Signal::HUP];

/// A `stages run` whose agents note that they ran.
const STAGES: &str = "
parallel_groups:
  P1:
    - {group_id: api, agents: [one, two], conflict_paths: ['src/api/**']}
    - {group_id: web, agents: [three], conflict_paths: ['src/web/**']}
";
const AGENT: &str =
    "sh -c 'cd work; echo $LOCKKEEPER_RUN_ID $LOCKKEEPER_ATTEMPT >> record; sleep 0.1; exit 0'";

/// In a pid namespace of its own: the first process kills the worker, and ends a while later with all that is left.
const CONTAINER: [&str; 5] = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"];
const KILLS_ITS_WORKER: &str = "\"$@\" & sleep 0.3; kill -9 $!; sleep 2";

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

fn stages_run(site: &Site) -> Started {
    let file = site.path("STAGES.yml");
    std::fs::write(&file, STAGES).unwrap();
    let args = ["stages", "run", file.to_str().unwrap(), "P1", "--load", "0", "--agent-command", AGENT];
    Started::of(&mut site.lockkeeper(&args))
}

/// A worker in a pid namespace, if this machine allows that.
fn container(site: &Site) -> Option<Started> {
    let possible = Finished::of(std::process::Command::new(CONTAINER[0]).args(&CONTAINER[1..]).arg("true"));
    if !possible.succeeded() {
        skip("the right to make pid namespaces");
        return None;
    }
    let wrapper = [&CONTAINER[..], &["sh", "-c", KILLS_ITS_WORKER, "sh"]].concat();
    Some(Started::of(&mut site.lockkeeper_under(&wrapper, &["work"])))
}

/// Kills the guardian of a process, if it has one.
fn kill_guardian(executor: u32) {
    if let Some(guardian) = guardian_of(executor) {
        kill(guardian, rustix::process::Signal::KILL);
    }
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
    let mut containers = Vec::new();
    let mut guardians = 0;
    for signal in SIGNALS {
        containers.extend(container(&site));
        for kind in KINDS {
            round += 1;
            runs.extend(submit(&site, round));
            let executor = Executor::start(&site, kind, &format!("held{round}"));
            // At any moment of its work.
            std::thread::sleep(Duration::from_millis(dice.below(300)));
            if dice.below(4) == 0 {
                guardians += 1;
                kill_guardian(executor.pid());
            }
            executor.end_by(signal);
        }
        let stages = stages_run(&site);
        std::thread::sleep(Duration::from_millis(dice.below(500)));
        stages.signal(signal);
        drop(stages.wait());
    }
    containers.into_iter().for_each(|container| drop(container.wait()));
    eprintln!("{round} executors and 4 stages were ended, and {guardians} guardians");
    site.drain("2");
    let of_stages = site.runs.entries(&RunFilter { limit: 1000, ..RunFilter::default() }).unwrap();
    let of_stages = of_stages.into_iter().filter(|entry| entry.request.request.conductor().is_some());
    let of_stages: Vec<RunId> = of_stages.map(|entry| entry.run.id).collect();
    until("everything has ended", || runs.iter().all(|id| site.run(id).status().is_terminal()));
    until("every run of an agent has ended", || {
        of_stages.iter().all(|id| site.run(id).status().is_terminal())
    });
    until("everything is settled", || {
        site.runs.store().snapshot().unwrap().active_runs().unwrap().is_empty()
    });
    drop(server);
    let mut executed: BTreeMap<String, u32> = BTreeMap::new();
    for line in site.record() {
        *executed.entry(line).or_default() += 1;
    }
    assert!(executed.values().all(|times| *times == 1), "an attempt was executed twice: {executed:?}");
    for id in &of_stages {
        assert_eq!(site.kinds(id).iter().filter(|kind| *kind == "ended").count(), 1, "{:?}", site.run(id));
    }
    for id in &runs {
        let run = site.run(id);
        let ends = site.kinds(id).iter().filter(|kind| *kind == "ended").count();
        assert_eq!(ends, 1, "{run:?}");
        let was_executed = executed.keys().any(|line| line.starts_with(id.as_str()));
        assert!(was_executed || run.reason() == Some(Reason::Lost), "it was never executed: {run:?}");
    }
    site.assert_settled("after the storm");
}
