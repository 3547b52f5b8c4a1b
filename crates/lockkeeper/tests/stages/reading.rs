//! What files say, in the many ways in which people write them.

use std::time::Duration;

use lockkeeper_core::conflict::{Action, Severity};
use lockkeeper_stages::{Reduction, Response, Trigger};

use crate::{EXAMPLE, SHOP, WEATHER, codes, file, sound};

/// Requirements 133, 203.
#[test]
fn a_file_of_seven_phases_with_agents_as_objects_is_understood() {
    let file = sound(SHOP);
    assert_eq!((codes(&file), file.unknown.as_slice()), (vec![], [].as_slice()));
    let stages = &file.stages;
    let names: Vec<&str> = stages.phases.iter().map(|phase| phase.name.value.as_str()).collect();
    assert_eq!(names, ["Phase1", "Phase2", "Phase3", "Phase4", "Phase5", "Phase6", "Phase7"]);
    assert_eq!(stages.phases.iter().map(|phase| phase.groups.len()).sum::<usize>(), 26);
    let build = stages.phase("P3").unwrap();
    assert_eq!(build.max_groups.as_ref().unwrap().value, 6);
    let backend = &build.groups[0];
    assert_eq!((backend.id.value.as_str(), backend.name.as_deref()), ("impl-backend", Some("Backend")));
    assert!(backend.can_parallel.value);
    assert_eq!(backend.max_concurrent.as_ref().unwrap().value, 3);
    assert_eq!(backend.agents[0].name.value, "backend-architect");
    assert_eq!(backend.agents[0].task.as_deref(), Some("Build the services"));
    assert_eq!(backend.agents[0].estimated_time, Some(Duration::from_secs(2400)));
    let paths: Vec<&str> = backend.conflict_paths.iter().map(|path| path.value.as_str()).collect();
    assert_eq!(paths, ["src/backend/**", "src/api/**", "migrations/**", "package.json"]);
    let release = stages.phase("phase6").unwrap();
    assert!(!release.can_parallel.as_ref().unwrap().value);
}

/// Requirements 120, 121, 122, 123.
#[test]
fn eight_rules_with_27_patterns_are_read_with_all_their_words() {
    let stages = sound(SHOP).stages;
    assert_eq!(stages.rules.len(), 8);
    assert_eq!(stages.rules.iter().map(|rule| rule.value.paths.len()).sum::<usize>(), 27);
    let told: Vec<(&str, Severity, Action, i64)> = stages
        .rules
        .iter()
        .map(|rule| &rule.value)
        .map(|rule| (rule.name.as_str(), rule.severity, rule.action, rule.priority))
        .collect();
    assert_eq!(told[0], ("same_file_write", Severity::Fatal, Action::DowngradeToSerial, 10));
    assert_eq!(told[1], ("shared_config_modify", Severity::Fatal, Action::MutexLock, 20));
    assert_eq!(told[4], ("git_operations", Severity::Fatal, Action::SerializeOperations, 5));
    assert_eq!(told[5], ("coverage_reports", Severity::Minor, Action::QueueExecution, 80));
    assert_eq!(told[7], ("secrets_touched", Severity::Fatal, Action::Abort, 1));
}

/// Requirement 203.
#[test]
fn every_kind_of_downgrade_rule_is_understood() {
    let stages = sound(SHOP).stages;
    let triggers: Vec<&Trigger> = stages.downgrades.iter().map(|rule| &rule.trigger).collect();
    assert_eq!(
        triggers,
        [
            &Trigger::LockTimeout { after: Some(Duration::from_secs(30)) },
            &Trigger::Failures { count: 3 },
            &Trigger::Load { above: 8.0, per_core: false },
            &Trigger::Memory { above: 0.8 },
            &Trigger::RepeatedConflict { times: 2 },
            &Trigger::CriticalPath,
            &Trigger::Network { count: 5 },
            &Trigger::Timeout { after: Some(Duration::from_secs(900)) },
        ]
    );
    let responses: Vec<&Response> = stages.downgrades.iter().map(|rule| &rule.response).collect();
    assert_eq!(
        responses,
        [
            &Response::Act(Action::DowngradeToSerial),
            &Response::Act(Action::Abort),
            &Response::ReduceParallelism(Reduction::One),
            &Response::ReduceParallelism(Reduction::One),
            &Response::Act(Action::SerializeOperations),
            &Response::Prioritize,
            &Response::Retry,
            &Response::Notify,
        ]
    );
    assert_eq!(stages.downgrades[4].delay, Some(Duration::from_secs(5)));
    assert_eq!(
        (stages.downgrades[6].delay, stages.downgrades[6].retries),
        (Some(Duration::from_secs(1)), Some(4))
    );
}

/// Requirement 203.
#[test]
fn settings_are_read_and_have_their_defaults() {
    let stages = sound(SHOP).stages;
    let resolution = &stages.resolution;
    assert_eq!(resolution.default_strategy.as_ref().unwrap().value, Action::DowngradeToSerial);
    assert_eq!(
        (resolution.timeout, resolution.retries, resolution.queue_size),
        (Some(Duration::from_secs(30)), 2, 10)
    );
    let tune = &stages.autotune.as_ref().unwrap().value;
    assert_eq!((tune.enabled, tune.min, tune.max, tune.step), (true, 2, 8, 2));
    assert_eq!(stages.monitoring.output.as_deref(), Some(".workflow/logs/metrics.jsonl"));
    assert_eq!(stages.validation.max_groups, Some(8));
    let bare = sound("parallel_groups: {P1: [{group_id: a, agents: [x]}]}").stages;
    let resolution = &bare.resolution;
    assert_eq!((resolution.timeout, resolution.retries, resolution.queue_size), (None, 2, 10));
    assert!(resolution.default_strategy.is_none() && bare.autotune.is_none());
    assert!(bare.phases[0].groups[0].can_parallel.value);
}

