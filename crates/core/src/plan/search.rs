//! The order of preference: several rules of thumb, then small changes to the best of them.
//!
//! The shortest schedule is hard to find (it colours graphs), so this is bounded: about [`BUDGET`] steps in all. It
//! ends early when the bound is reached that no order can beat. The result depends on nothing but the question.

use super::dispatch::{Course, Schedule, dispatch};

/// How many groups and bonds are looked at in trying orders.
const BUDGET: usize = 30_000;
/// The most orders that are tried.
const MAX_TRIES: usize = 2_000;

/// The best order that was found.
pub(super) struct Found {
    pub(super) order: Vec<usize>,
    pub(super) schedule: Schedule,
    pub(super) bound: u64,
}

/// Looks for an order that takes little time. `file_order` respects the dependencies.
pub(super) fn shortest(course: &Course, file_order: &[usize]) -> Found {
    let tails = tails(course, file_order);
    let bound = bound(course, file_order, &tails);
    let mut best = Best::new(course, file_order.to_vec(), &tails);
    let crowds: Vec<u64> = (0..course.count())
        .map(|group| {
            course.excludes[group].iter().fold(0, |sum: u64, other| sum.saturating_add(course.spans[*other]))
        })
        .collect();
    let rules: [&dyn Fn(usize) -> u64; 5] = [
        &|group| tails[group],
        &|group| tails[group].saturating_add(crowds[group]),
        &|group| crowds[group].saturating_add(course.spans[group]),
        &|group| crowds[group],
        &|group| course.spans[group],
    ];
    for rule in rules {
        if best.schedule.length <= bound {
            break;
        }
        let mut order = file_order.to_vec();
        order.sort_by_key(|group| std::cmp::Reverse(rule(*group)));
        best.offer(order);
    }
    let tries = (BUDGET / course.size().max(1)).min(MAX_TRIES);
    improve(&mut best, bound, tries);
    Found { order: best.order, schedule: best.schedule, bound }
}

struct Best<'a> {
    course: &'a Course,
    tails: &'a [u64],
    order: Vec<usize>,
    schedule: Schedule,
}

impl<'a> Best<'a> {
    fn new(course: &'a Course, order: Vec<usize>, tails: &'a [u64]) -> Self {
        let schedule =
            dispatch(course, &ranks(&order), tails, u64::MAX).expect("nothing lasts longer than for ever");
        Self { course, tails, order, schedule }
    }

    /// Keeps the order if it is better.
    fn offer(&mut self, order: Vec<usize>) {
        let schedule = dispatch(self.course, &ranks(&order), self.tails, self.schedule.length);
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

/// Moves single groups to other places in the line, for as long as that is allowed.
fn improve(best: &mut Best<'_>, bound: u64, tries: usize) {
    let count = best.course.count();
    if count < 2 {
        return;
    }
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut order = best.order.clone();
    let mut length = best.schedule.length;
    for attempt in 0..tries {
        if best.schedule.length <= bound {
            return;
        }
        // From time to time it begins again from near the best, or from somewhere else altogether.
        if attempt % 200 == 199 {
            order.clone_from(&best.order);
            let shuffles = if attempt % 400 == 399 { count } else { 2 };
            for _ in 0..shuffles {
                order.swap(dice.below(count), dice.below(count));
            }
            length = u64::MAX;
        }
        let mut changed = order.clone();
        let moved = changed.remove(dice.below(count));
        changed.insert(dice.below(count), moved);
        let Some(schedule) = dispatch(best.course, &ranks(&changed), best.tails, length) else { continue };
        if schedule.length <= length {
            length = schedule.length;
            order.clone_from(&changed);
            if length < best.schedule.length {
                (best.order, best.schedule) = (changed, schedule);
            }
        }
    }
}

/// Numbers that look random and are the same every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

/// For each group the time from its beginning to the end of all that waits for it.
fn tails(course: &Course, order: &[usize]) -> Vec<u64> {
    let mut tails = vec![0_u64; course.count()];
    for group in order.iter().rev() {
        let ends = course.after_end[*group].iter().map(|follower| tails[*follower]).max().unwrap_or(0);
        let begins = course.after_begin[*group].iter().map(|follower| tails[*follower]).max().unwrap_or(0);
        tails[*group] = course.spans[*group].saturating_add(ends).max(begins);
    }
    tails
}

/// What no order can beat: the longest path, the work that the slots have to share, and sets of groups that all
/// exclude each other, with what has to come before and after them.
fn bound(course: &Course, order: &[usize], tails: &[u64]) -> u64 {
    let sum = |groups: &mut dyn Iterator<Item = u64>| groups.fold(0, u64::saturating_add);
    let longest = tails.iter().copied().max().unwrap_or(0);
    let work = sum(&mut course.spans.iter().copied()).div_ceil(course.slots.max(1) as u64);
    let heads = heads(course, order);
    let mut best = longest.max(work);
    for first in 0..course.count() {
        let mut clique = vec![first];
        let mut near = course.excludes[first].clone();
        near.sort_by_key(|group| std::cmp::Reverse(course.spans[*group]));
        // Large sets would take long to compare, and small ones bound well enough.
        near.truncate(64);
        for group in near {
            if clique[1..].iter().all(|member| course.excludes[group].binary_search(member).is_ok()) {
                clique.push(group);
            }
        }
        let inside = sum(&mut clique.iter().map(|group| course.spans[*group]));
        let before = clique.iter().map(|group| heads[*group]).min().unwrap_or(0);
        let behind = clique.iter().map(|group| tails[*group] - course.spans[*group].min(tails[*group])).min();
        best = best.max(inside.saturating_add(before).saturating_add(behind.unwrap_or(0)));
    }
    best
}

/// For each group the earliest time at which it can begin.
fn heads(course: &Course, order: &[usize]) -> Vec<u64> {
    let mut heads = vec![0_u64; course.count()];
    for group in order {
        let (begin, end) = (heads[*group], heads[*group].saturating_add(course.spans[*group]));
        course.after_end[*group].iter().for_each(|follower| heads[*follower] = heads[*follower].max(end));
        course.after_begin[*group].iter().for_each(|follower| heads[*follower] = heads[*follower].max(begin));
    }
    heads
}
