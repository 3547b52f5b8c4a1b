//! Store clock: the clock of the server as it is known here. Between two answers the time since the last one is added.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lockkeeper_core::time::Moment;

/// A moment in a record that is further ahead than this was not written by a decision of now.
const PLAUSIBLE: Duration = Duration::from_secs(60);

/// What is known of the store's clock.
pub(crate) struct StoreClock(Mutex<Known>);

struct Known {
    /// The moment of the last answer.
    moment: i64,
    /// When that answer came.
    at: Instant,
}

impl StoreClock {
    /// A clock of which an answer has just brought this moment.
    pub(crate) fn new(moment: i64) -> Self {
        Self(Mutex::new(Known { moment, at: Instant::now() }))
    }

    /// The moment on the store's clock, or a little before it.
    pub(crate) fn now(&self) -> Moment {
        self.known().now()
    }

    /// Puts the clock forward to the moment of an answer. It never goes back.
    pub(crate) fn move_to(&self, moment: i64) {
        let mut known = self.known();
        if Moment::from_micros(moment) > known.now() {
            *known = Known { moment, at: Instant::now() };
        }
    }

    /// Whether a moment that a record has is later than the clock was thought to be. Then the clock is put forward.
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
    fn now(&self) -> Moment {
        Moment::from_micros(self.moment).after(self.at.elapsed())
    }
}
