//! Constraints: which groups wait for which, and which exclude each other.

use std::collections::HashSet;

use super::{Bond, Cause, PlanInput, Step};
use crate::conflict::Strategy;

/// Up to this number, the groups of one folder exclude each other pair by pair. More groups take turns, which needs far
/// fewer bonds.
const MANY: usize = 200;

/// Returns the steps of a phase, without their times. `order` respects the dependencies. Groups take turns in this order,
/// so that no wait closes a cycle.
pub(super) fn steps(input: &PlanInput<'_>, order: &[usize], one_by_one: bool) -> Vec<Step> {
    let mut position = vec![0; order.len()];
    for (place, group) in order.iter().enumerate() {
        position[*group] = place;
    }
    let mut bonds = Bonds { steps: vec![Step::default(); order.len()], position, bound: HashSet::new() };
    for dependency in input.dependencies {
        bonds.depend(dependency.source, dependency.target, dependency.completion);
    }
    if one_by_one {
        for pair in order.windows(2) {
            bonds.take_turns(pair[0], pair[1], Cause::Phase);
        }
        return bonds.steps;
    }
    for (place, conflict) in input.findings.conflicts.iter().enumerate() {
        let (a, b, cause) = (conflict.group1, conflict.group2, Cause::Conflict(place));
        match conflict.ruling.action.strategy() {
            Strategy::Mutex => bonds.exclude(a, b, cause),
            Strategy::Queue | Strategy::Serial | Strategy::Abort => bonds.take_turns(a, b, cause),
        }
    }
    for (place, folder) in input.findings.same_dir.iter().enumerate() {
        let Some(ruling) = folder.ruling else { continue };
        let cause = Cause::Folder(place);
        match ruling.action.strategy() {
            Strategy::Mutex if folder.groups.len() <= MANY => {
                for (at, a) in folder.groups.iter().enumerate() {
                    folder.groups[at + 1..].iter().for_each(|b| bonds.exclude(*a, *b, cause));
                }
            }
            Strategy::Mutex | Strategy::Queue | Strategy::Serial | Strategy::Abort => {
                let mut line = folder.groups.clone();
                line.sort_by_key(|group| bonds.position[*group]);
                line.windows(2).for_each(|pair| bonds.take_turns(pair[0], pair[1], cause));
            }
        }
    }
    bonds.steps
}

struct Bonds {
    steps: Vec<Step>,
    position: Vec<usize>,
    /// Pairs in which one group already waits for the end of the other, the lower index first.
    bound: HashSet<(usize, usize)>,
}

impl Bonds {
    fn depend(&mut self, source: usize, target: usize, completion: bool) {
        let cause = if completion { Cause::Completion } else { Cause::Beginning };
        if completion {
            self.bound.insert((source.min(target), source.max(target)));
        }
        let bond = Bond { group: source, cause };
        if !self.steps[target].after.contains(&bond) {
            self.steps[target].after.push(bond);
        }
    }

    fn take_turns(&mut self, a: usize, b: usize, cause: Cause) {
        let (first, second) = if self.position[a] < self.position[b] { (a, b) } else { (b, a) };
        if self.bound.insert((a.min(b), a.max(b))) {
            self.steps[second].after.push(Bond { group: first, cause });
        }
    }

    fn exclude(&mut self, a: usize, b: usize, cause: Cause) {
        if self.bound.insert((a.min(b), a.max(b))) {
            self.steps[a].excludes.push(Bond { group: b, cause });
            self.steps[b].excludes.push(Bond { group: a, cause });
        }
    }
}
