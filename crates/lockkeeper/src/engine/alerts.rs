//! What needs a person's attention: waits that last, circles, and what the dead left.

use std::time::Duration;

use lockkeeper_core::time::Moment;

use super::Listing;

/// A wait that lasts longer is an alert.
pub const LONG_WAIT: Duration = Duration::from_secs(60);
/// More leases of the dead are an alert.
pub const MANY_ORPHANS: usize = 5;

/// The figures that alerts are judged by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alerts {
    /// How many wait.
    pub waiters: usize,
    /// How long the longest wait lasts already.
    pub longest_wait: Duration,
    /// Since when, if anybody waits.
    pub longest_wait_since: Option<Moment>,
    /// How many circles of waits there are.
    pub deadlocks: usize,
    /// How many leases have holders that are gone.
    pub orphans: usize,
}

impl Alerts {
    /// Reads them off a listing, and the number of circles that was found.
    pub fn of(listing: &Listing, deadlocks: usize) -> Self {
        let living = listing.waiters.iter().filter(|waiter| !waiter.verdict.is_free());
        let since = living.clone().map(|waiter| waiter.ticket.enqueued_at).min();
        Self {
            waiters: living.count(),
            longest_wait: since.map(|since| listing.now.since(since)).unwrap_or_default(),
            longest_wait_since: since,
            deadlocks,
            orphans: listing.holders.iter().filter(|holder| holder.verdict.is_free()).count(),
        }
    }

    /// Whether somebody waits for longer than a minute.
    pub fn has_long_wait(&self) -> bool {
        self.longest_wait > LONG_WAIT
    }

    /// Whether a wait never ends.
    pub fn has_deadlock(&self) -> bool {
        self.deadlocks > 0
    }

    /// Whether the dead left more than five leases.
    pub fn has_many_orphans(&self) -> bool {
        self.orphans > MANY_ORPHANS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requirements 139, 140 and 141.
    #[test]
    fn alerts_are_raised_above_their_limits_and_not_at_them() {
        let quiet = Alerts {
            waiters: 1,
            longest_wait: LONG_WAIT,
            longest_wait_since: None,
            deadlocks: 0,
            orphans: MANY_ORPHANS,
        };
        assert!(!quiet.has_long_wait() && !quiet.has_deadlock() && !quiet.has_many_orphans());
        let longest_wait = LONG_WAIT + Duration::from_millis(1);
        let loud = Alerts { longest_wait, deadlocks: 1, orphans: MANY_ORPHANS + 1, ..quiet };
        assert!(loud.has_long_wait() && loud.has_deadlock() && loud.has_many_orphans());
    }
}
