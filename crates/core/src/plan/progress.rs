//! Progress of a plan: which groups may start now, which wait for which, and which are skipped.

use super::{Bond, Cause, Plan};

/// The state of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupState {
    /// It has not started.
    Waiting,
    /// It runs.
    Running,
    /// It succeeded.
    Succeeded,
    /// It failed.
    Failed,
    /// It never starts, because a group that it depends on failed or was skipped.
    Skipped,
}

impl GroupState {
    /// Says whether the state is final.
    pub const fn is_over(self) -> bool {
        match self {
            Self::Waiting | Self::Running => false,
            Self::Succeeded | Self::Failed | Self::Skipped => true,
        }
    }
}

/// The progress of a plan.
///
/// When a group fails, groups that only take turns with it go on, and groups that depend on it are skipped.
#[derive(Clone, Debug)]
pub struct Progress<'a> {
    plan: &'a Plan,
    states: Vec<GroupState>,
}

impl<'a> Progress<'a> {
    /// Starts a plan. A plan in which nothing runs is over at once.
    pub fn new(plan: &'a Plan) -> Self {
        Self { plan, states: vec![GroupState::Waiting; plan.steps.len()] }
    }

    /// Continues a plan with these states. Groups without a state have not started.
    pub fn at(plan: &'a Plan, states: &[GroupState]) -> Self {
        let mut progress = Self::new(plan);
        for (place, state) in progress.states.iter_mut().zip(states) {
            *place = *state;
        }
        progress
    }

    /// Returns the state of each group.
    pub fn states(&self) -> &[GroupState] {
        &self.states
    }

    /// Says whether all groups have a final state.
    pub fn is_over(&self) -> bool {
        self.states.iter().all(|state| state.is_over())
    }

    /// Returns the groups that may begin together now, the preferred first, so that no more than `slots` run.
    pub fn startable(&self, slots: usize) -> Vec<usize> {
        let mut running: Vec<usize> =
            (0..self.states.len()).filter(|group| self.states[*group] == GroupState::Running).collect();
        let mut begun = Vec::new();
        // A group that waits for a start may come earlier in the order, so the search repeats until nothing is added.
        while let Some(group) = self.next(&running, &begun).filter(|_| running.len() < slots) {
            running.push(group);
            begun.push(group);
        }
        begun
    }

    /// Returns the first group that may start while `running` run. `begun` are the ones that start now.
    fn next(&self, running: &[usize], begun: &[usize]) -> Option<usize> {
        let waits =
            |group: usize| self.plan.steps[group].after.iter().any(|bond| self.is_before(bond, begun));
        let excluded =
            |group: usize| self.plan.steps[group].excludes.iter().any(|bond| running.contains(&bond.group));
        let waiting = |group: usize| self.states[group] == GroupState::Waiting && !begun.contains(&group);
        let mut order = self.plan.order.iter().copied();
        order.find(|group| waiting(*group) && !waits(*group) && !excluded(*group))
    }

    /// Returns what a group waits for: groups that have to end or start first, and running groups that exclude it.
    pub fn waits_for(&self, group: usize) -> Vec<Bond> {
        if self.states[group] != GroupState::Waiting {
            return Vec::new();
        }
        let step = &self.plan.steps[group];
        let waits = step.after.iter().filter(|bond| self.is_before(bond, &[]));
        let excluded = step.excludes.iter().filter(|bond| self.states[bond.group] == GroupState::Running);
        waits.chain(excluded).copied().collect()
    }

    /// Records that a group has started.
    pub fn begin(&mut self, group: usize) {
        debug_assert_eq!(self.states[group], GroupState::Waiting, "a group begins once");
        self.states[group] = GroupState::Running;
    }

    /// Records that a group has ended. Returns the groups that are skipped because of it.
    pub fn end(&mut self, group: usize, success: bool) -> Vec<usize> {
        debug_assert_eq!(self.states[group], GroupState::Running, "a group ends once");
        self.states[group] = if success { GroupState::Succeeded } else { GroupState::Failed };
        if success { Vec::new() } else { self.skip_dependents() }
    }

    /// Skips a group. Returns the other groups that are skipped because of it.
    pub fn skip(&mut self, group: usize) -> Vec<usize> {
        debug_assert_eq!(self.states[group], GroupState::Waiting, "only what has not begun can be skipped");
        self.states[group] = GroupState::Skipped;
        self.skip_dependents()
    }

    /// Skips all groups that depend, directly or indirectly, on a group that failed or was skipped.
    fn skip_dependents(&mut self) -> Vec<usize> {
        let mut skipped = Vec::new();
        loop {
            let lost = |bond: &Bond| match (bond.cause, self.states[bond.group]) {
                (Cause::Completion, GroupState::Failed | GroupState::Skipped)
                | (Cause::Beginning, GroupState::Skipped) => true,
                (Cause::Completion, GroupState::Waiting | GroupState::Running | GroupState::Succeeded)
                | (
                    Cause::Beginning,
                    GroupState::Waiting | GroupState::Running | GroupState::Succeeded | GroupState::Failed,
                )
                | (Cause::Conflict(_) | Cause::Folder(_) | Cause::Phase, _) => false,
            };
            let waiting = (0..self.states.len()).filter(|group| self.states[*group] == GroupState::Waiting);
            let next: Vec<usize> =
                waiting.filter(|group| self.plan.steps[*group].after.iter().any(lost)).collect();
            if next.is_empty() {
                skipped.sort_unstable();
                return skipped;
            }
            next.iter().for_each(|group| self.states[*group] = GroupState::Skipped);
            skipped.extend(next);
        }
    }

    /// Says whether the other group still has to come first. `begun` start now.
    fn is_before(&self, bond: &Bond, begun: &[usize]) -> bool {
        let state = self.states[bond.group];
        match bond.cause {
            Cause::Beginning => state == GroupState::Waiting && !begun.contains(&bond.group),
            Cause::Completion | Cause::Conflict(_) | Cause::Folder(_) | Cause::Phase => !state.is_over(),
        }
    }
}
