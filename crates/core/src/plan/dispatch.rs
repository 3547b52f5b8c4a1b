//! Schedule simulation: when each group would start and end.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::num::NonZeroUsize;
use std::time::Duration;

use super::{Cause, Member, Step};

/// The part of a schedule that does not depend on the order of groups. Times are in microseconds.
pub(super) struct SchedulingProblem {
    pub(super) spans: Vec<u64>,
    /// The number of groups that each group waits for.
    pub(super) waits: Vec<usize>,
    /// The groups that wait for the end of a group.
    pub(super) after_end: Vec<Vec<usize>>,
    /// The groups that wait for the start of a group.
    pub(super) after_begin: Vec<Vec<usize>>,
    /// The groups that never run at the same time as a group, sorted.
    pub(super) excludes: Vec<Vec<usize>>,
    pub(super) slots: usize,
}

impl SchedulingProblem {
    pub(super) fn new(groups: &[Member], steps: &[Step], slots: Option<NonZeroUsize>) -> Self {
        let micros =
            |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX / 4).min(u64::MAX / 4);
        let count = groups.len();
        let mut problem = Self {
            spans: groups.iter().map(|group| micros(group.estimate).max(1)).collect(),
            waits: steps.iter().map(|step| step.after.len()).collect(),
            after_end: vec![Vec::new(); count],
            after_begin: vec![Vec::new(); count],
            excludes: steps
                .iter()
                .map(|step| step.excludes.iter().map(|bond| bond.group).collect())
                .collect(),
            slots: slots.map_or(usize::MAX, NonZeroUsize::get),
        };
        problem.excludes.iter_mut().for_each(|others| others.sort_unstable());
        for (group, step) in steps.iter().enumerate() {
            for bond in &step.after {
                match bond.cause {
                    Cause::Beginning => problem.after_begin[bond.group].push(group),
                    Cause::Completion | Cause::Conflict(_) | Cause::Folder(_) | Cause::Phase => {
                        problem.after_end[bond.group].push(group);
                    }
                }
            }
        }
        problem
    }

    pub(super) fn count(&self) -> usize {
        self.spans.len()
    }

    /// Returns the cost of one simulation.
    pub(super) fn size(&self) -> usize {
        self.count() + self.excludes.iter().chain(&self.after_end).map(Vec::len).sum::<usize>()
    }
}

/// When each group begins.
#[derive(Clone)]
pub(super) struct Schedule {
    pub(super) begins: Vec<u64>,
    pub(super) length: u64,
}

impl Schedule {
    pub(super) fn times(&self, problem: &SchedulingProblem) -> Vec<(Duration, Duration)> {
        let time = |(begin, span): (&u64, &u64)| {
            (Duration::from_micros(*begin), Duration::from_micros(begin.saturating_add(*span)))
        };
        self.begins.iter().zip(&problem.spans).map(time).collect()
    }
}

/// Simulates the schedule: whenever a group ends, starts the group with the lowest `rank` that may start.
///
/// `tails` are the times from the start of each group to the end of all groups that wait for it. Returns `None` as soon
/// as they show that the schedule takes longer than `limit`.
pub(super) fn dispatch(
    problem: &SchedulingProblem,
    rank: &[usize],
    tails: &[u64],
    limit: u64,
) -> Option<Schedule> {
    let mut state = State {
        problem,
        rank,
        waits: problem.waits.clone(),
        blocked: vec![0; problem.count()],
        begun: vec![false; problem.count()],
        ready: BTreeSet::new(),
        running: BinaryHeap::new(),
        schedule: Schedule { begins: vec![0; problem.count()], length: 0 },
    };
    for group in 0..problem.count() {
        state.offer(group);
    }
    let mut now = 0_u64;
    loop {
        while state.running.len() < problem.slots {
            let Some((_, group)) = state.ready.pop_first() else { break };
            if now.saturating_add(tails[group]) > limit {
                return None;
            }
            state.begin(group, now);
        }
        let Some(Reverse((end, _))) = state.running.peek().copied() else { break };
        now = end;
        while let Some(Reverse((end, group))) =
            state.running.peek().copied().filter(|Reverse((end, _))| *end == now)
        {
            state.running.pop();
            state.schedule.length = state.schedule.length.max(end);
            state.end(group);
        }
    }
    Some(state.schedule)
}

struct State<'a> {
    problem: &'a SchedulingProblem,
    rank: &'a [usize],
    waits: Vec<usize>,
    /// For each group, how many running groups exclude it.
    blocked: Vec<usize>,
    begun: Vec<bool>,
    /// The groups that may start now, by rank.
    ready: BTreeSet<(usize, usize)>,
    running: BinaryHeap<Reverse<(u64, usize)>>,
    schedule: Schedule,
}

impl State<'_> {
    fn offer(&mut self, group: usize) {
        if self.waits[group] == 0 && self.blocked[group] == 0 && !self.begun[group] {
            self.ready.insert((self.rank[group], group));
        }
    }

    fn begin(&mut self, group: usize, now: u64) {
        let problem = self.problem;
        self.begun[group] = true;
        self.schedule.begins[group] = now;
        self.running.push(Reverse((now.saturating_add(problem.spans[group]), group)));
        for other in &problem.excludes[group] {
            self.blocked[*other] += 1;
            self.ready.remove(&(self.rank[*other], *other));
        }
        for follower in &problem.after_begin[group] {
            self.waits[*follower] -= 1;
            self.offer(*follower);
        }
    }

    fn end(&mut self, group: usize) {
        let problem = self.problem;
        for other in &problem.excludes[group] {
            self.blocked[*other] -= 1;
            self.offer(*other);
        }
        for follower in &problem.after_end[group] {
            self.waits[*follower] -= 1;
            self.offer(*follower);
        }
    }
}
