//! The store's clock: the leader of etcd counts down the time to live of a lease, on a monotonic clock. A moment is the time that
//! has passed on that lease.
//!
//! etcd has no call that returns the time. So the store has a lease of etcd that no client renews and to which no key is attached.
//! `clock/base` is the moment at which it was full; the moment now is this base plus the seconds that have passed on the lease.
//! etcd returns whole seconds. Between two answers each client adds the time that has passed on its own machine. No wall clock of
//! a client counts.
//!
//! A new leader starts the count again. Then the moment would be before `clock/last`, the latest moment that a commit has written,
//! and the clock continues from there. So the clock may lose time, and never gains any: no session ends too early.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lockkeeper_core::time::Moment;

/// The id of the lease that counts, for all projects of a cluster: "lockkeep".
pub(super) const LEASE: i64 = 0x6c6f_636b_6b65_6570;
/// Its time to live: almost a century, so it never ends.
pub(super) const LEASE_SECONDS: i64 = 3_000_000_000;
/// How long a client uses the clock of its machine before it asks the leader again.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// How far commits may be ahead of the count: the clocks of two machines do not run equally fast.
const TOLERANCE: i64 = 5_000_000;
const SECOND: i64 = 1_000_000;
/// The base of a new project.
pub(super) const FIRST_BASE: i64 = SECOND;

/// When this process asked for the count.
#[derive(Debug, Default)]
pub(super) struct Asked(Mutex<Option<Moment>>);

impl Asked {
    /// Whether it is time to ask again, at this moment on the clock of this machine.
    pub(super) fn is_due(&self, local: Moment) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.is_none_or(|at| local.since(at) >= ASK_EVERY);
        if is_due {
            *last = Some(local);
        }
        is_due
    }
}

/// The moment when this number of seconds has passed. It is not later than now, although the count is rounded up.
pub(super) fn counted(base: i64, seconds: i64) -> Moment {
    Moment::from_micros(base.saturating_add(seconds.saturating_sub(1).saturating_mul(SECOND)))
}

/// The new base, if the count has started again: the clock continues from `last`.
pub(super) fn new_base(base: i64, seconds: i64, last: i64) -> Option<i64> {
    let lags = counted(base, seconds).as_micros() + TOLERANCE < last;
    lags.then(|| base_at(Moment::from_micros(last), seconds))
}

/// The base for which the moment now is `now`.
pub(super) fn base_at(now: Moment, seconds: i64) -> i64 {
    now.as_micros() - (seconds - 1) * SECOND
}

/// A moment as the value of a key. The order of the bytes is that of the moments.
pub(super) fn to_bytes(micros: i64) -> Vec<u8> {
    // The base may be negative: before the first moment.
    (micros ^ i64::MIN).to_be_bytes().to_vec()
}

pub(super) fn from_bytes(bytes: &[u8]) -> Option<i64> {
    bytes.try_into().ok().map(|bytes| i64::from_be_bytes(bytes) ^ i64::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Moment {
        Moment::from_micros(seconds * SECOND)
    }

    #[test]
    fn the_count_is_asked_for_now_and_then() {
        let asked = Asked::default();
        assert_eq!([0, 4, 5, 6].map(|second| asked.is_due(at(second))), [true, false, true, false]);
    }

    /// Invariant 3. A clock that gained time would end the session of a live holder.
    #[test]
    fn a_count_that_starts_again_loses_time_and_gains_none() {
        let (base, last) = (SECOND, 500 * SECOND);
        assert_eq!(counted(base, 500), at(500));
        assert_eq!(new_base(base, 500, last), None);
        assert_eq!(new_base(base, 496, last), None, "clients may be a little ahead");
        for seconds in [0, 1, 100, 400] {
            let new = new_base(base, seconds, last).unwrap();
            assert_eq!(counted(new, seconds), at(500), "it goes on from the last commit");
            assert_eq!(new_base(new, seconds, last), None);
        }
    }

    #[test]
    fn bytes_are_in_the_order_of_moments() {
        let moments = [i64::MIN, -1, 0, 1, 255, 256, 1 << 40, i64::MAX];
        assert!(moments.is_sorted_by_key(|moment| to_bytes(*moment)));
        assert!(moments.iter().all(|moment| from_bytes(&to_bytes(*moment)) == Some(*moment)));
        assert_eq!(from_bytes(b"short"), None);
    }
}
