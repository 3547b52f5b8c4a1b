//! The pattern engine against brute force: a naive matcher that shares no code with it, over every short
//! path.
//!
//! Every answer is checked by what proves it. A path in an answer is put to the naive matcher; an answer
//! without one is compared with all paths up to six characters over a small alphabet, which the generated
//! patterns are short enough for.

use std::sync::LazyLock;

use lockkeeper_core::overlap::{Coverage, Relation, coverage, covers, overlap, overlap_all, relate};
use lockkeeper_core::pattern::{Pattern, PatternError};
use proptest::prelude::*;

/// An element of a generated pattern.
#[derive(Clone, Debug, PartialEq)]
enum Part {
    Text(char),
    Escaped(char),
    Slash,
    Any,
    Class { negated: bool, members: Vec<char>, written: &'static str },
    Star,
    Stars,
    Braces(Vec<Vec<Part>>),
}

/// A pattern for the naive matcher: its alternatives written out, and whether it has no wildcards.
struct Naive {
    alternatives: Vec<Alternative>,
    literal: bool,
}

/// One way to write a pattern without braces, by components.
struct Alternative {
    all: Vec<Vec<Part>>,
    /// Those that are not empty or `.`.
    kept: Vec<Vec<Part>>,
    subtree: bool,
}

impl Naive {
    fn new(parts: &[Part]) -> Self {
        let literal = parts.iter().all(|part| matches!(part, Part::Text(_) | Part::Escaped(_) | Part::Slash));
        let alternatives = written_out(parts).into_iter().map(|parts| {
            let all: Vec<Vec<Part>> =
                parts.split(|part| *part == Part::Slash).map(<[Part]>::to_vec).collect();
            let subtree = literal || all.last().is_some_and(|last| last.is_empty() || spells(last, "."));
            let kept = all.iter().filter(|c| !c.is_empty() && !spells(c, ".")).cloned().collect();
            Alternative { all, kept, subtree }
        });
        Self { alternatives: alternatives.collect(), literal }
    }

    fn matches(&self, path: &str) -> bool {
        let names: Vec<&str> = path.split('/').collect();
        self.alternatives.iter().any(|Alternative { kept, subtree, .. }| {
            if kept.is_empty() {
                return self.literal;
            }
            let shortest = if *subtree { 1 } else { names.len() };
            (shortest..=names.len()).any(|count| components_match(kept, &names[..count]))
        })
    }

    fn makes_component(&self, name: &str) -> bool {
        self.alternatives
            .iter()
            .flat_map(|alternative| &alternative.all)
            .any(|component| spells(component, name))
    }

    fn makes_absolute(&self) -> bool {
        self.alternatives.iter().any(|Alternative { all, .. }| all.len() > 1 && all[0].is_empty())
    }

    /// As `makes_absolute`, once every leading `./` is gone.
    fn makes_leading_slash(&self) -> bool {
        self.alternatives
            .iter()
            .any(|Alternative { all, .. }| all.iter().find(|c| !spells(c, ".")).is_some_and(Vec::is_empty))
    }
}

fn written_out(parts: &[Part]) -> Vec<Vec<Part>> {
    parts.iter().fold(vec![Vec::new()], |heads, part| {
        let tails = match part {
            Part::Braces(alternatives) => alternatives.iter().flat_map(|parts| written_out(parts)).collect(),
            other => vec![vec![other.clone()]],
        };
        heads.iter().flat_map(|head| tails.iter().map(|tail| [head.clone(), tail.clone()].concat())).collect()
    })
}

fn spells(component: &[Part], name: &str) -> bool {
    component.len() == name.len()
        && component
            .iter()
            .zip(name.chars())
            .all(|(part, c)| matches!(part, Part::Text(t) | Part::Escaped(t) if *t == c))
}

fn components_match(components: &[Vec<Part>], names: &[&str]) -> bool {
    let Some((first, rest)) = components.split_first() else { return names.is_empty() };
    if *first == [Part::Stars] {
        let most = if rest.is_empty() { 0 } else { names.len() + 1 };
        return rest.is_empty() && !names.is_empty()
            || (0..most).any(|skip| components_match(rest, &names[skip..]));
    }
    !names.is_empty() && name_matches(first, names[0]) && components_match(rest, &names[1..])
}

fn name_matches(parts: &[Part], name: &str) -> bool {
    let Some((part, rest)) = parts.split_first() else { return name.is_empty() };
    let mut characters = name.chars();
    let first = characters.next();
    match part {
        Part::Star | Part::Stars => {
            name_matches(rest, name) || first.is_some() && name_matches(parts, characters.as_str())
        }
        Part::Text(own) | Part::Escaped(own) => {
            first == Some(*own) && name_matches(rest, characters.as_str())
        }
        Part::Any => first.is_some() && name_matches(rest, characters.as_str()),
        Part::Class { negated, members, .. } => {
            first.is_some_and(|c| members.contains(&c) != *negated) && name_matches(rest, characters.as_str())
        }
        Part::Slash | Part::Braces(_) => unreachable!("names have no slash, and braces are written out"),
    }
}

fn text(parts: &[Part]) -> String {
    parts
        .iter()
        .map(|part| match part {
            Part::Text(character) => character.to_string(),
            Part::Escaped(character) => format!("\\{character}"),
            Part::Slash => "/".to_owned(),
            Part::Any => "?".to_owned(),
            Part::Class { written, .. } => (*written).to_owned(),
            Part::Star => "*".to_owned(),
            Part::Stars => "**".to_owned(),
            Part::Braces(alternatives) => {
                format!("{{{}}}", alternatives.iter().map(|parts| text(parts)).collect::<Vec<_>>().join(","))
            }
        })
        .collect()
}

/// Every path up to six characters over `a`, `b`, `.` and `/`, and up to four with `c`, the character no
/// pattern names.
static PATHS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let mut paths = Vec::new();
    let mut grown = vec![String::new()];
    for length in 1..=6 {
        let alphabet = if length <= 4 { "ab./c" } else { "ab./" };
        grown = grown.iter().flat_map(|start| alphabet.chars().map(move |c| format!("{start}{c}"))).collect();
        if length == 5 {
            grown.retain(|path| !path.contains('c'));
        }
        let valid = |path: &&String| path.split('/').all(|name| !matches!(name, "" | "." | ".."));
        paths.extend(grown.iter().filter(valid).cloned());
    }
    paths
});