/// Requirement 203.
#[test]
fn other_spellings_anchors_and_merge_keys_are_understood() {
    let file = sound(WEATHER);
    let stages = &file.stages;
    assert_eq!(stages.phases.len(), 7);
    let sensors = &stages.phase("P3").unwrap().groups[0];
    assert_eq!(sensors.max_concurrent.as_ref().unwrap().value, 2, "from the anchor");
    assert_eq!(sensors.agents[1].name.value, "electronics-engineer");
    let actions: Vec<Action> = stages.rules.iter().map(|rule| rule.value.action).collect();
    use Action::{Abort, DowngradeToSerial, MutexLock, QueueExecution};
    assert_eq!(actions, [MutexLock, QueueExecution, QueueExecution, DowngradeToSerial, Abort]);
    assert_eq!(stages.rules[0].value.severity, Severity::Fatal);
    assert_eq!(stages.dependencies.len(), 7);
    assert!(stages.dependencies.iter().all(|dependency| dependency.wait_for_completion));
    assert_eq!(stages.resolution.default_strategy.as_ref().unwrap().value, MutexLock);
    assert_eq!(
        (stages.resolution.timeout, stages.resolution.queue_size),
        (Some(Duration::from_secs(60)), 20)
    );
    assert!(stages.autotune.as_ref().unwrap().value.enabled);
    assert_eq!(stages.downgrades[0].trigger, Trigger::LockTimeout { after: Some(Duration::from_secs(45)) });
    assert_eq!(stages.downgrades[1].trigger, Trigger::Load { above: 6.0, per_core: false });
    assert_eq!(stages.downgrades[2].trigger, Trigger::Network { count: 1 });
}

#[test]
fn what_is_not_understood_is_kept_and_told_with_its_place() {
    let file = file(WEATHER);
    let told: Vec<(&str, &str)> =
        file.unknown.iter().map(|key| (key.path.as_str(), key.value.as_str())).collect();
    assert_eq!(
        told,
        [
            ("defaults", "a mapping of 2"),
            ("parallel_groups.P6[0].requires_hardware_token", "true"),
            ("conflict_resolution.escalate_to", "on-call"),
            ("notifications", "a mapping of 2"),
        ]
    );
    let line = WEATHER.lines().position(|line| line.contains("requires_hardware_token")).unwrap() + 1;
    assert_eq!((file.unknown[1].place.line, file.unknown[1].place.column), (line, 7));
    assert_eq!(
        codes(&file).into_iter().map(|(code, _)| code).collect::<Vec<_>>(),
        ["UNKNOWN_TRIGGER", "UNKNOWN_RESPONSE"]
    );
}

/// Requirement 133.
#[test]
fn the_document_of_the_format_is_understood_word_for_word() {
    let text = r#"
parallel_groups:
  P3:
    - group_id: impl-backend
      agents: [backend-architect, database-specialist, api-designer]
      can_parallel: true
      max_concurrent: 3
      conflict_paths:
        - "src/backend/**"
        - "src/api/**"
        - "migrations/**"

    - group_id: impl-frontend
      agents: [frontend-specialist, ux-designer]
      can_parallel: true
      max_concurrent: 2
      conflict_paths:
        - "src/frontend/**"
        - "src/components/**"
conflict_detection:
  rules:
    - name: same_file_write
      severity: FATAL
      action: downgrade_to_serial
      paths:
        - "**/*.ts"
        - "**/*.js"

    - name: shared_config_modify
      severity: FATAL
      action: mutex_lock
      paths:
        - "package.json"
        - "tsconfig.json"
        - ".workflow/*.yml"
"#;
    let file = sound(text);
    assert_eq!((codes(&file), file.unknown.len()), (vec![], 0));
    let groups = &file.stages.phases[0].groups;
    assert_eq!((groups[0].agents.len(), groups[1].agents.len()), (3, 2));
    assert_eq!(file.stages.rules[1].value.paths.len(), 3);
}

#[test]
fn groups_may_be_listed_named_or_wrapped() {
    let listed = "parallel_groups:\n  - {phase: P1, groups: [{id: a, agents: [x]}]}\n  - {phase: P1, id: b, agents: [x]}\n";
    let named = "parallel_groups:\n  P1:\n    a: {agents: [x]}\n    b: {agents: x}\n";
    let wrapped = "parallel_groups:\n  P1:\n    max_parallel_groups: 1\n    groups: [{name: a, agents: [x]}, {group: b, agents: [x]}]\n";
    for text in [listed, named, wrapped] {
        let file = sound(text);
        let ids: Vec<&str> =
            file.stages.phases[0].groups.iter().map(|group| group.id.value.as_str()).collect();
        assert_eq!((ids, file.unknown.len()), (vec!["a", "b"], 0), "{text}");
    }
}

#[test]
fn commands_are_texts_for_the_shell_or_lists_of_words() {
    let stages = sound(EXAMPLE).stages;
    let command = stages.phase("P1").unwrap().groups[0].command.as_ref().unwrap();
    assert_eq!((command[0].as_str(), command[1].as_str(), command.len()), ("sh", "-c", 3));
    let agent = &stages.phase("P3").unwrap().groups[0].agents[0];
    assert_eq!(agent.command.as_ref().unwrap(), &["sh", "-c", "sleep 0.5; echo \"the service is built\""]);
}
