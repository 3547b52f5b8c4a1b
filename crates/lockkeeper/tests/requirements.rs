//! What is marked done in docs/internals/requirements.md is cited by a test, and every citation leads there.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const REQUIREMENTS: u32 = 206;
const INVARIANTS: u32 = 12;

/// The numbers of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Invariant,
    Requirement,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Invariant => "Invariant",
            Self::Requirement => "Requirement",
        }
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every number of the document, and whether it is done.
fn document() -> BTreeMap<(Kind, u32), bool> {
    let text = fs::read_to_string(repository().join("docs/internals/requirements.md")).unwrap();
    let mut states = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| number")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [number, state, what] = cells.as_slice() else { panic!("not three cells: {line}") };
        let (kind, digits) = match number.strip_prefix('I') {
            Some(digits) => (Kind::Invariant, digits),
            None => (Kind::Requirement, *number),
        };
        let done = match *state {
            "done" => true,
            "open" => false,
            "measured" => {
                assert!(what.contains("scripts/bench "), "by what: {line}");
                false
            }
            _ => panic!("not done, measured or open: {line}"),
        };
        assert!(what.len() > 5, "it says nothing: {line}");
        let number = digits.parse().unwrap_or_else(|_| panic!("not a number: {line}"));
        assert!(states.insert((kind, number), done).is_none(), "twice: {line}");
    }
    states
}

/// The numbers behind a word such as `Requirement` or `Invariants`: `1`, `2 and 3`, `4, 5 and 6`, `1 to 8`.
fn numbers(line: &str, kind: Kind) -> Vec<u32> {
    let mut found = Vec::new();
    for (place, word) in line.match_indices(kind.word()) {
        let rest = line[place + word.len()..].trim_start_matches('s');
        let mut range_begins = None;
        for word in rest.split([' ', ',']).filter(|word| !word.is_empty()) {
            let digits = word.trim_end_matches(['.', ':', ';']);
            match (digits.parse::<u32>(), word) {
                (Ok(number), _) => {
                    found.extend(range_begins.take().map_or(number, |from: u32| from + 1)..=number);
                    if digits != word {
                        break;
                    }
                }
                (Err(_), "and") => {}
                (Err(_), "to") => range_begins = found.last().copied(),
                (Err(_), _) => break,
            }
        }
    }
    found
}

/// The parts of a file that are tests: all of it, or what follows its mark.
fn test_code(path: &Path, place: &str) -> String {
    let text = fs::read_to_string(path).unwrap();
    let all = ["/tests/", "/conformance/", "/tests.rs"].iter().any(|mark| place.contains(mark));
    if all {
        text
    } else {
        text.split_once("#[cfg(test)]").map_or_else(String::new, |(_, tests)| tests.to_owned())
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
    found
}

/// Every number that a test cites, with the files that do.
fn citations() -> BTreeMap<(Kind, u32), BTreeSet<String>> {
    let root = repository().join("crates");
    let mut cited: BTreeMap<(Kind, u32), BTreeSet<String>> = BTreeMap::new();
    for path in files(&root) {
        let place = path.strip_prefix(&root).unwrap().to_str().unwrap();
        let code = test_code(&path, place);
        for line in code.lines().map(str::trim_start).filter(|line| line.starts_with("///")) {
            for kind in [Kind::Invariant, Kind::Requirement] {
                for number in numbers(line, kind) {
                    cited.entry((kind, number)).or_default().insert(place.to_owned());
                }
            }
        }
    }
    cited
}

#[test]
fn no_number_is_missing_from_the_document() {
    let expected: BTreeSet<(Kind, u32)> = (1..=INVARIANTS)
        .map(|number| (Kind::Invariant, number))
        .chain((1..=REQUIREMENTS).map(|number| (Kind::Requirement, number)))
        .collect();
    assert_eq!(document().into_keys().collect::<BTreeSet<_>>(), expected);
}

#[test]
fn what_is_done_is_shown_by_a_test() {
    let cited = citations();
    let unshown: Vec<_> =
        document().into_iter().filter(|(number, done)| *done && !cited.contains_key(number)).collect();
    assert!(unshown.is_empty(), "marked done, but no test cites them: {unshown:?}");
}

#[test]
fn every_citation_leads_to_the_document() {
    let known = document();
    for (number, places) in citations() {
        assert!(known.contains_key(&number), "{number:?} does not exist, but is cited in {places:?}");
    }
}

#[test]
fn citations_are_read_in_every_form() {
    let read = |line| numbers(line, Kind::Requirement);
    assert_eq!(read("/// Requirement 97."), [97]);
    assert_eq!(read("/// Requirements 52, 53."), [52, 53]);
    assert_eq!(read("/// Requirements 154, 155, 156, 160 and 162."), [154, 155, 156, 160, 162]);
    assert_eq!(read("/// Requirements 1 to 4. Seen 9 times."), [1, 2, 3, 4]);
    assert_eq!(read("/// Invariant 7. Requirement 155: 3 of them."), [155]);
    assert_eq!(numbers("/// Invariant 7. Requirement 155.", Kind::Invariant), [7]);
    assert_eq!(read("/// What is required."), [0; 0]);
}
