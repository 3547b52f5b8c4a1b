//! Moments as pages show them: the span from now, and the point on the wall clock that the browser counts from.

use std::time::Duration;

use lockkeeper_core::time::{Moment, format_span};

use lockkeeper_platform::wall_clock::{ClockOffset, WallTime};

/// A moment in the past or future.
#[derive(Clone, Debug)]
pub(super) struct Point {
    /// Milliseconds since 1970.
    pub(super) at: i64,
    /// The span between it and now.
    pub(super) text: String,
}

/// A clock to show moments by.
pub(super) struct Face {
    dial: ClockOffset,
    now: Moment,
}

impl Face {
    pub(super) fn new(now: Moment) -> Self {
        Self { dial: ClockOffset::at(now), now }
    }

    /// Milliseconds since 1970, now.
    pub(super) fn now(&self) -> i64 {
        self.dial.unix_millis(self.now)
    }

    /// A moment in the past.
    pub(super) fn since(&self, moment: Moment) -> Point {
        Point { at: self.dial.unix_millis(moment), text: format_span(self.now.since(moment)) }
    }

    /// A time in the past, as logs have it.
    pub(super) fn since_time(&self, time: WallTime) -> Point {
        let at = time.as_micros().div_euclid(1_000);
        let ago = u64::try_from(self.now().saturating_sub(at)).unwrap_or(0);
        Point { at, text: format_span(Duration::from_millis(ago)) }
    }

    /// A moment in the future.
    pub(super) fn until(&self, moment: Moment) -> Point {
        Point { at: self.dial.unix_millis(moment), text: format_span(moment.since(self.now)) }
    }
}
