//! How long a group waits for its locks, and when it reports that it still waits.

use std::time::{Duration, Instant};

/// The limit of a wait. After `each` the group waits again, as often as the file allows.
#[derive(Clone, Debug)]
pub(super) struct Patience {
    each: Duration,
    retries: u64,
    /// Waits after which a rule may apply, the longest first.
    report_after: Vec<Duration>,
    timeouts: u64,
}

/// What happens when a wait is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A rule may apply, and the group continues to wait.
    Wait,
    /// The time is up.
    GiveUp,
}

impl Patience {
    /// `report_after` has the shortest first.
    pub(super) fn new(each: Duration, retries: u64, mut report_after: Vec<Duration>) -> Self {
        report_after.reverse();
        Self { each, retries, report_after, timeouts: 0 }
    }

    /// How long the group waits at most.
    pub(super) fn limit(&self) -> Duration {
        let times = u32::try_from(self.retries.saturating_add(1)).unwrap_or(u32::MAX);
        self.each.saturating_mul(times)
    }

    /// How long after the beginning of the wait the group looks again.
    pub(super) fn next(&self) -> Duration {
        let times = u32::try_from(self.timeouts.saturating_add(1)).unwrap_or(u32::MAX);
        let limit = self.each.saturating_mul(times);
        self.report_after.last().map_or(limit, |after| limit.min(*after))
    }

    /// The time of [`Patience::next`]; none if it is too far in the future.
    pub(super) fn until(&self, begun: Instant) -> Option<Instant> {
        begun.checked_add(self.next())
    }

    /// Notes that the group has waited until [`Patience::next`].
    pub(super) fn waited(&mut self) -> Next {
        let next = self.next();
        let times = u32::try_from(self.timeouts.saturating_add(1)).unwrap_or(u32::MAX);
        self.timeouts += u64::from(next >= self.each.saturating_mul(times));
        while self.report_after.last().is_some_and(|after| *after <= next) {
            self.report_after.pop();
        }
        if self.timeouts > self.retries { Next::GiveUp } else { Next::Wait }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_reports_and_retries_before_it_gives_up() {
        let seconds = Duration::from_secs;
        let mut patience = Patience::new(seconds(30), 1, vec![seconds(20), seconds(45)]);
        assert_eq!(patience.limit(), seconds(60));
        let mut seen = Vec::new();
        loop {
            let next = patience.next();
            let then = patience.waited();
            seen.push((next.as_secs(), then));
            if then == Next::GiveUp {
                break;
            }
        }
        assert_eq!(seen, [(20, Next::Wait), (30, Next::Wait), (45, Next::Wait), (60, Next::GiveUp)]);
    }
}
