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

/// Requirement 142. A rule for conflicts takes parallelism away, too.
#[test]
fn conflict_rules_are_logged_counted_and_shown_like_downgrade_rules() {
    let text = "parallel_groups:\n  P1:\n    - {group_id: a, conflict_paths: [\"src/**\"], command: 'true'}\n    \
        - {group_id: b, conflict_paths: [\"src/**\"], command: 'true'}\nconflict_detection:\n  rules:\n    \
        - {name: same_file, severity: FATAL, action: mutex_lock, paths: [\"src/**\"]}\n";
    let stages = Stages::new(text);
    let mut running = stages.world.start(["stages", "run", "STAGES.yml", "P1", "--load", "0"]);
    running.until_stderr("rule same_file: mutex, because a and b conflict in src/");
    running.wait().code(0);
    assert_eq!(rules(&stages), [rule("same_file", "mutex")]);
    let document = stages.run("P1", &[]).code(0).json();
    assert_eq!(document["downgrades"], 1, "{document}");
    let report = stages.world.json(&["stages", "report", "STAGES.yml"]);
    assert_eq!(report["downgrades_last_hour"], 2, "{report}");
    for _ in 0..9 {
        stages.run("P1", &[]).code(0);
    }
    let locks = stages.world.json(&["locks"]);
    let alerts = locks["alerts"].as_array().unwrap();
    assert!(alerts.iter().any(|alert| alert["code"] == "DOWNGRADES" && alert["value"] == 11), "{locks}");
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

/// Requirement 126. `同一文件路径连续3次冲突`: different paths do not count together.
#[test]
fn conflicts_are_counted_for_each_path() {
    let more = "downgrade_rules: [{name: again, trigger: 同一文件路径连续2次冲突, to: serial_with_delay, delay: 10ms}]";
    let stages = three("true", more);
    let holder = stages.hold_until_go(&["a", "b"]);
    let running = stages.start("P1", &[]);
    until("two groups wait", || stages.world.json(&["locks"])["waiters"].as_array().map(Vec::len) == Some(2));
    stages.world.touch("go");
    running.wait().code(0);
    holder.wait().code(0);
    assert_eq!(rules(&stages), []);
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
    assert_eq!(rules(&stages), vec![rule("network", "2 retries"); 3]);
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

/// How many groups the log says run at a time after the first reduction.
fn reduced(to: &str) -> (String, String) {
    let mut text = String::from("parallel_groups:\n  P1:\n");
    for group in 0..6 {
        text.push_str(&format!(
            "    - {{group_id: g{group}, conflict_paths: [\"{group}/**\"], command: 'true'}}\n"
        ));
    }
    let rule =
        format!("downgrade_rules: [{{name: load, trigger: 系统负载>80%, from: max_parallel, to: {to}}}]\n");
    let stages = Stages::new(&format!("{text}{rule}"));
    stages.world.run(["stages", "run", "STAGES.yml", "P1", "--load", "900", "--max-load", "1000"]).code(0);
    rules(&stages).swap_remove(0)
}

/// Requirements 126, 203. The load is a share of all cores.
#[test]
fn parallelism_is_reduced_by_a_number_or_by_half() {
    assert_eq!(reduced("reduce_parallel_by_2"), rule("load", "4 at a time"));
    assert_eq!(reduced("reduce_parallel_by_half"), rule("load", "3 at a time"));
}

/// Requirements 126, 203.
#[test]
fn a_conflict_of_a_rule_makes_the_phase_serial_with_a_delay_between_groups() {
    let text = r#"
parallel_groups:
  P1:
    - {group_id: a, conflict_paths: ["x/**", "s.json"], command: 'date +%s%N >> times'}
    - {group_id: b, conflict_paths: ["y/**", "s.json"], command: 'date +%s%N >> times'}
    - {group_id: c, conflict_paths: ["z/**"], command: 'date +%s%N >> times'}
conflict_detection:
  rules: [{name: shared, severity: FATAL, action: mutex_lock, paths: ["s.json"]}]
downgrade_rules:
  - {name: shared_met, trigger: shared检测到冲突, from: parallel, to: serial_with_delay, delay_seconds: 0.3, log_level: WARN, reason: it is shared}
"#;
    let stages = Stages::new(text);
    stages.run("P1", &[]).code(0);
    assert_eq!(rules(&stages), [rule("shared", "mutex"), rule("shared_met", "serial")]);
    let line = &stages.logged("DOWNGRADED")[1];
    assert_eq!((&line["level"], &line["note"]), (&"WARN".into(), &"it is shared".into()), "{line}");
    let times = std::fs::read_to_string(stages.path("times")).unwrap();
    let times: Vec<u64> = times.lines().map(|time| time.parse().unwrap()).collect();
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= 300_000_000), "{times:?}");
}

