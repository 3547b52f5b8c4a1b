//! Times on pages: as a duration from now, and as a timestamp from which the script of the page counts on.

use std::time::Duration;

use lockkeeper_core::time::{Moment, format_span};
use lockkeeper_platform::wall_clock::{ClockOffset, WallTime};

/// A time in the past or future.
#[derive(Clone, Debug)]
pub(super) struct TimePoint {
    /// Milliseconds since 1970.
    pub(super) at: i64,
    /// The duration between it and now, as text.
    pub(super) text: String,
}

/// Formats times relative to one moment.
pub(super) struct TimeFormat {
    dial: ClockOffset,
    now: Moment,
}

impl TimeFormat {
    pub(super) fn new(now: Moment) -> Self {
        Self { dial: ClockOffset::at(now), now }
    }

    /// The current time in milliseconds since 1970.
    pub(super) fn now(&self) -> i64 {
        self.dial.unix_millis(self.now)
    }

    /// A moment in the past.
    pub(super) fn since(&self, moment: Moment) -> TimePoint {
        TimePoint { at: self.dial.unix_millis(moment), text: format_span(self.now.since(moment)) }
    }

    /// A time in the past, by the wall clock.
    pub(super) fn since_time(&self, time: WallTime) -> TimePoint {
        let at = time.as_micros().div_euclid(1_000);
        let ago = u64::try_from(self.now().saturating_sub(at)).unwrap_or(0);
        TimePoint { at, text: format_span(Duration::from_millis(ago)) }
    }

    /// A time in the past, in microseconds since 1970.
    pub(super) fn since_micros(&self, unix_micros: i64) -> TimePoint {
        self.since_time(WallTime::from_micros(unix_micros))
    }

    /// A moment in the future.
    pub(super) fn until(&self, moment: Moment) -> TimePoint {
        TimePoint { at: self.dial.unix_millis(moment), text: format_span(moment.since(self.now)) }
    }
}
