//! What is written down: the logs beside the file, reports, and the monitor of the lock folder.

use std::process::Command;

use crate::site::{Site, until};

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
    let site = Site::new(TWO);
    site.stages("P3", &[]).code(0);
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
    let output = Command::new("python3").args(["-c", script]).current_dir(site.path("")).output();
    let output = output.expect("this test needs python3");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Requirement 138.
#[test]
fn a_report_sums_up_and_draws_what_was_run() {
    let site = Site::new(TWO);
    site.run(&["stages", "report", "STAGES.yml"]).code(2);
    site.stages("P3", &[]).code(0);
    let report = site.run(&["--json", "stages", "report", "STAGES.yml"]).code(0).json();
    let execution = &report["executions"][0];
    assert_eq!((&execution["mode"], execution["groups"].as_array().unwrap().len()), (&"MUTEX".into(), 2));
    assert!(execution["speed_up"].as_f64().is_some() && report["conflicts"] == 1, "{report}");
    let picture = site.run(&["stages", "report", "STAGES.yml", "--svg"]).code(0).out;
    assert!(picture.starts_with("<svg ") && picture.contains("impl-frontend"), "{picture}");
}

/// Requirement 132.
#[test]
fn the_monitor_of_a_lock_folder_runs_as_long_as_the_run() {
    let site = Site::new(
        "parallel_groups:\n  P1:\n    - {group_id: a, command: 'touch begun; until test -e go; do sleep 0.01; done'}\n",
    );
    let monitor = || site.run(&["--json", "group", "status"]).json()["monitor"].clone();
    site.run(&["group", "exec", "b", "--", "true"]).code(0);
    assert!(monitor().is_null());
    let running = site.start_stages("P1", &[]);
    site.until_there("begun");
    assert!(!monitor().is_null());
    site.touch("go");
    running.end().code(0);
    assert!(monitor().is_null());
    // It ends with a run that is killed, too.
    std::fs::remove_file(site.path("go")).unwrap();
    std::fs::remove_file(site.path("begun")).unwrap();
    let running = site.start_stages("P1", &[]);
    site.until_there("begun");
    running.kill();
    until("the monitor ended", || monitor().is_null());
    site.touch("go");
    until("the agent ended", || site.processes().is_empty());
}
