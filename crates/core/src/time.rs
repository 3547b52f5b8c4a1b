//! Moments on the store's clock, TTLs, and durations as users write them.

use std::time::Duration;

use thiserror::Error;

/// A point on the store's own clock, in microseconds.
///
/// The embedded store counts from the machine's boot, suspended time included, so that setting the wall
/// clock neither frees nor freezes a lease. Moments of two boots, or of two stores, do not compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(i64);

impl Moment {
    /// The last possible moment.
    pub const MAX: Self = Self(i64::MAX);

    /// Returns the moment this many microseconds after the clock's zero.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Returns microseconds since the clock's zero.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Returns the moment `span` later, or the last possible moment.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(span.as_micros()).unwrap_or(i64::MAX)))
    }

    /// Returns the moment `span` earlier, or the first possible moment.
    #[must_use]
    pub fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(span.as_micros()).unwrap_or(i64::MAX)))
    }

    /// Returns how long ago `earlier` was; zero when it is in the future.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// How long a lease lives without being renewed: at least a millisecond, at most ten years.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(Duration);

impl Ttl {
    /// The shortest TTL.
    pub const MIN: Duration = Duration::from_millis(1);
    /// The longest TTL.
    pub const MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

    /// Checks that `span` can be a TTL.
    pub fn new(span: Duration) -> Result<Self, SpanError> {
        if span < Self::MIN || span > Self::MAX {
            Err(SpanError::TtlOutOfRange(span))
        } else {
            Ok(Self(span))
        }
    }

    /// Returns the duration.
    pub const fn get(self) -> Duration {
        self.0
    }
}

/// Why a text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SpanError {
    /// It is not a number with an optional unit.
    #[error("`{0}` is not a duration")]
    Malformed(String),
    /// It is longer than the clock can count.
    #[error("the duration `{0}` is too long")]
    TooLong(String),
    /// A TTL is too short to be renewed, or too long.
    #[error("a TTL of {} is out of range", if .0.is_zero() { "0s".to_owned() } else { format!("{:?}", .0) })]
    TtlOutOfRange(Duration),
}

impl SpanError {
    /// What the user can do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Malformed(_) | Self::TooLong(_) => "write 300, 300s, 5m, 24h, 7d or 250ms",
            Self::TtlOutOfRange(_) => "a TTL lies between 1ms and 10 years (3650d)",
        }
    }
}

/// Parses `300`, `300s`, `5m`, `24h`, `7d` or `250ms`. A fraction such as `0.5` is allowed.
pub fn parse_span(text: &str) -> Result<Duration, SpanError> {
    let parts: Vec<&str> = parts(text).collect();
    let [one] = parts[..] else {
        if parts.iter().any(|part| part.ends_with(|c: char| c.is_ascii_digit() || c == '.')) {
            return Err(SpanError::Malformed(text.to_owned()));
        }
        // The largest unit comes first: `1m30s`, not `30s1m`.
        let spans = parts.iter().map(|part| parse_part(part, text)).collect::<Result<Vec<_>, _>>()?;
        let is_falling = spans.is_sorted_by(|(_, one), (_, next)| one > next);
        let sum = spans.iter().try_fold(Duration::ZERO, |sum, (span, _)| sum.checked_add(*span));
        let sum = sum.filter(|sum| i64::try_from(sum.as_micros()).is_ok());
        return if is_falling && !spans.is_empty() {
            sum.ok_or_else(|| SpanError::TooLong(text.to_owned()))
        } else {
            Err(SpanError::Malformed(text.to_owned()))
        };
    };
    parse_part(one, text).map(|(span, _)| span)
}

/// The parts of a duration, each with its unit: `1h`, `30m`.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let is_digit = |c: char| c.is_ascii_digit() || c == '.';
        let unit = rest.find(|c: char| !is_digit(c)).unwrap_or(rest.len());
        let end = rest[unit..].find(is_digit).map_or(rest.len(), |length| unit + length);
        let (part, after) = rest.split_at(end);
        rest = after;
        (!part.is_empty()).then_some(part)
    })
}

