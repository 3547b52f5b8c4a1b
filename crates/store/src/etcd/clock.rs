//! The store's clock: etcd counts down the time of a lease, and a moment is the time that has passed on it.
//!
//! etcd tells nobody what time it is. But its leader counts how long a lease has left, on a clock that nobody can set. The store
//! has one such lease, which nobody ever renews and on which no key depends. `clock/base` is the moment at which it was full:
//! base and passed seconds are the moment now. The count has whole seconds. Between two counts each client adds the time that
//! has passed on its own machine since. No client ever says what time it is.
//!
//! A new leader begins to count anew. Then what was counted is less than `clock/last`, the latest moment that a commit has written,
//! and the clock goes on from there. So the clock may lose time, and never gains any: a holder is never taken for silent too early.

use std::time::Duration;

use lockkeeper_core::time::Moment;

/// The lease that counts, for all projects of a cluster: "lockkeep".
pub(super) const LEASE: i64 = 0x6c6f_636b_6b65_6570;
/// As long as a century: it never ends.
pub(super) const LEASE_SECONDS: i64 = 3_000_000_000;
/// How long a client goes by the clock of its machine before it asks again.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// How far commits may be ahead of the count: two machines do not count equally fast.
const TOLERANCE: i64 = 5_000_000;
/// A moment in a record that is further ahead than this was not written by a decision of now.
const PLAUSIBLE: Duration = Duration::from_secs(60);
const SECOND: i64 = 1_000_000;

/// What a client knows of the store's clock. `local` is the moment on the clock of its machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    moment: Moment,
    at: Moment,
    asked_at: Option<Moment>,
}

impl Clock {
    pub(super) fn new(local: Moment) -> Self {
        Self { moment: Moment::from_micros(0), at: local, asked_at: None }
    }

    /// The moment on the store's clock, or a little before it.
    pub(super) fn now(&self, local: Moment) -> Moment {
        self.moment.after(local.since(self.at))
    }

    /// Goes on from this moment, unless that would be back.
    pub(super) fn raise(&mut self, moment: Moment, local: Moment) {
        if moment > self.now(local) {
            (self.moment, self.at) = (moment, local);
        }
    }

    /// Whether to go on from a moment that a record has.
    pub(super) fn is_plausible(&self, moment: Moment, local: Moment) -> bool {
        moment < self.now(local).after(PLAUSIBLE)
    }

    /// Whether it is time to ask for the count.
    pub(super) fn asks(&mut self, local: Moment) -> bool {
        let is_due = self.asked_at.is_none_or(|at| local.since(at) >= ASK_EVERY);
        if is_due {
            self.asked_at = Some(local);
        }
        is_due
    }
}

/// The moment at which at least this number of seconds was counted. The count is rounded up.
pub(super) fn counted(base: i64, seconds: i64) -> Moment {
    Moment::from_micros(base.saturating_add(seconds.saturating_sub(1).saturating_mul(SECOND)))
}

/// The new base, if the count began anew: the clock goes on from `last`.
pub(super) fn new_base(base: i64, seconds: i64, last: i64) -> Option<i64> {
    let lags = counted(base, seconds).as_micros() + TOLERANCE < last;
    lags.then(|| last - (seconds - 1) * SECOND)
}

/// A moment as the value of a key. The order of the bytes is that of the moments.
pub(super) fn to_bytes(micros: i64) -> Vec<u8> {
    micros.max(0).to_be_bytes().to_vec()
}

pub(super) fn from_bytes(bytes: &[u8]) -> Option<i64> {
    bytes.try_into().ok().map(i64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Moment {
        Moment::from_micros(seconds * SECOND)
    }

    #[test]
    fn between_two_counts_the_time_of_the_machine_is_added() {
        let mut clock = Clock::new(at(1000));
        clock.raise(at(50), at(1000));
        assert_eq!(clock.now(at(1003)), at(53));
        clock.raise(at(52), at(1003));
        assert_eq!(clock.now(at(1004)), at(54), "it never goes back");
        clock.raise(at(60), at(1004));
        assert_eq!(clock.now(at(1005)), at(61));
        assert!(clock.is_plausible(at(100), at(1005)) && !clock.is_plausible(at(200), at(1005)));
    }

    #[test]
    fn the_count_is_asked_for_now_and_then() {
        let mut clock = Clock::new(at(0));
        assert!(clock.asks(at(0)) && !clock.asks(at(4)) && clock.asks(at(5)) && !clock.asks(at(6)));
    }

    /// Invariant 3. A clock that gained time would end the session of a live holder.
    #[test]
    fn a_count_that_begins_anew_loses_time_and_gains_none() {
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
        let moments = [0, 1, 255, 256, 1 << 40, i64::MAX];
        assert!(moments.is_sorted_by_key(|moment| to_bytes(*moment)));
        assert!(moments.iter().all(|moment| from_bytes(&to_bytes(*moment)) == Some(*moment)));
        assert_eq!(from_bytes(b"short"), None);
    }
}
