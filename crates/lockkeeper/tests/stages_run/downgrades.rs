//! Every downgrade rule fires once; tuning of parallelism; rollback.

use lockkeeper_testing::until;
use serde_json::Value;

use crate::stages::Stages;

/// Three groups that do not conflict, each with this command, and more lines of the file.
fn three(command: &str, more: &str) -> Stages {
    let mut text = String::from("parallel_groups:\n  P1:\n");
    for group in ["a", "b", "c"] {
        text.push_str(&format!(
            "    - {{group_id: {group}, conflict_paths: [\"{group}/**\"], command: '{command}'}}\n"
        ));
    }
    Stages::new(&format!("{text}{more}\n"))
}

fn rules(stages: &Stages) -> Vec<(String, String)> {
    let text = |line: &Value, key: &str| line[key].as_str().unwrap().to_owned();
    stages.logged("DOWNGRADED").iter().map(|line| (text(line, "rule"), text(line, "to"))).collect()
}

fn rule(name: &str, to: &str) -> (String, String) {
    (name.to_owned(), to.to_owned())
}

/// Requirement 126.
#[test]
fn failures_beyond_the_threshold_abort_and_roll_back() {
    let stages = three(
        "exit 3",
        "downgrade_rules: [{name: failures, trigger: failure_threshold, threshold: 2, action: abort}]",
    );
    let rollback = "sh -c 'echo \"$1\" > rolled' sh {phase}";
    let document = stages.run("P1", &["--jobs", "1", "--rollback", rollback]).code(1).json();
    assert_eq!(rules(&stages), [rule("failures", "abort")]);
    assert_eq!((&document["stopped"], &document["rolled_back"]), (&"rule failures".into(), &true.into()));
    assert_eq!(std::fs::read_to_string(stages.path("rolled")).unwrap(), "P1\n");
    assert_eq!(stages.logged("STARTED").len(), 2);
    stages.assert_settled();
}

/// Requirement 126.
#[test]
fn a_group_on_the_longest_path_that_fails_is_rolled_back_and_told() {
    let stages = three("exit 3", "downgrade_rules: [{name: late, trigger: critical_path, action: notify}]");
    let document = stages.run("P1", &["--rollback", "touch rolled"]).code(1).json();
    assert_eq!((&document["rolled_back"], &document["downgrades"]), (&true.into(), &0.into()), "{document}");
    assert!(stages.path("rolled").exists() && !stages.logged("NOTICED").is_empty());
}

/// The rules that fired while another owner held the lease of the first group.
fn rules_while_held(more: &str) -> Vec<(String, String)> {
    let stages = three("true", more);
    let holder = stages.hold_until_go(&["a"]);
    let running = stages.start("P1", &[]);
    until("a rule fires", || !rules(&stages).is_empty());
    stages.world.touch("go");
    holder.wait().code(0);
    running.wait().code(0);
    rules(&stages)
}

/// Requirement 113.
#[test]
fn a_lock_that_is_waited_for_in_vain_makes_it_serial_and_patient() {
    let more = "conflict_resolution: {timeout: 50ms, max_retries: 0}\n\
                downgrade_rules: [{name: lock, condition: \"lock_wait > 20ms\", action: downgrade_to_serial}]";
    assert_eq!(rules_while_held(more), [rule("lock", "serial")]);
}

/// Requirement 113.
#[test]
fn without_a_rule_a_lock_that_is_waited_for_in_vain_fails_the_group() {
    let stages = three("true", "conflict_resolution: {timeout: 20ms, max_retries: 1}");
    let holder = stages.hold_until_go(&["a"]);
    let document = stages.run("P1", &[]).code(1).json();
    stages.world.touch("go");
    holder.wait().code(0);
    let why = document["groups"][0]["reason"].as_str().unwrap();
    assert!(why.contains("it did not get its lease within ") && why.contains(": a is held by"), "{document}");
}

/// Requirement 126.
#[test]
fn groups_that_meet_others_again_and_again_run_one_by_one_after_a_delay() {
    let more = "downgrade_rules: [{name: again, trigger: repeated_conflict, threshold: 1, delay: 10ms, action: serialize_operations}]";
    assert_eq!(rules_while_held(more), [rule("again", "serial")]);
}

