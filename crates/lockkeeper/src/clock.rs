//! The wall clock: for people, and for lock files of formats that know no other.
//!
//! No lease of the store depends on it.

use std::time::{Duration, SystemTime};

use jiff::civil::DateTime;
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
        Self { moment, wall: wall() }
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

/// A point on the wall clock, in microseconds since 1970: what lock files of foreign formats are dated by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(i64);

impl WallTime {
    /// Reads the wall clock.
    pub fn now() -> Self {
        Self(wall().as_microsecond())
    }

    /// The time this many microseconds after 1970.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since 1970.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// The time `span` later, or the last one there is.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(span.as_micros()).unwrap_or(i64::MAX)))
    }

    /// How long ago `earlier` was; zero when it lies in the future.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// `2026-01-31T12:00:00.000Z`.
    pub fn utc(self) -> String {
        self.timestamp().strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
    }

    /// `2025-12-14T15:01:02+09:00`, in the local time zone.
    pub fn local(self) -> String {
        self.timestamp().to_zoned(TimeZone::system()).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
    }

    /// Reads RFC 3339 and what Python's `isoformat` writes.
    ///
    /// A text without an offset may mean UTC or local time. It is read as the one that lies nearer to `written_at`,
    /// when the file that it stands in was written.
    pub fn read(text: &str, written_at: Self) -> Option<Self> {
        if let Ok(timestamp) = text.parse::<Timestamp>() {
            return Some(Self(timestamp.as_microsecond()));
        }
        let naive: DateTime = text.parse().ok()?;
        let readings = [TimeZone::UTC, TimeZone::system()].map(|zone| zone.to_timestamp(naive));
        let readings = readings.into_iter().filter_map(|reading| Some(Self(reading.ok()?.as_microsecond())));
        readings.min_by_key(|reading| reading.0.abs_diff(written_at.0))
    }

    fn timestamp(self) -> Timestamp {
        let end = if self.0 < 0 { Timestamp::MIN } else { Timestamp::MAX };
        Timestamp::from_microsecond(self.0).unwrap_or(end)
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
fn wall() -> Timestamp {
    Timestamp::try_from(SystemTime::now()).unwrap_or(Timestamp::UNIX_EPOCH)
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

    #[test]
    fn wall_times_are_written_and_read_back() {
        let time = WallTime::from_micros(1_769_860_800_123_000);
        assert_eq!(time.utc(), "2026-01-31T12:00:00.123Z");
        for text in [
            "2026-01-31T12:00:00.123Z",
            "2026-01-31T21:00:00.123+09:00",
            "2026-01-31T12:00:00.123000+00:00",
            "2026-01-31T12:00:00.123000",
            "2026-01-31 12:00:00.123",
        ] {
            assert_eq!(WallTime::read(text, time), Some(time), "{text}");
        }
        assert_eq!(WallTime::read(&time.local(), time), Some(WallTime::from_micros(1_769_860_800_000_000)));
        for text in ["", "now", "12:00", "1769860800", "2026-13-01T00:00:00Z"] {
            assert_eq!(WallTime::read(text, time), None, "{text}");
        }
    }
}
