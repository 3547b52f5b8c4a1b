//! Wall clock: times for people, and for foreign file formats that use no other clock.
//!
//! No lease of the store depends on it.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use lockkeeper_core::time::Moment;
use rustix::time::{ClockId, clock_gettime};
use thiserror::Error;

use crate::clock;

/// A moment that was read longer ago is from another clock.
const LONGEST_READ: Duration = Duration::from_secs(60);
/// Two clocks that were read within this time were read together.
const SHORT: Duration = Duration::from_micros(50);
/// How many times to try that.
const LOOKS: usize = 8;

/// The offset between the store's clock and the wall clock, measured at one moment.
#[derive(Clone, Copy, Debug)]
pub struct ClockOffset {
    moment: Moment,
    wall: Timestamp,
}

impl ClockOffset {
    /// Reads the wall clock at this moment of the store's clock.
    ///
    /// The moment may be some time ago: a store has read records since. If it is from the clock of this machine, both clocks are
    /// read now, so that one moment is always shown as the same time.
    pub fn at(moment: Moment) -> Self {
        let here = Self::here();
        let is_of_here = here.moment >= moment && here.moment.since(moment) < LONGEST_READ;
        if is_of_here { here } else { Self { moment, wall: here.wall } }
    }

    /// Reads both clocks of this machine, again if another process ran in between.
    fn here() -> Self {
        let mut best = None;
        for _ in 0..LOOKS {
            let (before, wall, after) = (clock::now(), wall(), clock::now());
            let gap = after.since(before);
            if best.is_none_or(|(known, _)| gap < known) {
                best = Some((gap, Self { moment: before, wall }));
            }
            if gap <= SHORT {
                break;
            }
        }
        best.map_or_else(|| Self { moment: clock::now(), wall: wall() }, |(_, best)| best)
    }

    /// Converts a moment to wall clock time, as RFC 3339 with milliseconds in UTC.
    pub fn utc(&self, moment: Moment) -> String {
        WallTime(self.timestamp(moment).as_microsecond()).to_string()
    }

    /// Converts a moment to wall clock time, in milliseconds since 1970.
    pub fn unix_millis(&self, moment: Moment) -> i64 {
        self.timestamp(moment).as_millisecond()
    }

    fn timestamp(&self, moment: Moment) -> Timestamp {
        let (ago, ahead) = (self.moment.since(moment), moment.since(self.moment));
        let shifted =
            if ago > Duration::ZERO { self.wall.checked_sub(ago) } else { self.wall.checked_add(ahead) };
        shifted.unwrap_or(if ago > Duration::ZERO { Timestamp::MIN } else { Timestamp::MAX })
    }
}

/// A wall clock time in microseconds since 1970. Foreign file formats use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(i64);

impl WallTime {
    /// 1970-01-01T00:00:00Z.
    pub const UNIX_EPOCH: Self = Self(0);

    /// Reads the wall clock.
    pub fn now() -> Self {
        Self(wall().as_microsecond())
    }

    /// Reads the clock from which the kernel takes the times of files. It ticks a few hundred times a second, so it may be some
    /// milliseconds behind [`Self::now`]. A file that is changed from now on has this time or a later one.
    pub fn of_files() -> Self {
        #[cfg(target_os = "linux")]
        const CLOCK: ClockId = ClockId::RealtimeCoarse;
        #[cfg(not(target_os = "linux"))]
        const CLOCK: ClockId = ClockId::Realtime;
        let time = clock_gettime(CLOCK);
        Self(time.tv_sec * 1_000_000 + time.tv_nsec / 1_000)
    }

    /// Returns the time this many microseconds after 1970.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Returns the time this many seconds after 1970; `None` when it is outside the calendar.
    pub fn from_unix_seconds(seconds: f64) -> Option<Self> {
        let micros = (seconds * 1e6).floor();
        // Timestamp checks the range. A cast of a number far outside stays outside.
        let timestamp = Timestamp::from_microsecond(micros as i64).ok().filter(|_| micros.is_finite());
        timestamp.map(|timestamp| Self(timestamp.as_microsecond()))
    }

    /// Returns microseconds since 1970.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Rounds down to whole milliseconds.
    #[must_use]
    pub const fn in_milliseconds(self) -> Self {
        Self(self.0 - self.0.rem_euclid(1_000))
    }

