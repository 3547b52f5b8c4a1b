//! Finds the pairs that can meet among many patterns, without comparing every two.
//!
//! Two patterns can only meet when their literal starts agree (one is, by components, a start of the other)
//! and their literal ends agree. Sorted by their starts, the patterns that agree with one in front of it are
//! those in the folders above it; they are kept in a map by their ends, read backwards, in which the ends
//! that agree with one are its own beginnings and a range. So the time is that of sorting, and of one exact
//! search for each pair that agrees at both ends.
//!
//! The worst case remains quadratic: patterns such as `*a*` and `?x?y?` have no literal ends, and each two of
//! them are searched. Nothing known does fundamentally better, since texts with `?` and two letters can spell
//! the orthogonal vectors problem.

use std::collections::BTreeMap;

use super::{Meeting, relate};
use crate::pattern::{Pattern, is_within};

/// Calls `found` with each two of the patterns that share a path, by their places, the lower one first.
///
/// Pairs that are not `wanted` are left out before they are searched. The order of the calls is not defined.
pub fn meetings(
    patterns: &[&Pattern],
    wanted: impl Fn(usize, usize) -> bool,
    mut found: impl FnMut(usize, usize, Meeting),
) {
    candidates(patterns, |one, other| {
        let (a, b) = (one.min(other), one.max(other));
        if wanted(a, b) {
            let meeting = relate(patterns[a], patterns[b]);
            if meeting.relation.is_conflict() {
                found(a, b, meeting);
            }
        }
    });
}

/// Calls `found` with each two of the patterns whose literal starts and ends agree.
pub(super) fn candidates(patterns: &[&Pattern], mut found: impl FnMut(usize, usize)) {
    let mut order: Vec<(Vec<u8>, usize)> =
        patterns.iter().enumerate().map(|(place, pattern)| (key(pattern), place)).collect();
    order.sort_unstable();
    let mut above = Above::default();
    for (_, place) in order {
        let pattern = patterns[place];
        above.leave_for(pattern, patterns);
        above.agreeing(pattern, |other| found(place, other));
        above.enter(pattern, place);
    }
}

/// A literal start such that a folder is followed by all that is in it: `a`, `a/b`, `a-b`.
fn key(pattern: &Pattern) -> Vec<u8> {
    pattern.literal_prefix().bytes().map(|byte| if byte == b'/' { 0 } else { byte }).collect()
}

/// The patterns whose literal start is the folder at hand or one above it.
#[derive(Default)]
struct Above {
    /// In the order in which they were entered.
    places: Vec<usize>,
    /// By their literal ends, read backwards; the last one entered is the last of its list.
    by_end: BTreeMap<Vec<u8>, Vec<usize>>,
}

impl Above {
    /// Drops the folders that a pattern does not start in.
    fn leave_for(&mut self, pattern: &Pattern, patterns: &[&Pattern]) {
        while let Some(place) = self
            .places
            .pop_if(|place| !is_within(pattern.literal_prefix(), patterns[*place].literal_prefix()))
        {
            let end = backwards(patterns[place]);
            if let Some(same) = self.by_end.get_mut(&end) {
                same.pop();
                if same.is_empty() {
                    self.by_end.remove(&end);
                }
            }
        }
    }

    fn enter(&mut self, pattern: &Pattern, place: usize) {
        self.places.push(place);
        self.by_end.entry(backwards(pattern)).or_default().push(place);
    }

    /// Calls `found` with each pattern whose literal end agrees with that of `pattern`.
    fn agreeing(&self, pattern: &Pattern, mut found: impl FnMut(usize)) {
        if self.by_end.is_empty() {
            return;
        }
        let end = backwards(pattern);
        if self.by_end.len() <= end.len() {
            let agree = |other: &[u8]| other.starts_with(&end) || end.starts_with(other);
            let lists = self.by_end.iter().filter(|(other, _)| agree(other)).map(|(_, places)| places);
            lists.flatten().copied().for_each(found);
            return;
        }
        for length in 0..end.len() {
            self.by_end.get(&end[..length]).into_iter().flatten().copied().for_each(&mut found);
        }
        let longer = self.by_end.range(end.clone()..).take_while(|(other, _)| other.starts_with(&end));
        longer.flat_map(|(_, places)| places).copied().for_each(found);
    }
}

/// The literal end of a pattern, read backwards.
fn backwards(pattern: &Pattern) -> Vec<u8> {
    pattern.literal_suffix().bytes().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::super::may_meet;
    use super::*;

    /// Requirement 206.
    #[test]
    fn the_candidates_are_the_pairs_whose_literal_ends_agree() {
        let texts = [
            ".",
            "**",
            "**/*.ts",
            "**/*.test.ts",
            "*.ts",
            "src",
            "src/**",
            "src/*.ts",
            "src/a",
            "src/a/*.ts",
            "src/a-b",
            "src/a-b/x",
            "src/a b",
            "src/a/b/*.tsx",
            "src/{a,b}/*.ts",
            "docs/*.md",
            "docs",
            "*s",
            "src-x/*",
            "src.x/**/y.ts",
            "s\\*c/a",
            "日本/*.ts",
            "日本/語",
            "**/語",
            "*語",
        ];
        let patterns: Vec<Pattern> = texts.iter().map(|text| text.parse().unwrap()).collect();
        let patterns: Vec<&Pattern> = patterns.iter().collect();
        let mut found = Vec::new();
        candidates(&patterns, |a, b| found.push((a.min(b), a.max(b))));
        found.sort_unstable();
        let mut expected = Vec::new();
        for a in 0..patterns.len() {
            expected.extend(
                (a + 1..patterns.len()).filter(|b| may_meet(patterns[a], patterns[*b])).map(|b| (a, b)),
            );
        }
        assert_eq!(found, expected);
        assert!(found.len() > 50 && found.len() < 250, "{} of {} pairs", found.len(), 25 * 24 / 2);
    }
}
