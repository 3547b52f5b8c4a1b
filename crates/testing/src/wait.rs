//! Waiting by polling, for conditions that send no notification.

use std::fmt::Debug;
use std::thread;
use std::time::{Duration, Instant};

/// How long a test waits for anything. Nothing takes this long, even on a loaded machine.
pub const LIMIT: Duration = Duration::from_secs(100);

/// The first pause between two looks. Each pause is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_micros(200);
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// Polls until the condition is true. Panics after [`LIMIT`].
#[track_caller]
pub fn until(what: &str, condition: impl FnMut() -> bool) {
    until_seen(what, condition, |is_true| *is_true);
}

/// Polls `look` until its result is `wanted`, and returns that result. Panics after [`LIMIT`] and shows the last
/// result.
#[track_caller]
pub fn until_seen<T: Debug>(what: &str, mut look: impl FnMut() -> T, wanted: impl Fn(&T) -> bool) -> T {
    let limit = Instant::now() + LIMIT;
    let mut pause = FIRST_PAUSE;
    loop {
        let seen = look();
        if wanted(&seen) {
            return seen;
        }
        assert!(Instant::now() < limit, "waited {LIMIT:?} for: {what}; seen last: {seen:#?}");
        thread::sleep(pause);
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wanted_result_is_returned() {
        let mut numbers = 1..;
        assert_eq!(until_seen("three", || numbers.next(), |number| *number == Some(3)), Some(3));
    }
}