/// Requirements 126, 203. Nothing is undone unless a command for it is named.
#[test]
fn an_abort_with_rollback_runs_the_command_or_says_that_there_is_none() {
    let more = "downgrade_rules: [{name: critical, trigger: 关键路径agent失败, from: parallel, to: abort_with_rollback}]";
    let stages = three("echo work > $LOCKKEEPER_GROUP; exit 3", more);
    let document = stages.run("P1", &[]).code(1).json();
    assert_eq!(
        (&document["rollback_wanted"], &document["rolled_back"]),
        (&true.into(), &Value::Null),
        "{document}"
    );
    assert_eq!(document["stopped"], "rule critical");
    assert!(stages.path("a").exists(), "the work of a group stays");
    assert_eq!(stages.logged("ROLLBACK")[0]["result"], "NONE");
    let told = stages.world.run(["stages", "run", "STAGES.yml", "P1", "--load", "0"]).code(1);
    told.says("nothing was rolled back");
    let document = stages.run("P1", &["--rollback", "touch rolled"]).code(1).json();
    assert_eq!(document["rolled_back"], true);
    assert!(stages.path("rolled").exists());
}

/// Requirement 203. `git reset --keep` refuses to lose work that is not committed.
#[test]
fn a_rollback_knows_the_commit_from_before() {
    let stages = Stages::new(
        "parallel_groups:\n  P1: [{group_id: a, command: 'git commit -q --allow-empty -m new; exit 1'}]\n\
         downgrade_rules: [{name: critical, trigger: critical_path, to: abort_with_rollback}]\n",
    );
    for line in ["init -q", "config user.name t", "config user.email t@t", "commit -q --allow-empty -m old"] {
        stages.world.git_run(&line.split(' ').collect::<Vec<_>>());
    }
    let document = stages.run("P1", &["--rollback", "git reset -q --keep {head}"]).code(1).json();
    assert_eq!(document["rolled_back"], true, "{document}");
    let log = lockkeeper_testing::Finished::of(stages.world.command("git").args(["log", "--format=%s"]));
    assert_eq!(log.code(0).stdout().trim(), "old");
}

/// Requirements 126, 203. All failures are retried where the rule is not about the network.
#[test]
fn agents_that_fail_are_retried_where_a_rule_says_so() {
    let more = "downgrade_rules: [{name: failures, trigger: 并行组中≥2个agent失败, to: retry_with_backoff, delay: 10ms, max_retries: 2}]";
    let command =
        "echo x >> $LOCKKEEPER_GROUP.tries; test $(wc -l < $LOCKKEEPER_GROUP.tries) -ge 3 || exit 1";
    let stages = three(command, more);
    stages.run("P1", &[]).code(0);
    assert_eq!(std::fs::read_to_string(stages.path("a.tries")).unwrap(), "x\nx\nx\n");
}

/// Requirements 126, 203. `网络操作超时>3次`, and what is not about the network does not count.
#[test]
fn network_failures_above_a_number_trigger_a_rule() {
    let more = "downgrade_rules: [{name: net, trigger: 网络操作超时>1次, from: parallel, to: abort}]";
    let stages = three("exit 7", more);
    let document = stages.run("P1", &["--jobs", "1"]).code(1).json();
    assert_eq!(rules(&stages), [rule("net", "abort")]);
    assert_eq!((&document["stopped"], stages.logged("STARTED").len()), (&"rule net".into(), 2), "{document}");
    assert_eq!(stages.logged("DOWNGRADED")[0]["reason"], "the network failed 2 times");
    let other = three("exit 3", more);
    other.run("P1", &["--jobs", "1"]).code(1);
    assert_eq!((rules(&other), other.logged("STARTED").len()), (Vec::new(), 3));
}

/// Requirements 126, 203. An agent that another rule retries fails several times.
#[test]
fn each_attempt_of_an_agent_without_a_network_counts() {
    let more = "downgrade_rules:\n  - {name: again, trigger: failure_threshold, to: retry_with_backoff, delay: 1ms, max_retries: 2}\n  \
        - {name: net, trigger: network_error, threshold: 3, to: abort}";
    let stages = three("exit 7", more);
    stages.run("P1", &["--jobs", "1"]).code(1);
    assert_eq!(rules(&stages), [rule("again", "2 retries"), rule("net", "abort")]);
    assert_eq!(stages.logged("STARTED").len(), 1);
}

/// Requirement 203. `stages check` lists a metric that is not written.
#[test]
fn the_metrics_that_are_written_are_the_known_ones() {
    let stages = three("true", "monitoring: {enabled: true, output_file: stats.jsonl}");
    stages.run("P1", &[]).code(0);
    let written: Value =
        serde_json::from_str(&std::fs::read_to_string(stages.path("stats.jsonl")).unwrap()).unwrap();
    let about_the_line = ["timestamp", "status", "session", "phase"];
    let names = written.as_object().unwrap().keys().map(String::as_str);
    let names: Vec<&str> = names.filter(|name| !about_the_line.contains(name)).collect();
    assert!(names.contains(&"wall_seconds"), "{written}");
    let text = std::fs::read_to_string(stages.path("STAGES.yml")).unwrap();
    let metrics = format!("metrics: [{}, queue_depth_max]}}", names.join(", "));
    std::fs::write(stages.path("STAGES.yml"), text.replace("output_file: stats.jsonl}", &metrics)).unwrap();
    let checked = stages.world.json(&["stages", "check", "STAGES.yml"]);
    let unknown: Vec<&Value> =
        checked["unknown_keys"].as_array().unwrap().iter().map(|key| &key["value"]).collect();
    assert_eq!(unknown, ["queue_depth_max"], "{checked}");
}
