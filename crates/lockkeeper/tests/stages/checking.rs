//! What is wrong with files, all of it at once, with the place of each fault.

use lockkeeper_stages::{File, Level};

use crate::{codes, file};

/// Requirement 205.
#[test]
fn everything_that_is_wrong_is_told_at_once() {
    let text = r#"parallel_groups:
  P3:
    - group_id: a
      agents: [x]
      max_concurrent: 2
      conflict_paths: ["src/[a"]
    - group_id: a
      agents: [y]
      conflict_paths: ["../outside", "ok/**"]
    - agents: [z]
      can_parallel: perhaps
      conflict_paths: ["z"]
dependencies:
  - {source: a, target: nobody}
conflict_detection:
  rules:
    - {name: r, severity: HUGE, action: explode, paths: ["**"]}
    - {name: r, severity: MINOR, action: abort, paths: ["{a"]}
"#;
    assert_eq!(
        codes(&file(text)),
        [
            ("NO_PATHS", 3),
            ("MORE_THAN_AGENTS", 5),
            ("BAD_PATTERN", 6),
            ("DUPLICATE_GROUP", 7),
            ("BAD_PATTERN", 9),
            ("NO_GROUP_ID", 10),
            ("SHAPE", 11),
            ("UNKNOWN_GROUP", 14),
            ("UNKNOWN_SEVERITY", 17),
            ("UNKNOWN_ACTION", 17),
            ("DUPLICATE_RULE", 18),
            ("NO_PATHS", 18),
            ("BAD_PATTERN", 18),
        ]
    );
}

#[test]
fn a_problem_points_at_the_very_words() {
    let file = file(
        "parallel_groups: {P1: [{group_id: 甲, agents: [x]}]}\nconflict_detection:\n  rules:\n    - name: r\n      action: mutx_lock\n      paths: [a]\n",
    );
    let problem = file.errors().next().unwrap();
    assert_eq!((problem.place.line, problem.place.column, problem.place.width), (5, 15, 9));
    assert_eq!(problem.message, "`mutx_lock` is not an action");
    assert!(problem.hint.as_ref().unwrap().contains("mutex_lock"));
    assert_eq!(file.source.line(5), Some("      action: mutx_lock"));
    let shape = crate::file("parallel_groups: {P1: [{id: a, agents: [x], max_concurrent: 三}]}");
    assert_eq!(
        shape.problems[0].message,
        "parallel_groups.P1[0].max_concurrent has to be a whole number, and is `三`"
    );
}

/// Requirement 205.
#[test]
fn a_circle_of_dependencies_is_shown_whole() {
    let text = "parallel_groups:\n  P1: [{id: a, agents: [x]}, {id: b, agents: [x]}, {id: c, agents: [x]}, {id: d, agents: [x]}]\n\
        dependencies:\n  - {source: a, target: b}\n  - {source: b, target: c}\n  - {source: c, target: a}\n  - {source: d, target: d}\n";
    let file = file(text);
    let told: Vec<&str> = file.errors().map(|problem| problem.message.as_str()).collect();
    assert_eq!(
        told,
        ["these wait for each other in a circle: `a` → `b` → `c` → `a`", "`d` waits for itself"]
    );
    assert_eq!(file.errors().map(|problem| problem.place.line).collect::<Vec<_>>(), [4, 7]);
}

#[test]
fn a_group_cannot_wait_for_a_later_phase() {
    let text = "parallel_groups:\n  P1: [{id: a, agents: [x]}]\n  P2: [{id: b, agents: [x]}]\ndependencies:\n  - {source: b, target: a}\n";
    let file = file(text);
    assert_eq!(codes(&file), [("BACKWARDS", 5)]);
    assert_eq!(file.problems[0].message, "`a` cannot wait for `b`: P1 runs before P2");
}

#[test]
fn a_name_that_is_nearly_right_is_proposed() {
    let text = "parallel_groups:\n  P1: [{id: impl-backend, agents: [x]}, {id: b, agents: [x], conflict_paths: [b]}]\n\
        dependencies: [{source: impl-bakend, target: b}]\n";
    let file = file(text);
    let problem = file.problems.iter().find(|problem| problem.code == "UNKNOWN_GROUP").unwrap();
    assert_eq!(problem.message, "there is no group or phase `impl-bakend`");
    assert_eq!(problem.hint.as_deref(), Some("is it `impl-backend`?"));
}

