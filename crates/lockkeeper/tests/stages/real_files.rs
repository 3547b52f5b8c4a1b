//! Files with every key that real ones use: all of them keep their meaning, and what is not understood is listed.

use std::time::Duration;

use lockkeeper_core::conflict::Action;
use lockkeeper_core::plan::Mode;
use lockkeeper_core::tune::Condition;
use lockkeeper_stages::{Conditions, Reduction, Response, SelectError, Trigger};

use crate::{BAKERY, codes, file, ids, plan, sound};

fn line_of(text: &str) -> usize {
    BAKERY.lines().position(|line| line.contains(text)).unwrap() + 1
}

/// Requirement 203.
#[test]
fn every_key_is_known_and_the_rest_is_listed_by_line() {
    let file = sound(BAKERY);
    let (typo, feedback) = (line_of("bake-braed"), line_of("provides_feedback"));
    assert_eq!(codes(&file), [("UNKNOWN_GROUP", typo), ("FEEDBACK", feedback)]);
    assert_eq!(file.problems[0].hint.as_deref(), Some("is it `bake-bread`?"));
    let unknown: Vec<(&str, usize)> =
        file.unknown.iter().map(|key| (key.path.as_str(), key.place.line)).collect();
    let (place, metrics) = (line_of("impact_assessment"), line_of("parallel_efficiency"));
    let metric = ("monitoring.metrics", metrics);
    assert_eq!(unknown, [metric, metric, ("workflow_phase_parallel.Phase4.impact_assessment", place)]);
}

/// Requirement 203.
#[test]
fn every_trigger_and_every_answer_is_understood() {
    let stages = sound(BAKERY).stages;
    let serial = || Response::Act(Action::DowngradeToSerial);
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    let rules: Vec<(&Trigger, &Response)> =
        stages.downgrades.iter().map(|rule| (&rule.trigger, &rule.response)).collect();
    assert_eq!(
        rules,
        [
            (&Trigger::Conflict { rule: Some("same_file_write".to_owned()) }, &serial()),
            (&Trigger::LockTimeout { after: seconds(30) }, &Response::Act(Action::Abort)),
            (&Trigger::Failures { count: 2 }, &serial()),
            (&Trigger::Load { above: 0.8, per_core: true }, &Response::ReduceParallelism(Reduction::By(2))),
            (&Trigger::Memory { above: 0.8 }, &Response::ReduceParallelism(Reduction::Half)),
            (&Trigger::RepeatedConflict { times: 3 }, &serial()),
            (&Trigger::CriticalPath, &Response::AbortWithRollback),
            (&Trigger::Network { count: 4 }, &Response::Retry),
        ]
    );
    assert_eq!(stages.downgrades[5].delay, seconds(5));
    let network = &stages.downgrades[7];
    assert_eq!((network.retries, network.delay, network.longest_delay), (Some(3), seconds(2), seconds(30)));
    let load = &stages.downgrades[3];
    assert_eq!(
        (load.notify, load.level.as_deref(), load.reason.as_deref()),
        (false, Some("INFO"), Some("Hot"))
    );
}

/// Requirement 203.
#[test]
fn settings_keep_their_meaning() {
    let stages = sound(BAKERY).stages;
    let resolution = &stages.resolution;
    assert_eq!((resolution.timeout, resolution.retries), (Some(Duration::from_secs(60)), 3), "of mutex_lock");
    assert_eq!(resolution.queue_size, 12);
    let tune = &stages.autotune.as_ref().unwrap().value;
    assert_eq!((tune.min, tune.max, tune.step, tune.decrease_step), (2, 6, 1, 2));
    assert_eq!(tune.increase, Condition { streak: 2, conflicts: None, load: Some(0.5), memory: Some(0.5) });
    assert_eq!(
        tune.decrease,
        Condition { streak: 2, conflicts: Some(3), load: Some(0.8), memory: Some(0.8) }
    );
    let rules: Vec<(&str, Action)> =
        stages.rules.iter().map(|rule| (rule.value.name.as_str(), rule.value.action)).collect();
    assert_eq!(
        rules,
        [
            ("same_file_write", Action::DowngradeToSerial),
            ("shared_stock", Action::MutexLock),
            // It has no action, and a strategy applies to it.
            ("git_operations", Action::SerializeOperations),
        ]
    );
}

