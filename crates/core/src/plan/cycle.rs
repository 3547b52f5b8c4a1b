//! Topological sort of dependencies, and the cycles that prevent it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use thiserror::Error;

use super::Dependency;

/// Groups that wait for each other in a cycle: each waits for the one before it, and the first for the last.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{} groups wait for each other in a cycle", .0.len())]
pub struct Cycle(pub Vec<usize>);

/// Finds a cycle in the dependencies between `count` groups: the shortest one through one of its groups.
pub fn find_cycle(count: usize, dependencies: &[Dependency]) -> Option<Cycle> {
    topological(count, dependencies).err()
}

/// Orders the groups so that none comes before what it waits for, and otherwise as they are numbered.
pub(super) fn topological(count: usize, dependencies: &[Dependency]) -> Result<Vec<usize>, Cycle> {
    let mut waits = vec![0_usize; count];
    let mut followers = vec![Vec::new(); count];
    for dependency in dependencies {
        waits[dependency.target] += 1;
        followers[dependency.source].push(dependency.target);
    }
    let mut free: BinaryHeap<Reverse<usize>> = (0..count).filter(|at| waits[*at] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(count);
    while let Some(Reverse(next)) = free.pop() {
        order.push(next);
        for follower in &followers[next] {
            waits[*follower] -= 1;
            if waits[*follower] == 0 {
                free.push(Reverse(*follower));
            }
        }
    }
    if order.len() == count {
        return Ok(order);
    }
    Err(Cycle(cycle(&waits, &followers)))
}

/// Returns a cycle among the groups that still wait.
fn cycle(waits: &[usize], followers: &[Vec<usize>]) -> Vec<usize> {
    // Each of these groups waits for another of them. So the walk from a group to one that it waits for ends in a cycle.
    let mut before = vec![None; waits.len()];
    for source in (0..waits.len()).filter(|at| waits[*at] > 0) {
        followers[source].iter().for_each(|target| before[*target] = Some(source));
    }
    let mut seen = vec![false; waits.len()];
    let mut at = waits.iter().position(|waits| *waits > 0);
    while let Some(group) = at.filter(|group| !seen[*group]) {
        seen[group] = true;
        at = before[group];
    }
    let mut cycle = at.and_then(|start| cycle_through(start, followers)).unwrap_or_default();
    // The cycle starts with the group that comes first in the file.
    let first = (0..cycle.len()).min_by_key(|place| cycle[*place]).unwrap_or(0);
    cycle.rotate_left(first);
    cycle
}

/// Returns the shortest path from a group along the edges back to itself.
fn cycle_through(start: usize, followers: &[Vec<usize>]) -> Option<Vec<usize>> {
    let mut came_from = vec![None; followers.len()];
    let mut line = std::collections::VecDeque::from([start]);
    while let Some(at) = line.pop_front() {
        for next in &followers[at] {
            if *next == start {
                let mut cycle = vec![at];
                while let Some(before) = came_from[cycle[cycle.len() - 1]] {
                    cycle.push(before);
                }
                cycle.reverse();
                return Some(cycle);
            }
            if came_from[*next].is_none() {
                came_from[*next] = Some(at);
                line.push_back(*next);
            }
        }
    }
    None
}