/// Requires the engine and the naive matcher to agree on one pattern; `None` when both refuse it.
fn both(parts: &[Part]) -> Option<(Pattern, Naive, Vec<bool>)> {
    let (text, naive) = (text(parts), Naive::new(parts));
    let matched: Vec<bool> = PATHS.iter().map(|path| naive.matches(path)).collect();
    let pattern = match Pattern::parse(&text) {
        Ok(pattern) => pattern,
        Err(error) => {
            let founded = match error {
                // `./{/a,b}` too: its normal form starts with the braces.
                PatternError::Absolute { .. } => naive.makes_leading_slash(),
                PatternError::ParentFolder { .. } => naive.makes_component(".."),
                PatternError::CurrentFolder { .. } => naive.makes_component("."),
                PatternError::MatchesNothing { .. } => !matched.contains(&true),
                PatternError::Empty => text.is_empty(),
                _ => false,
            };
            assert!(founded, "{text}: {error}");
            return None;
        }
    };
    assert!(!naive.makes_absolute() && !naive.makes_component(".."), "{text} should be refused");
    assert_eq!(pattern.is_literal(), naive.literal, "{text}");
    assert!(naive.matches(pattern.example()), "{text}: example {}", pattern.example());
    for (path, expected) in PATHS.iter().zip(&matched) {
        assert_eq!(pattern.matches(path), *expected, "{text} {path}");
        assert!(!expected || is_within(path, pattern.literal_prefix()), "{text} {path}");
    }
    let again = Pattern::parse(pattern.as_str()).expect("the normal form is a pattern");
    assert_eq!(again.as_str(), pattern.as_str(), "{text}");
    assert!(PATHS.iter().zip(&matched).all(|(path, expected)| again.matches(path) == *expected), "{text}");
    Some((pattern, naive, matched))
}

fn is_within(path: &str, folder: &str) -> bool {
    folder.is_empty() || path == folder || path.starts_with(&format!("{folder}/"))
}

