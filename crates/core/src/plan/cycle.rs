//! Orders that respect dependencies, and the cycles that leave none.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use thiserror::Error;

use super::Dependency;

/// Groups that wait for each other in a circle: each waits for the one before it, and the first for the last.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{} groups wait for each other in a circle", .0.len())]
pub struct Cycle(pub Vec<usize>);

/// Finds a circle among dependencies between `count` groups; the shortest through the first group that is in one.
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
    let stuck = (0..count).filter(|at| waits[*at] > 0);
    let circles = stuck.filter_map(|start| circle_through(start, &followers));
    Err(Cycle(circles.min_by_key(Vec::len).unwrap_or_default()))
}

/// The shortest way from a group along the arrows back to itself.
fn circle_through(start: usize, followers: &[Vec<usize>]) -> Option<Vec<usize>> {
    let mut came_from = vec![None; followers.len()];
    let mut line = std::collections::VecDeque::from([start]);
    while let Some(at) = line.pop_front() {
        for next in &followers[at] {
            if *next == start {
                let mut circle = vec![at];
                while let Some(before) = came_from[circle[circle.len() - 1]] {
                    circle.push(before);
                }
                circle.reverse();
                return Some(circle);
            }
            if came_from[*next].is_none() {
                came_from[*next] = Some(at);
                line.push_back(*next);
            }
        }
    }
    None
}
