//! Every language has every text.

use std::collections::{BTreeMap, BTreeSet};

/// Words that stay as they are in another language.
const NAMES: [&str; 8] =
    ["auto_run", "board", "doctor", "last_output", "held_by_run", "request", "requests", "run"];

/// The texts of one language. The compiler checks that none is missing.
fn texts(source: &str) -> BTreeMap<&str, &str> {
    // Those of drawings are one level deeper.
    let own =
        source.lines().filter_map(|line| line.strip_prefix("    ")).filter(|line| !line.starts_with(' '));
    let lines = own.filter_map(|line| line.split_once(": \""));
    lines.filter_map(|(name, rest)| Some((name, rest.rsplit_once('"')?.0))).collect()
}

/// The places of a sentence.
fn places(text: &str) -> BTreeSet<&str> {
    text.split('{').skip(1).filter_map(|rest| rest.split('}').next()).collect()
}

#[test]
fn every_language_has_every_text_with_the_same_places() {
    let english = texts(include_str!("en.rs"));
    assert!(english.len() > 250, "{}", english.len());
    for (language, source) in [("ja", include_str!("ja.rs")), ("zh", include_str!("zh.rs"))] {
        let translated = texts(source);
        for (name, text) in &english {
            let Some(other) = translated.get(name) else { panic!("{language} has no {name}") };
            assert!(!other.trim().is_empty(), "{language} {name}");
            assert_eq!(places(other), places(text), "{language} {name}");
            let is_translated = !other.is_ascii() || NAMES.contains(name);
            assert!(is_translated, "{language} {name} is still English: {other}");
        }
    }
}
