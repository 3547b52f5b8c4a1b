//! Which rule counts for two patterns, or for a folder.

use std::cmp::Reverse;

use super::{Rule, Ruling};
use crate::overlap::{Meeting, covers, overlap, overlap_all};
use crate::pattern::Pattern;

/// The rules with the strictest first, and what is known about them and the patterns of groups.
pub(super) struct Rulebook<'a> {
    rules: Vec<Entry<'a>>,
    patterns: &'a [&'a Pattern],
    /// What is known about each pattern, once it was asked for.
    known: Vec<Option<Box<Known<'a>>>>,
}

struct Entry<'a> {
    place: usize,
    rule: &'a Rule,
}

/// A pattern of a group, as rules see it.
#[derive(Clone)]
struct Known<'a> {
    /// The pattern, or the file alone where it names one.
    meant: Pattern,
    /// For each rule the patterns of it that meet this one.
    near: Vec<Vec<&'a Pattern>>,
}

impl<'a> Rulebook<'a> {
    pub(super) fn new(rules: &'a [Rule], patterns: &'a [&'a Pattern]) -> Self {
        let mut rules: Vec<Entry<'_>> =
            rules.iter().enumerate().map(|(place, rule)| Entry { place, rule }).collect();
        rules.sort_by_key(|entry| (Reverse(entry.rule.action.strategy()), entry.rule.priority, entry.place));
        Self { rules, patterns, known: vec![None; patterns.len()] }
    }

    /// Returns the rank of the rule that counts where two patterns meet, if one does, and a path of all three.
    pub(super) fn choose(&mut self, a: usize, b: usize, meeting: &Meeting) -> Option<(usize, String)> {
        self.look_up(a);
        self.look_up(b);
        (0..self.rules.len()).find_map(|rank| Some((rank, self.witness(rank, a, b, meeting)?)))
    }

    /// Returns what the rule of a rank says.
    pub(super) fn ruling(&self, rank: usize) -> Option<Ruling> {
        self.rules.get(rank).map(Entry::ruling)
    }

    /// Returns what the rules say about a folder as a whole, if one covers all that is directly in it.
    pub(super) fn covering(&self, folder: &str) -> Option<Ruling> {
        // A folder made of wildcards is a pattern too.
        let inside = Pattern::parse(&format!("{folder}/*")).ok()?;
        let covered = |entry: &&Entry<'_>| entry.rule.paths.iter().any(|path| covers(path, &inside));
        self.rules.iter().find(covered).map(Entry::ruling)
    }

    /// Returns a path of two patterns that meet and of the rule of a rank.
    fn witness(&self, rank: usize, a: usize, b: usize, meeting: &Meeting) -> Option<String> {
        let (Some(a), Some(b)) = (&self.known[a], &self.known[b]) else { return None };
        let matched = |path: &&str| a.meant.matches_clean(path) && b.meant.matches_clean(path);
        let at_hand = || meeting.witness.as_deref().filter(matched);
        a.near[rank].iter().filter(|path| b.near[rank].contains(path)).find_map(|path| {
            if let Some(witness) = at_hand().filter(|witness| path.matches_clean(witness)) {
                return Some(witness.to_owned());
            }
            let of_all = overlap_all(&[&a.meant, &b.meant, path])?;
            // A search that gave up names a path of any two.
            if matched(&of_all.as_str()) { Some(of_all) } else { meeting.witness.clone() }
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

/// Returns the pattern of one path alone, without what is below it, where a literal pattern names a file.
fn file_alone(pattern: &Pattern) -> Option<Pattern> {
    let name = pattern.literal_prefix().rsplit('/').next()?;
    let (stem, extension) = name.rsplit_once('.')?;
    let is_file = pattern.is_literal() && !stem.is_empty() && extension.starts_with(char::is_alphabetic);
    // Braces make it a path that covers nothing below it.
    let alone = || format!("{{{}}}", pattern.as_str().replace(',', "\\,").replace('}', "\\}"));
    is_file.then(|| Pattern::parse(&alone()).ok()).flatten()
}
