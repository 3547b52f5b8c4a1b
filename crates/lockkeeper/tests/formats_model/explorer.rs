//! Explores every reachable state, and records the first of each kind that is wrong.

use std::collections::HashSet;

use super::steps::{At, Kind, Record, World};

/// How much may go wrong on the way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) kills: usize,
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) worlds: usize,
    pub(crate) ends: usize,
    /// A world in which two living processes hold.
    pub(crate) two_holders: Option<World>,
    /// An end at which the name leads to a record that nobody holds and that never becomes stale.
    pub(crate) lost_for_ever: Option<World>,
    /// A final state in which a process still waits.
    pub(crate) stuck: Option<World>,
    /// An end at which the record of a foreign holder is gone.
    pub(crate) fresh_record_lost: Option<World>,
}

impl Outcome {
    pub(crate) fn assert_sound(&self, at_least: usize) {
        assert!(self.two_holders.is_none(), "two hold: {:#?}", self.two_holders);
        assert!(self.lost_for_ever.is_none(), "lost for ever: {:#?}", self.lost_for_ever);
        assert!(self.stuck.is_none(), "stuck: {:#?}", self.stuck);
        self.assert_explored(at_least);
    }

    pub(crate) fn assert_no_fresh_record_lost(&self, at_least: usize) {
        assert!(self.fresh_record_lost.is_none(), "lost: {:#?}", self.fresh_record_lost);
        self.assert_explored(at_least);
    }

    /// A search that ends early proves nothing.
    fn assert_explored(&self, at_least: usize) {
        eprintln!("{} worlds, {} ends", self.worlds, self.ends);
        assert!(self.worlds >= at_least && self.ends > 0, "only {} worlds", self.worlds);
    }
}

/// Explores all interleavings of these processes, from a stale or a free lock.
pub(crate) fn explore(kinds: &[Kind], stale: bool, limits: Limits) -> Outcome {
    let count = kinds.len();
    let first = World {
        name: stale.then_some(Record::First),
        guard: None,
        at: vec![At::Start; count],
        temporary: vec![None; count],
        aside: vec![None; count],
        kills: 0,
    };
    let mut outcome = Outcome::default();
    let mut seen = HashSet::from([first.clone()]);
    let mut open = vec![first];
    while let Some(world) = open.pop() {
        outcome.worlds += 1;
        if holders(&world) > 1 {
            outcome.two_holders.get_or_insert_with(|| world.clone());
        }
        let steps: Vec<World> =
            kinds.iter().enumerate().flat_map(|(process, kind)| world.after(process, *kind)).collect();
        if steps.is_empty() {
            judge_end(&world, kinds, &mut outcome);
        }
        let kills =
            (0..count).filter(|_| world.kills < limits.kills).filter_map(|process| kill(&world, process));
        for next in steps.into_iter().chain(kills) {
            if seen.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    outcome
}

fn holders(world: &World) -> usize {
    world.at.iter().filter(|at| at.believes()).count()
}

fn kill(world: &World, process: usize) -> Option<World> {
    if matches!(world.at[process], At::Dead | At::Done) {
        return None;
    }
    let mut next = world.clone();
    next.at[process] = At::Dead;
    next.kills += 1;
    if next.guard == Some(process) {
        next.guard = None;
    }
    Some(next)
}

fn judge_end(world: &World, kinds: &[Kind], outcome: &mut Outcome) {
    outcome.ends += 1;
    let rests = |(process, at): (usize, &At)| match at {
        At::Done | At::Dead => true,
        At::Holds => kinds[process] == Kind::Revives,
        _ => false,
    };
    if !world.at.iter().enumerate().all(rests) || world.guard.is_some() {
        outcome.stuck.get_or_insert_with(|| world.clone());
    }
    let owner = world.name.and_then(Record::owner);
    if owner.is_some_and(|owner| !world.is_dead(owner) && world.at[owner] != At::Holds) {
        outcome.lost_for_ever.get_or_insert_with(|| world.clone());
    }
    let revived = (0..kinds.len()).find(|process| world.at[*process] == At::Holds);
    if revived.is_some_and(|process| owner != Some(process)) {
        outcome.fresh_record_lost.get_or_insert_with(|| world.clone());
    }
}
