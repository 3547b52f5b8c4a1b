//! The wall clock, for people and for formats that have no other: no rule depends on it.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use lockkeeper_core::time::Moment;
use thiserror::Error;

/// Where the store's clock and the wall clock stand at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Dial {
    moment: Moment,
    wall: Timestamp,
}

impl Dial {
    /// Reads the wall clock against a moment of the store.
    pub fn at(moment: Moment) -> Self {
        Self { moment, wall: read() }
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

/// A time of the wall clock in milliseconds, as the formats of other programs have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(i64);

impl WallTime {
    /// The first moment of 1970.
    pub const UNIX_EPOCH: Self = Self(0);

    /// What the wall clock shows.
    pub fn now() -> Self {
        Self(read().as_millisecond())
    }

    /// The time this many seconds after the first moment of 1970, if the calendar has it.
    pub fn from_unix_seconds(seconds: f64) -> Option<Self> {
        let milliseconds = (seconds * 1_000.0).floor();
        // Timestamp checks the range; a cast of what is far outside stays outside.
        Timestamp::from_millisecond(milliseconds as i64)
            .ok()
            .filter(|_| milliseconds.is_finite())
            .map(Self::of)
    }

    /// How long ago `earlier` was; zero when it lies in the future.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// The time `span` later.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
    }

    fn of(timestamp: Timestamp) -> Self {
        Self(timestamp.as_millisecond())
    }
}

impl fmt::Display for WallTime {
    /// ISO 8601 with milliseconds in UTC.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let timestamp = Timestamp::from_millisecond(self.0).unwrap_or(Timestamp::MAX);
        // Status lines are many, and this takes a fraction of what a format string takes.
        let shown = TimeZone::UTC.to_datetime(timestamp);
        let (date, time) = (shown.date(), shown.time());
        let (year, month, day) = (date.year(), date.month(), date.day());
        let (hour, minute, second) = (time.hour(), time.minute(), time.second());
        let millisecond = time.millisecond();
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millisecond:03}Z")
    }
}

impl FromStr for WallTime {
    type Err = NotATime;

    /// Reads ISO 8601 with any offset; without one it is UTC.
    fn from_str(text: &str) -> Result<Self, NotATime> {
        if let Ok(timestamp) = text.parse::<Timestamp>() {
            return Ok(Self::of(timestamp));
        }
        let civil: DateTime = text.parse().map_err(|_| NotATime(text.to_owned()))?;
        let zoned = civil.to_zoned(TimeZone::UTC).map_err(|_| NotATime(text.to_owned()))?;
        Ok(Self::of(zoned.timestamp()))
    }
}

/// A text that is no time.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not a time such as 2026-01-31T12:00:00.000Z")]
pub struct NotATime(String);

fn read() -> Timestamp {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
    let now = SystemTime::now();
    Timestamp::try_from(now).unwrap_or(Timestamp::UNIX_EPOCH)
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
    /// Requirement 54.
    #[test]
    fn wall_times_have_milliseconds_in_utc() {
        let read = |text: &str| text.parse::<WallTime>().map(|time| time.to_string());
        for (text, shown) in [
            ("2026-01-31T12:00:00.000Z", "2026-01-31T12:00:00.000Z"),
            ("2026-01-31T12:00:00.123456Z", "2026-01-31T12:00:00.123Z"),
            ("2026-01-31T12:00:00+09:00", "2026-01-31T03:00:00.000Z"),
            ("2026-01-31T12:00:00.5", "2026-01-31T12:00:00.500Z"),
            ("2026-01-31 12:00:00", "2026-01-31T12:00:00.000Z"),
            ("1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(read(text), Ok(shown.to_owned()), "{text}");
        }
        for text in ["", "now", "12:00", "2026-02-30T00:00:00Z", "1769860800"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn seconds_since_1970_are_times_within_the_calendar() {
        let read = |seconds| WallTime::from_unix_seconds(seconds).map(|time| time.to_string());
        assert_eq!(read(1_769_860_800.25), Some("2026-01-31T12:00:00.250Z".to_owned()));
        assert!([f64::NAN, f64::INFINITY, -1e300, 1e15].into_iter().all(|seconds| read(seconds).is_none()));
    }
}
