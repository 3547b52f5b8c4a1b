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

/// A visited state and how it was reached: the place of the state before, and the character read.
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
    while place < visits.len() {
        let state = visits[place].state;
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
    let skipped = usize::from(from);
    let width = b.len() - skipped;
    let mut seen = vec![0_u64; ((a.len() - skipped) * width).div_ceil(64)];
    let mut visits: Vec<Visit<(State, State)>> = Vec::with_capacity(64);
    visits.push(Visit { state: (from, from), before: 0, read: '\0' });
    let mut place = 0;
    while place < visits.len() {
        let (p, q) = visits[place].state;
        if a.accepts_in(p) && b.accepts_in(q) {
            let witness = spell(&visits, place, |(p, q), rest| a.accepts(*p, rest) && b.accepts(*q, rest));
            return Search { witness: Some(witness), states: visits.len() };
        }
        for left in a.edges(p) {
            for right in b.edges(q) {
                let Some(read) = left.label.common_char(&right.label) else { continue };
                // Nothing leads back into the prefix, so targets are beyond it.
                let index =
                    (usize::from(left.target) - skipped) * width + (usize::from(right.target) - skipped);
                let bit = 1 << (index % 64);
                if seen[index / 64] & bit == 0 {
                    seen[index / 64] |= bit;
                    visits.push(Visit { state: (left.target, right.target), before: place as u32, read });
                }
            }
        }
        place += 1;
    }
    Search { witness: None, states: visits.len() }
}

/// Finds a shortest text that all automata accept, in at most `max_steps` steps.
pub(super) fn many(automata: &[&Automaton], max_steps: usize) -> Result<Option<String>, GaveUp> {
    let start: Box<[State]> = vec![0; automata.len()].into();
    let mut seen = HashSet::from([start.clone()]);
    let mut visits = vec![Visit { state: start, before: 0, read: '\0' }];
    let (mut place, mut steps) = (0, 0);
    while place < visits.len() {
        let state = visits[place].state.clone();
        if automata.iter().zip(&state).all(|(automaton, state)| automaton.accepts_in(*state)) {
            return Ok(Some(spell(&visits, place, |states, rest| {
                automata.iter().zip(states).all(|(automaton, state)| automaton.accepts(*state, rest))
            })));
        }
        let edges: Vec<&[Edge]> = automata.iter().zip(&state).map(|(a, state)| a.edges(*state)).collect();
        each_choice(&edges, &mut Vec::with_capacity(edges.len()), &mut |chosen| {
            steps += 1;
            if let Some(read) = common(chosen) {
                let target: Box<[State]> = chosen.iter().map(|edge| edge.target).collect();
                if seen.insert(target.clone()) {
                    visits.push(Visit { state: target, before: place as u32, read });
                }
            }
            if steps > max_steps { Err(GaveUp) } else { Ok(()) }
        })?;
        place += 1;
    }
    Ok(None)
}

/// Calls `step` with each choice of one edge an automaton, any two of which can read one same character.
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
