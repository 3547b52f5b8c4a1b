//! Automatic parallelism: more groups at a time while all goes well, fewer after a problem.

/// The bounds for the number of groups at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The fewest; at least one.
    pub min: usize,
    /// The most.
    pub max: usize,
    /// How many groups are added or removed at a time.
    pub step: usize,
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
    let (min, step) = (bounds.min.max(1), bounds.step.max(1));
    let max = bounds.max.max(min);
    let next = match sign {
        Sign::Smooth if in_use >= slots => slots.saturating_add(step),
        Sign::Smooth => slots,
        Sign::Strained => slots.saturating_sub(step),
    };
    next.clamp(min, max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { min: 2, max: 8, step: 2 };

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
        assert_eq!(tune(1, 1, Sign::Strained, Bounds { min: 0, max: 0, step: 0 }), 1);
    }
}
