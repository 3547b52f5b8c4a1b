//! Automaton of a pattern (NFA): states, and characters that lead from one to the next.

use std::sync::Arc;

use super::set::CharSet;

/// A state; automata are bounded far below its range.
pub(crate) type State = u16;

/// What one transition reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Label {
    /// This character; the only label that can be `/`.
    Char(char),
    /// Any character of a component.
    Any,
    /// Any character of a component but a dot, because `.` and `..` are not names.
    AnyButDot,
    /// A character of the set.
    Set(Arc<CharSet>),
}

impl Label {
    pub(crate) fn contains(&self, character: char) -> bool {
        match self {
            Self::Char(own) => *own == character,
            Self::Any => !matches!(character, '/' | '\0'),
            Self::AnyButDot => !matches!(character, '/' | '\0' | '.'),
            Self::Set(set) => set.contains(character),
        }
    }

    /// Returns a readable character that both labels read.
    pub(crate) fn common_char(&self, other: &Self) -> Option<char> {
        match (self, other) {
            (Self::Char(own), label) | (label, Self::Char(own)) => label.contains(*own).then_some(*own),
            (Self::Any | Self::AnyButDot, Self::Any | Self::AnyButDot) => Some('x'),
            (Self::Set(_), _) | (_, Self::Set(_)) => self.to_set().intersection(&other.to_set()).pick(),
        }
    }

    /// Returns the component characters of the label, so none for `/`.
    pub(crate) fn to_set(&self) -> CharSet {
        match self {
            Self::Char(own) => CharSet::new(vec![(*own, *own)]),
            Self::Any => CharSet::any(),
            Self::AnyButDot => CharSet::any().without('.'),
            Self::Set(set) => CharSet::clone(set),
        }
    }
}

/// One transition.
#[derive(Clone, Debug)]
pub(crate) struct Edge {
    pub(crate) label: Label,
    pub(crate) target: State,
}

/// A nondeterministic automaton without empty transitions, starting in state 0.
///
/// It accepts paths only: no component is empty, `.` or `..`, and no slash leads or trails. The states that
/// spell the literal prefix come first and in order, so the state after `n` of its characters is `n`.
#[derive(Debug)]
pub(crate) struct Automaton {
    edges: Vec<Edge>,
    states: Vec<StateData>,
}

#[derive(Clone, Copy, Debug)]
struct StateData {
    /// Where its transitions end in `edges`, and those of the next state start.
    end: u32,
    accepting: bool,
    open_ended: bool,
}

impl Automaton {
    /// Makes an automaton that first spells the prefix.
    pub(super) fn spelling(prefix: &str) -> Self {
        let mut made = Self { edges: Vec::with_capacity(prefix.len()), states: Vec::new() };
        for (target, character) in (1..).zip(prefix.chars()) {
            made.push([Edge { label: Label::Char(character), target }], false, false);
        }
        made
    }

    /// Adds the next state: its transitions, whether a path may end in it, and whether a path may go on from it
    /// in any way.
    pub(super) fn push(&mut self, edges: impl IntoIterator<Item = Edge>, accepting: bool, open_ended: bool) {
        self.edges.extend(edges);
        let end = u32::try_from(self.edges.len()).expect("the number of transitions is bounded");
        self.states.push(StateData { end, accepting, open_ended });
    }

    pub(crate) fn len(&self) -> usize {
        self.states.len()
    }

    /// Returns the number of transitions.
    pub(super) fn size(&self) -> usize {
        self.edges.len()
    }

    pub(crate) fn accepts_in(&self, state: State) -> bool {
        self.states[usize::from(state)].accepting
    }

    /// Says whether every path that leads through the state is accepted.
    pub(crate) fn is_open_ended(&self, state: State) -> bool {
        self.states[usize::from(state)].open_ended
    }

    pub(crate) fn edges(&self, state: State) -> &[Edge] {
        let state = usize::from(state);
        let start = state.checked_sub(1).map_or(0, |before| self.states[before].end);
        &self.edges[start as usize..self.states[state].end as usize]
    }

    /// Says whether the automaton, once it is in `state`, accepts the rest of a path.
    pub(crate) fn accepts(&self, state: State, rest: &str) -> bool {
        let mut current = States::new(self.len());
        let mut next = States::new(self.len());
        current.insert(state);
        for character in rest.chars() {
            let mut found = false;
            for state in current.drain() {
                if self.is_open_ended(state) {
                    return true;
                }
                for edge in self.edges(state).iter().filter(|edge| edge.label.contains(character)) {
                    next.insert(edge.target);
                    found = true;
                }
            }
            if !found {
                return false;
            }
            std::mem::swap(&mut current, &mut next);
        }
        current.drain().any(|state| self.accepts_in(state))
    }
}

/// A set of states, one bit each.
struct States {
    words: Vec<u64>,
}

impl States {
    fn new(count: usize) -> Self {
        Self { words: vec![0; count.div_ceil(64)] }
    }

    fn insert(&mut self, state: State) {
        self.words[usize::from(state / 64)] |= 1 << (state % 64);
    }

    /// Takes the states out, in order.
    fn drain(&mut self) -> impl Iterator<Item = State> {
        let mut place = 0;
        std::iter::from_fn(move || {
            while self.words.get(place)? == &0 {
                place += 1;
            }
            let word = &mut self.words[place];
            let bit = word.trailing_zeros();
            *word &= *word - 1;
            Some((place * 64) as State + bit as State)
        })
    }
}
