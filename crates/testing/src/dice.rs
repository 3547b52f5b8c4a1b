//! Seeded random numbers (SplitMix64). A test prints its seed, and `LOCKKEEPER_SEED=N` repeats it.

use std::ops::Range;
use std::time::Duration;

/// The variable that gives the seed.
const VARIABLE: &str = "LOCKKEEPER_SEED";

/// A generator of random numbers. The same seed gives the same numbers.
#[derive(Clone, Debug)]
pub struct Dice {
    seed: u64,
    state: u64,
}

impl Dice {
    /// Dice with a fixed seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed, state: seed }
    }

    /// Dice with the seed of the environment, or else with a new one. Prints the seed.
    #[must_use]
    pub fn from_environment() -> Self {
        Self::printed(Self::given().unwrap_or_else(|| lockkeeper_platform::random::number().unwrap()))
    }

    /// Dice with the seed of the environment, or else with this one. Prints the seed.
    #[must_use]
    pub fn from_environment_or(seed: u64) -> Self {
        Self::printed(Self::given().unwrap_or(seed))
    }

    /// Seeds for a test that runs once for each: only that of the environment, or else these.
    #[must_use]
    pub fn seeds(all: Range<u64>) -> Range<u64> {
        Self::given().map_or(all, |seed| seed..seed + 1)
    }

    /// The seed of the environment.
    #[must_use]
    pub fn given() -> Option<u64> {
        let text = std::env::var(VARIABLE).ok()?;
        Some(text.parse().unwrap_or_else(|_| panic!("{VARIABLE} is not a number: {text}")))
    }

    fn printed(seed: u64) -> Self {
        eprintln!("{VARIABLE}={seed}");
        Self::new(seed)
    }

    /// The seed, for messages.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The next number, of all 64 bits.
    pub fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0, below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit
    }

    /// An index into something with this many elements.
    pub fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).expect("an index is below a usize")
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.index(all.len())]
    }

    /// True in this many of 100 cases.
    pub fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// A span below this one, in whole microseconds.
    pub fn span_below(&mut self, limit: Duration) -> Duration {
        Duration::from_micros(self.below(u64::try_from(limit.as_micros()).expect("a short span")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_another_seed_gives_others() {
        let numbers = |seed| -> Vec<u64> {
            std::iter::repeat_with({
                let mut dice = Dice::new(seed);
                move || dice.below(1_000)
            })
            .take(20)
            .collect()
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
        assert!(numbers(7).iter().all(|number| *number < 1_000));
    }

    #[test]
    fn every_side_comes_up() {
        let mut dice = Dice::new(1);
        let mut seen = [false; 6];
        for _ in 0..200 {
            seen[dice.index(6)] = true;
        }
        assert_eq!(seen, [true; 6]);
    }
}
