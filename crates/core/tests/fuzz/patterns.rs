//! What must hold for any bytes taken as patterns and a path; the fuzzer and the test suite both call it.

use lockkeeper_core::conflict::{Action, Group, Rule, Severity, detect};
use lockkeeper_core::overlap::{Coverage, coverage, covers, overlap, overlap_all, relate};
use lockkeeper_core::pattern::Pattern;

/// Longer inputs find no more mistakes than shorter ones, and take much longer.
const MAX_INPUT: usize = 512;

/// Takes the lines for patterns, and the last one for a path.
pub fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(&data[..data.len().min(MAX_INPUT)]);
    let mut lines: Vec<&str> = text.split('\n').take(5).collect();
    let path = lines.pop().unwrap_or_default();
    let patterns: Vec<Pattern> = lines.into_iter().filter_map(parse).collect();
    for pattern in &patterns {
        one(pattern, path);
    }
    for (a, b) in patterns.iter().flat_map(|a| patterns.iter().map(move |b| (a, b))) {
        two(a, b, path);
    }
    for three in patterns.windows(3) {
        all(&three.iter().collect::<Vec<_>>(), path);
    }
    groups(&patterns);
}

/// Parses a pattern. An error has a column within the text, and a hint.
fn parse(text: &str) -> Option<Pattern> {
    match Pattern::parse(text) {
        Ok(pattern) => Some(pattern),
        Err(error) => {
            assert!(!error.to_string().is_empty() && !error.hint().is_empty());
            assert!(
                error.column().is_none_or(|column| column >= 1 && column <= text.chars().count()),
                "{text:?}"
            );
            None
        }
    }
}

/// The normal form is stable, and the example and the prefix are true.
fn one(pattern: &Pattern, path: &str) {
    let again = Pattern::parse(pattern.as_str()).expect("the normal form is a pattern");
    assert_eq!(again.as_str(), pattern.as_str());
    assert_eq!(again.is_literal(), pattern.is_literal(), "{pattern}");
    assert!(pattern.matches(pattern.example()), "{pattern}: {}", pattern.example());
    assert_eq!(again.matches(path), pattern.matches(path), "{pattern}: {path:?}");
    for matched in [path, pattern.example()].into_iter().filter(|path| pattern.matches(path)) {
        let names: Vec<&str> = matched.split('/').filter(|name| !matches!(*name, "" | ".")).collect();
        let clean = names.join("/");
        let prefix = pattern.literal_prefix();
        let below = clean.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        assert!(prefix.is_empty() || below, "{pattern}: {matched:?}");
    }
}

/// Two patterns overlap exactly if they have a witness, and the order of the two does not matter.
fn two(a: &Pattern, b: &Pattern, path: &str) {
    let witness = overlap(a, b);
    assert_eq!(witness, overlap(b, a), "{a} {b}");
    match &witness {
        Some(witness) => assert!(a.matches(witness) && b.matches(witness), "{a} {b}: {witness:?}"),
        None => {
            for path in [path, a.example(), b.example()] {
                assert!(!(a.matches(path) && b.matches(path)), "{a} {b}: {path:?}");
            }
        }
    }
    let meeting = relate(a, b);
    assert_eq!(meeting, relate(b, a), "{a} {b}");
    assert_eq!(meeting.relation.is_conflict(), witness.is_some(), "{a} {b}");
    match coverage(a, b) {
        Coverage::Covered => {
            assert!(covers(a, b) && a.matches(b.example()), "{a} {b}");
            assert!(a.matches(path) || !b.matches(path), "{a} {b}: {path:?}");
        }
        Coverage::Missing(missing) => {
            assert!(!covers(a, b) && !a.matches(&missing) && b.matches(&missing), "{a} {b}: {missing:?}");
        }
        Coverage::Unknown => assert!(!covers(a, b), "{a} {b}"),
    }
}

/// A path that all patterns match is a witness of each two. The input is too short for a search to give up.
fn all(patterns: &[&Pattern], path: &str) {
    match overlap_all(patterns) {
        Some(witness) => {
            assert!(patterns.iter().all(|pattern| pattern.matches(&witness)), "{patterns:?}: {witness:?}");
        }
        None => assert!(!patterns.iter().all(|pattern| pattern.matches(path)), "{patterns:?}: {path:?}"),
    }
}

/// The detector finds what the pairs say, whichever group has which pattern.
fn groups(patterns: &[Pattern]) {
    let groups: Vec<Group> = patterns
        .iter()
        .map(|pattern| Group { id: pattern.to_string(), paths: vec![pattern.clone()] })
        .collect();
    let rule = Rule {
        name: "rule".to_owned(),
        severity: Severity::Fatal,
        action: Action::Abort,
        priority: Rule::DEFAULT_PRIORITY,
        paths: patterns.first().into_iter().cloned().collect(),
    };
    let findings = detect(&groups, std::slice::from_ref(&rule), Action::QueueExecution);
    let mut found = findings.conflicts.iter();
    for (a, b) in (0..patterns.len()).flat_map(|a| (a + 1..patterns.len()).map(move |b| (a, b))) {
        let meeting = relate(&patterns[a], &patterns[b]);
        if meeting.relation.is_conflict() {
            let conflict = found.next().expect("what meets is found");
            assert_eq!((conflict.group1, conflict.group2, conflict.kind), (a, b, meeting.relation));
            let witness = &conflict.witness;
            assert!(patterns[a].matches(witness) && patterns[b].matches(witness), "{conflict:?}");
            assert!(conflict.ruling.rule.is_none() || rule.paths[0].matches(witness), "{conflict:?}");
        }
    }
    assert_eq!(found.next(), None, "what does not meet is not found");
}
