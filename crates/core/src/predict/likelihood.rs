//! Likelihood estimate: the lower bound of a share of past commits (Wilson's interval).

use super::history::{CommitId, History};

/// The number of standard deviations for a one-sided confidence of 95 %.
const DEVIATIONS: f64 = 1.645;

/// A set of commits, with their number and weights.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    /// How many.
    pub(super) times: u32,
    weight: f64,
    /// The sum of squared weights.
    squares: f64,
}

impl Sample {
    pub(super) fn of(history: &History, commits: impl Iterator<Item = CommitId>) -> Self {
        commits.fold(Self::default(), |sample, commit| {
            let weight = history.weight(commit);
            Self {
                times: sample.times.saturating_add(1),
                weight: sample.weight + weight,
                squares: sample.squares + weight * weight,
            }
        })
    }

    /// Returns the lower bound of the share that commits of this weight have.
    pub(super) fn at_least(&self, weight: f64) -> f64 {
        if self.squares <= 0.0 {
            return 0.0;
        }
        // Unequal weights carry less evidence than as many equal ones: Kish's effective size.
        wilson(weight / self.weight, self.weight * self.weight / self.squares)
    }
}

/// The lower end of Wilson's interval for a share among `size` trials.
fn wilson(share: f64, size: f64) -> f64 {
    let square = DEVIATIONS * DEVIATIONS;
    let middle = share + square / (2.0 * size);
    // Sums of weights may miss 1 by a rounding.
    let spread = (share * (1.0 - share).max(0.0) / size + square / (4.0 * size * size)).sqrt();
    ((middle - DEVIATIONS * spread) / (1.0 + square / size)).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUNDING: f64 = 1e-12;

    #[test]
    fn few_commits_prove_little() {
        let percent = |together: f64, of: f64| (wilson(together / of, of) * 100.0).round() as i64;
        assert_eq!([percent(1.0, 1.0), percent(2.0, 2.0), percent(20.0, 20.0)], [27, 42, 88]);
        assert_eq!([percent(0.0, 9.0), percent(5.0, 10.0), percent(500.0, 1000.0)], [0, 27, 47]);
    }

    #[test]
    fn more_of_the_same_evidence_never_lowers_the_bound() {
        for of in 1..60_u32 {
            for together in 0..of {
                let at = |together: u32, of: u32| wilson(f64::from(together) / f64::from(of), f64::from(of));
                assert!(at(together + 1, of) > at(together, of), "{together} of {of}");
                assert!(at(together * 2, of * 2) >= at(together, of) - ROUNDING, "{together} of {of}");
                assert!(
                    at(together, of) <= f64::from(together) / f64::from(of) + ROUNDING,
                    "{together} of {of}"
                );
            }
        }
    }

    #[test]
    fn no_commits_say_nothing() {
        assert_eq!(Sample::default().at_least(0.0), 0.0);
    }
}