#[test]
fn an_id_of_two_phases_has_to_be_told_apart() {
    let groups = "parallel_groups:\n  P1: [{id: a, agents: [x]}]\n  P2: [{id: a, agents: [x]}, {id: b, agents: [x], conflict_paths: [b]}]\n";
    let ambiguous = file(&format!("{groups}dependencies: [{{source: a, target: b}}]\n"));
    assert!(codes(&ambiguous).contains(&("AMBIGUOUS_GROUP", 4)));
    let clear = file(&format!("{groups}dependencies: [{{source: P2.a, target: b}}]\n"));
    assert!(clear.errors().next().is_none());
    assert!(codes(&clear).contains(&("SAME_GROUP_ID", 3)));
}

/// An unquoted pattern is the mistake that everybody makes once.
#[test]
fn an_unquoted_star_is_explained() {
    for (line, pattern, column) in [
        ("        - *.rs", "*.rs", 11),
        ("        - **/*.ts", "**/*.ts", 11),
        ("      conflict_paths: [*.rs, b]", "*.rs", 24),
    ] {
        let list = if line.contains('-') { "      conflict_paths:\n" } else { "" };
        let text = format!("parallel_groups:\n  P1:\n    - group_id: a\n{list}{line}\n");
        let file = file(&text);
        let [problem] = file.problems.as_slice() else { panic!("{:?}", file.problems) };
        assert_eq!(problem.code, "YAML_ALIAS", "{line}");
        assert_eq!(problem.message, format!("`{pattern}` is read as an alias, not as a pattern"));
        assert!(problem.hint.as_ref().unwrap().contains("quote the pattern"));
        let expected = text.lines().count();
        assert_eq!((problem.place.line, problem.place.column), (expected, column), "{line}");
        assert_eq!(problem.place.width, pattern.len());
    }
}

#[test]
fn other_marks_that_need_quotes_are_explained() {
    let paths = |pattern: &str| {
        format!("parallel_groups:\n  P1:\n    - group_id: a\n      conflict_paths:\n        - {pattern}\n")
    };
    for pattern in ["{src,docs}/**", "[ab]/**", "@scope/x", "`x`"] {
        let file = file(&paths(pattern));
        let hints: Vec<&str> = file.errors().filter_map(|problem| problem.hint.as_deref()).collect();
        assert!(hints.iter().any(|hint| hint.contains("quote")), "{pattern}: {:?}", file.problems);
    }
    let tab = file("parallel_groups:\n\tP1: []\n");
    assert!(tab.problems[0].hint.as_ref().unwrap().contains("spaces"), "{:?}", tab.problems);
}

#[test]
fn a_key_that_is_there_twice_is_an_error() {
    let file = file("parallel_groups:\n  P1:\n    - group_id: a\n      agents: [x]\n      agents: [y]\n");
    assert_eq!(codes(&file), [("DUPLICATE_KEY", 5)]);
    assert!(file.problems[0].message.contains("first in line 4"));
}

#[test]
fn files_without_anything_to_plan_are_told_so() {
    for text in ["", "# nothing\n", "version: 1\n", "parallel_groups:\n", "null\n"] {
        let file = file(text);
        assert_eq!(codes(&file), [("NO_GROUPS", 1)], "{text:?}");
    }
    assert_eq!(codes(&file("- a\n- b\n"))[0].0, "SHAPE");
    assert_eq!(codes(&file("parallel_groups: 7\n"))[0].0, "SHAPE");
}

#[test]
fn numbers_that_do_not_fit_are_told() {
    let text = "parallel_groups:\n  P1:\n    max_parallel_groups: 0\n    groups:\n      - {id: a, agents: [x, x], max_concurrent: 0}\n\
        autotune: {min: 4, max: 2}\nconflict_resolution: {timeout: soon, retries: -1}\n";
    let file = file(text);
    assert_eq!(
        codes(&file),
        [
            ("ZERO", 3),
            ("DUPLICATE_AGENT", 5),
            ("ZERO", 5),
            ("BAD_AUTOTUNE", 6),
            ("BAD_DURATION", 7),
            ("SHAPE", 7),
        ]
    );
}

