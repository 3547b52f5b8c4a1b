//! Judgement: whether a lock is held or a zombie.

use std::io;
use std::time::Duration;

use lockkeeper_platform::wall_clock::WallTime;

use super::problem::Problem;
use super::record::{Record, RecordError};
use crate::{HeldReason, StaleReason, Verdict};

/// A lock that is older is a zombie, even if its process is alive. A lock of exactly this age is not.
pub const ZOMBIE_THRESHOLD_HOURS: u64 = 24;
const THRESHOLD: Duration = Duration::from_secs(ZOMBIE_THRESHOLD_HOURS * 3600);

/// A lock with its judgement.
#[derive(Debug)]
pub struct Judged {
    /// The record, if the file has a valid one.
    pub record: Option<Record>,
    /// Whether its process is alive, if the file names one.
    pub pid_alive: Option<bool>,
    /// Its age; zero when its time is in the future.
    pub age: Option<Duration>,
    /// Whether it is held or stale.
    pub verdict: Verdict,
    /// Warnings about it.
    pub warnings: Vec<Problem>,
}

impl Judged {
    /// Judges the content of a lock file. `is_alive` checks a process without sending a signal. `settling` says that
    /// another program may still write the file.
    pub fn new(
        content: Result<Record, RecordError>,
        is_alive: impl FnOnce(i64) -> io::Result<bool>,
        now: WallTime,
        settling: bool,
    ) -> Self {
        match content {
            Ok(record) => Self::of_record(record, is_alive, now),
            Err(RecordError::Invalid(_)) if settling => {
                Self::without_record(Verdict::Held(HeldReason::BeingWritten), Problem::InvalidFormat)
            }
            Err(RecordError::Invalid(_)) => {
                Self::without_record(Verdict::Stale(StaleReason::Torn), Problem::InvalidFormat)
            }
            Err(RecordError::UnknownVersion(version)) => {
                let verdict = Verdict::Held(HeldReason::NotUnderstood);
                Self::without_record(verdict, Problem::UnknownVersion(version))
            }
        }
    }

    /// Says whether the lock may be taken over after a confirmation.
    pub fn is_zombie(&self) -> bool {
        self.verdict.is_stale()
    }

    fn of_record(record: Record, is_alive: impl FnOnce(i64) -> io::Result<bool>, now: WallTime) -> Self {
        let mut warnings = Vec::new();
        if let Some(version) = record.lock_version.as_ref().filter(|_| !record.version_is_known()) {
            warnings.push(Problem::UnknownVersion(version.clone()));
        }
        let pid_alive = is_alive(record.pid).unwrap_or_else(|source| {
            warnings.push(Problem::CheckFailed { pid: record.pid, source });
            false
        });
        let age = now.since(record.started_at.time());
        let verdict = match (pid_alive, age > THRESHOLD) {
            (false, _) => Verdict::Stale(StaleReason::ProcessGone),
            (true, true) => Verdict::Stale(StaleReason::TooOld),
            (true, false) => Verdict::Held(HeldReason::ProcessAlive),
        };
        Self { record: Some(record), pid_alive: Some(pid_alive), age: Some(age), verdict, warnings }
    }

    fn without_record(verdict: Verdict, warning: Problem) -> Self {
        Self { record: None, pid_alive: None, age: None, verdict, warnings: vec![warning] }
    }
}

/// Returns hours with two digits after the point.
pub(super) fn hours(age: Duration) -> f64 {
    (age.as_secs_f64() / 3600.0 * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: WallTime = WallTime::from_micros(1_770_503_400_000_000);
    const HOUR: Duration = Duration::from_secs(3600);
    const TICK: Duration = Duration::from_micros(1);

    fn judged(alive: io::Result<bool>, age: Duration) -> Judged {
        let record = Record::new(12345, "s", "e", START);
        Judged::new(Ok(record), |_| alive, START.after(age), false)
    }

    /// Requirements 23, 24.
    #[test]
    fn a_lock_is_a_zombie_when_its_process_has_ended_or_it_is_older_than_a_day() {
        let cases = [
            (false, HOUR, Verdict::Stale(StaleReason::ProcessGone)),
            (false, 25 * HOUR, Verdict::Stale(StaleReason::ProcessGone)),
            (true, Duration::ZERO, Verdict::Held(HeldReason::ProcessAlive)),
            (true, 24 * HOUR, Verdict::Held(HeldReason::ProcessAlive)),
            (true, 24 * HOUR + TICK, Verdict::Stale(StaleReason::TooOld)),
        ];
        for (alive, age, verdict) in cases {
            let judged = judged(Ok(alive), age);
            assert_eq!((judged.verdict, judged.pid_alive, judged.age), (verdict, Some(alive), Some(age)));
            assert!(judged.warnings.is_empty());
        }
    }

    /// Requirement 22.
    #[test]
    fn the_age_is_in_hours_with_a_fraction_and_never_negative() {
        assert_eq!(hours(HOUR * 5 / 2), 2.5);
        assert_eq!(hours(Duration::from_secs(90)), 0.03);
        assert_eq!(hours(HOUR * 5 / 2 + Duration::from_secs(2)), 2.5);
        assert_eq!(hours(HOUR / 3), 0.33);
        let record = Record::new(1, "s", "e", START.after(48 * HOUR));
        let judged = Judged::new(Ok(record), |_| Ok(true), START, false);
        assert_eq!((judged.age, judged.is_zombie()), (Some(Duration::ZERO), false));
    }

    /// Requirement 21.
    #[test]
    fn a_check_that_fails_counts_as_dead_with_a_warning() {
        let judged = judged(Err(io::Error::other("hidden")), HOUR);
        assert_eq!((judged.is_zombie(), judged.pid_alive), (true, Some(false)));
        assert!(matches!(judged.warnings[..], [Problem::CheckFailed { pid: 12345, .. }]));
    }

    /// Requirement 18.
    #[test]
    fn an_invalid_file_is_a_zombie_when_nobody_can_be_writing_it() {
        let broken = |settling| {
            let content = Err(RecordError::Invalid("torn".to_owned()));
            Judged::new(content, |_| panic!("there is no process to look at"), START, settling)
        };
        assert_eq!(broken(false).verdict, Verdict::Stale(StaleReason::Torn));
        assert_eq!(broken(true).verdict, Verdict::Held(HeldReason::BeingWritten));
        assert!(matches!(broken(false).warnings[..], [Problem::InvalidFormat]));
    }

    /// Requirement 50.
    #[test]
    fn a_newer_version_is_judged_by_the_known_fields_or_counts_as_held() {
        let content = Err(RecordError::UnknownVersion("2".to_owned()));
        let judged = Judged::new(content, |_| Ok(false), START, false);
        assert_eq!(judged.verdict, Verdict::Held(HeldReason::NotUnderstood));
        let newer = Record { lock_version: Some("2".to_owned()), ..Record::new(1, "s", "e", START) };
        let judged = Judged::new(Ok(newer), |_| Ok(false), START, false);
        assert!(judged.is_zombie() && matches!(judged.warnings[..], [Problem::UnknownVersion(_)]));
    }
}
