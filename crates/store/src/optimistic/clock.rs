//! Store clock: the clock of the server, as this process knows it: the moment of the last answer, plus the time that has passed on
//! this machine since.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockkeeper_core::time::Moment;
use lockkeeper_platform::clock;

/// A moment in a record that is further ahead of the clock than this is wrong, and does not move the clock.
const PLAUSIBLE: Duration = Duration::from_secs(60);
/// If the clock is set forward by more than this during a decision, the decision runs again: its own moment is too early.
pub(crate) const JUMP: Duration = Duration::from_millis(250);

/// What is known of the store's clock.
pub(crate) struct StoreClock(Mutex<Known>);

struct Known {
    /// The moment of the last answer.
    moment: Moment,
    /// When that answer came, on the clock of this machine. It counts on while the machine is suspended.
    at: Moment,
    /// How often the clock was set forward by more than [`JUMP`].
    jumps: u64,
}

impl StoreClock {
    /// A clock that starts at the moment of an answer that has just arrived.
    pub(crate) fn new(moment: i64) -> Self {
        Self(Mutex::new(Known { moment: Moment::from_micros(moment), at: clock::now(), jumps: 0 }))
    }

    /// The moment on the store's clock, or a little before it.
    pub(crate) fn now(&self) -> Moment {
        self.known().at_local(clock::now())
    }

    /// How often the clock was set forward by more than [`JUMP`].
    pub(crate) fn jumps(&self) -> u64 {
        self.known().jumps
    }

    /// Sets the clock forward to the moment of an answer. It never goes back.
    pub(crate) fn move_to(&self, moment: i64) {
        self.known().move_to(Moment::from_micros(moment), clock::now());
    }

    /// Sets the clock forward to a moment of a record, which is later than the clock. False if the moment is not plausible.
    pub(crate) fn is_later(&self, moment: i64) -> bool {
        let is_plausible = Moment::from_micros(moment) < self.now().after(PLAUSIBLE);
        if is_plausible {
            self.move_to(moment);
        }
        is_plausible
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn at_local(&self, local: Moment) -> Moment {
        self.moment.after(local.since(self.at))
    }

    fn move_to(&mut self, moment: Moment, local: Moment) {
        if moment > self.at_local(local) {
            let jumps = self.jumps + u64::from(moment > self.at_local(local).after(JUMP));
            *self = Self { moment, at: local, jumps };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Moment {
        Moment::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn between_two_answers_the_time_of_the_machine_is_added() {
        let mut known = Known { moment: at(50), at: at(1000), jumps: 0 };
        assert_eq!(known.at_local(at(1003)), at(53));
        known.move_to(at(52), at(1003));
        assert_eq!(known.at_local(at(1004)), at(54), "it never goes back");
        known.move_to(at(60), at(1004));
        assert_eq!(known.at_local(at(1005)), at(61));
        assert_eq!(known.jumps, 1);
    }

    #[test]
    fn a_record_of_a_far_future_does_not_move_the_clock() {
        let clock = StoreClock::new(at(50).as_micros());
        assert!(!clock.is_later(at(200).as_micros()) && clock.now() < at(100));
        assert!(clock.is_later(at(100).as_micros()) && clock.now() >= at(100));
    }
}
