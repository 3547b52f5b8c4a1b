//! The examples of docs/reference/stages.md do what the document says.

use std::fs;
use std::path::Path;

use crate::{file, plan};

/// The blocks of a document, with the word behind their fence.
fn blocks(text: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(kind) = line.strip_prefix("```").filter(|kind| !kind.is_empty()) else { continue };
        let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        blocks.push((kind.to_owned(), body.join("\n") + "\n"));
    }
    blocks
}

/// Requirement 203.
#[test]
fn every_yaml_block_is_without_fault_and_plans_as_told() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/stages.md");
    let text = fs::read_to_string(path).unwrap();
    let mut planned = 0;
    for (kind, body) in blocks(&text).into_iter().filter(|(kind, _)| kind.starts_with("yaml")) {
        let file = file(&body);
        // Sections that stand alone have no groups, and that is all that may be wrong with them.
        let wrong: Vec<_> = file.problems.iter().filter(|problem| problem.code != "NO_GROUPS").collect();
        assert!(wrong.is_empty() && file.unknown.is_empty(), "{body}\n{wrong:?} {:?}", file.unknown);
        // `yaml MODE` says how its only phase runs.
        if let Some((_, mode)) = kind.split_once(' ') {
            let phase = file.stages.phases[0].name.value.clone();
            assert_eq!(plan(&body, &phase).plan.mode.as_str(), mode, "{body}");
            planned += 1;
        }
    }
    assert!(planned >= 5, "{planned}");
}