/// Requirement 126.
#[test]
fn a_high_load_means_fewer_groups_at_a_time() {
    let more =
        "downgrade_rules: [{name: load, condition: \"system_load > 8.0\", action: reduce_parallelism}]";
    let stages = three("true", more);
    stages.world.run(["stages", "run", "STAGES.yml", "P1", "--load", "9", "--max-load", "100"]).code(0);
    assert_eq!(rules(&stages)[0], rule("load", "1 at a time"));
}

/// Requirement 126. Some memory is always in use.
#[test]
fn short_memory_means_fewer_groups_at_a_time() {
    let more =
        "downgrade_rules: [{name: memory, condition: \"memory_usage > 0.01%\", action: reduce_parallelism}]";
    let stages = three("true", more);
    stages.run("P1", &[]).code(0);
    assert_eq!(rules(&stages)[0], rule("memory", "1 at a time"));
}

/// Requirement 126. The third attempt finds the network again.
#[test]
fn an_agent_whose_network_failed_is_tried_again_with_a_pause() {
    let more = "downgrade_rules: [{name: network, trigger: network_error, backoff: 10ms, max_retries: 4, action: retry_with_backoff}]";
    let command =
        "echo x >> $LOCKKEEPER_GROUP.tries; test $(wc -l < $LOCKKEEPER_GROUP.tries) -ge 3 || exit 7";
    let stages = three(command, more);
    stages.run("P1", &[]).code(0);
    assert_eq!(std::fs::read_to_string(stages.path("a.tries")).unwrap(), "x\nx\nx\n");
}

/// Requirement 126.
#[test]
fn an_agent_that_takes_too_long_is_ended_and_told_of() {
    let more = "downgrade_rules: [{name: slow, trigger: timeout, threshold: 100ms, action: notify}]";
    let stages = three("test $LOCKKEEPER_GROUP != a || exec sleep 1000", more);
    let document = stages.run("P1", &[]).code(1).json();
    assert!(document["groups"][0]["reason"].as_str().unwrap().contains("timedOut"), "{document}");
    assert_eq!(stages.logged("NOTICED")[0]["rule"], "slow");
    stages.assert_settled();
}

/// Requirement 159. It begins with the minimum, grows while groups succeed, and stays within its bounds.
#[test]
fn parallelism_tunes_itself_within_its_bounds() {
    let mut text = String::from("parallel_groups:\n  P1:\n");
    for group in 0..8 {
        text.push_str(&format!(
            "    - {{group_id: g{group}, conflict_paths: [\"{group}/**\"], command: 'sleep 0.05'}}\n"
        ));
    }
    let stages = Stages::new(&format!("{text}autotune: {{enabled: true, min: 1, max: 3, step: 1}}\n"));
    stages.run("P1", &[]).code(0);
    let tuned: Vec<u64> = stages.logged("TUNED").iter().map(|line| line["to"].as_u64().unwrap()).collect();
    assert_eq!(tuned, [2, 3]);
}

/// Requirement 142.
#[test]
fn more_than_ten_downgrades_an_hour_raise_an_alert_in_report_and_doctor() {
    let more =
        "downgrade_rules: [{name: memory, condition: \"memory_usage > 0.01%\", action: reduce_parallelism}]";
    let stages = three("true", more);
    for _ in 0..11 {
        stages.run("P1", &[]).code(0);
    }
    let report = stages.world.run(["--json", "stages", "report", "STAGES.yml"]).code(0).json();
    assert_eq!(
        (&report["downgrades_last_hour"], &report["alerts"][0]["code"]),
        (&11.into(), &"DOWNGRADES".into())
    );
    let diagnosis = stages.world.json(&["doctor"]);
    let codes: Vec<&Value> =
        diagnosis["alerts"].as_array().unwrap().iter().map(|alert| &alert["code"]).collect();
    assert_eq!(codes, [&Value::from("DOWNGRADES")], "{diagnosis}");
}
