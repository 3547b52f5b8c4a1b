//! Claims: every distinct pattern once, with the groups that have it.

use std::collections::{BTreeSet, HashMap};

use super::rule_choice::Rulebook;
use super::{Group, SameDir};
use crate::pattern::Pattern;

/// The distinct patterns, and which groups have them.
pub(super) struct Claims<'a> {
    pub(super) patterns: Vec<&'a Pattern>,
    /// The groups of all patterns: those of the first pattern, then those of the second, and so on.
    groups: Vec<usize>,
    /// For each pattern, where its part of `groups` ends.
    ends: Vec<usize>,
}

impl<'a> Claims<'a> {
    pub(super) fn new(groups: &'a [Group]) -> Self {
        let count = groups.iter().map(|group| group.paths.len()).sum();
        let mut places: HashMap<&str, usize> = HashMap::with_capacity(count);
        let mut patterns = Vec::with_capacity(count);
        let mut claims = Vec::with_capacity(count);
        for (number, group) in groups.iter().enumerate() {
            for path in &group.paths {
                let place = *places.entry(path.as_str()).or_insert_with(|| {
                    patterns.push(path);
                    patterns.len() - 1
                });
                claims.push((place, number));
            }
        }
        claims.sort_unstable();
        claims.dedup();
        let mut ends = vec![0; patterns.len()];
        for (number, (place, _)) in (1..).zip(&claims) {
            ends[*place] = number;
        }
        Self { patterns, groups: claims.into_iter().map(|(_, group)| group).collect(), ends }
    }

    /// Returns the groups that have a pattern, in order.
    pub(super) fn holders(&self, place: usize) -> &[usize] {
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.groups[start..self.ends[place]]
    }

    /// Says whether the two patterns belong to two different groups.
    pub(super) fn are_of_two_groups(&self, a: usize, b: usize) -> bool {
        let (left, right) = (self.holders(a), self.holders(b));
        left.len() > 1 || right.len() > 1 || left != right
    }

    /// Returns each two groups of which one has the pattern `a` and the other has `b`, the lower index first. `true` if the first
    /// group has `b`.
    pub(super) fn pairs(&self, a: usize, b: usize) -> impl Iterator<Item = (usize, usize, bool)> {
        let both = self.holders(a).iter().flat_map(move |g| self.holders(b).iter().map(move |h| (*g, *h)));
        both.filter(move |(g, h)| g < h || (g > h && a != b)).map(|(g, h)| (g.min(h), g.max(h), g > h))
    }

    /// Finds the folders that groups share without an overlap. `overlapping` has, for each pattern, the number of patterns
    /// of other groups in the same folder that it overlaps.
    pub(super) fn same_dir(&self, overlapping: &[usize], rulebook: &Rulebook<'_>) -> Vec<SameDir> {
        let mut parents: Vec<(&str, usize)> =
            self.patterns.iter().enumerate().map(|(place, pattern)| (pattern.parent(), place)).collect();
        parents.sort_unstable();
        let folders = parents.chunk_by(|a, b| a.0 == b.0).filter(|patterns| patterns.len() > 1);
        folders
            .filter_map(|patterns| {
                let groups = self.neighbours(patterns, overlapping);
                let folder = if patterns[0].0.is_empty() { "." } else { patterns[0].0 };
                if groups.is_empty() {
                    return None;
                }
                Some(SameDir { folder: folder.to_owned(), groups, ruling: rulebook.covering(folder) })
            })
            .collect()
    }

    /// Returns the groups that have a pattern in a folder which does not overlap a pattern of another group there.
    fn neighbours(&self, patterns: &[(&str, usize)], overlapping: &[usize]) -> Vec<usize> {
        // For each pattern that only one group has, that group.
        let holders = patterns.iter().map(|(_, place)| self.holders(*place));
        let mut alone: Vec<usize> = holders.filter(|groups| groups.len() == 1).flatten().copied().collect();
        alone.sort_unstable();
        let foreign = |place: usize| match self.holders(place) {
            [group] => {
                let own =
                    alone.partition_point(|one| one <= group) - alone.partition_point(|one| one < group);
                patterns.len() - own
            }
            _ => patterns.len() - 1,
        };
        let apart = patterns.iter().filter(|(_, place)| foreign(*place) > overlapping[*place]);
        let groups: BTreeSet<usize> = apart.flat_map(|(_, place)| self.holders(*place)).copied().collect();
        groups.into_iter().collect()
    }
}