/// One part of the duration `text`: its length, and that of its unit in milliseconds.
fn parse_part(part: &str, text: &str) -> Result<(Duration, u64), SpanError> {
    let malformed = || SpanError::Malformed(text.to_owned());
    let digits_end = part.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(part.len());
    let (digits, unit) = part.split_at(digits_end);
    let milliseconds_a_unit: u64 = match unit {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(malformed()),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let has_digits = !whole.is_empty() || !fraction.is_empty();
    if !has_digits || fraction.contains('.') || (digits.contains('.') && fraction.is_empty()) {
        return Err(malformed());
    }
    let too_long = || SpanError::TooLong(text.to_owned());
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| too_long())? };
    // Nine digits are nanoseconds. More digits make no difference.
    let nanos_fraction: u64 = format!("{:0<9.9}", fraction).parse().map_err(|_| malformed())?;
    let nanos_of_fraction = nanos_fraction.saturating_mul(milliseconds_a_unit) / 1_000;
    let milliseconds = whole.checked_mul(milliseconds_a_unit).ok_or_else(too_long)?;
    let span = Duration::from_millis(milliseconds) + Duration::from_nanos(nanos_of_fraction);
    if i64::try_from(span.as_micros()).is_err() { Err(too_long()) } else { Ok((span, milliseconds_a_unit)) }
}

/// Formats a duration for people: `250ms`, `12s`, `3m 12s`, `2h 5m`, `3d 4h`.
pub fn format_span(span: Duration) -> String {
    let seconds = span.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match () {
        () if days > 0 => format!("{days}d {hours}h"),
        () if hours > 0 => format!("{hours}h {minutes}m"),
        () if minutes > 0 => format!("{minutes}m {}s", seconds % 60),
        () if seconds > 0 => format!("{seconds}s"),
        () => format!("{}ms", span.as_millis()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_in_every_unit() {
        let cases =
            [("300", 300_000), ("300s", 300_000), ("5m", 300_000), ("24h", 86_400_000), ("250ms", 250)];
        for (text, milliseconds) in cases {
            assert_eq!(parse_span(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        assert_eq!(parse_span("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_span("1.5h"), Ok(Duration::from_secs(5_400)));
        assert_eq!(parse_span("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_span("1d2h3m4s5ms"), Ok(Duration::from_millis(93_784_005)));
    }

    #[test]
    fn a_text_that_is_no_span_is_refused() {
        for text in [
            "", "-1", "NaN", "inf", "1e9", "5 m", "m", ".", "1.", "1.2.3", "5x", "+3", "٣", "30s1m", "1m1m",
            "1m30", "1m s",
        ] {
            assert!(matches!(parse_span(text), Err(SpanError::Malformed(_))), "{text}");
        }
        for text in ["99999999999999999999", "18446744073709551615d", "9300000000000000"] {
            assert!(matches!(parse_span(text), Err(SpanError::TooLong(_))), "{text}");
        }
    }

    #[test]
    fn a_ttl_is_neither_zero_nor_endless() {
        assert!(Ttl::new(Duration::ZERO).is_err());
        assert!(Ttl::new(Duration::MAX).is_err());
        assert!(Ttl::new(Duration::from_secs(300)).is_ok());
    }

    #[test]
    fn spans_are_written_for_people() {
        let cases = [(0, "0ms"), (250, "250ms"), (12_000, "12s"), (192_000, "3m 12s"), (7_500_000, "2h 5m")];
        for (milliseconds, text) in cases {
            assert_eq!(format_span(Duration::from_millis(milliseconds)), text);
        }
    }

    #[test]
    fn a_moment_in_the_future_is_no_time_ago() {
        let (early, late) = (Moment::from_micros(5), Moment::from_micros(9));
        assert_eq!(early.since(late), Duration::ZERO);
        assert_eq!(late.since(early), Duration::from_micros(4));
        assert_eq!(
            Moment::from_micros(i64::MAX).after(Duration::from_secs(1)),
            Moment::from_micros(i64::MAX)
        );
    }
}
