//! Product search: breadth-first search of the product of automata, so that a witness is a shortest one.

use std::collections::HashSet;

use crate::pattern::{Automaton, Edge, Label, State};

/// The most steps a search of three or more automata takes; real patterns need a few thousand.
pub(super) const MAX_STEPS: usize = 1 << 20;

/// What a search of two automata found, and how much of the product it visited.
pub(super) struct Search {
    pub(super) witness: Option<String>,
    #[cfg_attr(not(test), expect(dead_code, reason = "the growth tests count states instead of time"))]
    pub(super) states: usize,
}

/// A search exceeded its bound.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct GaveUp;

/// A visited state and how it was reached: the index of the visit before, and the character read.
struct Visit<S> {
    state: S,
    before: u32,
    read: char,
}

/// Returns a shortest path that the automaton accepts.
pub(crate) fn shortest(automaton: &Automaton) -> Option<String> {
    let mut seen = vec![false; automaton.len()];
    let mut visits = vec![Visit { state: 0, before: 0, read: '\0' }];
    let mut place = 0;
    while let Some(Visit { state, .. }) = visits.get(place) {
        let state = *state;
        if automaton.accepts_in(state) {
            return Some(spell(&visits, place, |state, rest| automaton.accepts(*state, rest)));
        }
        for Edge { label, target } in automaton.edges(state) {
            if let Some(read) = label.common_char(label)
                && !std::mem::replace(&mut seen[usize::from(*target)], true)
            {
                visits.push(Visit { state: *target, before: place as u32, read });
            }
        }
        place += 1;
    }
    None
}

/// Finds a shortest text that two automata both accept when each starts in the state `from`.
pub(super) fn pair(a: &Automaton, b: &Automaton, from: State) -> Search {
    let mut seen = PairSet::new(a.len(), b.len());
    let mut visits: Vec<Visit<(State, State)>> = Vec::with_capacity(64);
    visits.push(Visit { state: (from, from), before: 0, read: '\0' });
    let mut place = 0;
    while let Some(Visit { state: (p, q), .. }) = visits.get(place) {
        let (p, q) = (*p, *q);
        if a.accepts_in(p) && b.accepts_in(q) {
            let witness = spell(&visits, place, |(p, q), rest| a.accepts(*p, rest) && b.accepts(*q, rest));
            return Search { witness: Some(witness), states: visits.len() };
        }
        for left in a.edges(p) {
            for right in b.edges(q) {
                let Some(read) = left.label.common_char(&right.label) else { continue };
                if seen.insert(left.target, right.target) {
                    visits.push(Visit { state: (left.target, right.target), before: place as u32, read });
                }
            }
        }
        place += 1;
    }
    Search { witness: None, states: visits.len() }
}

/// A set of pairs of states, one bit for each pair.
struct PairSet {
    columns: usize,
    bits: Vec<u64>,
}

impl PairSet {
    fn new(rows: usize, columns: usize) -> Self {
        Self { columns, bits: vec![0; (rows * columns).div_ceil(64)] }
    }

    /// Adds a pair. Says whether it is new.
    fn insert(&mut self, row: State, column: State) -> bool {
        let index = usize::from(row) * self.columns + usize::from(column);
        let (word, bit) = (&mut self.bits[index / 64], 1 << (index % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }
}

/// Finds a shortest text that all automata accept, in at most `max_steps` steps.
pub(super) fn many(automata: &[&Automaton], max_steps: usize) -> Result<Option<String>, GaveUp> {
    let start: Box<[State]> = vec![0; automata.len()].into();
    let mut seen = HashSet::from([start.clone()]);
    let mut visits = vec![Visit { state: start, before: 0, read: '\0' }];
    let (mut place, mut steps_left) = (0, max_steps);
    while let Some(Visit { state, .. }) = visits.get(place) {
        let state = state.clone();
        if automata.iter().zip(&state).all(|(automaton, state)| automaton.accepts_in(*state)) {
            return Ok(Some(spell(&visits, place, |states, rest| {
                automata.iter().zip(states).all(|(automaton, state)| automaton.accepts(*state, rest))
            })));
        }
        let edges: Vec<&[Edge]> = automata.iter().zip(&state).map(|(a, state)| a.edges(*state)).collect();
        each_choice(&edges, &mut Vec::with_capacity(edges.len()), &mut |chosen| {
            steps_left = steps_left.checked_sub(1).ok_or(GaveUp)?;
            if let Some(read) = common(chosen) {
                let target: Box<[State]> = chosen.iter().map(|edge| edge.target).collect();
                if seen.insert(target.clone()) {
                    visits.push(Visit { state: target, before: place as u32, read });
                }
            }
            Ok(())
        })?;
        place += 1;
    }
    Ok(None)
}

/// Calls `step` with each choice of one edge for each automaton. Any two of the edges can read a common character.
fn each_choice<'a>(
    edges: &[&'a [Edge]],
    chosen: &mut Vec<&'a Edge>,
    step: &mut impl FnMut(&[&Edge]) -> Result<(), GaveUp>,
) -> Result<(), GaveUp> {
    let Some((first, rest)) = edges.split_first() else { return step(chosen) };
    for edge in *first {
        if chosen.iter().all(|other| other.label.common_char(&edge.label).is_some()) {
            chosen.push(edge);
            each_choice(rest, chosen, step)?;
            chosen.pop();
        }
    }
    Ok(())
}

/// Returns a readable character that all edges read.
fn common(edges: &[&Edge]) -> Option<char> {
    let all_read = |character: char| edges.iter().all(|edge| edge.label.contains(character));
    let only = edges.iter().find_map(|edge| match edge.label {
        Label::Char(character) => Some(character),
        Label::Any | Label::AnyButDot | Label::Set(_) => None,
    });
    if let Some(character) = only.or(Some('x')).filter(|character| all_read(*character)) {
        return Some(character);
    }
    let sets = edges.iter().map(|edge| edge.label.to_set());
    sets.reduce(|all, set| all.intersection(&set)).and_then(|all| all.pick())
}

/// Spells the characters read on the way to a place, and makes them readable: `src/.rs` becomes `src/x.rs`.
///
/// A letter goes before a component that starts with punctuation where `accepts`, asked about the state at
/// its start, allows it.
fn spell<S>(visits: &[Visit<S>], mut place: usize, accepts: impl Fn(&S, &str) -> bool) -> String {
    let mut reversed = Vec::new();
    while place > 0 {
        let Visit { read, before, .. } = visits[place];
        place = before as usize;
        reversed.push(read);
        if matches!(read, '.' | '-') && (place == 0 || visits[place].read == '/') {
            reversed.push('x');
            if !accepts(&visits[place].state, &reversed.iter().rev().collect::<String>()) {
                reversed.pop();
            }
        }
    }
    reversed.iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_states_is_new_once() {
        let mut set = PairSet::new(11, 13);
        for is_new in [true, false] {
            for (row, column) in (0..11).flat_map(|row| (0..13).map(move |column| (row, column))) {
                assert_eq!(set.insert(row, column), is_new, "{row} {column}");
            }
        }
    }
}
