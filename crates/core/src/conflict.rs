//! The conflict detector: which groups collide, where, and what the rules say about it.
//!
//! Two groups conflict when some path is matched by both. There is one [`Conflict`] for each two groups,
//! however many of their patterns meet. A rule applies to it when one path is matched by both groups *and* by
//! the rule; that path is the witness. Of several rules the strictest counts (ABORT, SERIAL, MUTEX, QUEUE in
//! this order), and of equally strict ones the one with the lowest priority number, then the first of the
//! file. Where no rule applies, the default action does, as MAJOR.
//!
//! Patterns that stand in one folder without meeting are told as one [`SameDir`] a folder, never pair by
//! pair. That is advice, unless a rule covers the folder.
//!
//! A literal pattern covers its subtree, and here it matters whether it means a file: rules for `**/*.ts` are
//! not about `package.json`, although `package.json/x.ts` is a path. So in the choice of rules, and only
//! there, a literal path whose name has an extension stands for itself alone. To mean a folder such as
//! `next.app`, write `next.app/**`.

mod choice;
mod claims;
mod words;

use std::collections::HashMap;

use choice::Rulebook;
use claims::Claims;
pub use words::{Action, Severity, Strategy, UnknownWord};

use crate::overlap::{Relation, meetings, relate};
use crate::pattern::Pattern;

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
    /// How bad the conflicts are that it is about.
    pub severity: Severity,
    /// What is done about them.
    pub action: Action,
    /// Which of equally strict rules counts: that with the lowest number.
    pub priority: i64,
    /// The paths that it is about.
    pub paths: Vec<Pattern>,
}

impl Rule {
    /// The priority of a rule that gives none.
    pub const DEFAULT_PRIORITY: i64 = 100;
}

/// What is done about a conflict, and by which rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ruling {
    /// The place of the rule, or `None` when it is the default.
    pub rule: Option<usize>,
    /// How bad the conflict is.
    pub severity: Severity,
    /// What is done.
    pub action: Action,
}

impl Ruling {
    /// Returns what happens where no rule applies.
    pub const fn by_default(action: Action) -> Self {
        Self { rule: None, severity: Severity::Major, action }
    }
}

/// Two groups that can write one same path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The place of the group that comes first.
    pub group1: usize,
    /// The place of the other group.
    pub group2: usize,
    /// The pattern of the first group.
    pub path1: Pattern,
    /// The pattern of the other group.
    pub path2: Pattern,
    /// How the two patterns lie to each other: EXACT, PARENT_CHILD or OVERLAP.
    pub kind: Relation,
    /// A path that both patterns match, and the rule's as well when there is one.
    pub witness: String,
    /// What is done about it.
    pub ruling: Ruling,
}

/// Groups whose patterns stand in one folder without meeting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SameDir {
    /// The folder, `.` for that of the repository.
    pub folder: String,
    /// The places of the groups, two at least, in order.
    pub groups: Vec<usize>,
    /// What is done about it, if a rule covers the folder; it is mere advice otherwise.
    pub ruling: Option<Ruling>,
}

/// All that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// One for each two groups that collide, ordered by the places of the two.
    pub conflicts: Vec<Conflict>,
    /// One for each folder that groups share, ordered by folder.
    pub same_dir: Vec<SameDir>,
}

impl Findings {
    /// Returns the strictest of what is to be done, or `None` when everything may run in parallel.
    pub fn strategy(&self) -> Option<Strategy> {
        let conflicts = self.conflicts.iter().map(|conflict| &conflict.ruling);
        let folders = self.same_dir.iter().filter_map(|folder| folder.ruling.as_ref());
        conflicts.chain(folders).map(|ruling| ruling.action.strategy()).max()
    }
}

/// Finds the conflicts of groups under rules; `default` is what is done where no rule applies.
///
/// Takes about as long as sorting the patterns and writing down what meets: see [`meetings`].
pub fn detect(groups: &[Group], rules: &[Rule], default: Action) -> Findings {
    let claims = Claims::new(groups);
    let mut rulebook = Rulebook::new(rules, &claims.patterns);
    let mut best: HashMap<(usize, usize), Candidate> = HashMap::new();
    let mut overlapping = vec![0; claims.patterns.len()];
    let mut found = Vec::new();
    let apart = |a: usize, b: usize| claims.are_of_two_groups(a, b);
    meetings(&claims.patterns, apart, |a, b, meeting| found.push((a, b, meeting)));
    for a in (0..claims.patterns.len()).filter(|a| claims.holders(*a).len() > 1) {
        found.push((a, a, relate(claims.patterns[a], claims.patterns[a])));
    }
    for (place, (a, b, meeting)) in found.iter_mut().enumerate() {
        if a != b && claims.patterns[*a].parent() == claims.patterns[*b].parent() {
            overlapping[*a] += 1;
            overlapping[*b] += 1;
        }
        let mut rank = usize::MAX;
        if let Some((chosen, witness)) = rulebook.choose(*a, *b, meeting) {
            rank = chosen;
            meeting.witness = Some(witness);
        }
        for (first, second, swapped) in claims.pairs(*a, *b) {
            let candidate = Candidate { rank, kind: order(meeting.relation), a: *a, b: *b, swapped, place };
            let least = best.entry((first, second)).or_insert(candidate);
            *least = candidate.min(*least);
        }
    }
    let mut conflicts: Vec<Conflict> = best
        .into_iter()
        .map(|((group1, group2), candidate)| {
            let (a, b, meeting) = &found[candidate.place];
            let (a, b) = if candidate.swapped { (*b, *a) } else { (*a, *b) };
            let (path1, path2) = (claims.patterns[a].clone(), claims.patterns[b].clone());
            let witness = meeting.witness.clone().unwrap_or_default();
            let ruling = rulebook.ruling(candidate.rank).unwrap_or(Ruling::by_default(default));
            Conflict { group1, group2, path1, path2, kind: meeting.relation, witness, ruling }
        })
        .collect();
    conflicts.sort_unstable_by_key(|conflict| (conflict.group1, conflict.group2));
    Findings { conflicts, same_dir: claims.same_dir(&overlapping, &rulebook) }
}

/// One way in which two groups meet; the least is the one that is told.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    /// The rule that counts, the strictest first; none comes last.
    rank: usize,
    /// The closest relation first.
    kind: usize,
    a: usize,
    b: usize,
    swapped: bool,
    place: usize,
}

/// EXACT before PARENT_CHILD before OVERLAP.
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
