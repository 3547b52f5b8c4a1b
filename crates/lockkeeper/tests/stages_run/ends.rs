//! How executions end: signals, kills and failures; and how `--resume` goes on.

use lockkeeper_testing::{Finished, Signal, until, until_seen};
use serde_json::Value;

use crate::stages::{RECORDED, Stages};

/// Three groups, one after the other. The second waits for a file, and has a child process in a session of its own.
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

/// Resumes until nothing is left to do.
#[track_caller]
fn resume_until_done(stages: &Stages, about: &str) {
    let answers: Vec<Finished> = (0..4).map(|_| stages.run("P1", &["--resume"])).collect();
    let last = answers.last().unwrap();
    let is_over = last.exit_code() == Some(2) && last.json()["error"]["reason_code"] == "NOTHING_TO_RESUME";
    assert!(is_over, "{about}: it does not come to its end: {answers:#?}");
}

fn stopped_by(signal: Signal, code: i32) {
    let stages = Stages::new(HALF_DONE);
    let running = stages.start("P1", &[]);
    until_seen("the second group began", || stages.record(), |record| record.len() == 2);
    running.signal(signal);
    let ran = running.wait().code(code);
    let document = ran.json();
    assert_eq!(
        (statuses(&document)[0], &document["success"]),
        ("SUCCESS", &Value::Bool(false)),
        "{document}"
    );
    stages.assert_settled();
    assert_eq!(stages.record(), ["first", "x"]);
    stages.world.touch("go");
    stages.run("P1", &["--resume"]).code(0);
    assert_eq!(stages.record(), ["first", "x", "x", "x done", "y", "y done", "third"]);
    stages.assert_settled();
    assert_eq!(stages.run("P1", &["--resume"]).code(2).json()["error"]["reason_code"], "NOTHING_TO_RESUME");
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
    let stages = Stages::new(HALF_DONE);
    let mut running = stages.start("P1", &[]);
    until_seen("the second group began", || stages.record(), |record| record.len() == 2);
    running.kill();
    // The agent lives, so its group stays locked.
    stages.world.run(["acquire", "second"]).code(75);
    let resumed = stages.start("P1", &["--resume"]);
    until_seen("it conducts", || stages.logged("STARTED"), |started| started.len() == 3);
    let refused = stages.run("P1", &["--resume"]).code(75).json();
    assert_eq!(refused["error"]["reason_code"], "EXECUTION_RUNS", "{refused}");
    stages.world.touch("go");
    // Only some kernels report how a process ended that this one did not start. Without that the agent counts as
    // failed, and a second resume runs it again.
    drop(resumed.wait());
    resume_until_done(&stages, "after the first resume");
    let record = stages.record();
    assert_eq!(record.iter().filter(|line| *line == "first").count(), 1, "{record:?}");
    assert_eq!(&record[..3], ["first", "x", "x done"], "{record:?}");
    assert_eq!(record.last().unwrap(), "third");
    stages.assert_settled();
}

/// Invariant 10.
#[test]
fn ctrl_c_on_a_resume_ends_what_it_adopted() {
    let stages = Stages::new(HALF_DONE);
    let mut running = stages.start("P1", &[]);
    until_seen("the second group began", || stages.record(), |record| record.len() == 2);
    running.kill();
    let resumed = stages.start("P1", &["--resume"]);
    until_seen("it conducts", || stages.logged("STARTED"), |started| started.len() == 3);
    resumed.signal(Signal::INT);
    resumed.wait().code(130);
    stages.assert_settled();
}

/// Requirement 126.
#[test]
fn those_who_depend_on_a_group_that_failed_are_skipped_and_others_are_not() {
    let stages = Stages::new(
        r#"
parallel_groups:
  P1:
    - {group_id: bad, agents: [x, y], max_concurrent: 1, conflict_paths: ["a/**"], command: 'echo "$LOCKKEEPER_AGENT" >> record; exit 3'}
    - {group_id: needs, conflict_paths: ["b/**"], depends_on: [bad], command: 'echo needs >> record'}
    - {group_id: needs-that, conflict_paths: ["c/**"], depends_on: [needs], command: 'echo needs >> record'}
    - {group_id: free, conflict_paths: ["d/**"], command: 'touch free'}
"#,
    );
    let document = stages.run("P1", &[]).code(1).json();
    assert_eq!(statuses(&document), ["FAILED", "SKIPPED", "SKIPPED", "SUCCESS"], "{document}");
    assert!(document["groups"][0]["reason"].as_str().unwrap().contains("agent x: failed"), "{document}");
    assert_eq!(stages.record(), ["x"]);
    assert_eq!(stages.logged("SKIPPED").len(), 2);
}

