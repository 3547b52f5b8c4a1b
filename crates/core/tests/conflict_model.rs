//! Model test: conflict detection compared with a naive check of every two patterns of every two groups.

use std::collections::{BTreeMap, BTreeSet};

use lockkeeper_core::conflict::{Action, Findings, Group, Rule, Severity, Strategy as Fallback, detect};
use lockkeeper_core::overlap::{Comparison, Relation, covers, overlap_all, overlapping_pairs, relate};
use lockkeeper_core::pattern::Pattern;
use proptest::prelude::*;

/// The group pairs, each with the rule and the relation that the definition gives it.
fn conflicts(groups: &[Group], rules: &[Rule]) -> BTreeMap<(usize, usize), (Option<usize>, Relation)> {
    let mut found = BTreeMap::new();
    for (first, second) in (0..groups.len()).flat_map(|a| (a + 1..groups.len()).map(move |b| (a, b))) {
        let meeting: Vec<(&Pattern, &Pattern)> = groups[first]
            .paths
            .iter()
            .flat_map(|a| groups[second].paths.iter().map(move |b| (a, b)))
            .filter(|(a, b)| relate(a, b).relation.is_conflict())
            .collect();
        if meeting.is_empty() {
            continue;
        }
        let applies = |rule: &Rule, (a, b): (&Pattern, &Pattern)| {
            rule.paths.iter().any(|path| overlap_all(&[&meant(a), &meant(b), path]).is_some())
        };
        let rule = (0..rules.len())
            .filter(|place| meeting.iter().any(|pair| applies(&rules[*place], *pair)))
            .max_by_key(|place| (strictness(&rules[*place]), -rules[*place].priority, -(*place as i64)));
        let kind = meeting
            .iter()
            .filter(|pair| rule.is_none_or(|place| applies(&rules[place], **pair)))
            .map(|(a, b)| relate(a, b).relation)
            .min_by_key(|kind| {
                [Relation::Exact, Relation::ParentChild, Relation::Overlap].iter().position(|k| k == kind)
            })
            .expect("the rule applies to a pair");
        found.insert((first, second), (rule, kind));
    }
    found
}

/// What a pattern means to a rule: a literal path with an extension is a file.
fn meant(pattern: &Pattern) -> Pattern {
    let name = pattern.as_str().rsplit('/').next().unwrap_or_default();
    let is_file = pattern.is_literal() && name.find('.').is_some_and(|place| place > 0);
    if is_file { format!("{{{pattern}}}").parse().expect("a path in braces") } else { pattern.clone() }
}

fn strictness(rule: &Rule) -> usize {
    let order = [Fallback::Queue, Fallback::Mutex, Fallback::Serial, Fallback::Abort];
    order.iter().position(|one| *one == rule.action.strategy()).expect("every strategy is in the list")
}

/// The folders, each with the groups that have patterns in it without a common path.
fn same_dir(groups: &[Group]) -> BTreeMap<String, BTreeSet<usize>> {
    let mut found: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
    for (first, second) in (0..groups.len()).flat_map(|a| (0..groups.len()).map(move |b| (a, b))) {
        for (a, b) in
            groups[first].paths.iter().flat_map(|a| groups[second].paths.iter().map(move |b| (a, b)))
        {
            if first != second && relate(a, b).relation == Relation::SameDir {
                let folder = if a.parent().is_empty() { "." } else { a.parent() };
                found.entry(folder.to_owned()).or_default().extend([first, second]);
            }
        }
    }
    found
}