/// Public files write estimates for people.
#[test]
fn an_estimate_in_prose_is_a_warning() {
    for (estimate, is_read) in
        [("20分钟", true), ("2時間", true), ("15-20 minutes", false), ("40min（vs 串行120min）", false)]
    {
        let text = format!(
            "parallel_groups:\n  P1:\n    - id: a\n      agents: [{{name: x, estimated_time: \"{estimate}\"}}]\n"
        );
        let file = file(&text);
        let found = if is_read { vec![] } else { vec![("ESTIMATE_AS_TEXT", 4)] };
        assert_eq!((codes(&file), file.errors().count()), (found, 0), "{estimate}");
        let agent = &file.stages.phases[0].groups[0].agents[0];
        assert_eq!(agent.estimated_time.is_some(), is_read, "{estimate}");
    }
}

#[test]
fn strict_files_take_warnings_as_errors() {
    let text = "parallel_groups: {P1: [{id: a}]}\n";
    assert_eq!(file(text).problems[0].level, Level::Warning);
    assert_eq!(file(&format!("{text}validation: {{strict: true}}\n")).problems[0].level, Level::Error);
}

/// Requirements 203, 205. Real files say that too many at once is a warning.
#[test]
fn the_severity_of_a_check_decides_whether_it_refuses_a_file() {
    let groups = "parallel_groups: {P1: [{id: a, agents: [x], max_concurrent: 5}]}\n";
    let checked = |check: &str| file(&format!("{groups}validation: {{checks: [{check}]}}\n"));
    assert_eq!(file(groups).problems[0].level, Level::Error);
    assert_eq!(checked("{name: max_concurrent_valid, severity: ERROR}").problems[0].level, Level::Error);
    let warned = checked("{name: max_concurrent_valid, severity: WARNING}");
    assert_eq!((codes(&warned), warned.errors().count()), (vec![("MORE_THAN_AGENTS", 1)], 0));
    assert_eq!(warned.stages.phases[0].groups[0].slots(), 1);
    let unknown = checked("{name: max_concurrent_valid, severity: PURPLE}");
    assert_eq!(unknown.unknown[0].value, "PURPLE");
}

/// Requirement 203. Without this check there would be no plan.
#[test]
fn a_severity_that_cannot_have_an_effect_is_told() {
    let text = "parallel_groups: {P1: [{id: a, command: x, after: a}]}\n\
        validation: {checks: [{name: no_circular_dependencies, severity: WARNING}]}\n";
    let file = file(text);
    assert_eq!(codes(&file), [("CYCLE", 1), ("NO_EFFECT", 2)]);
    assert_eq!(file.problems[0].level, Level::Error);
    assert!(file.problems[1].message.contains("no_circular_dependencies"), "{:?}", file.problems[1]);
}

/// Requirement 203. The one in `parallel_groups` counts.
#[test]
fn a_second_definition_of_a_group_is_told_with_its_line() {
    let text = "parallel_groups: {P1: [{id: a, agents: [x], conflict_paths: [s.txt]}, {id: b, agents: [x], conflict_paths: [b]}]}\n\
        workflow_phase_parallel:\n  P1:\n    parallel_groups:\n      - {group_id: b}\n      \
        - {group_id: a, agents: [q1, q2], conflict_paths: [zz], depends_on: b}\n";
    let file = file(text);
    assert_eq!(codes(&file), [("NO_EFFECT", 6)]);
    assert_eq!(
        file.problems[0].message,
        "`a` is defined in line 1 already, so this definition has no effect"
    );
    assert_eq!((file.errors().count(), file.stages.dependencies.len()), (0, 0));
    assert_eq!(file.stages.phases[0].groups[0].agents.len(), 1);
}

#[test]
fn what_is_no_text_is_told_with_its_place() {
    let file = File::parse("x", b"a: 1\nb: \xff\n").unwrap();
    assert_eq!(codes(&file), [("NOT_TEXT", 2)]);
    assert_eq!(file.problems[0].place.column, 4);
    let marked = File::parse("x", b"\xef\xbb\xbfparallel_groups: {P1: [{id: a, agents: [x]}]}").unwrap();
    assert_eq!(codes(&marked), []);
}
