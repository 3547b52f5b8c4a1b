//! Claims about pairs and triples, and how much work they take.

use super::*;

fn pattern(text: &str) -> Pattern {
    Pattern::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn met(a: &str, b: &str) -> Option<String> {
    overlap(&pattern(a), &pattern(b))
}

fn related(a: &str, b: &str) -> (Relation, Option<String>) {
    let Comparison { relation, witness } = relate(&pattern(a), &pattern(b));
    (relation, witness)
}

#[test]
fn a_witness_is_short_and_readable() {
    for (a, b, witness) in [
        ("**/*.ts", "src/api/**", "src/api/x.ts"),
        ("src", "src/app/x.rs", "src/app/x.rs"),
        ("src/*", "src", "src/x"),
        ("*a", "b*", "ba"),
        ("[a-m]*", "[k-z]*", "k"),
        ("**/a/**", "**/b/**", "b/a/x"),
        ("{a,b}/*.rs", "{b,c}/x*", "b/x.rs"),
        (".", "**/*.md", "x.md"),
        ("[!a-z]", "[!A-Z0-9_-]", "!"),
        ("-*", "*-*", "-"),
    ] {
        assert_eq!(met(a, b).as_deref(), Some(witness), "{a} {b}");
        assert_eq!(met(b, a).as_deref(), Some(witness), "{b} {a}");
    }
}

#[test]
fn patterns_without_a_common_path_do_not_overlap() {
    for (a, b) in [
        ("src/app", "src/application"),
        ("src/*.rs", "src/*/x.rs"),
        ("**/*.ts", "**/*.tsx"),
        ("a/**", "{a,b}"),
        ("[a-c]", "[d-f]"),
        ("?", "??"),
        ("a/*/c", "a/?"),
        ("?", ".*"),
        ("{a,b}", "{c,d}"),
        ("dist/*.d.cts", "**/*.cy.ts"),
    ] {
        assert_eq!(met(a, b), None, "{a} {b}");
    }
}

#[test]
fn three_patterns_overlap_only_on_a_path_of_all_three() {
    let all = |texts: &[&str]| {
        let patterns: Vec<Pattern> = texts.iter().map(|text| pattern(text)).collect();
        overlap_all(&patterns.iter().collect::<Vec<_>>())
    };
    assert_eq!(all(&["src/**", "**/*.ts", "**/api/*"]).as_deref(), Some("src/api/x.ts"));
    assert_eq!(all(&["[ab]", "[bc]", "[ac]"]), None, "each two meet, all three do not");
    assert_eq!(all(&["a*", "*b", "?c?"]).as_deref(), Some("acb"));
    assert_eq!(all(&["[!x-z]", "[a-y]", "[v-z]", "*"]).as_deref(), Some("v"));
    assert_eq!(all(&["src", "src", "src"]).as_deref(), Some("src"));
    assert_eq!(all(&[]), None);
}

/// Requirement 116.
#[test]
fn equal_patterns_are_exact() {
    assert_eq!(related("./src//a.rs", "src/a.rs"), (Relation::Exact, Some("src/a.rs".to_owned())));
    assert_eq!(related("src/*", "src/*"), (Relation::Exact, Some("src/x".to_owned())));
}

/// Requirement 117.
#[test]
fn a_folder_and_what_it_holds_are_parent_and_child() {
    for (a, b, witness) in [
        ("src", "src/app", "src/app"),
        ("src/**", "src/app/*.rs", "src/app/x.rs"),
        ("**/*.ts", "src/*.ts", "src/x.ts"),
        ("*", "{a,b}", "a"),
        (".", "**", "x"),
        ("src", "{src/a,src/b}*", "src/a"),
    ] {
        assert_eq!(related(a, b), (Relation::ParentChild, Some(witness.to_owned())), "{a} {b}");
        assert_eq!(related(a, b), related(b, a));
    }
}

#[test]
fn patterns_that_cross_overlap() {
    assert_eq!(related("**/*.ts", "src/**"), (Relation::Overlap, Some("src/x.ts".to_owned())));
    assert_eq!(related("a*", "*b"), (Relation::Overlap, Some("ab".to_owned())));
}

/// Requirements 118 and 119.
#[test]
fn neighbours_in_a_folder_are_advice_and_the_rest_is_nothing() {
    assert_eq!(related("src/a.rs", "src/b.rs"), (Relation::SameDir, None));
    assert_eq!(related("src/*.rs", "src/*.ts"), (Relation::SameDir, None));
    assert_eq!(related("README.md", "LICENSE"), (Relation::SameDir, None));
    assert_eq!(related("src/a.rs", "docs/a.rs"), (Relation::None, None));
    assert_eq!(related("src/app", "src/app2/x"), (Relation::None, None));
}

/// Requirement 119.
#[test]
fn relations_have_the_names_of_the_reports() {
    let names =
        [Relation::Exact, Relation::ParentChild, Relation::Overlap, Relation::SameDir, Relation::None];
    assert_eq!(names.map(|name| name.to_string()), ["EXACT", "PARENT_CHILD", "OVERLAP", "SAME_DIR", "NONE"]);
    assert_eq!(names.map(Relation::is_conflict), [true, true, true, false, false]);
}

#[test]
fn a_folder_covers_what_is_in_it_and_a_pattern_what_it_matches() {
    for (a, b, is_covered) in [
        ("src", "src", true),
        ("src", "src/*.rs", true),
        ("src", "docs/*.rs", false),
        ("src/a.rs", "src", false),
        ("src/**", "src/a.rs", true),
        ("src/*.rs", "src/a*.rs", true),
        ("src/*.rs", "src/a.rs", false), // it may be a folder
        ("src/*.rs", "src/*.ts", false),
        ("src/*.rs", "src/*", false),
    ] {
        assert_eq!(covers(&pattern(a), &pattern(b)), is_covered, "{a} {b}");
    }
}

#[test]
fn coverage_names_a_path_that_is_missing() {
    let coverage_of = |a: &str, b: &str| coverage(&pattern(a), &pattern(b));
    assert_eq!(coverage_of("src/**", "src/**/*.rs"), Coverage::Covered);
    assert_eq!(coverage_of("src/**", "src"), Coverage::Missing("src".to_owned()));
    assert_eq!(coverage_of("[a-y]*", "*"), Coverage::Missing("0".to_owned()));
    assert_eq!(coverage_of("a*", "*"), Coverage::Missing("x".to_owned()), "a readable one");
    assert_eq!(coverage_of("[!q]*", "*"), Coverage::Missing("q".to_owned()), "the only one");
    assert_eq!(coverage_of("{[a-m],[!a-m]}*", "*"), Coverage::Covered);
    assert_eq!(coverage_of("docs", "src/*"), Coverage::Missing("src/x".to_owned()));
}

/// Visits no more pairs of states than there are, so hostile patterns cost the product of their lengths.
#[test]
fn hostile_pairs_visit_at_most_the_product_of_their_states() {
    for length in [25, 50, 100, 200] {
        let a = pattern(&format!("{}[!c]", "*a".repeat(length)));
        let b = pattern(&format!("{}c", "*b".repeat(length)));
        let search = product::pair(a.automaton(), b.automaton(), 0);
        assert_eq!(search.witness, None);
        assert!(a.automaton().len() <= 2 * length + 10, "{} states", a.automaton().len());
        assert!(search.states <= a.automaton().len() * b.automaton().len());
        assert!(search.states <= 5 * length * length, "{} visited for {length}", search.states);
    }
}

/// Braces add to the states and do not multiply them.
#[test]
fn hostile_braces_visit_as_many_states_as_their_text_is_long() {
    for count in [8, 16, 32, 64] {
        let a = pattern(&format!("{}c", "{a,b}".repeat(count)));
        let b = pattern(&format!("{}d*", "{b,a}".repeat(count)));
        let search = product::pair(a.automaton(), b.automaton(), 0);
        assert_eq!(search.witness, None);
        assert!(search.states <= 8 * count, "{} visited for {count}", search.states);
    }
}

/// A search of three stops at its bound instead of growing with the third power.
#[test]
fn a_hostile_triple_gives_up_on_the_safe_side() {
    let hostile: Vec<Pattern> = ["a", "b", "c"]
        .iter()
        .map(|letter| pattern(&format!("{}*", format!("*{letter}").repeat(60))))
        .collect();
    let automata: Vec<_> = hostile.iter().map(Pattern::automaton).collect();
    assert_eq!(product::many(&automata, 2000), Err(product::GaveUp));
    let small = ["*a*", "*b*", "*c*"].map(pattern);
    let automata: Vec<_> = small.iter().map(Pattern::automaton).collect();
    assert_eq!(product::many(&automata, 2000), Ok(Some("cba".to_owned())));
}
