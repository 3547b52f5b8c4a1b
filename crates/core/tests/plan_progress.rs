//! Plans that are followed while groups take as long as they like, fail, or never begin.

use std::time::Duration;

use lockkeeper_core::conflict::{Action, Group, Rule, Severity, detect};
use lockkeeper_core::plan::{Dependency, GroupState, Member, Plan, PlanInput, Progress, plan};

/// `a` and `b` share a file under a rule; `c` depends on `a`, `d` on `c`, `e` on the beginning of `b`.
fn five(action: Action) -> Plan {
    let paths: [&[&str]; 5] = [&["x"], &["x"], &["c"], &["d"], &["e"]];
    let parse = |text: &&str| text.parse().expect("a pattern");
    let groups: Vec<Group> = paths
        .iter()
        .zip("abcde".chars())
        .map(|(paths, id)| Group { id: id.to_string(), paths: paths.iter().map(parse).collect() })
        .collect();
    let members: Vec<Member> = "abcde"
        .chars()
        .map(|id| Member { id: id.to_string(), estimate: Duration::from_secs(10), can_parallel: true })
        .collect();
    let rules = [Rule {
        name: "r".to_owned(),
        severity: Severity::Major,
        action,
        priority: Rule::DEFAULT_PRIORITY,
        paths: vec!["x".parse().expect("a pattern")],
    }];
    let edge = |source, target, completion| Dependency { source, target, completion };
    let findings = detect(&groups, &rules, action);
    plan(&PlanInput {
        groups: &members,
        dependencies: &[edge(0, 2, true), edge(2, 3, true), edge(1, 4, false)],
        findings: &findings,
        rules: &rules,
        load: None,
        slots: None,
        can_parallel: true,
    })
    .expect("there is no cycle")
}

#[test]
fn groups_that_exclude_each_other_never_run_together_whichever_ends_first() {
    let plan = five(Action::MutexLock);
    let mut progress = Progress::new(&plan);
    assert_eq!(progress.startable(9), [0], "e waits for b to begin");
    progress.begin(0);
    assert_eq!(progress.startable(9), [0; 0]);
    assert_eq!(progress.waits_for(1)[0].group, 0);
    assert_eq!(progress.end(0, true), [0; 0]);
    let mut next = progress.startable(9);
    next.sort_unstable();
    assert_eq!(next, [1, 2, 4], "e begins with b");
    next.iter().for_each(|group| progress.begin(*group));
    assert_eq!(progress.waits_for(3)[0].group, 2);
    for group in [4, 1, 2] {
        progress.end(group, true);
    }
    assert_eq!(progress.startable(9), [3]);
    progress.begin(3);
    progress.end(3, true);
    assert!(progress.is_over());
}

#[test]
fn slots_are_never_exceeded() {
    let plan = five(Action::QueueExecution);
    let mut progress = Progress::new(&plan);
    progress.begin(0);
    progress.end(0, true);
    assert_eq!(progress.startable(2).len(), 2);
    assert_eq!(progress.startable(0), [0; 0]);
    progress.begin(1);
    assert_eq!(progress.startable(1), [0; 0], "one runs");
}

#[test]
fn dependents_of_a_failure_are_skipped_and_groups_that_take_turns_go_on() {
    let plan = five(Action::QueueExecution);
    let mut progress = Progress::new(&plan);
    progress.begin(0);
    assert_eq!(progress.end(0, false), [2, 3], "what depends on it, and what depends on that");
    assert_eq!(progress.states()[3], GroupState::Skipped);
    assert_eq!(progress.startable(9), [1, 4], "b was only in line behind it");
    assert_eq!(progress.skip(1), [4], "what never begins is not waited for");
    assert!(progress.is_over());
}

#[test]
fn a_plan_that_lets_nothing_run_is_over_at_once() {
    let plan = five(Action::Abort);
    let progress = Progress::new(&plan);
    assert!(progress.is_over() && progress.startable(9).is_empty());
}

/// Groups take other times than estimated, and fail now and then.
#[test]
fn every_group_comes_to_an_end_in_any_order_of_ends() {
    for seed in 0..500_u64 {
        let action =
            [Action::MutexLock, Action::QueueExecution, Action::DowngradeToSerial][(seed % 3) as usize];
        let plan = five(action);
        let mut progress = Progress::new(&plan);
        let mut dice = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut running: Vec<usize> = Vec::new();
        while !progress.is_over() {
            for group in progress.startable(1 + (seed % 4) as usize) {
                progress.begin(group);
                running.push(group);
            }
            assert!(!running.is_empty(), "seed {seed}: stuck at {:?}", progress.states());
            assert!(!(running.contains(&0) && running.contains(&1)), "seed {seed}: both in x");
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let ended = running.swap_remove((dice >> 33) as usize % running.len());
            progress.end(ended, (dice >> 20) % 4 != 0);
        }
    }
}
