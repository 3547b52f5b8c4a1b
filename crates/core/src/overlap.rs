//! Pattern overlap: decides exactly whether patterns can match the same path, and returns that path.
//!
//! Two claims conflict when both match some path, whether or not the file exists yet. The answer comes from the product
//! of the two automata, never from trying paths. Every yes has a **witness**: a path that both match. Most pairs in a
//! repository are in different folders, and their literal prefixes alone show that they do not overlap.

mod cover;
mod index;
mod product;

use std::fmt;

use crate::pattern::{Pattern, is_within};

pub use cover::{Coverage, coverage, covers};
pub use index::overlapping_pairs;
pub(crate) use product::shortest;

/// Returns a path that both patterns match, or `None` when there is none. The order of the two does not matter.
pub fn overlap(a: &Pattern, b: &Pattern) -> Option<String> {
    if may_overlap(a, b) { search_pair(a, b) } else { None }
}

/// Returns a path that all patterns match, or `None` when there is none, or no pattern.
///
/// The answer is exact, unless three or more malicious patterns need a search of more than a million steps. Then it is a
/// path that two of them match: for a lock, a false conflict is the safe mistake.
pub fn overlap_all(patterns: &[&Pattern]) -> Option<String> {
    let mut distinct = patterns.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    match distinct.as_slice() {
        [] => None,
        [only] => Some(only.example().to_owned()),
        [a, b] => overlap(a, b),
        [first, second, ..] => {
            if distinct.iter().any(|a| distinct.iter().any(|b| !may_overlap(a, b))) {
                return None;
            }
            let automata: Vec<_> = distinct.iter().map(|pattern| pattern.automaton()).collect();
            product::many(&automata, product::MAX_STEPS)
                .unwrap_or_else(|product::GaveUp| overlap(first, second))
        }
    }
}

/// How two patterns relate to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Relation {
    /// The same pattern, once normalised.
    Exact,
    /// One covers the other: a folder and its content, or a wider and a narrower pattern.
    ParentChild,
    /// Neither covers the other, but both match some path.
    Overlap,
    /// No path matches both, but they are in the same folder. This is advice, not a conflict.
    SameDir,
    /// Nothing in common.
    None,
}

impl Relation {
    /// Says whether both patterns match some path.
    pub fn is_conflict(self) -> bool {
        match self {
            Self::Exact | Self::ParentChild | Self::Overlap => true,
            Self::SameDir | Self::None => false,
        }
    }

    /// Returns the name used in output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "EXACT",
            Self::ParentChild => "PARENT_CHILD",
            Self::Overlap => "OVERLAP",
            Self::SameDir => "SAME_DIR",
            Self::None => "NONE",
        }
    }
}

impl fmt::Display for Relation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

/// The result of comparing two patterns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// How they relate to each other.
    pub relation: Relation,
    /// A path that both match; present exactly when the relation is a conflict.
    pub witness: Option<String>,
}

/// Compares two patterns. The order of the two does not matter.
pub fn relate(a: &Pattern, b: &Pattern) -> Comparison {
    if a == b {
        return Comparison { relation: Relation::Exact, witness: Some(a.example().to_owned()) };
    }
    let witness = overlap(a, b);
    let relation = if witness.is_none() {
        if a.parent() == b.parent() { Relation::SameDir } else { Relation::None }
    } else if covers(a, b) || covers(b, a) {
        Relation::ParentChild
    } else {
        Relation::Overlap
    };
    Comparison { relation, witness }
}

/// Says whether the literal prefixes and suffixes of two patterns allow a common path; `false` is final.
fn may_overlap(a: &Pattern, b: &Pattern) -> bool {
    let (left, right) = (a.literal_prefix(), b.literal_prefix());
    let (shorter, longer) = if left.len() <= right.len() { (left, right) } else { (right, left) };
    if !is_within(longer, shorter) {
        return false;
    }
    let (left, right) = (a.literal_suffix(), b.literal_suffix());
    left.ends_with(right) || right.ends_with(left)
}

/// Searches for a common path of two patterns whose literal prefixes agree.
fn search_pair(a: &Pattern, b: &Pattern) -> Option<String> {
    let (a, b) = if a <= b { (a, b) } else { (b, a) };
    for (folder, inside) in [(a, b), (b, a)] {
        if folder.is_literal() && folder.prefix_state() <= inside.prefix_state() {
            return Some(inside.example().to_owned());
        }
    }
    let short = if a.prefix_state() <= b.prefix_state() { a } else { b };
    let prefix = short.literal_prefix();
    let rest = product::pair(a.automaton(), b.automaton(), short.prefix_state()).witness?;
    Some([prefix, rest.as_str()].concat())
}

#[cfg(test)]
mod tests;
