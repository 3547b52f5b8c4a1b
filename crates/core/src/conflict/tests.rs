//! Claims about groups and rules.

use super::*;

fn patterns(texts: &[&str]) -> Vec<Pattern> {
    texts.iter().map(|text| text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))).collect()
}

fn groups(all: &[&[&str]]) -> Vec<Group> {
    all.iter()
        .enumerate()
        .map(|(place, texts)| Group { id: format!("g{place}"), paths: patterns(texts) })
        .collect()
}

fn rule(name: &str, severity: Severity, action: Action, paths: &[&str]) -> Rule {
    Rule { name: name.to_owned(), severity, action, priority: Rule::DEFAULT_PRIORITY, paths: patterns(paths) }
}

/// The two rules of the format's own example.
fn example_rules() -> Vec<Rule> {
    vec![
        rule("same_file_write", Severity::Fatal, Action::DowngradeToSerial, &["**/*.ts", "**/*.js"]),
        rule(
            "shared_config_modify",
            Severity::Fatal,
            Action::MutexLock,
            &["package.json", "tsconfig.json", ".workflow/*.yml"],
        ),
    ]
}

fn found(all: &[&[&str]], rules: &[Rule]) -> Findings {
    detect(&groups(all), rules, Action::DowngradeToSerial)
}

/// Requirement 125.
#[test]
fn backend_and_frontend_do_not_conflict() {
    let backend: &[&str] = &["src/backend/**", "src/api/**", "migrations/**"];
    let frontend: &[&str] = &["src/frontend/**", "src/components/**"];
    let findings = found(&[backend, frontend], &example_rules());
    assert_eq!(findings, Findings::default());
    assert_eq!(findings.strategy(), None);
}

/// Requirements 116, 117, 119.
#[test]
fn two_groups_have_one_conflict_and_it_is_the_closest() {
    let findings = found(&[&["src/**", "docs/a.md", "x/*a"], &["x/b*", "docs/a.md", "src/api/**"]], &[]);
    let [conflict] = findings.conflicts.as_slice() else { panic!("{findings:?}") };
    assert_eq!((conflict.group1, conflict.group2, conflict.kind), (0, 1, Relation::Exact));
    assert_eq!((conflict.path1.as_str(), conflict.path2.as_str()), ("docs/a.md", "docs/a.md"));
    let findings = found(&[&["x/*a", "src/**"], &["x/b*", "src/api/**"]], &[]);
    assert_eq!(findings.conflicts[0].kind, Relation::ParentChild);
    assert_eq!(findings.conflicts[0].path2.as_str(), "src/api/**");
}

#[test]
fn path1_belongs_to_the_first_group_whatever_the_order_of_the_patterns() {
    for all in [[&["b/**"][..], &["b/x", "a"][..]], [&["b/x", "a"][..], &["b/**"][..]]] {
        let conflict = &found(&all, &[]).conflicts[0];
        assert_eq!((conflict.path1.as_str(), conflict.path2.as_str()), (all[0][0], all[1][0]));
    }
}

/// Requirements 121, 122.
#[test]
fn a_conflict_without_a_rule_takes_the_default() {
    let findings = found(&[&["docs/**"], &["docs/a.md"]], &example_rules());
    let ruling = Ruling { rule: None, severity: Severity::Major, action: Action::DowngradeToSerial };
    assert_eq!(findings.conflicts[0].ruling, ruling);
    let findings = detect(&groups(&[&["docs/**"], &["docs/a.md"]]), &[], Action::Abort);
    assert_eq!(findings.conflicts[0].ruling.action, Action::Abort);
    assert_eq!(findings.strategy(), Some(Strategy::Abort));
}

/// Requirements 123, 124.
#[test]
fn a_rule_applies_where_one_path_is_matched_by_both_groups_and_by_it() {
    let rules = example_rules();
    for (a, b, name, witness) in [
        ("src/**", "src/api/*", Some("same_file_write"), "src/api/x.ts"),
        ("package.json", "package.json", Some("shared_config_modify"), "package.json"),
        ("*.json", "package.*", Some("shared_config_modify"), "package.json"),
        (".workflow/**", ".workflow/*.yml", Some("shared_config_modify"), ".workflow/x.yml"),
        ("src/*.rs", "src/**", None, "src/x.rs"),
        ("docs/*.md", "**/*.md", None, "docs/x.md"),
        ("README.md", "README.md", None, "README.md"),
    ] {
        let findings = found(&[&[a], &[b]], &rules);
        let conflict = &findings.conflicts[0];
        assert_eq!(conflict.ruling.rule.map(|place| rules[place].name.as_str()), name, "{a} {b}");
        assert_eq!(conflict.witness, witness, "{a} {b}");
    }
}

#[test]
fn a_rule_that_overlaps_each_group_on_another_path_does_not_apply() {
    let rules = [rule("ends", Severity::Minor, Action::QueueExecution, &["a/*x", "a/y*"])];
    let findings = found(&[&["a/*[xy]z"], &["a/[pq]*"]], &rules);
    assert_eq!(findings.conflicts[0].ruling.rule, None, "both overlap, but not in a path of the rule");
}

/// If the search gives up, the rule counts as one that applies, and the witness is still a path of both groups.
#[test]
fn hostile_patterns_have_a_witness_of_both_groups() {
    let hostile = ["a", "b", "c"].map(|letter| format!("{}*", format!("*{letter}").repeat(60)));
    let rules = [rule("hostile", Severity::Fatal, Action::Abort, &[&hostile[0]])];
    let findings = found(&[&[&hostile[1]], &[&hostile[2]]], &rules);
    let conflict = &findings.conflicts[0];
    assert_eq!(conflict.ruling.rule, Some(0));
    assert!(conflict.path1.matches(&conflict.witness) && conflict.path2.matches(&conflict.witness));
}