    /// Returns the time `span` later, or the latest possible time.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(span.as_micros()).unwrap_or(i64::MAX)))
    }

    /// Returns the time `span` earlier, or the earliest possible time.
    #[must_use]
    pub fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(span.as_micros()).unwrap_or(i64::MAX)))
    }

    /// Returns how long ago `earlier` was; zero when it is in the future.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Formats as `2025-12-14T15:01:02+09:00`, in the local time zone.
    pub fn local(self) -> String {
        self.timestamp().to_zoned(TimeZone::system()).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
    }

    /// Formats as `20260131-120000`, in UTC.
    pub fn compact(self) -> String {
        TimeZone::UTC.to_datetime(self.timestamp()).strftime("%Y%m%d-%H%M%S").to_string()
    }

    /// Parses RFC 3339 and the output of Python's `isoformat`.
    ///
    /// A text without an offset may mean UTC or local time. The reading that is nearer to `written_at`, the
    /// modification time of the file, is taken.
    pub fn read(text: &str, written_at: Self) -> Option<Self> {
        if let Ok(timestamp) = text.parse::<Timestamp>() {
            return Some(Self(timestamp.as_microsecond()));
        }
        if is_never(text) {
            return Some(Self(Timestamp::MAX.as_microsecond()));
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

impl fmt::Display for WallTime {
    /// Formats as ISO 8601 with milliseconds in UTC: `2026-01-31T12:00:00.000Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // There are many status lines, and this is several times faster than strftime.
        let shown = TimeZone::UTC.to_datetime(self.timestamp());
        let (date, time) = (shown.date(), shown.time());
        let (year, month, day) = (date.year(), date.month(), date.day());
        let (hour, minute, second) = (time.hour(), time.minute(), time.second());
        let millisecond = time.millisecond();
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millisecond:03}Z")
    }
}

impl FromStr for WallTime {
    type Err = NotATime;

    /// Parses ISO 8601 with any offset. A text without an offset is UTC.
    fn from_str(text: &str) -> Result<Self, NotATime> {
        if let Ok(timestamp) = text.parse::<Timestamp>() {
            return Ok(Self(timestamp.as_microsecond()));
        }
        if is_never(text) {
            return Ok(Self(Timestamp::MAX.as_microsecond()));
        }
        let civil: DateTime = text.parse().map_err(|_| NotATime(text.to_owned()))?;
        let utc = TimeZone::UTC.to_timestamp(civil).map_err(|_| NotATime(text.to_owned()))?;
        Ok(Self(utc.as_microsecond()))
    }
}

/// Whether a time is one of the last two days of the year 9999, by which programs mean "never". Timestamps end before them, so that
/// every offset is within the calendar.
fn is_never(text: &str) -> bool {
    let is_last_day = text.starts_with("9999-12-30") || text.starts_with("9999-12-31");
    is_last_day && text.get(..19).is_some_and(|time| time.parse::<DateTime>().is_ok())
}

/// A text is not a time.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not a time such as 2026-01-31T12:00:00.000Z")]
pub struct NotATime(String);

#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
fn wall() -> Timestamp {
    Timestamp::try_from(SystemTime::now()).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Returns seconds since 1970 on the wall clock, for formats that use whole seconds.
pub fn epoch_seconds() -> i64 {
    wall().as_second()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_converted_relative_to_now() {
        let offset = ClockOffset { moment: Moment::from_micros(10_000_000), wall: Timestamp::UNIX_EPOCH };
        assert_eq!(offset.utc(Moment::from_micros(10_000_000)), "1970-01-01T00:00:00.000Z");
        assert_eq!(offset.utc(Moment::from_micros(8_500_000)), "1969-12-31T23:59:58.500Z");
        assert_eq!(offset.utc(Moment::from_micros(11_250_000)), "1970-01-01T00:00:01.250Z");
    }

    #[test]
    fn one_moment_is_the_same_time_however_late_it_is_shown() {
        let moment = clock::now();
        let first = ClockOffset::at(moment).unix_millis(moment);
        while clock::now().since(moment) < Duration::from_millis(20) {}
        let second = ClockOffset::at(moment).unix_millis(moment);
        assert!((first - second).abs() < 10, "{first} {second}");
    }

    #[test]
    fn the_last_day_of_the_calendar_means_never() {
        let last = Timestamp::MAX.as_microsecond();
        for text in ["9999-12-31T23:59:59Z", "9999-12-31T23:59:59.999999+00:00", "9999-12-31 23:59:59"] {
            assert_eq!(text.parse::<WallTime>(), Ok(WallTime(last)), "{text}");
            assert_eq!(WallTime::read(text, WallTime::UNIX_EPOCH), Some(WallTime(last)), "{text}");
        }
        assert!("9999-12-31 and later".parse::<WallTime>().is_err());
    }

    #[test]
    fn a_moment_after_the_calendar_becomes_its_last_moment() {
        let offset = ClockOffset { moment: Moment::from_micros(0), wall: Timestamp::UNIX_EPOCH };
        assert!(offset.utc(Moment::from_micros(i64::MAX)).starts_with("9999-"));
    }

    #[test]
    fn wall_times_are_written_and_read_back() {
        let time = WallTime::from_micros(1_769_860_800_123_000);
        assert_eq!(time.to_string(), "2026-01-31T12:00:00.123Z");
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