/// Requirement 126. A failed group has the exit code, the last line of its output, and the command that shows the rest.
#[test]
fn a_failed_group_says_what_its_command_said_last() {
    let stages = Stages::new(
        "parallel_groups:\n  P1:\n    - {group_id: a, command: 'echo first; echo no such table; exit 3'}\n",
    );
    let document = stages.run("P1", &[]).code(1).json();
    let reason = document["groups"][0]["reason"].as_str().unwrap();
    assert!(
        reason.contains("agent a: failed EXIT_CODE 3: no such table (`lockkeeper run logs "),
        "{document}"
    );
    let id = reason.rsplit(' ').next().unwrap().trim_end_matches("`)");
    stages.world.run(["run", "logs", id]).code(0).prints("first\nno such table");
}

/// A phase that a rule aborts.
const ABORTED: &str = r#"
parallel_groups:
  P1:
    - {group_id: a, conflict_paths: ["release/VERSION"], command: 'touch begun'}
    - {group_id: b, conflict_paths: ["release/**"], command: 'touch begun'}
conflict_detection:
  rules: [{name: one_release, severity: FATAL, action: abort, paths: ["release/**"]}]
"#;

/// Requirement 126. A phase that a rule aborts starts nothing, and says which rule.
#[test]
fn a_phase_that_is_to_be_aborted_starts_nothing() {
    let stages = Stages::new(ABORTED);
    let refused = stages.run("P1", &[]).code(75).json();
    assert_eq!(refused["error"]["reason_code"], "CONFLICT_ABORT", "{refused}");
    assert!(!stages.path("begun").exists() && stages.logged("STARTED").is_empty());
    assert_eq!(stages.log("conflicts.log").len(), 1);
    let runs = stages.world.json(&["runs"]);
    let all = runs["runs"].as_array().unwrap();
    assert_eq!(all.len(), 2, "{runs}");
    for run in all {
        assert_eq!(
            (&run["status"], &run["reason_code"]),
            (&"rejected".into(), &"CONFLICT_ABORT".into()),
            "{run}"
        );
    }
}

/// Requirement 126. Lists, logs and the overview say why a rejected request did not run, by its id as they show it.
#[test]
fn an_aborted_phase_says_why_in_every_list() {
    let stages = Stages::new(ABORTED);
    stages.run("P1", &[]).code(75);
    let requests = stages.world.json(&["requests"]);
    let why = "rule `one_release` (FATAL) lets nothing run";
    let runs: Vec<&str> = requests["requests"]
        .as_array()
        .unwrap()
        .iter()
        .map(|request| {
            assert!(request["run"]["message"].as_str().unwrap().contains(why), "{request}");
            assert_eq!(request["run"]["id"], request["latest_run"]);
            request["latest_run"].as_str().unwrap()
        })
        .collect();
    assert_eq!(runs.len(), 2);
    let list = stages.world.run(["requests"]).code(0).stdout();
    assert!(list.lines().skip(1).all(|line| line.contains("CONFLICT_ABORT")), "{list}");
    let short = list.lines().last().and_then(|line| line.split_whitespace().next()).unwrap().to_owned();
    assert!(short.ends_with(".1.1") && short.len() == "k3x9f2m7qd.1.1".len(), "{short}");
    let shown = stages.world.run(["run", "show", &short]).code(0).stdout();
    assert!(shown.contains(why), "{shown}");
    let logs = stages.world.run(["run", "logs", &short]).code(0);
    assert!(logs.stderr().contains(why), "{}", logs.stderr());
    let overview = stages.world.run(["status"]).code(0).stdout();
    assert!(overview.contains("CONFLICT_ABORT"), "{overview}");
}

