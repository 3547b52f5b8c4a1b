//! How a command may end: the states in which the shell may be after the command succeeded, failed, or left its function or loop.

use super::state::State;

/// Possible states of the shell, each in another folder.
#[derive(Clone, Default, PartialEq)]
pub(super) struct States {
    all: Vec<State>,
    /// There were too many possible folders: all states are one whose folder is not known.
    are_many: bool,
}

/// With more possible folders than this, the folder is not known.
const MAX_FOLDERS: usize = 4;

impl States {
    pub(super) fn one(state: State) -> Self {
        Self { all: vec![state], are_many: false }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &State> {
        self.all.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut State> {
        self.all.iter_mut()
    }

    /// Adds states. Two in the same folder become one, in which variables have several possible values.
    pub(super) fn and(mut self, others: Self) -> Self {
        self.are_many |= others.are_many;
        for state in others.all {
            match self.all.iter_mut().find(|known| known.cwd == state.cwd) {
                Some(known) => known.merge(state),
                None => self.all.push(state),
            }
        }
        self.are_many |= self.all.len() > MAX_FOLDERS;
        if self.are_many {
            let one = self.all.drain(..).reduce(|mut one, other| {
                one.merge(other);
                one
            });
            self.all.extend(one.map(|one| State { cwd: None, ..one }));
        }
        self
    }

    /// What may be before any round of a loop, if `self` is before the first one and `after` is after it: what a round
    /// changes is not known any more.
    pub(super) fn before_any_round(&self, after: &Self) -> Self {
        let mut any = self.clone();
        for state in &after.all {
            let before = self.all.iter().find(|before| before.cwd == state.cwd).or(self.all.first());
            any = any.and(Self::one(before.map_or(state.clone(), |before| state.without_changes(before))));
        }
        any
    }
}

/// The states after a command, by how it ended. Without any, the shell itself ends.
#[derive(Clone, Default)]
pub(super) struct Outcome {
    pub(super) ok: States,
    pub(super) failed: States,
    /// After `return`, `break` and `continue`.
    pub(super) left: States,
}

impl Outcome {
    pub(super) fn ok(state: State) -> Self {
        Self { ok: States::one(state), ..Self::default() }
    }

    pub(super) fn failed(state: State) -> Self {
        Self { failed: States::one(state), ..Self::default() }
    }

    pub(super) fn left(state: State) -> Self {
        Self { left: States::one(state), ..Self::default() }
    }

    /// Nobody knows before whether it succeeds.
    pub(super) fn either(state: State) -> Self {
        Self::either_of(States::one(state))
    }

    pub(super) fn either_of(states: States) -> Self {
        Self { ok: states.clone(), failed: states, left: States::default() }
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self {
            ok: self.ok.and(other.ok),
            failed: self.failed.and(other.failed),
            left: self.left.and(other.left),
        }
    }

    /// All states in which the next command may begin.
    pub(super) fn next(self) -> States {
        self.ok.and(self.failed)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut State> {
        self.ok.iter_mut().chain(self.failed.iter_mut()).chain(self.left.iter_mut())
    }
}
