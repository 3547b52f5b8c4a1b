//! Conflict detection: which groups conflict, on which path, and which rule applies.
//!
//! Two groups conflict when both match some path. There is one [`Conflict`] for each two groups, even if several of their
//! patterns overlap. A rule applies when both groups *and* the rule match the same path; that path is the witness. If
//! several rules apply, the strictest counts (ABORT, SERIAL, MUTEX, QUEUE in this order), then the lowest priority
//! number, then the first in the file. If no rule applies, the default action does, as MAJOR.
//!
//! Patterns in the same folder that do not overlap are reported as one [`SameDir`] for each folder, not pair by pair.
//! This is advice, unless a rule covers the folder.
//!
//! A literal pattern covers its subtree. For rules it matters whether it means a file: a rule for `**/*.ts` is not about
//! `package.json`, although `package.json/x.ts` is a path. So in the choice of rules, and only there, a literal path
//! whose name has an extension means the file alone. To mean a folder such as `next.app`, write `next.app/**`.

mod claims;
mod keywords;
mod rule_choice;

use std::collections::HashMap;

use crate::overlap::{Relation, overlapping_pairs, relate};
use crate::pattern::Pattern;
use claims::Claims;
use rule_choice::Rulebook;

pub use keywords::{Action, Severity, Strategy, UnknownKeyword};

/// What the detector needs of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub id: String,
    /// The paths that it may write.
    pub paths: Vec<Pattern>,
}

/// A rule about conflicts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its name.
    pub name: String,
    /// How bad its conflicts are.
    pub severity: Severity,
    /// What to do about them.
    pub action: Action,
    /// Of equally strict rules, the one with the lowest number counts.
    pub priority: i64,
    /// The paths that it covers.
    pub paths: Vec<Pattern>,
}

impl Rule {
    /// The priority of a rule that gives none.
    pub const DEFAULT_PRIORITY: i64 = 100;
}

/// The action for a conflict, and its rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ruling {
    /// The index of the rule; `None` for the default.
    pub rule: Option<usize>,
    /// How bad the conflict is.
    pub severity: Severity,
    /// What to do.
    pub action: Action,
}

impl Ruling {
    /// Returns the ruling if no rule applies.
    pub const fn by_default(action: Action) -> Self {
        Self { rule: None, severity: Severity::Major, action }
    }
}

/// Two groups that can write the same path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The index of the first group.
    pub group1: usize,
    /// The index of the second group.
    pub group2: usize,
    /// The pattern of the first group.
    pub path1: Pattern,
    /// The pattern of the second group.
    pub path2: Pattern,
    /// How the two patterns relate: EXACT, PARENT_CHILD or OVERLAP.
    pub kind: Relation,
    /// A path that both patterns match, and the rule too if there is one.
    pub witness: String,
    /// Whether the groups do not declare this path: a prediction says that both will probably change it.
    pub is_predicted: bool,
    /// What to do about it.
    pub ruling: Ruling,
}

/// Groups whose patterns are in the same folder but do not overlap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SameDir {
    /// The folder; `.` for the root of the repository.
    pub folder: String,
    /// The indexes of the groups, at least two, in order.
    pub groups: Vec<usize>,
    /// What to do about it, if a rule covers the folder. Otherwise it is only advice.
    pub ruling: Option<Ruling>,
}

/// The result of the detection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// One for each two groups that conflict, ordered by their indexes.
    pub conflicts: Vec<Conflict>,
    /// One for each folder that groups share, ordered by folder.
    pub same_dir: Vec<SameDir>,
}

impl Findings {
    /// Returns the strictest strategy, or `None` when everything may run in parallel.
    pub fn strategy(&self) -> Option<Strategy> {
        let conflicts = self.conflicts.iter().map(|conflict| &conflict.ruling);
        let folders = self.same_dir.iter().filter_map(|folder| folder.ruling.as_ref());
        conflicts.chain(folders).map(|ruling| ruling.action.strategy()).max()
    }
}

/// Finds the conflicts of groups under rules; `default` is the action if no rule applies.
///
/// Takes about as long as sorting the patterns and listing the pairs that overlap: see [`overlapping_pairs`].
pub fn detect(groups: &[Group], rules: &[Rule], default: Action) -> Findings {
    let claims = Claims::new(groups);
    let mut rulebook = Rulebook::new(rules, &claims.patterns);
    let mut best: HashMap<(usize, usize), Candidate> = HashMap::new();
    let mut overlapping = vec![0; claims.patterns.len()];
    let mut found = Vec::new();
    let apart = |a: usize, b: usize| claims.are_of_two_groups(a, b);
    overlapping_pairs(&claims.patterns, apart, |a, b, comparison| found.push((a, b, comparison)));
    for a in (0..claims.patterns.len()).filter(|a| claims.holders(*a).len() > 1) {
        found.push((a, a, relate(claims.patterns[a], claims.patterns[a])));
    }
    for (place, (a, b, comparison)) in found.iter_mut().enumerate() {
        if a != b && claims.patterns[*a].parent() == claims.patterns[*b].parent() {
            overlapping[*a] += 1;
            overlapping[*b] += 1;
        }
        let mut rank = usize::MAX;
        if let Some((chosen, witness)) = rulebook.choose(*a, *b, comparison) {
            rank = chosen;
            comparison.witness = Some(witness);
        }
        for (first, second, swapped) in claims.pairs(*a, *b) {
            let candidate =
                Candidate { rank, kind: order(comparison.relation), a: *a, b: *b, swapped, place };
            let least = best.entry((first, second)).or_insert(candidate);
            *least = candidate.min(*least);
        }
    }
    let mut conflicts: Vec<Conflict> = best
        .into_iter()
        .map(|((group1, group2), candidate)| {
            let (a, b, comparison) = &found[candidate.place];
            let (a, b) = if candidate.swapped { (*b, *a) } else { (*a, *b) };
            let (path1, path2) = (claims.patterns[a].clone(), claims.patterns[b].clone());
            let witness = comparison.witness.clone().unwrap_or_default();
            let ruling = rulebook.ruling(candidate.rank).unwrap_or(Ruling::by_default(default));
            Conflict {
                group1,
                group2,
                path1,
                path2,
                kind: comparison.relation,
                witness,
                is_predicted: false,
                ruling,
            }
        })
        .collect();
    conflicts.sort_unstable_by_key(|conflict| (conflict.group1, conflict.group2));
    Findings { conflicts, same_dir: claims.same_dir(&overlapping, &rulebook) }
}

/// Two patterns by which two groups conflict. Of all candidates of two groups, the least one is reported.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    /// The rank of the rule that applies: the strictest rule has rank 0. If no rule applies, the largest number.
    rank: usize,
    /// The [`order`] of the relation.
    kind: usize,
    a: usize,
    b: usize,
    swapped: bool,
    place: usize,
}

/// The order of relations, the closest first: EXACT before PARENT_CHILD before OVERLAP.
const fn order(relation: Relation) -> usize {
    match relation {
        Relation::Exact => 0,
        Relation::ParentChild => 1,
        Relation::Overlap => 2,
        Relation::SameDir => 3,
        Relation::None => 4,
    }
}

#[cfg(test)]
mod tests;
