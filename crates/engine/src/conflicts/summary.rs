//! Summary of a conflict log: counts by pair of groups, by type, by rule and by phase.

use std::collections::BTreeMap;

use super::line::Line;

/// Summary of a conflict log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The number of lines.
    pub lines: usize,
    /// The number of lines that could not be parsed.
    pub bad_lines: usize,
    /// The times in the first and in the last line.
    pub span: Option<(String, String)>,
    /// The number of lines of each type.
    pub types: BTreeMap<String, usize>,
    /// The number of lines of each rule; `None` for lines without a rule.
    pub rules: BTreeMap<Option<String>, usize>,
    /// The number of lines of each phase.
    pub phases: BTreeMap<String, usize>,
    pairs: BTreeMap<(String, String), PairSummary>,
}

/// Summary of the lines of two groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairSummary {
    /// The number of lines.
    pub lines: usize,
    /// The number of lines of each type.
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

    /// The pairs of groups, those with most lines first. The order of the two groups in a line does not matter.
    pub fn pairs(&self) -> Vec<(&str, &str, &PairSummary)> {
        let mut pairs: Vec<_> =
            self.pairs.iter().map(|((one, other), found)| (one.as_str(), other.as_str(), found)).collect();
        pairs.sort_by_key(|(_, _, found)| std::cmp::Reverse(found.lines));
        pairs
    }
}
