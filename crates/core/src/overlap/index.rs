//! Pair index: finds the pairs of patterns that can overlap, without comparing every two.
//!
//! Two patterns can overlap only if three things agree: their literal prefixes (one is, by components, a prefix of the
//! other), their literal suffixes, and the names of their components, as far as both patterns have a fixed component at
//! the same position: `a/*/b/**` never overlaps `a/*/c/**`. The patterns are sorted by prefix. Then the patterns before
//! a pattern that agree with it are those in its ancestor folders. Of these, the patterns without fixed components are
//! indexed by suffix. Suffixes are numbered in the order in which they read backwards, so the suffixes that agree with
//! one are a range and a few single numbers. The other patterns are in a [`ComponentTrie`] for each folder. So the cost
//! is that of sorting, plus one exact search for each pair that agrees.
//!
//! The worst case is quadratic: patterns such as `*a*` and `?x?y?` have no literal part, so each two of them are
//! searched. No known algorithm is fundamentally better, because patterns with `?` and two letters can encode the
//! orthogonal vectors problem.

mod component_trie;
mod suffixes;

use std::collections::BTreeSet;

use super::{Comparison, relate};
use crate::pattern::Pattern;
use component_trie::ComponentTrie;
use suffixes::Suffixes;

/// Calls `found` with the indexes of each two patterns that share a path, the lower one first.
///
/// Pairs that are not `wanted` are skipped before the search. The order of the calls is not defined.
pub fn overlapping_pairs(
    patterns: &[&Pattern],
    wanted: impl Fn(usize, usize) -> bool,
    mut found: impl FnMut(usize, usize, Comparison),
) {
    candidates(patterns, |one, other| {
        let (a, b) = (one.min(other), one.max(other));
        if wanted(a, b) {
            let comparison = relate(patterns[a], patterns[b]);
            if comparison.relation.is_conflict() {
                found(a, b, comparison);
            }
        }
    });
}

/// Calls `found` once with each two patterns whose prefixes, components and suffixes agree. It makes no exact search.
fn candidates(patterns: &[&Pattern], mut found: impl FnMut(usize, usize)) {
    let texts = starts(patterns);
    let mut rest = texts.as_slice();
    let mut order: Vec<(&[u8], bool, usize)> = Vec::with_capacity(patterns.len());
    for (place, pattern) in patterns.iter().enumerate() {
        let (start, after) = rest.split_at(pattern.literal_prefix().len());
        // Patterns with fixed components come last in a folder, so each of them is compared with the trie only once.
        order.push((start, !pattern.fixed_components().is_empty(), place));
        rest = after;
    }
    order.sort_unstable();
    let suffixes = Suffixes::new(patterns);
    let mut above = AncestorFolders::default();
    for (start, has_components, place) in order {
        above.keep_ancestors_of(start, &suffixes);
        for range in suffixes.agreeing(place) {
            above.by_end.range((range.start, 0)..(range.end, 0)).for_each(|(_, other)| found(place, *other));
        }
        for (folder, tries) in &above.tries {
            let below = start[folder.len()..].split(|byte| *byte == 0).filter(|name| !name.is_empty());
            let components = component_trie::names(patterns[place].fixed_components());
            let names: Vec<&[u8]> = below.chain(components).collect();
            tries.agreeing(&names, patterns[place].is_open(), &mut |other| {
                if suffixes.agree(place, other) {
                    found(place, other);
                }
            });
        }
        if has_components {
            above.insert_with_components(start, patterns[place], place);
        } else {
            above.insert(start, &suffixes, place);
        }
    }
}

/// The patterns whose literal prefix is the current folder or an ancestor of it.
#[derive(Default)]
struct AncestorFolders<'a> {
    /// Patterns without fixed components, in the order of insertion.
    places: Vec<(&'a [u8], usize)>,
    /// The same patterns by the numbers of their suffixes.
    by_end: BTreeSet<(usize, usize)>,
    /// Patterns with fixed components, by folder.
    tries: Vec<(&'a [u8], ComponentTrie<'a>)>,
}

