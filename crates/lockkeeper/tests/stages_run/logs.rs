//! What an execution leaves: the logs beside the file, reports, and the monitor of the lock folder.

use lockkeeper_testing::{Finished, until};

use crate::stages::Stages;

const TWO: &str = r#"
parallel_groups:
  P3:
    - {group_id: impl-backend, conflict_paths: ["src/api/**", "package.json"], command: 'true'}
    - {group_id: impl-frontend, conflict_paths: ["src/web/**", "package.json"], command: 'true'}
conflict_detection:
  rules: [{name: config, severity: FATAL, action: mutex_lock, paths: ["package.json"]}]
"#;

/// Requirements 134, 135.
#[test]
fn logs_are_json_lines_with_the_fields_of_the_format_for_other_programs_too() {
    let stages = Stages::new(TWO);
    stages.run("P3", &[]).code(0);
    let script = r#"
import json, re
lines = [json.loads(line) for line in open("logs/parallel_execution.log")]
started = [line for line in lines if line["status"] == "STARTED"]
assert len(started) == 2, lines
for line in started:
    assert re.fullmatch(line["group_id"] + r"_\d+_" + str(line["pid"]), line["execution_id"]), line
    assert line["phase"] == "P3" and line["timestamp"].endswith("Z"), line
    ends = [end for end in lines if end.get("execution_id") == line["execution_id"] and end["status"] == "SUCCESS"]
    assert len(ends) == 1, lines
conflicts = [json.loads(line) for line in open("logs/conflicts.log")]
assert len(conflicts) == 1, conflicts
for key in ("timestamp", "phase", "group1", "group2", "conflict_type", "path1", "path2"):
    assert key in conflicts[0], conflicts
"#;
    Finished::of(stages.world.command("python3").args(["-c", script])).code(0);
}

/// Requirement 138.
#[test]
fn a_report_sums_up_and_draws_what_was_run() {
    let stages = Stages::new(TWO);
    stages.world.run(["stages", "report", "STAGES.yml"]).code(2);
    stages.run("P3", &[]).code(0);
    let report = stages.world.run(["--json", "stages", "report", "STAGES.yml"]).code(0).json();
    let execution = &report["executions"][0];
    assert_eq!((&execution["mode"], execution["groups"].as_array().unwrap().len()), (&"MUTEX".into(), 2));
    // The two ran one by one, so they were measured.
    assert!(execution["speed_up"].as_f64().is_some() && report["conflicts"] == 1, "{report}");
    let picture = stages.world.run(["stages", "report", "STAGES.yml", "--svg"]).code(0).stdout();
    assert!(picture.starts_with("<svg ") && picture.contains("impl-frontend"), "{picture}");
}

/// Requirement 132.
#[test]
fn the_monitor_of_a_lock_folder_runs_as_long_as_the_run() {
    let stages = Stages::new(
        "parallel_groups:\n  P1:\n    - {group_id: a, command: 'touch begun; until test -e go; do sleep 0.01; done'}\n",
    );
    let monitor = || stages.world.run(["--json", "group", "status"]).json()["monitor"].clone();
    stages.world.run(["group", "exec", "b", "--", "true"]).code(0);
    assert!(monitor().is_null());
    let running = stages.start("P1", &[]);
    stages.until_there("begun");
    assert!(!monitor().is_null());
    stages.world.touch("go");
    running.wait().code(0);
    assert!(monitor().is_null());
    // It also ends with an execution that was killed.
    std::fs::remove_file(stages.path("go")).unwrap();
    std::fs::remove_file(stages.path("begun")).unwrap();
    let mut running = stages.start("P1", &[]);
    stages.until_there("begun");
    running.kill();
    until("the monitor ended", || monitor().is_null());
    stages.world.touch("go");
    until("the agent ended", || stages.processes().is_empty());
}

/// Requirement 138. A speed-up compares with the measured time of the same commands one by one.
#[test]
fn a_speed_up_is_claimed_only_against_a_measurement() {
    let text = |last: &str| {
        format!(
            "parallel_groups:\n  P1:\n    - {{group_id: a, conflict_paths: [a], command: sleep 0.3}}\n    \
             - {{group_id: b, conflict_paths: [b], command: sleep 0.3}}\n    - {{group_id: c, conflict_paths: [c], command: {last}}}\n"
        )
    };
    let stages = Stages::new(&text("sleep 0.3"));
    let last = || {
        stages.world.json(&["stages", "report", "STAGES.yml"])["executions"]
            .as_array()
            .unwrap()
            .last()
            .cloned()
            .unwrap()
    };
    stages.run("P1", &[]).code(0);
    assert!(last()["speed_up"].is_null(), "{}", last());
    stages.run("P1", &["--jobs", "1"]).code(0);
    stages.run("P1", &[]).code(0);
    let execution = last();
    let (one_by_one, wall) =
        (execution["one_by_one_ms"].as_f64().unwrap(), execution["wall_ms"].as_f64().unwrap());
    let claimed = execution["speed_up"].as_f64().unwrap();
    assert!(one_by_one >= 900.0 && (claimed - one_by_one / wall).abs() < 1e-6, "{execution}");
    std::fs::write(stages.path("STAGES.yml"), text("'false'")).unwrap();
    stages.run("P1", &[]).code(1);
    assert!(last()["speed_up"].is_null(), "it failed: {}", last());
    std::fs::write(stages.path("STAGES.yml"), text("sleep 0.2")).unwrap();
    stages.run("P1", &[]).code(0);
    assert!(last()["speed_up"].is_null(), "another command: {}", last());
}
