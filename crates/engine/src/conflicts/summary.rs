//! What a log of conflicts comes to: by pair of groups, by type, by rule.

use std::collections::BTreeMap;

use super::line::Line;

/// What a log of conflicts comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// How many lines there are.
    pub lines: usize,
    /// How many of its lines are no lines of a conflict.
    pub bad_lines: usize,
    /// The times of the first line and of the last, as written.
    pub span: Option<(String, String)>,
    /// How many lines a type has.
    pub types: BTreeMap<String, usize>,
    /// How many lines a rule has; `None` where no rule is named.
    pub rules: BTreeMap<Option<String>, usize>,
    /// How many lines a phase has.
    pub phases: BTreeMap<String, usize>,
    pairs: BTreeMap<(String, String), PairSummary>,
}

/// What two groups come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairSummary {
    /// How many lines they have.
    pub lines: usize,
    /// How many of them a type has.
    pub types: BTreeMap<String, usize>,
    /// The last line.
    pub last: Line,
}

impl Summary {
    pub(super) fn add(&mut self, line: Line) {
        self.lines += 1;
        match &mut self.span {
            Some((_, last)) => last.clone_from(&line.timestamp),
            span @ None => *span = Some((line.timestamp.clone(), line.timestamp.clone())),
        }
        *self.types.entry(line.conflict_type.clone()).or_default() += 1;
        *self.rules.entry(line.rule.clone()).or_default() += 1;
        *self.phases.entry(line.phase.clone()).or_default() += 1;
        let (one, other) = (line.group1.clone(), line.group2.clone());
        let pair = if one <= other { (one, other) } else { (other, one) };
        let found = self.pairs.entry(pair).or_insert_with(|| PairSummary {
            lines: 0,
            types: BTreeMap::new(),
            last: line.clone(),
        });
        found.lines += 1;
        *found.types.entry(line.conflict_type.clone()).or_default() += 1;
        found.last = line;
    }

    /// Returns the pairs of groups, those with most lines first; it does not matter which of two is named first.
    pub fn pairs(&self) -> Vec<(&str, &str, &PairSummary)> {
        let mut pairs: Vec<_> =
            self.pairs.iter().map(|((one, other), found)| (one.as_str(), other.as_str(), found)).collect();
        pairs.sort_by_key(|(_, _, found)| std::cmp::Reverse(found.lines));
        pairs
    }
}
