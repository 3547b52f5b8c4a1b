//! How executions end: signals, kills, failures, and going on from there.

use rustix::process::Signal;
use serde_json::Value;

use crate::site::{Site, until};

/// Two groups one after the other; the second waits for a file, with a grandchild that has left its session.
const HALF_DONE: &str = r#"
parallel_groups:
  P1:
    - {group_id: first, conflict_paths: ["a/**"], command: 'echo first >> record'}
    - {group_id: second, agents: [x, y], max_concurrent: 1, conflict_paths: ["b/**"], depends_on: [first],
       command: 'echo "$LOCKKEEPER_AGENT" >> record; setsid sleep 1000 & until test -e go; do sleep 0.01; done; kill $!; echo "$LOCKKEEPER_AGENT done" >> record'}
    - {group_id: third, conflict_paths: ["c/**"], depends_on: [second], command: 'echo third >> record'}
"#;

fn statuses(document: &Value) -> Vec<&str> {
    document["groups"].as_array().unwrap().iter().map(|group| group["status"].as_str().unwrap()).collect()
}

fn stopped_by(signal: Signal, code: i32) {
    let site = Site::new(HALF_DONE);
    let running = site.start_stages("P1", &[]);
    until("the second began", || site.record().len() == 2);
    running.signal(signal);
    let ran = running.end().code(code);
    let document = ran.json();
    assert_eq!(
        (statuses(&document)[0], &document["success"]),
        ("SUCCESS", &Value::Bool(false)),
        "{document}"
    );
    site.assert_settled();
    assert_eq!(site.record(), ["first", "x"]);
    site.touch("go");
    site.stages("P1", &["--resume"]).code(0);
    assert_eq!(site.record(), ["first", "x", "x", "x done", "y", "y done", "third"]);
    site.assert_settled();
    assert_eq!(site.stages("P1", &["--resume"]).code(2).json()["error"]["reason_code"], "NOTHING_TO_RESUME");
}

/// Requirement 109. Invariant 10.
#[test]
fn ctrl_c_ends_whole_trees_and_what_was_not_done_is_done_by_resume() {
    stopped_by(Signal::INT, 130);
}

/// Requirement 109. Invariant 10.
#[test]
fn a_term_ends_whole_trees_and_what_was_not_done_is_done_by_resume() {
    stopped_by(Signal::TERM, 143);
}

/// Requirement 110. Invariants 4, 10.
#[test]
fn after_a_kill_a_resume_adopts_what_runs_and_does_nothing_twice() {
    let site = Site::new(HALF_DONE);
    let running = site.start_stages("P1", &[]);
    until("the second began", || site.record().len() == 2);
    running.kill();
    // Its agent lives, so the group stays locked.
    site.run(&["acquire", "second"]).code(75);
    let resumed = site.start_stages("P1", &["--resume"]);
    until("it conducts", || site.told("STARTED").len() == 3);
    let refused = site.stages("P1", &["--resume"]).code(75).json();
    assert_eq!(refused["error"]["reason_code"], "EXECUTION_RUNS", "{refused}");
    site.touch("go");
    let ran = resumed.end();
    // How an adopted command ended is known only where the kernel tells; else it counts as failed, and is done again.
    if ran.code != Some(0) {
        site.stages("P1", &["--resume"]).code(0);
    }
    let record = site.record();
    assert_eq!(record.iter().filter(|line| *line == "first").count(), 1, "{record:?}");
    assert_eq!(&record[..3], ["first", "x", "x done"], "{record:?}");
    assert_eq!(record.last().unwrap(), "third");
    site.assert_settled();
}

/// Invariant 10.
#[test]
fn ctrl_c_on_a_resume_ends_what_it_adopted() {
    let site = Site::new(HALF_DONE);
    let running = site.start_stages("P1", &[]);
    until("the second began", || site.record().len() == 2);
    running.kill();
    let resumed = site.start_stages("P1", &["--resume"]);
    until("it conducts", || site.told("STARTED").len() == 3);
    resumed.signal(Signal::INT);
    resumed.end().code(130);
    site.assert_settled();
}

/// Requirement 126.
#[test]
fn those_who_depend_on_a_group_that_failed_are_skipped_and_others_are_not() {
    let site = Site::new(
        r#"
parallel_groups:
  P1:
    - {group_id: bad, agents: [x, y], max_concurrent: 1, conflict_paths: ["a/**"], command: 'echo "$LOCKKEEPER_AGENT" >> record; exit 3'}
    - {group_id: needs, conflict_paths: ["b/**"], depends_on: [bad], command: 'echo needs >> record'}
    - {group_id: needs-that, conflict_paths: ["c/**"], depends_on: [needs], command: 'echo needs >> record'}
    - {group_id: free, conflict_paths: ["d/**"], command: 'touch free'}
"#,
    );
    let document = site.stages("P1", &[]).code(1).json();
    assert_eq!(statuses(&document), ["FAILED", "SKIPPED", "SKIPPED", "SUCCESS"], "{document}");
    assert!(document["groups"][0]["reason"].as_str().unwrap().contains("agent x: failed"), "{document}");
    assert_eq!(site.record(), ["x"]);
    assert_eq!(site.told("SKIPPED").len(), 2);
}

