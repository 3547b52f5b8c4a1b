//! Who has which pattern: every pattern once, however many groups have it.

use std::collections::{BTreeSet, HashMap};

use super::choice::Rulebook;
use super::{Group, SameDir};
use crate::pattern::Pattern;

/// The distinct patterns, and which groups have them.
pub(super) struct Claims<'a> {
    pub(super) patterns: Vec<&'a Pattern>,
    /// For each pattern its groups, in order.
    pub(super) holders: Vec<Vec<usize>>,
}

impl<'a> Claims<'a> {
    pub(super) fn new(groups: &'a [Group]) -> Self {
        let mut places: HashMap<&Pattern, usize> = HashMap::new();
        let mut claims = Self { patterns: Vec::new(), holders: Vec::new() };
        for (group, path) in
            groups.iter().enumerate().flat_map(|(g, group)| group.paths.iter().map(move |p| (g, p)))
        {
            let place = *places.entry(path).or_insert_with(|| {
                claims.patterns.push(path);
                claims.holders.push(Vec::new());
                claims.patterns.len() - 1
            });
            if claims.holders[place].last() != Some(&group) {
                claims.holders[place].push(group);
            }
        }
        claims
    }

    /// Says whether two groups are behind two patterns.
    pub(super) fn are_of_two_groups(&self, a: usize, b: usize) -> bool {
        let (left, right) = (&self.holders[a], &self.holders[b]);
        left.len() > 1 || right.len() > 1 || left != right
    }

    /// Goes through the pairs of groups that have one of two patterns each; `true` where the first group has
    /// the second pattern.
    pub(super) fn pairs(&self, a: usize, b: usize) -> impl Iterator<Item = (usize, usize, bool)> {
        let both = self.holders[a].iter().flat_map(move |g| self.holders[b].iter().map(move |h| (*g, *h)));
        both.filter(move |(g, h)| g < h || (g > h && a != b)).map(|(g, h)| (g.min(h), g.max(h), g > h))
    }

    /// Finds the folders that groups share without meeting; `overlapping` counts for each pattern those of its
    /// folder, and of other groups, that it meets.
    pub(super) fn same_dir(&self, overlapping: &[usize], rulebook: &Rulebook<'_>) -> Vec<SameDir> {
        let mut folders: HashMap<&str, Vec<usize>> = HashMap::new();
        for (place, pattern) in self.patterns.iter().enumerate() {
            folders.entry(pattern.parent()).or_default().push(place);
        }
        let mut found: Vec<SameDir> = folders
            .into_iter()
            .filter(|(_, places)| places.len() > 1)
            .filter_map(|(folder, places)| {
                // How many patterns of the folder only one group has.
                let mut own: HashMap<usize, usize> = HashMap::new();
                for place in &places {
                    if let [group] = self.holders[*place].as_slice() {
                        *own.entry(*group).or_default() += 1;
                    }
                }
                let foreign = |place: usize| match self.holders[place].as_slice() {
                    [group] => places.len() - own[group],
                    _ => places.len() - 1,
                };
                let neighbours = places.iter().filter(|place| foreign(**place) > overlapping[**place]);
                let groups: BTreeSet<usize> =
                    neighbours.flat_map(|place| &self.holders[*place]).copied().collect();
                if groups.is_empty() {
                    return None;
                }
                let folder = if folder.is_empty() { "." } else { folder };
                let ruling = rulebook.covering(folder);
                Some(SameDir { folder: folder.to_owned(), groups: groups.into_iter().collect(), ruling })
            })
            .collect();
        found.sort_unstable_by(|a, b| a.folder.cmp(&b.folder));
        found
    }
}
