//! Finds the pairs that can meet among many patterns, without comparing every two.
//!
//! Two patterns can only meet when their literal starts agree (one is, by components, a start of the other)
//! and their literal ends agree. Sorted by their starts, the patterns in front of one that agree with it are
//! those in the folders above it. These are kept in a set by their ends, numbered in the order of the ends read
//! backwards, in which the ends that agree with one are a range and a few single numbers. So the time is that
//! of sorting, and of one exact search for each pair that agrees at both ends.
//!
//! The worst case remains quadratic: patterns such as `*a*` and `?x?y?` have no literal ends, and each two of
//! them are searched. Nothing known does fundamentally better, since texts with `?` and two letters can spell
//! the orthogonal vectors problem.

use std::collections::BTreeSet;
use std::ops::Range;

use super::{Meeting, relate};
use crate::pattern::Pattern;

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
fn candidates(patterns: &[&Pattern], mut found: impl FnMut(usize, usize)) {
    let texts = spell(patterns);
    let (mut starts, mut ends) = (Vec::with_capacity(patterns.len()), Vec::with_capacity(patterns.len()));
    let mut rest = texts.as_slice();
    for (place, pattern) in patterns.iter().enumerate() {
        let (start, after) = rest.split_at(pattern.literal_prefix().len());
        let (end, after) = after.split_at(pattern.literal_suffix().len());
        starts.push((start, place));
        ends.push((end, place));
        rest = after;
    }
    starts.sort_unstable();
    let kinship = Kinship::new(ends);
    let mut above: Vec<(&[u8], usize)> = Vec::new();
    let mut by_end: BTreeSet<(usize, usize)> = BTreeSet::new();
    for (start, place) in starts {
        while let Some((_, left)) = above.pop_if(|(folder, _)| !starts_in(start, folder)) {
            by_end.remove(&(kinship.number[left], left));
        }
        let number = kinship.number[place];
        for agreeing in kinship.agreeing(number) {
            by_end.range((agreeing.start, 0)..(agreeing.end, 0)).for_each(|(_, other)| found(place, *other));
        }
        by_end.insert((number, place));
        above.push((start, place));
    }
}

/// Writes the starts and ends of all patterns into one text, so that sorting brings together what agrees.
///
/// A start has NUL, which no path has, for `/`: a folder is followed by all that is in it, `a`, `a/b`, `a-b`.
/// An end is read backwards.
fn spell(patterns: &[&Pattern]) -> Vec<u8> {
    let mut texts = Vec::with_capacity(patterns.len() * 32);
    for pattern in patterns {
        texts.extend(pattern.literal_prefix().bytes().map(|byte| if byte == b'/' { 0 } else { byte }));
        texts.extend(pattern.literal_suffix().bytes().rev());
    }
    texts
}

fn starts_in(start: &[u8], folder: &[u8]) -> bool {
    let below = start.strip_prefix(folder);
    below.is_some_and(|rest| folder.is_empty() || rest.first().is_none_or(|byte| *byte == 0))
}

/// Which literal ends agree: one is the end of the other.
struct Kinship {
    /// For each pattern the number of its end, in sorted order.
    number: Vec<usize>,
    /// For each end the longest other one that is its own end, which so has a lower number.
    shorter: Vec<Option<usize>>,
    /// For each end the first number after those of all ends that end in it.
    beyond: Vec<usize>,
}

impl Kinship {
    fn new(mut ends: Vec<(&[u8], usize)>) -> Self {
        ends.sort_unstable();
        let mut made = Self { number: vec![0; ends.len()], shorter: Vec::new(), beyond: Vec::new() };
        let mut open: Vec<(&[u8], usize)> = Vec::new();
        for same in ends.chunk_by(|a, b| a.0 == b.0) {
            let number = made.shorter.len();
            while let Some((_, closed)) = open.pop_if(|(shorter, _)| !same[0].0.starts_with(shorter)) {
                made.beyond[closed] = number;
            }
            made.shorter.push(open.last().map(|(_, shorter)| *shorter));
            made.beyond.push(0);
            open.push((same[0].0, number));
            same.iter().for_each(|(_, place)| made.number[*place] = number);
        }
        for (_, closed) in open {
            made.beyond[closed] = made.shorter.len();
        }
        made
    }

    /// Returns the numbers of the ends that agree with one, itself among them.
    fn agreeing(&self, number: usize) -> impl Iterator<Item = Range<usize>> {
        let shorter = std::iter::successors(self.shorter[number], |shorter| self.shorter[*shorter]);
        shorter.map(|shorter| shorter..shorter + 1).chain(std::iter::once(number..self.beyond[number]))
    }
}

#[cfg(test)]
mod tests {
    use super::super::may_meet;
    use super::*;

    const TEXTS: [&str; 25] = [
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

    /// Requirement 206.
    #[test]
    fn the_candidates_are_the_pairs_whose_literal_ends_agree() {
        let patterns: Vec<Pattern> = TEXTS.iter().map(|text| text.parse().unwrap()).collect();
        // Some of them twice.
        let patterns: Vec<&Pattern> = patterns.iter().chain(&patterns[..10]).collect();
        let mut found = Vec::new();
        candidates(&patterns, |a, b| found.push((a.min(b), a.max(b))));
        found.sort_unstable();
        let mut expected = Vec::new();
        for a in 0..patterns.len() {
            let agreeing = (a + 1..patterns.len()).filter(|b| may_meet(patterns[a], patterns[*b]));
            expected.extend(agreeing.map(|b| (a, b)));
        }
        assert_eq!(found, expected);
        assert!(found.len() > 100 && found.len() < 500, "{} of {} pairs", found.len(), 35 * 34 / 2);
    }
}
