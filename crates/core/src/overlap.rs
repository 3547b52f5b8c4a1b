//! Whether patterns can match one same path, exactly, and with that path as the proof.
//!
//! Two claims collide when some path is matched by both, whether or not the file exists yet. The answer comes
//! from the product of the two automata, never from trying paths, and every yes carries a **witness**: a path
//! that both match. Most pairs of a repository live in different folders and are told apart by their literal
//! prefixes alone.

mod cover;
mod index;
mod product;

use std::fmt;

pub use cover::{Coverage, coverage, covers};
pub use index::meetings;
pub(crate) use product::shortest;

use crate::pattern::{Pattern, is_within};

/// Returns a path that both patterns match, or `None` when there is none; the order of the two does not
/// matter.
pub fn overlap(a: &Pattern, b: &Pattern) -> Option<String> {
    if may_meet(a, b) { search_pair(a, b) } else { None }
}

/// Returns a path that all patterns match, or `None` when there is none, or no pattern.
///
/// Exact, unless three or more hostile patterns need a search of more than a million steps. The answer is
/// then a path that two of them match: for a lock, a conflict too many is the safe mistake.
pub fn overlap_all(patterns: &[&Pattern]) -> Option<String> {
    let mut distinct = patterns.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    match distinct.as_slice() {
        [] => None,
        [only] => Some(only.example().to_owned()),
        [a, b] => overlap(a, b),
        [first, second, ..] => {
            let apart =
                |(index, a): (usize, &&Pattern)| distinct[index + 1..].iter().any(|b| !may_meet(a, b));
            if distinct.iter().enumerate().any(apart) {
                return None;
            }
            let automata: Vec<_> = distinct.iter().map(|pattern| pattern.automaton()).collect();
            product::many(&automata, product::MAX_STEPS)
                .unwrap_or_else(|product::GaveUp| overlap(first, second))
        }
    }
}

/// How two patterns lie to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Relation {
    /// The same pattern, once normalised.
    Exact,
    /// One covers the other: a folder and what is in it, or a wider and a narrower pattern.
    ParentChild,
    /// Neither covers the other, and some path is matched by both.
    Overlap,
    /// No path is matched by both, but they stand in one folder; advice, not a conflict.
    SameDir,
    /// Nothing in common.
    None,
}

impl Relation {
    /// Says whether some path is matched by both patterns.
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

/// How two patterns meet, with a path that both match when the relation is a conflict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meeting {
    /// How they lie to each other.
    pub relation: Relation,
    /// A path that both match; present exactly when the relation is a conflict.
    pub witness: Option<String>,
}

/// Returns how two patterns meet; the order of the two does not matter.
pub fn relate(a: &Pattern, b: &Pattern) -> Meeting {
    if a == b {
        return Meeting { relation: Relation::Exact, witness: Some(a.example().to_owned()) };
    }
    let witness = overlap(a, b);
    let relation = if witness.is_none() {
        if a.parent() == b.parent() { Relation::SameDir } else { Relation::None }
    } else if covers(a, b) || covers(b, a) {
        Relation::ParentChild
    } else {
        Relation::Overlap
    };
    Meeting { relation, witness }
}

/// Says whether the literal ends of two patterns allow a common path; `false` is final.
fn may_meet(a: &Pattern, b: &Pattern) -> bool {
    let (left, right) = (a.literal_prefix(), b.literal_prefix());
    if left.len() <= right.len() && !is_within(right, left)
        || left.len() > right.len() && !is_within(left, right)
    {
        return false;
    }
    let (left, right) = (a.literal_suffix(), b.literal_suffix());
    left.ends_with(right) || right.ends_with(left)
}

/// Looks for a common path of two patterns whose literal prefixes agree.
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