/// Requirement 124.
#[test]
fn the_strictest_rule_counts_then_the_lowest_priority_then_the_first() {
    let with = |action, priority| Rule { priority, ..rule("r", Severity::Minor, action, &["**"]) };
    let (queue, mutex) = (Action::QueueExecution, Action::MutexLock);
    let (serial, operations) = (Action::DowngradeToSerial, Action::SerializeOperations);
    for (rules, chosen) in [
        (vec![with(queue, 1), with(mutex, 9), with(serial, 9), with(Action::Abort, 99)], 3),
        (vec![with(queue, 1), with(serial, 9), with(mutex, 1)], 1),
        (vec![with(queue, 1), with(mutex, 9)], 1),
        (vec![with(mutex, 5), with(mutex, 4), with(mutex, 4)], 1),
        (vec![with(serial, 2), with(operations, 1)], 1),
        (vec![with(queue, -1), with(queue, i64::MIN)], 1),
    ] {
        assert_eq!(found(&[&["a"], &["a"]], &rules).conflicts[0].ruling.rule, Some(chosen));
    }
}

#[test]
fn the_strictest_rule_is_found_whichever_patterns_it_applies_to() {
    let rules = [
        rule("docs", Severity::Minor, Action::QueueExecution, &["docs"]),
        rule("code", Severity::Fatal, Action::Abort, &["src/**/*.rs"]),
    ];
    let findings = found(&[&["docs/a.md", "src/**"], &["docs/a.md", "src/x/*"]], &rules);
    let [conflict] = findings.conflicts.as_slice() else { panic!("{findings:?}") };
    assert_eq!((conflict.ruling.rule, conflict.kind), (Some(1), Relation::ParentChild));
    assert_eq!(conflict.witness, "src/x/x.rs");
}

/// Requirement 118.
#[test]
fn groups_in_one_folder_are_reported_once_and_stay_parallel() {
    let findings = found(
        &[&["src/api/users.ts"], &["src/api/posts.ts"], &["src/api/a.ts", "x"], &["y"]],
        &example_rules(),
    );
    assert_eq!(findings.conflicts, []);
    let told: Vec<(&str, &[usize])> =
        findings.same_dir.iter().map(|found| (found.folder.as_str(), found.groups.as_slice())).collect();
    assert_eq!(told, [(".", [2, 3].as_slice()), ("src/api", &[0, 1, 2])]);
    assert_eq!(findings.strategy(), None);
}

#[test]
fn a_group_is_no_neighbour_of_itself_nor_of_a_group_that_it_overlaps() {
    assert_eq!(found(&[&["src/a", "src/b"], &["docs/x"]], &[]).same_dir, []);
    assert_eq!(found(&[&["src/*"], &["src/a"], &["src/*a"]], &[]).same_dir, []);
    assert_eq!(found(&[&["src/a"], &["src/a"]], &[]).same_dir, []);
    let shared = found(&[&["src/a", "src/b"], &["src/a"]], &[]).same_dir;
    assert_eq!(shared[0].groups, [0, 1], "b of the one and a of the other");
    let partly = found(&[&["src/a*"], &["src/ab"], &["src/c"]], &[]).same_dir;
    assert_eq!(partly[0].groups, [0, 1, 2]);
}

/// Requirement 118.
#[test]
fn a_rule_that_covers_the_folder_makes_neighbours_wait() {
    let mutex = |path: &str| [rule("order", Severity::Major, Action::MutexLock, &[path])];
    let all: [&[&str]; 2] = [&["migrations/1.sql"], &["migrations/2.sql"]];
    for path in ["migrations", "migrations/**", "migrations/*", "**"] {
        let findings = found(&all, &mutex(path));
        let ruling = Ruling { rule: Some(0), severity: Severity::Major, action: Action::MutexLock };
        assert_eq!(findings.same_dir[0].ruling, Some(ruling), "{path}");
        assert_eq!(findings.strategy(), Some(Strategy::Mutex), "{path}");
    }
    for path in ["migrations/*.sql", "**/*.sql", "migrations/1.sql", "src/**"] {
        assert_eq!(found(&all, &mutex(path)).strategy(), None, "{path}");
    }
}

/// Requirement 121.
#[test]
fn severities_have_their_names() {
    assert_eq!(Severity::ALL.map(|severity| severity.to_string()), ["FATAL", "MAJOR", "MINOR"]);
    assert!(Severity::ALL.is_sorted_by(|a, b| a > b));
    for severity in Severity::ALL {
        assert_eq!(severity.as_str().parse(), Ok(severity));
    }
    let error = "WARN".parse::<Severity>().unwrap_err();
    assert_eq!(error.to_string(), "`WARN` is not a severity");
    assert_eq!(error.hint(), "write one of FATAL, MAJOR, MINOR");
}

/// Requirements 122, 124.
#[test]
fn actions_have_their_names_and_strategies() {
    let words = Action::ALL.map(|action| (action.as_str(), action.strategy().as_str()));
    assert_eq!(
        words,
        [
            ("downgrade_to_serial", "SERIAL"),
            ("mutex_lock", "MUTEX"),
            ("queue_execution", "QUEUE"),
            ("serialize_operations", "SERIAL"),
            ("abort", "ABORT"),
        ]
    );
    for action in Action::ALL {
        assert_eq!(action.as_str().parse(), Ok(action));
    }
    assert!("Abort".parse::<Action>().unwrap_err().hint().ends_with("abort"));
}
