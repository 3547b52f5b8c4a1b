//! Parallelism that tunes itself: more while all goes well, less as soon as it does not.

/// Between what the number of groups at a time may lie, and by how much it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The fewest; at least one.
    pub min: usize,
    /// The most.
    pub max: usize,
    /// By how many it changes.
    pub step: usize,
}

/// How the last group went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// It began when it could, and ended well.
    Smooth,
    /// It failed, had to wait for others too long, or the machine was too busy.
    Strained,
}

/// The number of groups at a time after this sign.
///
/// It grows by a step only when all places were in use: more places than anybody wants tell nothing.
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
    fn it_grows_while_all_goes_well_and_stays_within_its_bounds() {
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
    fn places_that_nobody_uses_are_not_added_to() {
        assert_eq!(tune(4, 1, Sign::Smooth, BOUNDS), 4);
        assert_eq!(tune(1, 1, Sign::Strained, Bounds { min: 0, max: 0, step: 0 }), 1);
    }
}