/// Checks all answers about two patterns.
fn check_pair(
    (a, naive_a, matched_a): &(Pattern, Naive, Vec<bool>),
    (b, naive_b, matched_b): &(Pattern, Naive, Vec<bool>),
) {
    let witness = overlap(a, b);
    match &witness {
        Some(path) => {
            assert!(naive_a.matches(path) && naive_b.matches(path), "{a} {b}: {path}");
            assert!(a.matches(path) && b.matches(path), "{a} {b}: {path}");
            let (left, right) = (a.literal_prefix(), b.literal_prefix());
            assert!(is_within(left, right) || is_within(right, left), "{a} {b}: prefixes");
        }
        None => {
            let common = (0..PATHS.len()).find(|index| matched_a[*index] && matched_b[*index]);
            assert!(common.is_none(), "{a} {b}: both match {}", PATHS[common.unwrap_or_default()]);
        }
    }
    let covered = match coverage(a, b) {
        Coverage::Covered => {
            let missing = (0..PATHS.len()).find(|index| matched_b[*index] && !matched_a[*index]);
            assert!(missing.is_none(), "{a} does not cover {b}: {}", PATHS[missing.unwrap_or_default()]);
            true
        }
        Coverage::Missing(path) => {
            assert!(naive_b.matches(&path) && !naive_a.matches(&path), "{a} {b}: {path} is not missing");
            false
        }
        // Allowed for the wildest patterns only; `covers` then says no.
        Coverage::Unknown => {
            assert!(a.as_str().len() + b.as_str().len() > 60, "{a} {b}: gave up");
            false
        }
    };
    assert_eq!(covers(a, b), covered, "{a} {b}");
    let meeting = relate(a, b);
    assert_eq!(meeting, relate(b, a), "{a} {b}");
    assert_eq!(meeting.relation.is_conflict(), witness.is_some(), "{a} {b}");
    assert_eq!(meeting.witness.is_some(), witness.is_some(), "{a} {b}");
    assert_eq!(meeting.relation == Relation::Exact, a == b, "{a} {b}");
    if covered && a != b {
        assert_eq!(meeting.relation, Relation::ParentChild, "{a} {b}");
    }
}

/// Joins neighbouring stars, which the text would join anyway.
fn join_stars(parts: Vec<Part>) -> Vec<Part> {
    let mut joined: Vec<Part> = Vec::new();
    for part in parts {
        match (joined.last_mut(), &part) {
            (Some(last @ (Part::Star | Part::Stars)), Part::Star | Part::Stars) => *last = Part::Stars,
            _ => joined.push(part),
        }
    }
    joined
}

fn any_part() -> impl Strategy<Value = Part> {
    let class = |negated, members: &str, written| {
        Just(Part::Class { negated, members: members.chars().collect(), written })
    };
    let leaf = prop_oneof![
        6 => prop_oneof![Just('a'), Just('b'), Just('.')].prop_map(Part::Text),
        1 => prop_oneof![Just('a'), Just('.')].prop_map(Part::Escaped),
        6 => Just(Part::Slash),
        3 => Just(Part::Star),
        2 => Just(Part::Any),
        4 => Just(Part::Stars),
        1 => class(false, "ab", "[a-b]"),
        1 => class(false, "b.", "[.b/]"),
        1 => class(true, "a", "[!a]"),
        1 => class(true, "abcdefghijklmnopqrstuvwxyz", "[^[:lower:]]"),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        let alternative = prop::collection::vec(inner, 0..4).prop_map(join_stars);
        prop::collection::vec(alternative, 1..4).prop_map(Part::Braces)
    })
}

fn any_pattern() -> impl Strategy<Value = Vec<Part>> {
    prop::collection::vec(any_part(), 1..6).prop_map(join_stars)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, failure_persistence: None, ..ProptestConfig::default() })]

    /// Requirement 206.
    #[test]
    fn random_patterns_agree_with_brute_force(written in prop::collection::vec(any_pattern(), 5)) {
        let patterns: Vec<_> = written.iter().filter_map(|parts| both(parts)).collect();
        for a in &patterns {
            patterns.iter().for_each(|b| check_pair(a, b));
        }
        for three in patterns.windows(3) {
            let [a, b, c] = three else { unreachable!("windows are of three") };
            match overlap_all(&[&a.0, &b.0, &c.0]) {
                Some(path) => prop_assert!(three.iter().all(|(_, naive, _)| naive.matches(&path)), "{}", path),
                None => prop_assert!(
                    !(0..PATHS.len()).any(|index| a.2[index] && b.2[index] && c.2[index]),
                    "{} {} {}", a.0, b.0, c.0
                ),
            }
        }
    }
}

/// Requirement 206.
#[test]
fn all_pairs_of_the_smallest_patterns_agree_with_brute_force() {
    let leaves = [Part::Text('a'), Part::Text('.'), Part::Slash, Part::Any, Part::Star, Part::Stars];
    let mut patterns: Vec<(Pattern, Naive, Vec<bool>)> = Vec::new();
    let mut grown: Vec<Vec<Part>> = vec![Vec::new()];
    for _ in 0..3 {
        grown = grown
            .iter()
            .flat_map(|start| {
                leaves.iter().map(move |leaf| [start.as_slice(), std::slice::from_ref(leaf)].concat())
            })
            .filter(|parts| join_stars(parts.clone()) == *parts)
            .collect();
        patterns.extend(grown.iter().filter_map(|parts| both(parts)));
    }
    patterns.sort_by(|a, b| a.0.cmp(&b.0));
    patterns.dedup_by(|a, b| a.0 == b.0);
    assert!(patterns.len() > 60, "{} patterns", patterns.len());
    for a in &patterns {
        patterns.iter().for_each(|b| check_pair(a, b));
    }
}
