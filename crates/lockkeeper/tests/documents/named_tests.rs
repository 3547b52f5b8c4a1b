//! The tests that a document names are there.

use std::path::Path;

use crate::docs;

/// All the text of the tests of both crates.
fn sources() -> String {
    fn read(folder: &Path, text: &mut String) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                read(&path, text);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                text.push_str(&std::fs::read_to_string(path).unwrap());
            }
        }
    }
    let mut text = String::new();
    for folder in ["../core/src", "../core/tests", "src", "tests"] {
        read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut text);
    }
    text
}

/// Requirement 146.
#[test]
fn the_tests_of_the_shell_scripts_have_their_like_here() {
    let text = std::fs::read_to_string(docs().join("reference/stages.md")).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `test_")?.split_once("` | "));
    let rows: Vec<(&str, &str)> = rows.filter(|(there, _)| !there.ends_with(".sh")).collect();
    assert_eq!(rows.len(), 9, "{rows:?}");
    let sources = sources();
    for name in rows.iter().flat_map(|(_, here)| here.trim_end_matches('|').split(", ")) {
        let test = format!("#[test]\nfn {}()", name.trim().trim_matches('`'));
        assert!(sources.contains(&test), "there is no {name}");
    }
}