/// Requirement 126. A phase that a rule aborts starts nothing, and says which rule.
#[test]
fn a_phase_that_is_to_be_aborted_starts_nothing() {
    let site = Site::new(
        r#"
parallel_groups:
  P1:
    - {group_id: a, conflict_paths: ["release/VERSION"], command: 'touch begun'}
    - {group_id: b, conflict_paths: ["release/**"], command: 'touch begun'}
conflict_detection:
  rules: [{name: one_release, severity: FATAL, action: abort, paths: ["release/**"]}]
"#,
    );
    let refused = site.stages("P1", &[]).code(75).json();
    assert_eq!(refused["error"]["reason_code"], "CONFLICT_ABORT", "{refused}");
    assert!(!site.path("begun").exists() && site.told("STARTED").is_empty());
    assert_eq!(site.log("conflicts.log").len(), 1);
}

/// Requirement 124. A line that would be longer than the file allows is not begun.
#[test]
fn more_groups_in_line_than_there_are_places_are_refused() {
    let stages = |places: u64| {
        format!(
            r#"
parallel_groups:
  P1:
    - {{group_id: a, conflict_paths: ["log/x"], command: touch begun}}
    - {{group_id: b, conflict_paths: ["log/x"], command: touch begun}}
    - {{group_id: c, conflict_paths: ["log/x"], command: touch begun}}
conflict_detection:
  rules: [{{name: one_log, severity: MINOR, action: queue_execution, paths: ["log/**"]}}]
conflict_resolution: {{queue_size: {places}}}
"#
        )
    };
    let site = Site::new(&stages(1));
    let refused = site.stages("P1", &[]).code(75).json();
    assert_eq!(refused["error"]["reason_code"], "QUEUE_FULL", "{refused}");
    assert!(!site.path("begun").exists() && site.told("STARTED").is_empty());
    Site::new(&stages(2)).stages("P1", &[]).code(0);
}

/// Requirement 126. Without a command nothing is begun; with a template each value is one word, whatever is in it.
#[test]
fn agents_get_their_words_as_they_are_and_no_shell_reads_them() {
    let site = Site::new(
        r#"
parallel_groups:
  P1:
    - group_id: g
      agents:
        - {name: x, task: "it's \"quoted\"; touch hacked $(touch hacked) {agent}"}
"#,
    );
    let refused = site.stages("P1", &[]).code(2).json();
    assert_eq!(refused["error"]["reason_code"], "BAD_STAGES", "{refused}");
    let template = "sh -c 'printf \"%s|\" \"$@\" > words' sh {agent} {task} '{group} of {phase}'";
    site.stages("P1", &["--agent-command", template]).code(0);
    let words = std::fs::read_to_string(site.path("words")).unwrap();
    assert_eq!(words, "x|it's \"quoted\"; touch hacked $(touch hacked) {agent}|g of P1|");
    assert!(!site.path("hacked").exists());
}

/// Requirement 126.
#[test]
fn a_phase_without_groups_is_done_at_once() {
    let site = Site::new("parallel_groups:\n  P1: []\n");
    let document = site.stages("P1", &[]).code(0).json();
    assert_eq!((&document["mode"], statuses(&document).len()), (&Value::from("DIRECT"), 0));
}

/// Requirement 110. Invariants 1, 10. It is killed when its agents have written so many lines, and gone on with.
#[test]
fn killed_at_any_moment_it_is_gone_on_with_and_conflicting_agents_never_meet() {
    let agent = r#"echo "begin $LOCKKEEPER_GROUP $LOCKKEEPER_AGENT" >> record; sleep 0.03; echo "end $LOCKKEEPER_GROUP $LOCKKEEPER_AGENT" >> record"#;
    let mut text = String::from("parallel_groups:\n  P1:\n");
    for group in ["a", "b"] {
        text.push_str(&format!(
            "    - {{group_id: {group}, agents: [x, y], max_concurrent: 1, conflict_paths: [\"shared/**\"], command: '{agent}'}}\n"
        ));
    }
    for lines in 0..8 {
        let site = Site::new(&text);
        let running = site.start_stages("P1", &[]);
        let begun = || lines > 0 || !site.told("STARTED").is_empty();
        until("it came so far", || begun() && site.record().len() >= lines);
        // It may just have come to its end.
        running.signal(Signal::KILL);
        let mut code = running.end().code;
        let mut tries = 0;
        while code != Some(0) {
            tries += 1;
            assert!(tries <= 3, "killed after {lines} lines: it does not come to its end: {code:?}");
            let ran = site.stages("P1", &["--resume"]);
            // What was done before the kill was written down is known to be done.
            let is_over = ran.code == Some(2) && ran.out.contains("NOTHING_TO_RESUME");
            code = if is_over { Some(0) } else { ran.code };
        }
        let record = site.record();
        for pair in record.chunks(2) {
            let (begin, end) =
                (pair[0].strip_prefix("begin "), pair.get(1).and_then(|end| end.strip_prefix("end ")));
            assert!(begin.is_some() && begin == end, "killed after {lines} lines: {record:?}");
        }
        for who in ["a x", "a y", "b x", "b y"] {
            let times = record.iter().filter(|line| **line == format!("end {who}")).count();
            // Only the one that ran when nobody looked may have to be done again.
            assert!((1..=2).contains(&times), "killed after {lines} lines: {who} {times} times: {record:?}");
        }
        assert!(record.len() <= 10, "killed after {lines} lines: {record:?}");
        site.assert_settled();
    }
}
