//! Automatic parallelism: more groups at a time while all goes well, fewer after a problem.

/// The bounds for the number of groups at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The fewest; at least one.
    pub min: usize,
    /// The most.
    pub max: usize,
    /// How many groups are added at a time.
    pub step: usize,
    /// How many groups are removed at a time.
    pub decrease: usize,
}

/// What has to be seen before groups are added or removed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Condition {
    /// How many groups in a row have to go well, or badly.
    pub streak: u64,
    /// This many conflicts count as going badly.
    pub conflicts: Option<u64>,
    /// The load for each core: it has to be below this to add groups, and above it to remove some.
    pub load: Option<f64>,
    /// The share of memory in use: it has to be below this to add groups, and above it to remove some.
    pub memory: Option<f64>,
}

impl Default for Condition {
    fn default() -> Self {
        Self { streak: 1, conflicts: None, load: None, memory: None }
    }
}

/// What was seen when a group ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    /// How that group went.
    pub last: Sign,
    /// How many groups in a row went like it.
    pub streak: u64,
    /// Conflicts since the number of groups was last changed.
    pub conflicts: u64,
    /// The load for each core, if it is known.
    pub load: Option<f64>,
    /// The share of memory in use, if it is known.
    pub memory: Option<f64>,
}

/// Decides whether groups are added or removed. To add some, all conditions have to hold; to remove some, one is enough.
pub fn judge(seen: &Observation, increase: &Condition, decrease: &Condition) -> Option<Sign> {
    let above = |value: Option<f64>, limit: Option<f64>| matches!((value, limit), (Some(value), Some(limit)) if value > limit);
    let strained = (seen.last == Sign::Strained && seen.streak >= decrease.streak)
        || decrease.conflicts.is_some_and(|limit| seen.conflicts >= limit)
        || above(seen.load, decrease.load)
        || above(seen.memory, decrease.memory);
    if strained {
        return Some(Sign::Strained);
    }
    let calm = !above(seen.load, increase.load) && !above(seen.memory, increase.memory);
    (seen.last == Sign::Smooth && seen.streak >= increase.streak && calm).then_some(Sign::Smooth)
}

/// How the last group went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// It started without a wait, and succeeded.
    Smooth,
    /// It failed, waited too long, or the machine was too busy.
    Strained,
}

/// Returns the number of groups at a time after this sign.
///
/// It grows only when all slots are in use: free slots show that more are not needed.
pub fn tune(slots: usize, in_use: usize, sign: Sign, bounds: Bounds) -> usize {
    let (min, step, decrease) = (bounds.min.max(1), bounds.step.max(1), bounds.decrease.max(1));
    let max = bounds.max.max(min);
    let next = match sign {
        Sign::Smooth if in_use >= slots => slots.saturating_add(step),
        Sign::Smooth => slots,
        Sign::Strained => slots.saturating_sub(decrease),
    };
    next.clamp(min, max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { min: 2, max: 8, step: 2, decrease: 2 };

    /// Requirement 159.
    #[test]
    fn the_number_grows_while_all_goes_well_and_stays_within_its_bounds() {
        let mut slots = 2;
        let mut seen = Vec::new();
        for sign in [Sign::Smooth, Sign::Smooth, Sign::Smooth, Sign::Smooth, Sign::Strained, Sign::Smooth] {
            slots = tune(slots, slots, sign, BOUNDS);
            seen.push(slots);
        }
        assert_eq!(seen, [4, 6, 8, 8, 6, 8]);
        assert_eq!(tune(2, 2, Sign::Strained, BOUNDS), 2);
        assert_eq!(tune(100, 1, Sign::Smooth, BOUNDS), 8);
    }

    #[test]
    fn the_number_does_not_grow_while_slots_are_free() {
        assert_eq!(tune(4, 1, Sign::Smooth, BOUNDS), 4);
        assert_eq!(tune(1, 1, Sign::Strained, Bounds { min: 0, max: 0, step: 0, decrease: 0 }), 1);
    }

    /// Requirement 159.
    #[test]
    fn groups_are_added_when_all_conditions_hold_and_removed_when_one_does() {
        let increase = Condition { streak: 2, load: Some(0.5), memory: Some(0.5), ..Condition::default() };
        let decrease = Condition { streak: 2, conflicts: Some(3), load: Some(0.8), memory: Some(0.8) };
        let seen = |last, streak, conflicts, load, memory| {
            let seen = Observation { last, streak, conflicts, load: Some(load), memory: Some(memory) };
            judge(&seen, &increase, &decrease)
        };
        let (smooth, strained) = (Sign::Smooth, Sign::Strained);
        assert_eq!(seen(smooth, 2, 0, 0.1, 0.1), Some(smooth));
        assert_eq!(seen(smooth, 1, 0, 0.1, 0.1), None);
        assert_eq!(seen(smooth, 2, 0, 0.6, 0.1), None);
        assert_eq!(seen(smooth, 2, 0, 0.1, 0.6), None);
        assert_eq!(seen(strained, 1, 0, 0.1, 0.1), None);
        assert_eq!(seen(strained, 2, 0, 0.1, 0.1), Some(strained));
        assert_eq!(seen(smooth, 2, 3, 0.1, 0.1), Some(strained));
        assert_eq!(seen(smooth, 2, 0, 0.9, 0.1), Some(strained));
        assert_eq!(seen(smooth, 2, 0, 0.1, 0.9), Some(strained));
    }
}
