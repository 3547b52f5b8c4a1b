//! How phases of whole files would run.

use std::num::NonZeroUsize;
use std::time::Duration;

use lockkeeper_core::plan::{Cause, Mode};
use lockkeeper_stages::{Conditions, SelectError};

use crate::{EXAMPLE, SHOP, WEATHER, ids, plan, sound, waves};

/// Requirements 124, 127, 128, 130.
#[test]
fn the_example_shows_every_mode() {
    let modes: Vec<Mode> =
        ["P1", "P2", "P3", "P4", "P5", "P6"].iter().map(|phase| plan(EXAMPLE, phase).plan.mode).collect();
    assert_eq!(modes, [Mode::Direct, Mode::Parallel, Mode::Mutex, Mode::Queue, Mode::Serial, Mode::Abort]);
    assert_eq!(waves(&plan(EXAMPLE, "P3")), [vec!["impl-backend", "impl-docs"], vec!["impl-frontend"]]);
    assert_eq!(waves(&plan(EXAMPLE, "P4")), [["test-unit"], ["test-integration"], ["test-report"]]);
    assert!(plan(EXAMPLE, "P6").plan.waves.is_empty());
}

/// Requirement 125.
#[test]
fn phases_of_real_size_run_as_their_rules_say() {
    let modes = |text: &str| -> Vec<Mode> {
        sound(text).stages.phases.iter().map(|phase| plan(text, &phase.name.value).plan.mode).collect()
    };
    use Mode::{Abort, Direct, Mutex, Parallel, Queue, Serial};
    assert_eq!(modes(SHOP), [Parallel, Parallel, Serial, Queue, Serial, Serial, Parallel]);
    assert_eq!(modes(WEATHER), [Direct, Parallel, Parallel, Mutex, Queue, Serial, Abort]);
}

#[test]
fn only_groups_that_conflict_wait_for_each_other() {
    let planned = plan(WEATHER, "P3");
    assert_eq!(
        waves(&planned),
        [vec!["sensors", "power", "ingest", "app-screens", "app-bluetooth"], vec!["radio", "charts"]]
    );
    let radio = planned.groups.iter().position(|group| group.id.value == "radio").unwrap();
    let step = &planned.plan.steps[radio];
    assert_eq!((step.after.len(), step.after[0].cause), (1, Cause::Completion));
    assert_eq!(planned.explain(&step.after[0]), "depends on it");
    assert_eq!(planned.explain(&step.excludes[0]), "both match firmware/include/board.h (rule board header)");
}

#[test]
fn dependencies_of_other_phases_are_taken_as_done() {
    let planned = plan(SHOP, "Phase4");
    assert_eq!(planned.assumed, ["impl-backend", "impl-frontend"]);
    let load = planned.groups.iter().position(|group| group.id.value == "test-load").unwrap();
    assert_eq!(ids(&planned, &[planned.plan.steps[load].after[0].group]), ["test-unit"]);
}

#[test]
fn some_groups_of_a_phase_can_be_planned() {
    let file = sound(EXAMPLE);
    let idle = Conditions { load: Some(0.0), ..Conditions::default() };
    let names = |names: &[&str]| -> Vec<String> { names.iter().map(|name| (*name).to_owned()).collect() };
    let planned = file.plan("p3", &names(&["impl-docs", "impl-backend"]), &idle).unwrap();
    assert_eq!(
        (planned.plan.mode, waves(&planned)),
        (Mode::Parallel, vec![vec!["impl-backend", "impl-docs"]])
    );
    let alone = file.plan("P4", &names(&["test-report"]), &idle).unwrap();
    assert_eq!((alone.plan.mode, alone.assumed), (Mode::Direct, names(&["test-unit", "test-integration"])));
    let unknown = file.plan("P3", &names(&["nobody"]), &idle).unwrap_err();
    assert_eq!(unknown.hint(), "its groups are impl-backend, impl-frontend, impl-docs");
    assert!(matches!(file.plan("P9", &[], &idle), Err(SelectError::UnknownPhase { .. })));
}

/// Requirement 129.
#[test]
fn the_limit_of_the_load_comes_from_the_caller_then_the_file_then_is_four() {
    let groups = "parallel_groups: {P1: [{id: a, agents: [x], conflict_paths: [a]}, {id: b, agents: [x], conflict_paths: [b]}]}\n";
    let rule = "downgrade_rules: [{condition: 'system_load > 8', action: downgrade_to_serial}]\n";
    let mode = |text: &str, load: f64, max_load: Option<f64>, cores: Option<usize>| {
        let cores = cores.and_then(NonZeroUsize::new);
        let conditions = Conditions { load: Some(load), max_load, cores, jobs: None };
        sound(text).plan("P1", &[], &conditions).unwrap().plan.mode
    };
    assert_eq!(mode(groups, 4.0, None, None), Mode::Parallel);
    assert_eq!(mode(groups, 4.1, None, None), Mode::Serial);
    let with_rule = format!("{groups}{rule}");
    assert_eq!(mode(&with_rule, 8.0, None, None), Mode::Parallel);
    assert_eq!(mode(&with_rule, 8.1, None, None), Mode::Serial);
    assert_eq!(mode(&with_rule, 8.1, Some(20.0), None), Mode::Parallel);
    assert_eq!(mode(groups, 15.9, Some(2.0), Some(8)), Mode::Parallel, "per core");
    assert_eq!(mode(groups, 16.1, Some(2.0), Some(8)), Mode::Serial, "per core");
}

/// Requirement 133.
#[test]
fn agents_take_turns_at_the_slots_of_their_group() {
    let text = "parallel_groups:\n  P1:\n    - group_id: a\n      max_concurrent: 2\n      agents:\n\
        \x20       - {name: x, estimated_time: 30m}\n        - {name: y, estimated_time: 20m}\n        - {name: z, estimated_time: 10m}\n\
        \x20   - group_id: b\n      conflict_paths: [b]\n      agents: [u, v]\n\
        \x20   - {group_id: c, agents: [w], estimated_time: 1h, conflict_paths: [c]}\n";
    let planned = plan(text, "P1");
    let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
    assert_eq!(planned.estimates, [minutes(30), minutes(20), minutes(60)]);
    assert_eq!((planned.work(), planned.plan.length), (minutes(110), minutes(60)));
}

#[test]
fn the_file_says_how_many_groups_run_at_a_time() {
    let slots = |planned: &lockkeeper_stages::PhasePlan| planned.plan.slots.map(NonZeroUsize::get);
    assert_eq!(slots(&plan(SHOP, "Phase4")), Some(6), "of the phase, below the 8 of autotune");
    assert_eq!(slots(&plan(SHOP, "Phase3")), Some(1), "one after the other");
    assert_eq!(slots(&plan(WEATHER, "P3")), Some(8), "of autotune");
    let two = Conditions { load: Some(0.0), jobs: NonZeroUsize::new(2), ..Conditions::default() };
    let planned = sound(WEATHER).plan("P3", &[], &two).unwrap();
    assert!(planned.plan.waves.iter().all(|wave| wave.len() <= 2));
}
