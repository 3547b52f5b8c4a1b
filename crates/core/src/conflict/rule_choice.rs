//! Rule choice: which rule applies to two patterns, or to a folder.

use std::cmp::Reverse;

use super::{Rule, Ruling};
use crate::overlap::{Comparison, covers, overlap, overlap_all};
use crate::pattern::Pattern;

/// The rules, the strictest first, with a cache of which rules overlap which patterns.
pub(super) struct Rulebook<'a> {
    rules: Vec<Entry<'a>>,
    patterns: &'a [&'a Pattern],
    /// The cache, one entry for each pattern.
    known: Vec<Option<Box<Known<'a>>>>,
}

struct Entry<'a> {
    place: usize,
    rule: &'a Rule,
}

/// A pattern of a group, as it counts for rules.
#[derive(Clone)]
struct Known<'a> {
    /// The pattern, or the file alone if it names a file.
    meant: Pattern,
    /// For each rule, its patterns that overlap this one.
    near: Vec<Vec<&'a Pattern>>,
}

impl<'a> Rulebook<'a> {
    pub(super) fn new(rules: &'a [Rule], patterns: &'a [&'a Pattern]) -> Self {
        let mut rules: Vec<Entry<'_>> =
            rules.iter().enumerate().map(|(place, rule)| Entry { place, rule }).collect();
        rules.sort_by_key(|entry| (Reverse(entry.rule.action.strategy()), entry.rule.priority, entry.place));
        Self { rules, patterns, known: vec![None; patterns.len()] }
    }

    /// Returns the rank of the rule that applies to two patterns that overlap, and a path that all three match.
    pub(super) fn choose(&mut self, a: usize, b: usize, comparison: &Comparison) -> Option<(usize, String)> {
        self.look_up(a);
        self.look_up(b);
        (0..self.rules.len()).find_map(|rank| Some((rank, self.witness(rank, a, b, comparison)?)))
    }

    /// Returns the ruling of the rule with this rank.
    pub(super) fn ruling(&self, rank: usize) -> Option<Ruling> {
        self.rules.get(rank).map(Entry::ruling)
    }

    /// Returns the ruling for a folder, if a rule covers everything that is directly in it.
    pub(super) fn covering(&self, folder: &str) -> Option<Ruling> {
        // A folder with wildcards is a pattern too.
        let inside = Pattern::parse(&format!("{folder}/*")).ok()?;
        let covered = |entry: &&Entry<'_>| entry.rule.paths.iter().any(|path| covers(path, &inside));
        self.rules.iter().find(covered).map(Entry::ruling)
    }

    /// Returns a path that two patterns and the rule with this rank match.
    fn witness(&self, rank: usize, a: usize, b: usize, comparison: &Comparison) -> Option<String> {
        let (Some(a), Some(b)) = (&self.known[a], &self.known[b]) else { return None };
        let matched = |path: &&str| a.meant.matches_clean(path) && b.meant.matches_clean(path);
        let at_hand = || comparison.witness.as_deref().filter(matched);
        a.near[rank].iter().filter(|path| b.near[rank].contains(path)).find_map(|path| {
            if let Some(witness) = at_hand().filter(|witness| path.matches_clean(witness)) {
                return Some(witness.to_owned());
            }
            let of_all = overlap_all(&[&a.meant, &b.meant, path])?;
            // A search that gave up returns a path of any two patterns.
            if matched(&of_all.as_str()) { Some(of_all) } else { comparison.witness.clone() }
        })
    }

    fn look_up(&mut self, place: usize) {
        self.known[place].get_or_insert_with(|| {
            let written = self.patterns[place];
            let meant = file_alone(written).unwrap_or_else(|| written.clone());
            let meets = |path: &&'a Pattern| overlap(path, &meant).is_some();
            let near = self.rules.iter().map(|entry| entry.rule.paths.iter().filter(meets).collect());
            let near = near.collect();
            Box::new(Known { meant, near })
        });
    }
}

impl Entry<'_> {
    fn ruling(&self) -> Ruling {
        Ruling { rule: Some(self.place), severity: self.rule.severity, action: self.rule.action }
    }
}

/// If a literal pattern names a file, returns a pattern that matches this path and nothing below it.
fn file_alone(pattern: &Pattern) -> Option<Pattern> {
    let name = pattern.literal_prefix().rsplit('/').next()?;
    let (stem, extension) = name.rsplit_once('.')?;
    let is_file = pattern.is_literal() && !stem.is_empty() && extension.starts_with(char::is_alphabetic);
    // A pattern with braces covers nothing below its paths.
    let alone = || format!("{{{}}}", pattern.as_str().replace(',', "\\,").replace('}', "\\}"));
    is_file.then(|| Pattern::parse(&alone()).ok()).flatten()
}