/// Requirement 126. The repository is the one of the file, from wherever it is started.
#[test]
fn a_file_of_another_repository_runs_in_that_repository() {
    let world = lockkeeper_testing::world!().git();
    let text = "parallel_groups:\n  P1: [{group_id: a, conflict_paths: [\"x/**\"], command: 'pwd > here'}]\n\
        monitoring: {output_file: .workflow/metrics/stats.jsonl}\n";
    lockkeeper_testing::files::write(&world.path(".workflow/STAGES.yml"), text);
    let file = world.path(".workflow/STAGES.yml");
    let elsewhere = world.beside("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let mut command = world.lockkeeper(["stages", "run", file.to_str().unwrap(), "P1", "--load", "0"]);
    lockkeeper_testing::Finished::of(command.current_dir(&elsewhere)).code(0);
    let here = std::fs::read_to_string(world.path("here")).unwrap();
    assert_eq!(std::path::Path::new(here.trim()), std::fs::canonicalize(world.cwd()).unwrap());
    assert!(world.path(".git/lockkeeper/runs.db").exists());
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0, "nothing is left where it was started");
    assert!(
        world.path(".workflow/metrics/stats.jsonl").exists(),
        "paths begin at the root of the repository"
    );
}

/// Requirement 124. A queue that would be longer than the file allows does not begin.
#[test]
fn more_groups_in_line_than_there_are_places_are_refused() {
    let text = |places: u64| {
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
    let stages = Stages::new(&text(1));
    let refused = stages.run("P1", &[]).code(75).json();
    assert_eq!(refused["error"]["reason_code"], "QUEUE_FULL", "{refused}");
    assert!(!stages.path("begun").exists() && stages.logged("STARTED").is_empty());
    Stages::new(&text(2)).run("P1", &[]).code(0);
}

/// Requirement 126. Without a command nothing is begun; with a template each value is one word, whatever is in it.
#[test]
fn agents_get_their_words_as_they_are_and_no_shell_reads_them() {
    let stages = Stages::new(
        r#"
parallel_groups:
  P1:
    - group_id: g
      agents:
        - {name: x, task: "it's \"quoted\"; touch hacked $(touch hacked) {agent}"}
"#,
    );
    let refused = stages.run("P1", &[]).code(2).json();
    assert_eq!(refused["error"]["reason_code"], "BAD_STAGES", "{refused}");
    let template = "sh -c 'printf \"%s|\" \"$@\" > words' sh {agent} {task} '{group} of {phase}'";
    stages.run("P1", &["--agent-command", template]).code(0);
    let words = std::fs::read_to_string(stages.path("words")).unwrap();
    assert_eq!(words, "x|it's \"quoted\"; touch hacked $(touch hacked) {agent}|g of P1|");
    assert!(!stages.path("hacked").exists());
}

/// Requirement 126.
#[test]
fn a_phase_without_groups_is_done_at_once() {
    let stages = Stages::new("parallel_groups:\n  P1: []\n");
    let document = stages.run("P1", &[]).code(0).json();
    assert_eq!((&document["mode"], statuses(&document).len()), (&Value::from("DIRECT"), 0));
}

/// Requirement 110. Invariants 1, 10. The test kills it after each number of lines that its agents wrote, and resumes.
#[test]
fn killed_at_any_moment_it_can_be_resumed_and_conflicting_agents_never_overlap() {
    let mut text = String::from("parallel_groups:\n  P1:\n");
    for group in ["a", "b"] {
        text.push_str(&format!(
            "    - {{group_id: {group}, agents: [x, y], max_concurrent: 1, conflict_paths: [\"shared/**\"], command: '{RECORDED}'}}\n"
        ));
    }
    for lines in 0..8 {
        let stages = Stages::new(&text);
        let running = stages.start("P1", &[]);
        until("the first group began", || !stages.logged("STARTED").is_empty());
        until_seen("the agents wrote enough", || stages.record(), |record| record.len() >= lines);
        // It may already have ended by itself.
        running.signal(Signal::KILL);
        drop(running.wait());
        resume_until_done(&stages, &format!("killed after {lines} lines"));
        let record = stages.record();
        for pair in record.chunks(2) {
            let (begin, end) =
                (pair[0].strip_prefix("begin "), pair.get(1).and_then(|end| end.strip_prefix("end ")));
            assert!(begin.is_some() && begin == end, "killed after {lines} lines: {record:?}");
        }
        for who in ["a x", "a y", "b x", "b y"] {
            let times = record.iter().filter(|line| **line == format!("end {who}")).count();
            // Only the agent that ran during the kill may run again.
            assert!((1..=2).contains(&times), "killed after {lines} lines: {who} {times} times: {record:?}");
        }
        assert!(record.len() <= 10, "killed after {lines} lines: {record:?}");
        stages.assert_settled();
    }
}