/// Requirement 203.
#[test]
fn groups_and_agents_that_are_switched_off_do_not_run() {
    let planned = plan(BAKERY, "P1");
    assert_eq!((ids(&planned, &[0]), planned.groups.len()), (vec!["plan-recipes"], 1));
    assert_eq!(planned.disabled, ["plan-menu"]);
    let bread = &plan(BAKERY, "P3").groups[0];
    assert_eq!(bread.agents.len(), 1, "the retired one is left out");
    let named = sound(BAKERY).plan("P1", &["plan-menu".to_owned()], &Conditions::default());
    assert!(matches!(named, Err(SelectError::Disabled { .. })), "{named:?}");
    let off = BAKERY.replace("conflict_detection:\n  enabled: true", "conflict_detection:\n  enabled: false");
    assert_eq!((plan(BAKERY, "P3").plan.mode, plan(&off, "P3").plan.mode), (Mode::Mutex, Mode::Parallel));
}

/// Requirement 203.
#[test]
fn a_check_that_is_switched_off_says_nothing_unless_a_plan_is_impossible() {
    let too_many = "parallel_groups: {P1: [{id: a, agents: [x], max_concurrent: 3}]}\n";
    let checks = "validation: {checks: [{name: max_concurrent_valid, enabled: false}]}\n";
    assert_eq!(codes(&file(too_many)).len(), 1);
    assert_eq!(codes(&file(&format!("{too_many}{checks}"))), []);
    assert_eq!(codes(&file(&format!("{too_many}validation: {{enabled: false}}\n"))), []);
    let cycle = "parallel_groups: {P1: [{id: a, command: x, after: a}]}\nvalidation: {enabled: false}\n";
    assert_eq!(codes(&file(cycle)), [("CYCLE", 1)]);
    let unknown =
        file("parallel_groups: {P1: [{id: a, command: x}]}\nvalidation: {checks: [{name: moon}]}\n");
    assert_eq!(unknown.unknown[0].value, "moon");
}

/// Requirement 203.
#[test]
fn a_phase_may_name_groups_of_other_phases() {
    let planned = plan(BAKERY, "Phase4");
    assert_eq!(ids(&planned, &[0, 1]), ["bake-bread", "plan-recipes"]);
    let defined = "parallel_groups: {P1: [{id: a, command: x}]}\nworkflow_phase_parallel:\n  P2:\n    parallel_groups:\n\
        \x20     - {group_id: b, agents: [y], conflict_paths: [b]}\n      - group_id: nobody\n";
    let file = file(defined);
    assert_eq!(codes(&file), [("UNDEFINED_GROUP", 6)]);
    assert_eq!(file.stages.phase("P2").unwrap().groups[0].agents[0].name.value, "y");
}

/// Requirement 203. A dependency on nothing refuses only the groups that wait for it.
#[test]
fn only_the_phase_that_needs_a_missing_group_is_refused() {
    let file = sound(BAKERY);
    let idle = Conditions { load: Some(0.0), ..Conditions::default() };
    for phase in ["P1", "P3", "P4"] {
        file.plan(phase, &[], &idle).unwrap();
    }
    let refused = file.plan("P5", &[], &idle).unwrap_err();
    let line = line_of("bake-braed");
    assert_eq!(
        refused.to_string(),
        format!("`tasting` of P5 cannot run: there is no group or phase `bake-braed` (line {line})")
    );
    assert_eq!(refused.hint(), "is it `bake-bread`?");
}
