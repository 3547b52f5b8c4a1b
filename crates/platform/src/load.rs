//! Machine load: load average, usable cores, memory in use.

use std::num::NonZeroUsize;

/// Returns the one-minute load average, or `None` where the system has none.
#[expect(unsafe_code, reason = "neither std nor rustix has a load average for every system")]
pub fn average() -> Option<f64> {
    let mut averages = [0.0_f64; 1];
    // SAFETY: the buffer holds as many numbers as are asked for.
    let filled = unsafe { libc::getloadavg(averages.as_mut_ptr(), 1) };
    (filled == 1 && averages[0].is_finite()).then_some(averages[0])
}

/// Returns how many cores this process may use; one where the system does not say.
pub fn cores() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// Returns the share of memory in use, from 0 to 1; `None` where the system does not say.
pub fn memory_in_use() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().trim_end_matches(" kB").parse::<f64>().ok()
    };
    let (total, free) = (value("MemTotal")?, value("MemAvailable")?);
    (total > 0.0).then(|| (1.0 - free / total).clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_load_is_a_number_and_there_is_a_core() {
        assert!(super::average().is_some_and(|load| load >= 0.0));
        assert!(super::cores().get() >= 1);
    }
}