fn check(groups: &[Group], rules: &[Rule], findings: &Findings) {
    let told: BTreeMap<_, _> = findings
        .conflicts
        .iter()
        .map(|found| ((found.group1, found.group2), (found.ruling.rule, found.kind)))
        .collect();
    assert_eq!(told, conflicts(groups, rules));
    assert_eq!(told.len(), findings.conflicts.len(), "one conflict for two groups");
    assert!(findings.conflicts.is_sorted_by_key(|found| (found.group1, found.group2)));
    for found in &findings.conflicts {
        assert!(groups[found.group1].paths.contains(&found.path1), "{found:?}");
        assert!(groups[found.group2].paths.contains(&found.path2), "{found:?}");
        assert!(found.path1.matches(&found.witness) && found.path2.matches(&found.witness), "{found:?}");
        assert_eq!(relate(&found.path1, &found.path2).relation, found.kind);
        if let Some(place) = found.ruling.rule {
            assert!(rules[place].paths.iter().any(|path| path.matches(&found.witness)), "{found:?}");
            let rule = &rules[place];
            assert_eq!((found.ruling.severity, found.ruling.action), (rule.severity, rule.action));
        } else {
            assert_eq!(
                (found.ruling.severity, found.ruling.action),
                (Severity::Major, Action::QueueExecution)
            );
        }
    }
    let folders: BTreeMap<String, BTreeSet<usize>> = findings
        .same_dir
        .iter()
        .map(|found| (found.folder.clone(), found.groups.iter().copied().collect()))
        .collect();
    assert_eq!(folders, same_dir(groups));
    for found in &findings.same_dir {
        let inside: Pattern = format!("{}/*", found.folder).parse().expect("a folder is a pattern");
        let covering = rules.iter().any(|rule| rule.paths.iter().any(|path| covers(path, &inside)));
        assert_eq!(found.ruling.is_some(), covering, "{found:?}");
    }
}

/// Patterns of a small repository, so that many of them overlap.
fn any_pattern() -> impl Strategy<Value = Pattern> {
    let folder = prop_oneof![
        3 => Just(""), 3 => Just("src/"), 2 => Just("src/a/"), 1 => Just("src/a-b/"), 2 => Just("**/"),
        1 => Just("*/"), 1 => Just("src/*/"), 1 => Just("{src,docs}/"), 1 => Just("docs/**/a/"),
    ];
    let name = prop_oneof![
        3 => Just("a"), 2 => Just("b"), 2 => Just("x.ts"), 1 => Just("x.test.ts"), 2 => Just("*.ts"),
        1 => Just("*.md"), 1 => Just("**"), 2 => Just("*"), 1 => Just("a*"), 1 => Just("?"), 1 => Just("*/"),
        1 => Just("{a,x}.ts"), 1 => Just("package.json"),
    ];
    (folder, name).prop_map(|(folder, name)| format!("{folder}{name}").parse().expect("a pattern"))
}

fn any_groups() -> impl Strategy<Value = Vec<Group>> {
    let group =
        prop::collection::vec(any_pattern(), 0..5).prop_map(|paths| Group { id: String::new(), paths });
    prop::collection::vec(group, 0..9)
}

fn any_rules() -> impl Strategy<Value = Vec<Rule>> {
    let rule = (prop::collection::vec(any_pattern(), 0..3), 0..5_usize, 0..3_usize, -1..2_i64).prop_map(
        |(paths, action, severity, priority)| Rule {
            name: "rule".to_owned(),
            severity: Severity::ALL[severity],
            action: Action::ALL[action],
            priority,
            paths,
        },
    );
    prop::collection::vec(rule, 0..5)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 2, failure_persistence: None, ..ProptestConfig::default() })]

    /// Requirements 116, 117, 118, 119, 123, 124.
    #[test]
    fn indexed_detection_finds_what_all_pairs_find(groups in any_groups(), rules in any_rules()) {
        check(&groups, &rules, &detect(&groups, &rules, Action::QueueExecution));
    }

    /// Requirement 206.
    #[test]
    fn the_index_finds_the_overlaps_that_a_check_of_all_pairs_finds(patterns in prop::collection::vec(any_pattern(), 0..40)) {
        let patterns: Vec<&Pattern> = patterns.iter().collect();
        let mut found: Vec<(usize, usize, Comparison)> = Vec::new();
        overlapping_pairs(&patterns, |_, _| true, |a, b, meeting| found.push((a, b, meeting)));
        found.sort_unstable_by_key(|(a, b, _)| (*a, *b));
        let pairs = (0..patterns.len()).flat_map(|a| (a + 1..patterns.len()).map(move |b| (a, b)));
        let related = pairs.map(|(a, b)| (a, b, relate(patterns[a], patterns[b])));
        let expected: Vec<_> = related.filter(|(_, _, meeting)| meeting.relation.is_conflict()).collect();
        prop_assert_eq!(found, expected);
    }
}
