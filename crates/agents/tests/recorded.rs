//! Inputs that real harnesses sent, with the variables that their hooks had: each is read, and names its owner.
//!
//! `scripts/test-agents --record crates/agents/tests/data/recorded` makes the files anew.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use lockkeeper_agents::{Entry, Event, HookInput, Marks, Place, Target, writes};
use serde_json::Value;

/// The harnesses that tests drive, and the files that their agents edit: in one session, and in two sub-agents of one session.
const EDITS: [&str; 2] = ["a.txt", "b.txt"];
const EDITS_OF_SUB_AGENTS: [&str; 2] = ["first.txt", "second.txt"];
const HARNESSES: [(&str, bool); 7] = [
    ("claude", true),
    ("codex", true),
    ("codex-with-code", false),
    ("gemini", false),
    ("copilot", true),
    ("opencode", true),
    ("qwen", false),
];

/// Reads the inputs of one session.
fn read(name: &str) -> Vec<HookInput> {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/recorded").join(format!("{name}.jsonl"));
    let text = fs::read_to_string(file).unwrap();
    let line = |line: &str| {
        let record: Value = serde_json::from_str(line).unwrap();
        let marks = Marks::read(|name| record["environment"][name].as_str().map(str::to_owned));
        HookInput::read(record["input"].to_string().as_bytes(), &marks)
            .unwrap_or_else(|error| panic!("{name}: {error}: {line}"))
    };
    text.lines().map(line).collect()
}

/// Each owner that edits files, and which files.
fn edits(inputs: &[HookInput]) -> BTreeMap<String, BTreeSet<PathBuf>> {
    let mut edits: BTreeMap<String, BTreeSet<PathBuf>> = BTreeMap::new();
    let is_folder = |path: &Path| path.extension().is_none().then_some(Entry::Folder);
    for input in inputs.iter().filter(|input| input.event == Event::BeforeTool) {
        let place = Place {
            cwd: input.cwd.as_deref().unwrap(),
            home: None,
            entry: &is_folder,
            names: &|_: &Path| Vec::new(),
            text: &|_: &Path| None,
        };
        let found = writes(input.tool.as_ref().unwrap(), &place);
        let files = found.paths.into_iter().map(|target| match target {
            Target::File(path) => path,
            other => panic!("{other:?}"),
        });
        let files: BTreeSet<PathBuf> = files.collect();
        if !files.is_empty() {
            edits.entry(input.owner().to_string()).or_default().extend(files);
        }
    }
    edits
}

fn in_repository(files: &[&str]) -> BTreeSet<PathBuf> {
    files.iter().map(|file| Path::new("/scratch/work").join(file)).collect()
}

#[test]
fn one_session_is_one_owner_of_both_edits() {
    for (harness, _) in HARNESSES {
        let inputs = read(&format!("{harness}-edits"));
        let kind = harness.split('-').next().unwrap();
        let owners: BTreeSet<String> = inputs.iter().map(|input| input.owner().to_string()).collect();
        let owner = owners.first().unwrap();
        assert!(owners.len() == 1 && owner.starts_with(&format!("{kind}:")), "{harness}: {owners:?}");
        let expected = BTreeMap::from([(owner.clone(), in_repository(&EDITS))]);
        assert_eq!(edits(&inputs), expected, "{harness}");
        let has = |event| inputs.iter().any(|input| input.event == event);
        assert!(has(Event::AfterTool) && has(Event::TurnEnds), "{harness}");
    }
}

#[test]
fn two_sub_agents_are_two_owners_below_their_session() {
    for (harness, _) in HARNESSES.into_iter().filter(|(_, has_sub_agents)| *has_sub_agents) {
        let inputs = read(&format!("{harness}-sub-agents"));
        let edits = edits(&inputs);
        assert_eq!(edits.len(), 2, "{harness}: {edits:?}");
        let files: BTreeSet<PathBuf> = edits.values().flatten().cloned().collect();
        assert_eq!(files, in_repository(&EDITS_OF_SUB_AGENTS), "{harness}");
        let parents: BTreeSet<&str> =
            edits.keys().filter_map(|owner| owner.rsplit_once(':')).map(|(above, _)| above).collect();
        let parent = parents.first().unwrap();
        assert!(parents.len() == 1 && parent.starts_with(&format!("{harness}:")), "{harness}: {parents:?}");
        assert!(inputs.iter().any(|input| input.owner().as_str() == *parent), "{harness}: {parent}");
    }
}
