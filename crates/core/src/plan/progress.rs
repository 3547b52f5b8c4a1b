//! Following a plan as groups really begin and end: who may begin now, who waits for whom, who is skipped.

use super::{Bond, Cause, Plan};

/// What became of a group so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// It has not begun.
    Waiting,
    /// It runs.
    Running,
    /// It ended well.
    Succeeded,
    /// It ended badly.
    Failed,
    /// It never began, because something that it depends on failed or was skipped.
    Skipped,
}

impl Standing {
    /// Says whether nothing more will become of it.
    pub const fn is_over(self) -> bool {
        match self {
            Self::Waiting | Self::Running => false,
            Self::Succeeded | Self::Failed | Self::Skipped => true,
        }
    }
}

/// How far a plan has been followed.
///
/// Groups that only take turns go on when the one before them failed; groups that depend on it are skipped.
#[derive(Clone, Debug)]
pub struct Progress<'a> {
    plan: &'a Plan,
    standings: Vec<Standing>,
}

impl<'a> Progress<'a> {
    /// The beginning of a plan. One that lets nothing run is over at once.
    pub fn new(plan: &'a Plan) -> Self {
        Self { plan, standings: vec![Standing::Waiting; plan.steps.len()] }
    }

    /// A plan that has been followed so far; standings that are missing are of groups that have not begun.
    pub fn at(plan: &'a Plan, standings: &[Standing]) -> Self {
        let mut progress = Self::new(plan);
        for (place, standing) in progress.standings.iter_mut().zip(standings) {
            *place = *standing;
        }
        progress
    }

    /// Returns what became of each group, by its place.
    pub fn standings(&self) -> &[Standing] {
        &self.standings
    }

    /// Says whether nothing more will happen.
    pub fn is_over(&self) -> bool {
        self.standings.iter().all(|standing| standing.is_over())
    }

    /// Returns the groups that may begin together now, the preferred first, so that no more than `slots` run.
    pub fn startable(&self, slots: usize) -> Vec<usize> {
        let mut running: Vec<usize> =
            (0..self.standings.len()).filter(|group| self.standings[*group] == Standing::Running).collect();
        let mut begun = Vec::new();
        // Who waits for a beginning may come before it in the order, so it is gone through until nothing is added.
        while let Some(group) = self.next(&running, &begun).filter(|_| running.len() < slots) {
            running.push(group);
            begun.push(group);
        }
        begun
    }

    /// The first that may begin beside those that run, `begun` among them.
    fn next(&self, running: &[usize], begun: &[usize]) -> Option<usize> {
        let waits =
            |group: usize| self.plan.steps[group].after.iter().any(|bond| self.is_before(bond, begun));
        let excluded =
            |group: usize| self.plan.steps[group].excludes.iter().any(|bond| running.contains(&bond.group));
        let waiting = |group: usize| self.standings[group] == Standing::Waiting && !begun.contains(&group);
        let mut order = self.plan.order.iter().copied();
        order.find(|group| waiting(*group) && !waits(*group) && !excluded(*group))
    }

    /// Returns what keeps a group from beginning: waits that are not over, and groups that run and exclude it.
    pub fn waits_for(&self, group: usize) -> Vec<Bond> {
        if self.standings[group] != Standing::Waiting {
            return Vec::new();
        }
        let step = &self.plan.steps[group];
        let waits = step.after.iter().filter(|bond| self.is_before(bond, &[]));
        let excluded = step.excludes.iter().filter(|bond| self.standings[bond.group] == Standing::Running);
        waits.chain(excluded).copied().collect()
    }

    /// Notes that a group began.
    pub fn begin(&mut self, group: usize) {
        debug_assert_eq!(self.standings[group], Standing::Waiting, "a group begins once");
        self.standings[group] = Standing::Running;
    }

    /// Notes that a group ended, and returns those that never begin because of it.
    pub fn end(&mut self, group: usize, success: bool) -> Vec<usize> {
        debug_assert_eq!(self.standings[group], Standing::Running, "a group ends once");
        self.standings[group] = if success { Standing::Succeeded } else { Standing::Failed };
        if success { Vec::new() } else { self.skip_dependents() }
    }

    /// Notes that a group will not be begun at all, and returns the others that do not begin because of it.
    pub fn skip(&mut self, group: usize) -> Vec<usize> {
        debug_assert_eq!(self.standings[group], Standing::Waiting, "only what has not begun can be skipped");
        self.standings[group] = Standing::Skipped;
        self.skip_dependents()
    }

    /// Skips all that depends on what failed or was skipped, and what depends on that.
    fn skip_dependents(&mut self) -> Vec<usize> {
        let mut skipped = Vec::new();
        loop {
            let lost = |bond: &Bond| match (bond.cause, self.standings[bond.group]) {
                (Cause::Completion, Standing::Failed | Standing::Skipped)
                | (Cause::Beginning, Standing::Skipped) => true,
                (Cause::Completion, Standing::Waiting | Standing::Running | Standing::Succeeded)
                | (
                    Cause::Beginning,
                    Standing::Waiting | Standing::Running | Standing::Succeeded | Standing::Failed,
                )
                | (Cause::Conflict(_) | Cause::Folder(_) | Cause::Phase, _) => false,
            };
            let waiting =
                (0..self.standings.len()).filter(|group| self.standings[*group] == Standing::Waiting);
            let next: Vec<usize> =
                waiting.filter(|group| self.plan.steps[*group].after.iter().any(lost)).collect();
            if next.is_empty() {
                skipped.sort_unstable();
                return skipped;
            }
            next.iter().for_each(|group| self.standings[*group] = Standing::Skipped);
            skipped.extend(next);
        }
    }

    /// Says whether the other group still has to come first; `begun` are about to begin.
    fn is_before(&self, bond: &Bond, begun: &[usize]) -> bool {
        let standing = self.standings[bond.group];
        match bond.cause {
            Cause::Beginning => standing == Standing::Waiting && !begun.contains(&bond.group),
            Cause::Completion | Cause::Conflict(_) | Cause::Folder(_) | Cause::Phase => !standing.is_over(),
        }
    }
}
