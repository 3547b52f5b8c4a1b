//! Fields of a mapping. The reader takes them one by one; a field that is left over is unknown.

use std::collections::HashMap;

use lockkeeper_formats::yaml::{Node, Value};

use super::Diagnostics;
use crate::place::Place;
use crate::problem::{Problem, UnknownKey};

/// A key with its value, and the positions of both.
pub(super) struct Entry<'a> {
    pub(super) key: String,
    pub(super) key_place: Place,
    pub(super) node: &'a Node,
    /// Its path in the tree, such as `parallel_groups.P3`.
    pub(super) path: String,
}

/// The fields of a mapping that were not taken yet.
pub(super) struct Fields<'a> {
    entries: Vec<Entry<'a>>,
    /// The lines of all keys, including those that were taken.
    lines: HashMap<String, usize>,
}

impl<'a> Fields<'a> {
    /// Returns the fields of a mapping. Any other value but null is a problem.
    pub(super) fn of(node: &'a Node, path: &str, diagnostics: &mut Diagnostics) -> Option<Self> {
        let Value::Map(map) = &node.value else {
            if !node.is_null() {
                let name = if path.is_empty() { "the file" } else { path };
                diagnostics.wrong_type(node, name, "a mapping");
            }
            return None;
        };
        let mut fields = Self { entries: Vec::new(), lines: HashMap::new() };
        let mut merged = Vec::new();
        for (key, value) in map {
            match key.text() {
                // `<<: *base`: keys of this mapping come before merged keys.
                Some("<<") => merged.push(value),
                Some(name) => fields.add(name, key.place, value, path, diagnostics),
                None => diagnostics.wrong_type(key, "a key", "a text"),
            }
        }
        for value in merged {
            fields.merge(value, path, diagnostics);
        }
        Some(fields)
    }

    /// Takes the first of these spellings that exists. A second spelling is left over, and so it is unknown.
    pub(super) fn take(&mut self, spellings: &[&str]) -> Option<Entry<'a>> {
        spellings.iter().find_map(|spelling| {
            let at = self.entries.iter().position(|entry| entry.key == *spelling)?;
            Some(self.entries.remove(at))
        })
    }

    /// Takes all remaining fields, in the order of the file.
    pub(super) fn rest(&mut self) -> Vec<Entry<'a>> {
        std::mem::take(&mut self.entries)
    }

    /// Records the remaining fields as unknown.
    pub(super) fn finish(self, diagnostics: &mut Diagnostics) {
        for entry in self.entries {
            let value = entry.node.summary();
            diagnostics.unknown.push(UnknownKey { path: entry.path, place: entry.key_place, value });
        }
    }

    fn add(&mut self, name: &str, place: Place, node: &'a Node, path: &str, diagnostics: &mut Diagnostics) {
        if let Some(first) = self.lines.get(name) {
            let message = format!("`{name}` stands here twice, first in line {first}");
            let problem = Problem::error("DUPLICATE_KEY", place, message);
            diagnostics.problem(problem.with_hint("only one of them can count: put them together"));
            return;
        }
        let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        self.lines.insert(name.to_owned(), place.line);
        self.entries.push(Entry { key: name.to_owned(), key_place: place, node, path });
    }

    fn merge(&mut self, value: &'a Node, path: &str, diagnostics: &mut Diagnostics) {
        match &value.value {
            Value::Map(map) => {
                for (key, node) in map {
                    let Some(name) = key.text() else { continue };
                    if !self.lines.contains_key(name) {
                        self.add(name, key.place, node, path, diagnostics);
                    }
                }
            }
            Value::List(maps) => maps.iter().for_each(|map| self.merge(map, path, diagnostics)),
            Value::Scalar { .. } => diagnostics.wrong_type(value, "what is merged with `<<`", "a mapping"),
        }
    }
}

/// Returns the items of a list with their paths. A single value counts as a list of one.
pub(super) fn items<'a>(entry: &Entry<'a>) -> Vec<(String, &'a Node)> {
    match &entry.node.value {
        Value::List(items) => {
            items.iter().enumerate().map(|(at, item)| (format!("{}[{at}]", entry.path), item)).collect()
        }
        Value::Scalar { .. } if entry.node.is_null() => Vec::new(),
        Value::Scalar { .. } | Value::Map(_) => vec![(entry.path.clone(), entry.node)],
    }
}
