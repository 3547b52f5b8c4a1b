//! Finds the pairs that can meet among many patterns, without comparing every two.
//!
//! Two patterns can only meet when their literal starts agree (one is, by components, a start of the other),
//! their literal ends agree, and their components do as far as both have one name at each place: `a/*/b/**` never
//! meets `a/*/c/**`. Sorted by their starts, the patterns in front of one that agree with it are those in the
//! folders above it. Of these, the ones in which anything may follow the start are kept by their ends, numbered
//! in the order of the ends read backwards: the ends that agree with one are a range and a few single numbers.
//! The others are kept in a [`Spines`] for each folder. So the time is that of sorting, and of one exact search
//! for each pair that agrees.
//!
//! The worst case remains quadratic: patterns such as `*a*` and `?x?y?` have nothing literal to go by, and each
//! two of them are searched. Nothing known does fundamentally better, since texts with `?` and two letters can
//! spell the orthogonal vectors problem.

mod ends;
mod spines;

use std::collections::BTreeSet;

use ends::Ends;
use spines::Spines;

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

/// Calls `found` once with each two of the patterns that agree as far as can be told without a search.
fn candidates(patterns: &[&Pattern], mut found: impl FnMut(usize, usize)) {
    let texts = starts(patterns);
    let mut rest = texts.as_slice();
    let mut order: Vec<(&[u8], bool, usize)> = Vec::with_capacity(patterns.len());
    for (place, pattern) in patterns.iter().enumerate() {
        let (start, after) = rest.split_at(pattern.literal_prefix().len());
        // Those with a spine come last in a folder, and so find in its spines only what has one as well.
        order.push((start, !pattern.spine().is_empty(), place));
        rest = after;
    }
    order.sort_unstable();
    let ends = Ends::new(patterns);
    let mut above = Above::default();
    for (start, has_spine, place) in order {
        above.leave_for(start, &ends);
        for range in ends.agreeing(place) {
            above.by_end.range((range.start, 0)..(range.end, 0)).for_each(|(_, other)| found(place, *other));
        }
        for (folder, spines) in &above.spines {
            let below = start[folder.len()..].split(|byte| *byte == 0).filter(|name| !name.is_empty());
            let spine = spines::names(patterns[place].spine());
            let names: Vec<&[u8]> = below.chain(spine).collect();
            spines.agreeing(&names, patterns[place].is_open(), &mut |other| {
                if ends.agree(place, other) {
                    found(place, other);
                }
            });
        }
        if has_spine {
            above.enter_spine(start, patterns[place], place);
        } else {
            above.enter(start, &ends, place);
        }
    }
}

/// The patterns whose literal start is the folder at hand or one above it.
#[derive(Default)]
struct Above<'a> {
    /// Those without a spine, in the order in which they were entered.
    places: Vec<(&'a [u8], usize)>,
    /// The same by the numbers of their ends.
    by_end: BTreeSet<(usize, usize)>,
    /// Those with a spine, by folder.
    spines: Vec<(&'a [u8], Spines<'a>)>,
}

impl<'a> Above<'a> {
    /// Drops the folders that a literal start is not in.
    fn leave_for(&mut self, start: &[u8], ends: &Ends) {
        while let Some((_, left)) = self.places.pop_if(|(folder, _)| !starts_in(start, folder)) {
            self.by_end.remove(&(ends.number(left), left));
        }
        while self.spines.pop_if(|(folder, _)| !starts_in(start, folder)).is_some() {}
    }

    fn enter(&mut self, start: &'a [u8], ends: &Ends, place: usize) {
        self.by_end.insert((ends.number(place), place));
        self.places.push((start, place));
    }

    fn enter_spine(&mut self, start: &'a [u8], pattern: &'a Pattern, place: usize) {
        if self.spines.last().is_none_or(|(folder, _)| *folder != start) {
            self.spines.push((start, Spines::default()));
        }
        if let Some((_, spines)) = self.spines.last_mut() {
            spines.enter(pattern, place);
        }
    }
}

/// Writes the literal starts into one text, since thousands of small ones take longer.
///
/// They have NUL, which no path has, for `/`: a folder is followed by all that is in it, `a`, `a/b`, `a-b`.
fn starts(patterns: &[&Pattern]) -> Vec<u8> {
    let mut texts = Vec::with_capacity(patterns.len() * 32);
    for pattern in patterns {
        texts.extend(pattern.literal_prefix().bytes().map(|byte| if byte == b'/' { 0 } else { byte }));
    }
    texts
}

fn starts_in(start: &[u8], folder: &[u8]) -> bool {
    let below = start.strip_prefix(folder);
    below.is_some_and(|rest| folder.is_empty() || rest.first().is_none_or(|byte| *byte == 0))
}

#[cfg(test)]
mod tests {
    use super::super::{may_meet, overlap};
    use super::*;

    const TEXTS: [&str; 34] = [
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
        "*/a",
        "src/*/x",
        "src/*/x/**",
        "src/?/y/",
        "*/a/**/b.ts",
        "src/{a,}/b",
        "src/{a,b/c}*/d",
        "*",
        "*/*",
    ];

    /// Requirement 206.
    #[test]
    fn the_candidates_are_all_that_meet_and_only_pairs_whose_literal_ends_agree() {
        let patterns: Vec<Pattern> = TEXTS.iter().map(|text| text.parse().unwrap()).collect();
        // Some of them twice.
        let patterns: Vec<&Pattern> = patterns.iter().chain(&patterns[..10]).collect();
        let mut found = Vec::new();
        candidates(&patterns, |a, b| found.push((a.min(b), a.max(b))));
        found.sort_unstable();
        assert!(found.is_sorted_by(|a, b| a < b), "no pair comes twice");
        for (a, b) in (0..patterns.len()).flat_map(|a| (a + 1..patterns.len()).map(move |b| (a, b))) {
            let (left, right) = (patterns[a], patterns[b]);
            let is_found = found.binary_search(&(a, b)).is_ok();
            assert!(is_found || overlap(left, right).is_none(), "{left} {right}");
            assert!(!is_found || may_meet(left, right), "{left} {right}");
        }
        assert!(found.len() > 100 && found.len() < 600, "{} of {} pairs", found.len(), 44 * 43 / 2);
    }

    #[test]
    fn names_behind_wildcards_tell_patterns_apart() {
        let patterns: Vec<Pattern> =
            (0..100).map(|number| format!("src/*/{{a,b}}/part{number}/**").parse().unwrap()).collect();
        let mut searched = 0;
        candidates(&patterns.iter().collect::<Vec<_>>(), |_, _| searched += 1);
        assert_eq!(searched, 0);
    }
}