impl<'a> AncestorFolders<'a> {
    /// Removes the folders that are not ancestors of a literal prefix.
    fn keep_ancestors_of(&mut self, start: &[u8], suffixes: &Suffixes) {
        while let Some((_, left)) = self.places.pop_if(|(folder, _)| !starts_in(start, folder)) {
            self.by_end.remove(&(suffixes.number(left), left));
        }
        while self.tries.pop_if(|(folder, _)| !starts_in(start, folder)).is_some() {}
    }

    fn insert(&mut self, start: &'a [u8], suffixes: &Suffixes, place: usize) {
        self.by_end.insert((suffixes.number(place), place));
        self.places.push((start, place));
    }

    fn insert_with_components(&mut self, start: &'a [u8], pattern: &'a Pattern, place: usize) {
        if self.tries.last().is_none_or(|(folder, _)| *folder != start) {
            self.tries.push((start, ComponentTrie::default()));
        }
        if let Some((_, tries)) = self.tries.last_mut() {
            tries.insert(pattern, place);
        }
    }
}

/// Writes the literal prefixes into one buffer, because thousands of small ones are slower.
///
/// Each `/` becomes NUL, which no path contains. So a folder sorts directly before its content: `a`, `a/b`, `a-b`.
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
    use super::*;
    use crate::overlap::{may_overlap, overlap};

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
    fn the_candidates_are_all_overlapping_pairs_and_only_pairs_whose_literal_parts_agree() {
        let patterns: Vec<Pattern> = TEXTS.iter().map(|text| text.parse().unwrap()).collect();
        // Some patterns are there twice.
        let patterns: Vec<&Pattern> = patterns.iter().chain(&patterns[..10]).collect();
        let mut found = Vec::new();
        candidates(&patterns, |a, b| found.push((a.min(b), a.max(b))));
        found.sort_unstable();
        assert!(found.is_sorted_by(|a, b| a < b), "no pair comes twice");
        for (a, b) in (0..patterns.len()).flat_map(|a| (a + 1..patterns.len()).map(move |b| (a, b))) {
            let (left, right) = (patterns[a], patterns[b]);
            let is_found = found.binary_search(&(a, b)).is_ok();
            assert!(is_found || overlap(left, right).is_none(), "{left} {right}");
            assert!(!is_found || may_overlap(left, right), "{left} {right}");
        }
        assert!(found.len() > 100 && found.len() < 600, "{} of {} pairs", found.len(), 44 * 43 / 2);
    }

    /// Requirement 206.
    #[test]
    fn each_wanted_pair_that_shares_a_path_is_found_once_with_its_comparison() {
        let patterns: Vec<Pattern> = TEXTS.iter().map(|text| text.parse().unwrap()).collect();
        let patterns: Vec<&Pattern> = patterns.iter().collect();
        let wanted = |a: usize, b: usize| !(a + b).is_multiple_of(3);
        let mut found = Vec::new();
        overlapping_pairs(&patterns, wanted, |a, b, comparison| found.push((a, b, comparison)));
        found.sort_unstable_by_key(|(a, b, _)| (*a, *b));
        let all = (0..patterns.len()).flat_map(|a| (a + 1..patterns.len()).map(move |b| (a, b)));
        let compared =
            all.filter(|(a, b)| wanted(*a, *b)).map(|(a, b)| (a, b, relate(patterns[a], patterns[b])));
        let expected: Vec<_> =
            compared.filter(|(_, _, comparison)| comparison.relation.is_conflict()).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn names_after_wildcards_distinguish_patterns() {
        let patterns: Vec<Pattern> =
            (0..100).map(|number| format!("src/*/{{a,b}}/part{number}/**").parse().unwrap()).collect();
        let mut searched = 0;
        candidates(&patterns.iter().collect::<Vec<_>>(), |_, _| searched += 1);
        assert_eq!(searched, 0);
    }
}
