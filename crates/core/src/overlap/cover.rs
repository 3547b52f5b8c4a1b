//! Pattern coverage: whether one pattern matches every path that another matches.

use std::collections::HashMap;

use super::may_overlap;
use crate::pattern::{Automaton, Label, Pattern, State, after, is_within};

/// The most transitions and set members that are visited before the search gives up. Real pairs need some hundreds.
const MAX_WORK: usize = 1 << 22;

/// Whether one pattern covers another, with the proof that it does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// Every path of the other is matched.
    Covered,
    /// This path of the other is not matched.
    Missing(String),
    /// The patterns are too complex to decide within the bound.
    Unknown,
}

/// Says whether `a` matches every path that `b` matches.
///
/// `true` is always right. `false` is right too, unless the patterns are malicious: when [`coverage`] gives up, the answer
/// is `false`.
pub fn covers(a: &Pattern, b: &Pattern) -> bool {
    if a.is_literal() && is_within(b.literal_prefix(), a.literal_prefix()) {
        return true;
    }
    // One example path is enough to say no.
    a.matches_clean(b.example()) && coverage(a, b) == Coverage::Covered
}

/// Looks for a path of `b` that `a` does not match.
///
/// Tracks which states `a` may be in after everything that `b` can read: a lazy subset construction. It can grow
/// exponentially, so the work is bounded.
pub fn coverage(a: &Pattern, b: &Pattern) -> Coverage {
    if !may_overlap(a, b) {
        return Coverage::Missing(b.example().to_owned());
    }
    let short = if a.prefix_state() <= b.prefix_state() { a } else { b };
    match coverage_from(a.automaton(), b.automaton(), short.prefix_state(), MAX_WORK) {
        Coverage::Missing(rest) => Coverage::Missing([short.literal_prefix(), rest.as_str()].concat()),
        other => other,
    }
}

/// A visited point of the search: a state of `b`, the sorted states that `a` may be in, and how it was reached.
struct Visit {
    state: State,
    set: Vec<State>,
    before: usize,
    read: char,
}

/// Like [`coverage`], for the rest of the paths after a common prefix. After it, both automata are in the state `from`.
fn coverage_from(a: &Automaton, b: &Automaton, from: State, max_work: usize) -> Coverage {
    let mut visits = vec![Visit { state: from, set: vec![from], before: 0, read: '\0' }];
    // The visits of each state of `b`.
    let mut places: HashMap<State, Vec<usize>> = HashMap::from([(from, vec![0])]);
    let (mut place, mut work_left) = (0, max_work);
    while let Some(Visit { state, set, .. }) = visits.get(place) {
        let state = *state;
        if set.iter().any(|state| a.is_open_ended(*state)) {
            place += 1;
            continue;
        }
        if b.accepts_in(state) && !set.iter().any(|state| a.accepts_in(*state)) {
            return Coverage::Missing(spell(&visits, place));
        }
        let transitions: usize = set.iter().map(|state| a.edges(*state).len()).sum();
        let all_spelt = b.edges(state).iter().all(|edge| matches!(edge.label, Label::Char(_)));
        let cuts = if all_spelt { Vec::new() } else { cuts(a, set) };
        for edge in b.edges(state) {
            for read in representatives(&edge.label, &cuts) {
                let next = set_after(a, &visits[place].set, read);
                let known = places.entry(edge.target).or_default();
                let work = work_of_step(transitions, known.len(), next.len());
                let Some(left) = work_left.checked_sub(work) else { return Coverage::Unknown };
                work_left = left;
                // A larger set of states matches no less, so only the smallest sets can miss a path.
                if !known.iter().any(|place| is_subset(&visits[*place].set, &next)) {
                    known.push(visits.len());
                    visits.push(Visit { state: edge.target, set: next, before: place, read });
                }
            }
        }
        place += 1;
    }
    Coverage::Covered
}

/// Estimates the work of one step: it follows the transitions and compares the next set with those known.
fn work_of_step(transitions: usize, known_sets: usize, set_size: usize) -> usize {
    1 + transitions + known_sets * (1 + set_size)
}

/// Returns the states after one more character, sorted.
fn set_after(automaton: &Automaton, set: &[State], read: char) -> Vec<State> {
    let edges = set.iter().flat_map(|state| automaton.edges(*state));
    let mut targets: Vec<State> =
        edges.filter(|edge| edge.label.contains(read)).map(|edge| edge.target).collect();
    targets.sort_unstable();
    targets.dedup();
    targets
}

/// Says whether every state of a sorted set is in another.
fn is_subset(smaller: &[State], larger: &[State]) -> bool {
    let mut rest = larger.iter();
    smaller.iter().all(|state| rest.any(|other| other == state))
}

/// Returns the sorted characters at which some transition of the set starts or stops to apply.
fn cuts(automaton: &Automaton, set: &[State]) -> Vec<char> {
    let mut cuts = vec!['.', '0'];
    for edge in set.iter().flat_map(|state| automaton.edges(*state)) {
        match &edge.label {
            Label::Char(own) => cuts.extend([Some(*own), after(*own)].into_iter().flatten()),
            // `.` and what follows `/` are among the cuts already.
            Label::Any | Label::AnyButDot => {}
            Label::Set(set) => {
                cuts.extend(set.ranges().iter().flat_map(|(low, high)| [Some(*low), after(*high)]).flatten());
            }
        }
    }
    cuts.sort_unstable();
    cuts.dedup();
    cuts
}

/// Returns characters of the label, one for each range between cuts that it touches.
fn representatives(label: &Label, cuts: &[char]) -> Vec<char> {
    if let Label::Char(own) = label {
        return vec![*own];
    }
    let set = label.to_set();
    // If the first character of a range is outside the label, the start of the label's own range represents it.
    let starts = set.ranges().iter().map(|range| range.0);
    let mut chosen: Vec<char> = cuts.iter().copied().filter(|cut| set.contains(*cut)).chain(starts).collect();
    // Letters come first, so that the path is readable.
    chosen.extend(set.pick());
    chosen.sort_unstable_by_key(|character| {
        (*character != 'x', !character.is_ascii_alphanumeric(), *character)
    });
    chosen.dedup();
    chosen
}

fn spell(visits: &[Visit], mut place: usize) -> String {
    let mut reversed = Vec::new();
    while place > 0 {
        reversed.push(visits[place].read);
        place = visits[place].before;
    }
    reversed.iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_would_take_too_long_is_unknown() {
        let a = Pattern::parse("*a????????????????????").unwrap();
        let b = Pattern::parse("*a*?????????????????????").unwrap();
        assert_eq!(coverage_from(a.automaton(), b.automaton(), 0, 1000), Coverage::Unknown);
    }
}
