//! The fields of a mapping, taken one by one; what nobody takes is unknown.

use std::collections::HashMap;

use super::Notes;
use crate::place::Place;
use crate::problem::{Problem, UnknownKey};
use lockkeeper_formats::yaml::{Node, Value};

/// A key with its value, and where both lie.
pub(super) struct Entry<'a> {
    pub(super) key: String,
    pub(super) key_place: Place,
    pub(super) node: &'a Node,
    /// Where it lies in the tree, such as `parallel_groups.P3`.
    pub(super) path: String,
}

/// What is left of a mapping.
pub(super) struct Fields<'a> {
    entries: Vec<Entry<'a>>,
    /// The lines of all keys, also of those that were taken.
    lines: HashMap<String, usize>,
}

impl<'a> Fields<'a> {
    /// The fields of a mapping; anything else is noted, unless there is nothing at all.
    pub(super) fn of(node: &'a Node, path: &str, notes: &mut Notes) -> Option<Self> {
        let Value::Map(map) = &node.value else {
            if !node.is_null() {
                let name = if path.is_empty() { "the file" } else { path };
                notes.shape(node, name, "a mapping");
            }
            return None;
        };
        let mut fields = Self { entries: Vec::new(), lines: HashMap::new() };
        let mut merged = Vec::new();
        for (key, value) in map {
            match key.text() {
                // `<<: *base`: what is written out here counts before what is repeated.
                Some("<<") => merged.push(value),
                Some(name) => fields.add(name, key.place, value, path, notes),
                None => notes.shape(key, "a key", "a text"),
            }
        }
        for value in merged {
            fields.merge(value, path, notes);
        }
        Some(fields)
    }

    /// Takes the first of these that is there; another spelling of it beside it stays, and is told as unknown.
    pub(super) fn take(&mut self, spellings: &[&str]) -> Option<Entry<'a>> {
        spellings.iter().find_map(|spelling| {
            let at = self.entries.iter().position(|entry| entry.key == *spelling)?;
            Some(self.entries.remove(at))
        })
    }

    /// Takes everything that is left, in the order of the file.
    pub(super) fn rest(&mut self) -> Vec<Entry<'a>> {
        std::mem::take(&mut self.entries)
    }

    /// Notes what nobody took.
    pub(super) fn finish(self, notes: &mut Notes) {
        for entry in self.entries {
            let value = entry.node.summary();
            notes.unknown.push(UnknownKey { path: entry.path, place: entry.key_place, value });
        }
    }

    fn add(&mut self, name: &str, place: Place, node: &'a Node, path: &str, notes: &mut Notes) {
        if let Some(first) = self.lines.get(name) {
            let message = format!("`{name}` stands here twice, first in line {first}");
            let problem = Problem::error("DUPLICATE_KEY", place, message);
            notes.problem(problem.with_hint("only one of them can count: put them together"));
            return;
        }
        let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        self.lines.insert(name.to_owned(), place.line);
        self.entries.push(Entry { key: name.to_owned(), key_place: place, node, path });
    }

    fn merge(&mut self, value: &'a Node, path: &str, notes: &mut Notes) {
        match &value.value {
            Value::Map(map) => {
                for (key, node) in map {
                    let Some(name) = key.text() else { continue };
                    if !self.lines.contains_key(name) {
                        self.add(name, key.place, node, path, notes);
                    }
                }
            }
            Value::List(maps) => maps.iter().for_each(|map| self.merge(map, path, notes)),
            Value::Scalar { .. } => notes.shape(value, "what is merged with `<<`", "a mapping"),
        }
    }
}

/// The entries of a list; one value without a list counts as a list of one. Each comes with its path.
pub(super) fn items<'a>(entry: &Entry<'a>) -> Vec<(String, &'a Node)> {
    match &entry.node.value {
        Value::List(items) => {
            items.iter().enumerate().map(|(at, item)| (format!("{}[{at}]", entry.path), item)).collect()
        }
        Value::Scalar { .. } if entry.node.is_null() => Vec::new(),
        Value::Scalar { .. } | Value::Map(_) => vec![(entry.path.clone(), entry.node)],
    }
}
