//! How busy the machine is.

use std::num::NonZeroUsize;

/// The one-minute average of processes that wanted to run, or `None` where the system does not tell.
#[expect(unsafe_code, reason = "neither std nor rustix has a load average for every system")]
pub fn average() -> Option<f64> {
    let mut averages = [0.0_f64; 1];
    // SAFETY: the buffer holds as many numbers as are asked for.
    let filled = unsafe { libc::getloadavg(averages.as_mut_ptr(), 1) };
    (filled == 1 && averages[0].is_finite()).then_some(averages[0])
}

/// How many cores this process may use; one where the system does not tell.
pub fn cores() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// The share of memory that programs use, from 0 to 1; none where the system does not tell.
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
