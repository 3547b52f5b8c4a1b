//! The pattern engine against patterns, pairs and tables of real projects (`tests/data`).

use lockkeeper_core::overlap::{overlap, relate};
use lockkeeper_core::pattern::Pattern;

/// Rows of a table, with the number of fields they must have.
fn rows<const FIELDS: usize>(table: &'static str) -> impl Iterator<Item = [&'static str; FIELDS]> {
    table.lines().map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        fields.try_into().unwrap_or_else(|_| panic!("not {FIELDS} fields: {line:?}"))
    })
}

fn pattern(text: &str) -> Pattern {
    Pattern::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Pairs decided by automata that agree with git. Requirement 206.
#[test]
fn every_real_pair_is_decided_as_by_exact_automata() {
    let mut count = 0;
    for [a, b, expected, repository] in rows(include_str!("data/overlap.tsv")) {
        let (a, b) = (pattern(a), pattern(b));
        let witness = overlap(&a, &b);
        assert_eq!(witness.is_some(), expected == "1", "{a} {b} ({repository}): {witness:?}");
        assert!(witness.iter().all(|path| a.matches(path) && b.matches(path)), "{a} {b}: {witness:?}");
        let meeting = relate(&a, &b);
        assert_eq!(meeting.relation.is_conflict(), expected == "1", "{a} {b}: {meeting:?}");
        assert_eq!(meeting, relate(&b, &a), "{a} {b}");
        count += 1;
    }
    assert_eq!(count, 2960);
}

/// Pairs with a file of the repository that both match. Requirement 206.
#[test]
fn every_real_file_in_two_patterns_is_matched_by_both_and_so_they_overlap() {
    let mut count = 0;
    for [a, b, file, repository] in rows(include_str!("data/witness.tsv")) {
        let (a, b) = (pattern(a), pattern(b));
        assert!(a.matches(file) && b.matches(file), "{a} {b} {file} ({repository})");
        let meeting = relate(&a, &b);
        assert!(meeting.relation.is_conflict(), "{a} {b}: {meeting:?}");
        let witness = meeting.witness.expect("a conflict has a witness");
        assert!(a.matches(&witness) && b.matches(&witness), "{a} {b}: {witness}");
        count += 1;
    }
    assert_eq!(count, 1500);
}

/// Rows of `match.tsv` where this dialect differs on purpose: pattern, path, and what it says instead (`E`
/// refuses the pattern).
const DIFFERENCES: &[(&str, &str, &str)] = &[
    // A pattern that can match nothing is a mistake to report, where git and others say "no match".
    ("", "", "E"),
    ("", "foo", "E"),
    ("foo\\", "foo\\", "E"),
    ("\\", "", "E"),
    ("\\", "\\", "E"),
    ("*/\\", "XXX/\\", "E"),
    ("a[]b", "ab", "E"),
    ("a[]b", "a[]b", "E"),
    ("ab[", "ab[", "E"),
    ("[!", "ab", "E"),
    ("[-", "ab", "E"),
    ("[a-", "-", "E"),
    ("[!a-", "-", "E"),
    ("[\\]", "\\", "E"),
    ("[abc", "abc", "E"),
    ("[[::]ab]", "[ab]", "E"),
    ("[[:digit:][:upper:][:spaci:]]", "1", "E"),
    // A class never matches `/`, in globset it may.
    ("foo[/]bar", "foo/bar", "E"),
    ("abc[/]def", "abc/def", "E"),
    // Absolute paths are outside the repository.
    ("/*", "/", "E"),
    ("/*", "/debug/", "E"),
    ("/*", "//", "E"),
    // A `]` that comes first is a member, as in git; doublestar refuses it.
    ("[]a]", "]", "1"),
    // A path has components, and none of them is empty, `.` or `..`.
    ("*", "", "0"),
    ("**", "", "0"),
    ("[[:digit:][:punct:][:space:]]", ".", "0"),
    ("[^[:alnum:][:alpha:][:blank:][:cntrl:][:digit:][:lower:][:space:][:upper:][:xdigit:]]", ".", "0"),
    // Doubled and trailing slashes of a path mean nothing.
    ("**/bar/*", "deep/foo/bar/baz/", "1"),
    ("**/bar/**", "deep/foo/bar/", "0"),
    ("a/b/c", "a/b//c", "1"),
    ("XXX/*/*/*/*/*/*/12/*/*/*/m/*/*/*", "XXX/adobe/courier/bold/o/normal//12/120/75/75/m/70/iso8859/1", "0"),
    // `a/**` is what is below `a`, as in git; doublestar counts `a` too.
    ("a/**", "a", "0"),
    ("a/**/", "a", "0"),
    ("a/**", "a/", "0"),
    ("a/**/", "a/", "0"),
    // A literal path with a trailing slash is the folder and its subtree.
    ("a/", "a", "1"),
    ("nopermission/dir/", "nopermission/dir", "1"),
];

/// Tables of git, globset, doublestar and path-glob. Requirement 206.
#[test]
fn tables_of_other_projects_agree_but_for_the_listed_differences() {
    let mut differences = Vec::new();
    for [text, path, expected, dialect] in rows(include_str!("data/match.tsv")) {
        let said = match Pattern::parse(text) {
            Ok(pattern) if pattern.matches(path) => "1",
            Ok(_) => "0",
            Err(_) => "E",
        };
        if said != expected {
            assert!(
                DIFFERENCES.contains(&(text, path, said)),
                "{text} {path} ({dialect}): {said}, not {expected}"
            );
            differences.push((text, path, said));
        }
    }
    for difference in DIFFERENCES {
        assert!(differences.contains(difference), "no longer differs: {difference:?}");
    }
}
