//! Retry policy: exponential backoff with jitter.

use std::time::Duration;

/// When a failed command is retried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The most retries after the first attempt.
    pub limit: u32,
    /// The wait before the second attempt. Each further wait is twice as long.
    pub base: Duration,
    /// The longest wait.
    pub longest: Duration,
    /// The exit codes that are retried; all failures if there are none.
    pub codes: Vec<u8>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { limit: 0, base: Duration::from_secs(1), longest: Duration::from_secs(300), codes: Vec::new() }
    }
}

impl RetryPolicy {
    /// Returns how long to wait until the next attempt; `None` when there is none.
    ///
    /// `attempt` is the number of the attempt that failed, from 1, and `code` its exit code. `chance` is a random number:
    /// it spreads the wait over the upper half (jitter), so that commands that failed together do not retry together.
    pub fn wait_after(&self, attempt: u32, code: Option<u8>, chance: u64) -> Option<Duration> {
        if attempt > self.limit {
            return None;
        }
        let worth_it = self.codes.is_empty() || code.is_some_and(|code| self.codes.contains(&code));
        if !worth_it {
            return None;
        }
        let doublings = attempt.saturating_sub(1).min(32);
        let full = self.base.saturating_mul(2_u32.saturating_pow(doublings)).min(self.longest);
        let half = full / 2;
        let spread = u64::try_from(half.as_micros()).unwrap_or(u64::MAX);
        let more = if spread == 0 { 0 } else { chance % (spread + 1) };
        Some((full - half).saturating_add(Duration::from_micros(more)).min(self.longest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(limit: u32) -> RetryPolicy {
        RetryPolicy { limit, ..RetryPolicy::default() }
    }

    #[test]
    fn waits_double_up_to_the_longest() {
        let policy = policy(40);
        for (attempt, most) in [(1, 1), (2, 2), (3, 4), (9, 256), (10, 300), (40, 300)] {
            let most = Duration::from_secs(most);
            for chance in [0, 1, 499_999, u64::MAX, 12_345_678_901] {
                let wait = policy.wait_after(attempt, Some(1), chance).unwrap();
                assert!(wait >= most / 2 && wait <= most, "attempt {attempt}: {wait:?}");
            }
        }
    }

    #[test]
    fn retries_are_limited_in_number_and_to_the_given_codes() {
        assert_eq!(policy(0).wait_after(1, Some(1), 0), None);
        assert!(policy(1).wait_after(1, None, 0).is_some());
        assert_eq!(policy(1).wait_after(2, Some(1), 0), None);
        let filtered = RetryPolicy { codes: vec![75], ..policy(3) };
        assert!(filtered.wait_after(1, Some(75), 0).is_some());
        assert_eq!(filtered.wait_after(1, Some(1), 0), None);
        assert_eq!(filtered.wait_after(1, None, 0), None);
    }
}
