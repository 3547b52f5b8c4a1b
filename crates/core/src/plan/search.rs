//! Order search: several heuristics, then local search from the best of them.
//!
//! To find the shortest schedule is NP-hard (graph colouring is a special case), so the search is bounded: about
//! [`BUDGET`] steps in all. It ends early when it reaches the lower bound. The result depends on the input alone.

use super::dispatch::{Schedule, SchedulingProblem, dispatch};

/// The most groups and bonds that are visited by all simulations together.
const BUDGET: usize = 30_000;
/// The most orders that are tried.
const MAX_TRIES: usize = 2_000;

/// The best order that was found.
pub(super) struct Found {
    pub(super) order: Vec<usize>,
    pub(super) schedule: Schedule,
    pub(super) bound: u64,
}

/// Searches for an order with a short schedule. `file_order` respects the dependencies.
pub(super) fn shortest(problem: &SchedulingProblem, file_order: &[usize]) -> Found {
    let tails = tails(problem, file_order);
    let bound = bound(problem, file_order, &tails);
    let mut best = Best::new(problem, file_order.to_vec(), &tails);
    let crowds: Vec<u64> = (0..problem.count())
        .map(|group| {
            problem.excludes[group]
                .iter()
                .fold(0, |sum: u64, other| sum.saturating_add(problem.spans[*other]))
        })
        .collect();
    let rules: [&dyn Fn(usize) -> u64; 5] = [
        &|group| tails[group],
        &|group| tails[group].saturating_add(crowds[group]),
        &|group| crowds[group].saturating_add(problem.spans[group]),
        &|group| crowds[group],
        &|group| problem.spans[group],
    ];
    for rule in rules {
        if best.schedule.length <= bound {
            break;
        }
        let mut order = file_order.to_vec();
        order.sort_by_key(|group| std::cmp::Reverse(rule(*group)));
        best.offer(order);
    }
    let tries = (BUDGET / problem.size().max(1)).min(MAX_TRIES);
    improve(&mut best, bound, tries);
    Found { order: best.order, schedule: best.schedule, bound }
}

struct Best<'a> {
    problem: &'a SchedulingProblem,
    tails: &'a [u64],
    order: Vec<usize>,
    schedule: Schedule,
}

impl<'a> Best<'a> {
    fn new(problem: &'a SchedulingProblem, order: Vec<usize>, tails: &'a [u64]) -> Self {
        let schedule =
            dispatch(problem, &ranks(&order), tails, u64::MAX).expect("the first schedule has no limit");
        Self { problem, tails, order, schedule }
    }

    /// Keeps the order if it is better.
    fn offer(&mut self, order: Vec<usize>) {
        let schedule = dispatch(self.problem, &ranks(&order), self.tails, self.schedule.length);
        if let Some(schedule) = schedule.filter(|schedule| schedule.length < self.schedule.length) {
            (self.order, self.schedule) = (order, schedule);
        }
    }
}

fn ranks(order: &[usize]) -> Vec<usize> {
    let mut rank = vec![0; order.len()];
    for (place, group) in order.iter().enumerate() {
        rank[*group] = place;
    }
    rank
}

/// Local search: moves single groups to other positions.
fn improve(best: &mut Best<'_>, bound: u64, tries: usize) {
    let count = best.problem.count();
    if count < 2 {
        return;
    }
    let mut random = XorShift(0x9e37_79b9_7f4a_7c15);
    let mut order = best.order.clone();
    let mut length = best.schedule.length;
    for attempt in 0..tries {
        if best.schedule.length <= bound {
            return;
        }
        // Restarts from time to time, near the best order or at a random one.
        if attempt % 200 == 199 {
            order.clone_from(&best.order);
            let shuffles = if attempt % 400 == 399 { count } else { 2 };
            for _ in 0..shuffles {
                order.swap(random.below(count), random.below(count));
            }
            length = u64::MAX;
        }
        let mut changed = order.clone();
        let moved = changed.remove(random.below(count));
        changed.insert(random.below(count), moved);
        let Some(schedule) = dispatch(best.problem, &ranks(&changed), best.tails, length) else { continue };
        if schedule.length <= length {
            length = schedule.length;
            order.clone_from(&changed);
            if length < best.schedule.length {
                (best.order, best.schedule) = (changed, schedule);
            }
        }
    }
}

/// A pseudo-random generator (xorshift) with a fixed seed.
struct XorShift(u64);

impl XorShift {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

/// Returns for each group the time from its start to the end of all groups that wait for it.
fn tails(problem: &SchedulingProblem, order: &[usize]) -> Vec<u64> {
    let mut tails = vec![0_u64; problem.count()];
    for group in order.iter().rev() {
        let ends = problem.after_end[*group].iter().map(|follower| tails[*follower]).max().unwrap_or(0);
        let begins = problem.after_begin[*group].iter().map(|follower| tails[*follower]).max().unwrap_or(0);
        tails[*group] = problem.spans[*group].saturating_add(ends).max(begins);
    }
    tails
}

/// Returns a lower bound for any order: the longest path, the total work divided by the slots, and cliques of groups that
/// all exclude each other, with the time before and after them.
fn bound(problem: &SchedulingProblem, order: &[usize], tails: &[u64]) -> u64 {
    let sum = |groups: &mut dyn Iterator<Item = u64>| groups.fold(0, u64::saturating_add);
    let longest = tails.iter().copied().max().unwrap_or(0);
    let work = sum(&mut problem.spans.iter().copied()).div_ceil(problem.slots.max(1) as u64);
    let heads = heads(problem, order);
    let mut best = longest.max(work);
    for first in 0..problem.count() {
        let mut clique = vec![first];
        let mut near = problem.excludes[first].clone();
        near.sort_by_key(|group| std::cmp::Reverse(problem.spans[*group]));
        // Large cliques would take long to find, and small ones give a good bound.
        near.truncate(64);
        for group in near {
            if clique[1..].iter().all(|member| problem.excludes[group].binary_search(member).is_ok()) {
                clique.push(group);
            }
        }
        let inside = sum(&mut clique.iter().map(|group| problem.spans[*group]));
        let before = clique.iter().map(|group| heads[*group]).min().unwrap_or(0);
        let behind =
            clique.iter().map(|group| tails[*group] - problem.spans[*group].min(tails[*group])).min();
        best = best.max(inside.saturating_add(before).saturating_add(behind.unwrap_or(0)));
    }
    best
}

/// Returns for each group the earliest possible start.
fn heads(problem: &SchedulingProblem, order: &[usize]) -> Vec<u64> {
    let mut heads = vec![0_u64; problem.count()];
    for group in order {
        let (begin, end) = (heads[*group], heads[*group].saturating_add(problem.spans[*group]));
        problem.after_end[*group].iter().for_each(|follower| heads[*follower] = heads[*follower].max(end));
        problem.after_begin[*group]
            .iter()
            .for_each(|follower| heads[*follower] = heads[*follower].max(begin));
    }
    heads
}
