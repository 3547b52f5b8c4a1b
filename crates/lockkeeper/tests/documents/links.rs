//! Links between documents lead to a file, and to a heading of it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::docs;

/// All Markdown files below a folder.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

/// The text without blocks and spans of code, where brackets are no links.
fn prose(text: &str) -> String {
    let outside = text.split("\n```").step_by(2).flat_map(str::lines);
    outside.flat_map(|line| line.split('`').step_by(2)).collect()
}

/// The targets of all links to files.
fn targets(text: &str) -> Vec<String> {
    let prose = prose(text);
    let behind = prose.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    behind.map(|(target, _)| target.to_owned()).filter(|target| !target.contains("://")).collect()
}

/// The name of a heading in links, as the hosts of repositories make it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>().to_lowercase()
}

fn has_heading(page: &Path, name: &str) -> bool {
    let text = fs::read_to_string(page).unwrap();
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#'))).any(|one| one == name)
}

#[test]
fn every_link_leads_somewhere() {
    let root = docs().join("..");
    let mut all: Vec<PathBuf> = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"]
        .map(|name| root.join(name))
        .to_vec();
    pages(&docs(), &mut all);
    pages(&root.join("examples"), &mut all);
    let mut broken = Vec::new();
    for page in &all {
        for target in targets(&fs::read_to_string(page).unwrap()) {
            let (file, name) = target.split_once('#').unwrap_or((&target, ""));
            let file = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            if !file.exists() || !(name.is_empty() || has_heading(&file, name)) {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}
