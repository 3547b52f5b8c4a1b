//! Finds the pairs that can meet among many patterns, without comparing every two.
//!
//! Two patterns can only meet when their literal starts agree (one is, by components, a start of the other)
//! and their literal ends agree. Sorted by their starts, the patterns in front of one that agree with it are
//! those in the folders above it; they are kept in a set by their ends, read backwards, in which the ends
//! that agree with one are some of its beginnings and a range. So the time is that of sorting, and of one
//! exact search for each pair that agrees at both ends.
//!
//! The worst case remains quadratic: patterns such as `*a*` and `?x?y?` have no literal ends, and each two of
//! them are searched. Nothing known does fundamentally better, since texts with `?` and two letters can spell
//! the orthogonal vectors problem.

use std::collections::BTreeSet;

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
    let mut ends: Vec<Ends<'_>> = Vec::with_capacity(patterns.len());
    let mut rest = texts.as_slice();
    for (place, pattern) in patterns.iter().enumerate() {
        let (start, after) = rest.split_at(pattern.literal_prefix().len());
        let (end, after) = after.split_at(pattern.literal_suffix().len());
        ends.push(Ends { start, end, place });
        rest = after;
    }
    ends.sort_unstable_by(|a, b| a.start.cmp(b.start));
    let mut above: Vec<Ends<'_>> = Vec::new();
    let mut by_end: BTreeSet<(&[u8], usize)> = BTreeSet::new();
    for next in ends {
        while let Some(left) = above.pop_if(|folder| !next.starts_in(folder)) {
            by_end.remove(&(left.end, left.place));
        }
        agreeing(&by_end, next.end, |other| found(next.place, other));
        by_end.insert((next.end, next.place));
        above.push(next);
    }
}

/// The literal ends of a pattern, so written that a sort brings together what agrees.
#[derive(Clone, Copy)]
struct Ends<'a> {
    /// With NUL, which no path has, for `/`: a folder is followed by all that is in it, `a`, `a/b`, `a-b`.
    start: &'a [u8],
    /// Read backwards.
    end: &'a [u8],
    place: usize,
}

impl Ends<'_> {
    fn starts_in(&self, folder: &Self) -> bool {
        let below = self.start.strip_prefix(folder.start);
        below.is_some_and(|rest| folder.start.is_empty() || rest.first().is_none_or(|byte| *byte == 0))
    }
}

/// Writes the starts and ends of all patterns into one text: thousands of small ones take longer.
fn spell(patterns: &[&Pattern]) -> Vec<u8> {
    let mut texts = Vec::with_capacity(patterns.len() * 32);
    for pattern in patterns {
        texts.extend(pattern.literal_prefix().bytes().map(|byte| if byte == b'/' { 0 } else { byte }));
        texts.extend(pattern.literal_suffix().bytes().rev());
    }
    texts
}

/// Calls `found` with each place whose end agrees with `end`: it begins with it, or is a beginning of it.
fn agreeing(by_end: &BTreeSet<(&[u8], usize)>, end: &[u8], mut found: impl FnMut(usize)) {
    let longer = by_end.range((end, 0)..).take_while(|(other, _)| other.starts_with(end));
    longer.for_each(|(_, place)| found(*place));
    // The beginnings are met from the longest to the shortest, by leaps to what is common with the next end.
    let mut upper = (end, 0);
    while let Some((other, place)) = by_end.range(..upper).next_back() {
        let common = end.iter().zip(*other).take_while(|(a, b)| a == b).count();
        if common == other.len() {
            found(*place);
            upper = (other, *place);
        } else {
            upper = (&end[..common], usize::MAX);
        }
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
