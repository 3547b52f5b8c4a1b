//! Monotonic clock that all times of leases come from.
//!
//! A time namespace of Linux shifts the clock since boot, and the start times of processes, for the processes in it. All times
//! here are without that shift, so that they mean the same in every container.

use std::sync::OnceLock;

use lockkeeper_core::time::Moment;
use rustix::time::{ClockId, clock_gettime};

/// Includes the time that the machine is suspended, and nobody can set it.
#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
/// On macOS this clock includes suspended time. On the BSDs that depends on the system.
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

/// Returns the current moment, counted from the boot of the machine.
pub fn now() -> Moment {
    let time = clock_gettime(CLOCK);
    Moment::from_micros(time.tv_sec * 1_000_000 + time.tv_nsec / 1_000 - shift_micros())
}

/// By how many microseconds the time namespace of this process shifts its clock since boot.
pub(crate) fn shift_micros() -> i64 {
    static SHIFT: OnceLock<i64> = OnceLock::new();
    *SHIFT.get_or_init(read_shift)
}

#[cfg(target_os = "linux")]
fn read_shift() -> i64 {
    // Kernels without time namespaces have no such file.
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    shift_in(&offsets).unwrap_or(0)
}

/// Only Linux has time namespaces.
#[cfg(not(target_os = "linux"))]
fn read_shift() -> i64 {
    0
}

/// The offset of the clock since boot: a line `boottime SECONDS NANOSECONDS`.
#[cfg(target_os = "linux")]
fn shift_in(offsets: &str) -> Option<i64> {
    let line = offsets.lines().find_map(|line| line.strip_prefix("boottime"))?;
    let mut numbers = line.split_ascii_whitespace().map(str::parse::<i64>);
    let (seconds, nanoseconds) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    Some(seconds * 1_000_000 + nanoseconds / 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn the_shift_of_a_time_namespace_is_read() {
        let shifted = "monotonic           5         0\nboottime        86400 500000000\n";
        assert_eq!(shift_in(shifted), Some(86_400_500_000));
        assert_eq!(shift_in("monotonic 0 0\nboottime -7 0\n"), Some(-7_000_000));
        assert_eq!(shift_in(""), None);
    }

    #[test]
    fn the_clock_never_goes_back() {
        let moments: Vec<Moment> = (0..1_000).map(|_| now()).collect();
        assert!(moments.is_sorted());
        assert!(moments[0].as_micros() > 0);
    }
}
