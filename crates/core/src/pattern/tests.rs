//! One claim for each construct of the grammar.

use super::*;

fn pattern(text: &str) -> Pattern {
    Pattern::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refused(text: &str) -> PatternError {
    Pattern::parse(text).expect_err(text)
}

#[track_caller]
fn check(text: &str, matched: &[&str], unmatched: &[&str]) {
    let pattern = pattern(text);
    for path in matched {
        assert!(pattern.matches(path), "{text} should match {path}");
    }
    for path in unmatched {
        assert!(!pattern.matches(path), "{text} should not match {path}");
    }
}

/// Requirement 117.
#[test]
fn a_literal_covers_its_subtree_by_components() {
    check(
        "src/app",
        &["src/app", "src/app/x.rs", "src/app/a/b"],
        &["src", "src/application", "src/app.rs", "app"],
    );
}

/// Requirement 123.
#[test]
fn a_star_stays_within_one_component() {
    check("src/*.rs", &["src/a.rs", "src/.rs"], &["src/a/b.rs", "a.rs", "src/a.rsx", "src/a.rs/b"]);
    check(".workflow/*.yml", &[".workflow/ci.yml"], &["workflow/ci.yml", ".workflow/a/ci.yml"]);
    check("*/a", &["b/a"], &["a", "b/c/a"]);
    check("*", &["a", ".a", "日本語"], &["a/b", "", "."]);
}

#[test]
fn a_question_mark_is_one_character_and_never_a_slash() {
    check("a?c", &["abc", "a.c", "a語c"], &["ac", "a/c", "abbc"]);
}

/// Requirement 123.
#[test]
fn two_stars_alone_stand_for_any_folders() {
    check("**/*.ts", &["a.ts", "a/b.ts", "a/b/c.ts", ".a/.ts"], &["a.tsx", "a.ts/b"]);
    check("a/**/b", &["a/b", "a/x/b", "a/x/y/b"], &["ab", "a/xb", "a/b/c"]);
    check("a/**", &["a/b", "a/b/c"], &["a", "ab"]);
    check("**", &["a", "a/b", ".a"], &["", "."]);
}

#[test]
fn two_stars_within_a_component_are_one() {
    check("a**b", &["ab", "axb"], &["a/b"]);
    check("src/**.py", &["src/a.py"], &["src/a/b.py"]);
    assert_eq!(pattern("a**b/***/c***").as_str(), "a*b/**/c*");
}

#[test]
fn a_class_is_one_character_of_a_set() {
    check("[a-cx]", &["a", "b", "c", "x"], &["d", "ab", ""]);
    check("[!a-c]", &["d", "語"], &["a", "b"]);
    check("[^a]b", &["bb", ".b"], &["ab", "/b"]);
    check("a[!b]c", &["axc"], &["a/c", "abc"]);
    check("a[b/c]d", &["abd", "acd"], &["a/d"]);
    check("[]a]", &["]", "a"], &["b"]);
    check("[!]]", &["a"], &["]"]);
    check("[a-]", &["a", "-"], &["b"]);
    check("[\\]\\\\]", &["]", "\\"], &["a"]);
    check("[[:alpha:]_][[:digit:]]", &["a1", "_9", "Z0"], &["11", "aa", "é1"]);
    check("[あ-ん]", &["い"], &["ア"]);
}

#[test]
fn braces_are_alternatives_with_slashes_wildcards_and_nothing() {
    check("src/*.{rs,toml}", &["src/a.rs", "src/a.toml"], &["src/a.md", "src/a."]);
    check("a{,bc}", &["a", "abc"], &["ab", "a/x"]);
    check("{a/{b,c},d*}", &["a/b", "a/c", "dx"], &["a", "a/d", "a/b/c"]);
    check("a/{b/c,**/d}/e", &["a/b/c/e", "a/d/e", "a/x/y/d/e"], &["a/b/e"]);
    check("{a\\,b,[,}],\\}}", &["a,b", ",", "}"], &["a", "b"]);
    check("src/{,**/}x.rs", &["src/x.rs", "src/a/b/x.rs"], &["x.rs", "src/ax.rs"]);
}

#[test]
fn braces_mean_what_their_alternatives_mean_written_out() {
    check("{a,}**/b", &["ax/b", "a/b", "x/y/b", "b"], &["a/x/c"]);
    check("a/{,b}/c", &["a/c", "a/b/c"], &["a//b", "a"]);
    check("{src/,docs/*.md}", &["src", "src/a/b", "docs/a.md"], &["docs", "docs/a/b.md"]);
    check("x/{**/,y}", &["x/a", "x/a/b", "x/y"], &["x"]);
    assert_eq!(refused("{..,a}/b"), PatternError::ParentFolder { column: 2 });
    assert_eq!(refused("a/.{,.}"), PatternError::CurrentFolder { column: 3 });
    assert_eq!(refused("{,a}/b"), PatternError::Absolute { column: 5 });
}

#[test]
fn a_backslash_makes_the_next_character_literal() {
    check("app/\\[id\\]/\\*", &["app/[id]/*", "app/[id]/*/x"], &["app/i/*", "app/[id]/x"]);
    assert!(pattern("app/\\[id]").is_literal());
    assert_eq!(pattern("app/\\[id\\]\\a").as_str(), "app/\\[id]a");
    assert_eq!(pattern("app/\\[id\\]/*").literal_prefix(), "app/[id]");
}

#[test]
fn a_trailing_slash_asks_for_the_subtree() {
    assert_eq!(pattern("src/"), pattern("src"));
    check("packages/*/", &["packages/a", "packages/a/b/c"], &["packages"]);
    assert_eq!(pattern("packages/*//").as_str(), "packages/*/");
    assert_eq!(pattern("a/**/").as_str(), "a/**");
}

#[test]
fn needless_dots_slashes_and_stars_are_normalised_away() {
    for (written, normal) in [
        ("./src//a/./b", "src/a/b"),
        ("./**/**/a", "**/a"),
        ("src/.", "src"),
        ("./", "."),
        (".", "."),
        ("\\./a", "a"),
    ] {
        assert_eq!(pattern(written).as_str(), normal);
    }
}

#[test]
fn a_dot_is_the_whole_repository() {
    check(".", &["a", "a/b", ".git/x"], &["", "/a", "../a"]);
    assert!(pattern("./").is_literal());
    assert_eq!(pattern(".").literal_prefix(), "");
}

#[test]
fn a_path_is_cleaned_and_must_stay_inside() {
    check("src/*.rs", &["./src//a.rs", "src/./a.rs", "src/a.rs/"], &["/src/a.rs", "src/../src/a.rs"]);
}

#[test]
fn no_wildcard_stands_for_a_dot_component() {
    check("a/.*", &["a/.b", "a/..b", "a/..."], &["a/.", "a/.."]);
    check("?", &["a"], &["."]);
    check("*.", &["a.", "..."], &[".", ".."]);
    check("[.]?", &[".a"], &[".."]);
    assert!(matches!(refused("a/[.]"), PatternError::MatchesNothing { .. }));
}

#[test]
fn the_literal_prefix_is_whole_components() {
    for (text, prefix) in [
        ("src/api/**", "src/api"),
        ("src/*.rs", "src"),
        ("src/a*/b", "src"),
        ("**/*.ts", ""),
        ("src/app", "src/app"),
        ("src/{a,b}/c", "src"),
        (".github/[a-z]", ".github"),
    ] {
        assert_eq!(pattern(text).literal_prefix(), prefix, "{text}");
    }
}

#[test]
fn the_parent_is_cut_at_the_last_slash_outside_braces() {
    for (text, parent) in
        [("a", ""), ("src/*.rs", "src"), ("a/{b/c,d}", "a"), ("a/*/", "a"), ("**/*.ts", "**")]
    {
        assert_eq!(pattern(text).parent(), parent, "{text}");
    }
}

#[test]
fn the_example_is_short_and_readable() {
    for (text, example) in [
        ("src/**/*.rs", "src/x.rs"),
        ("src/app", "src/app"),
        (".", "x"),
        (".*", ".x"),
        ("*-test.js", "x-test.js"),
        ("[0-9]/**", "0/x"),
    ] {
        assert_eq!(pattern(text).example(), example, "{text}");
    }
}

#[test]
fn a_malformed_pattern_is_refused_with_its_column_and_a_hint() {
    let range = PatternError::ReversedRange { column: 3, start: 'z', end: 'a' };
    let deep = "{a,".repeat(MAX_DEPTH + 1);
    for (text, error, message) in [
        ("", PatternError::Empty, "a pattern is empty"),
        ("a\0b", PatternError::Nul { column: 2 }, "a pattern has a NUL character at column 2"),
        ("語[ab", PatternError::UnclosedClass { column: 2 }, "`[` at column 2 is never closed"),
        ("a[]b", PatternError::UnclosedClass { column: 2 }, "`[` at column 2 is never closed"),
        ("a[[:x", PatternError::UnclosedClass { column: 2 }, "`[` at column 2 is never closed"),
        ("a[b-\\", PatternError::UnclosedClass { column: 2 }, "`[` at column 2 is never closed"),
        ("{a,{b}", PatternError::UnclosedBrace { column: 1 }, "`{` at column 1 is never closed"),
        ("ab\\", PatternError::TrailingBackslash { column: 3 }, "the backslash at column 3 escapes nothing"),
        ("a[z-a]", range, "range `z-a` at column 3 runs backwards"),
        ("a/../b", PatternError::ParentFolder { column: 3 }, "`..` at column 3 leaves the folder"),
        ("\\.\\./b", PatternError::ParentFolder { column: 1 }, "`..` at column 1 leaves the folder"),
        ("/a", PatternError::Absolute { column: 1 }, "`/` at column 1 makes an absolute path"),
        (
            "[[:letter:]]",
            PatternError::UnknownClass { column: 2, name: "letter".to_owned() },
            "`[:letter:]` at column 2 is not a character class",
        ),
        (
            "a[/]b",
            PatternError::MatchesNothing { pattern: "a[/]b".to_owned() },
            "pattern `a[/]b` matches no path",
        ),
        (
            &deep,
            PatternError::TooDeep { column: MAX_DEPTH * 3 + 1, limit: MAX_DEPTH },
            "braces are nested more than 32 deep at column 97",
        ),
    ] {
        assert_eq!(refused(text), error, "{text}");
        assert_eq!(error.to_string(), message);
        assert!(!error.hint().is_empty());
    }
    assert!(matches!(refused("{}"), PatternError::MatchesNothing { .. }));
}

#[test]
fn size_is_bounded_in_text_and_in_transitions() {
    assert!(Pattern::parse(&"a".repeat(MAX_LENGTH)).is_ok());
    assert_eq!(
        refused(&"a".repeat(MAX_LENGTH + 1)),
        PatternError::TooLong { length: MAX_LENGTH + 1, limit: MAX_LENGTH }
    );
    assert!(matches!(refused(&"{a,}".repeat(MAX_LENGTH / 4)), PatternError::TooComplex { .. }));
    assert!(Pattern::parse(&"*a".repeat(MAX_LENGTH / 2)).is_ok());
}

/// Braces are never written out: 24 of them in a row would make sixteen million patterns.
#[test]
fn braces_do_not_multiply() {
    let wide = pattern(&"{a,b}".repeat(24));
    assert_eq!(wide.automaton().len(), 25);
    let nested = pattern(&format!("{}a{}", "{a,".repeat(MAX_DEPTH), "}".repeat(MAX_DEPTH)));
    assert!(nested.automaton().len() < 3 * MAX_DEPTH);
    assert!(nested.matches("a"));
}

#[test]
fn patterns_compare_by_normalised_text_and_cross_threads() {
    fn shareable<T: Send + Sync + Clone>(value: T) -> T {
        value
    }
    let (a, b): (Pattern, Pattern) = (shareable(pattern("./a//b")), "a/b".parse().unwrap());
    assert_eq!(a, b);
    assert!(a < pattern("a/c"));
    assert_eq!(format!("{a} {b:?}"), "a/b Pattern(\"a/b\")");
}

#[test]
fn a_text_with_nul_is_no_path() {
    for text in ["**", "a", "*", "**/*", "a/**", "."] {
        let pattern = Pattern::parse(text).unwrap();
        assert!(!pattern.matches("a/\0") && !pattern.matches("\0"), "{text}");
    }
}
