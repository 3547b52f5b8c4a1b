//! Monotonic clock that all times of leases come from.

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
    Moment::from_micros(time.tv_sec * 1_000_000 + time.tv_nsec / 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_never_goes_back() {
        let moments: Vec<Moment> = (0..1_000).map(|_| now()).collect();
        assert!(moments.is_sorted());
        assert!(moments[0].as_micros() > 0);
    }
}
