//! The wall clock, for people only: no rule depends on it.

use std::time::{Duration, SystemTime};

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use lockkeeper_core::time::Moment;

/// Where the store's clock and the wall clock stand at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Dial {
    moment: Moment,
    wall: Timestamp,
}

impl Dial {
    /// Reads the wall clock against a moment of the store.
    pub fn at(moment: Moment) -> Self {
        #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
        let wall = Timestamp::try_from(SystemTime::now()).unwrap_or(Timestamp::UNIX_EPOCH);
        Self { moment, wall }
    }

    /// What the wall clock shows for a moment, as RFC 3339 with milliseconds in UTC.
    pub fn utc(&self, moment: Moment) -> String {
        let shown = self.timestamp(moment).strftime("%Y-%m-%dT%H:%M:%S.%3fZ");
        shown.to_string()
    }

    /// What the wall clock shows for a moment in the local time zone, for people.
    pub fn local(&self, moment: Moment) -> String {
        let zoned: Zoned = self.timestamp(moment).to_zoned(TimeZone::system());
        zoned.strftime("%Y-%m-%d %H:%M:%S").to_string()
    }

    fn timestamp(&self, moment: Moment) -> Timestamp {
        let (ago, ahead) = (self.moment.since(moment), moment.since(self.moment));
        let shifted =
            if ago > Duration::ZERO { self.wall.checked_sub(ago) } else { self.wall.checked_add(ahead) };
        shifted.unwrap_or(if ago > Duration::ZERO { Timestamp::MIN } else { Timestamp::MAX })
    }
}

/// Seconds since 1970 on the wall clock, for formats that have nothing else.
pub fn epoch_seconds() -> i64 {
    Dial::at(Moment::from_micros(0)).wall.as_second()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_shown_relative_to_now() {
        let dial = Dial { moment: Moment::from_micros(10_000_000), wall: Timestamp::UNIX_EPOCH };
        assert_eq!(dial.utc(Moment::from_micros(10_000_000)), "1970-01-01T00:00:00.000Z");
        assert_eq!(dial.utc(Moment::from_micros(8_500_000)), "1969-12-31T23:59:58.500Z");
        assert_eq!(dial.utc(Moment::from_micros(11_250_000)), "1970-01-01T00:00:01.250Z");
    }

    #[test]
    fn a_moment_beyond_the_calendar_is_its_last_one() {
        let dial = Dial { moment: Moment::from_micros(0), wall: Timestamp::UNIX_EPOCH };
        assert!(dial.utc(Moment::from_micros(i64::MAX)).starts_with("9999-"));
    }
}
