//! Following a plan without doing it: when would each group begin and end?

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::num::NonZeroUsize;
use std::time::Duration;

use super::{Cause, Member, Step};

/// What the order of groups does not change. Times are in microseconds.
pub(super) struct Course {
    pub(super) spans: Vec<u64>,
    /// How many waits each group has.
    pub(super) waits: Vec<usize>,
    /// Who waits for a group's end.
    pub(super) after_end: Vec<Vec<usize>>,
    /// Who waits for a group's beginning.
    pub(super) after_begin: Vec<Vec<usize>>,
    /// Who never runs beside a group, sorted.
    pub(super) excludes: Vec<Vec<usize>>,
    pub(super) slots: usize,
}

impl Course {
    pub(super) fn new(groups: &[Member], steps: &[Step], slots: Option<NonZeroUsize>) -> Self {
        let micros =
            |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX / 4).min(u64::MAX / 4);
        let count = groups.len();
        let mut course = Self {
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
        course.excludes.iter_mut().for_each(|others| others.sort_unstable());
        for (group, step) in steps.iter().enumerate() {
            for bond in &step.after {
                match bond.cause {
                    Cause::Beginning => course.after_begin[bond.group].push(group),
                    Cause::Completion | Cause::Conflict(_) | Cause::Folder(_) | Cause::Phase => {
                        course.after_end[bond.group].push(group);
                    }
                }
            }
        }
        course
    }

    pub(super) fn count(&self) -> usize {
        self.spans.len()
    }

    /// How much there is to look at in one dispatch.
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
    pub(super) fn times(&self, course: &Course) -> Vec<(Duration, Duration)> {
        let time = |(begin, span): (&u64, &u64)| {
            (Duration::from_micros(*begin), Duration::from_micros(begin.saturating_add(*span)))
        };
        self.begins.iter().zip(&course.spans).map(time).collect()
    }
}

/// Starts, whenever something ends, what comes first by `rank` among what may start.
///
/// `tails` are the times from the beginning of each group to the end of all that waits for it. `None` as soon as they
/// show that it takes longer than `limit`.
pub(super) fn dispatch(course: &Course, rank: &[usize], tails: &[u64], limit: u64) -> Option<Schedule> {
    let mut state = State {
        course,
        rank,
        waits: course.waits.clone(),
        blocked: vec![0; course.count()],
        begun: vec![false; course.count()],
        ready: BTreeSet::new(),
        running: BinaryHeap::new(),
        schedule: Schedule { begins: vec![0; course.count()], length: 0 },
    };
    for group in 0..course.count() {
        state.offer(group);
    }
    let mut now = 0_u64;
    loop {
        while state.running.len() < course.slots {
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
    course: &'a Course,
    rank: &'a [usize],
    waits: Vec<usize>,
    /// How many groups run that exclude it.
    blocked: Vec<usize>,
    begun: Vec<bool>,
    /// What may begin, by rank.
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
        let course = self.course;
        self.begun[group] = true;
        self.schedule.begins[group] = now;
        self.running.push(Reverse((now.saturating_add(course.spans[group]), group)));
        for other in &course.excludes[group] {
            self.blocked[*other] += 1;
            self.ready.remove(&(self.rank[*other], *other));
        }
        for follower in &course.after_begin[group] {
            self.waits[*follower] -= 1;
            self.offer(*follower);
        }
    }

    fn end(&mut self, group: usize) {
        let course = self.course;
        for other in &course.excludes[group] {
            self.blocked[*other] -= 1;
            self.offer(*other);
        }
        for follower in &course.after_end[group] {
            self.waits[*follower] -= 1;
            self.offer(*follower);
        }
    }
}
