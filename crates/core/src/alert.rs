//! Alerts: counts that are above their limit.
//!
//! Four counts have a limit. The caller counts and passes plain numbers, so the command, the doctor, the metrics and the page
//! raise the same alerts for the same state.

use std::fmt;
use std::time::Duration;

use crate::time::format_span;

/// Downgrades that are older than this are not counted.
pub const DOWNGRADE_SPAN: Duration = Duration::from_secs(60 * 60);

/// What was counted at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The longest time that a live waiter has waited.
    pub longest_wait: Duration,
    /// The number of deadlocks.
    pub deadlocks: usize,
    /// Locks whose holder is provably gone and which nobody has reaped.
    pub orphans: usize,
    /// How often parallel work fell back to a stricter strategy within [`DOWNGRADE_SPAN`].
    pub downgrades: usize,
}

/// The limits of the counts. A count at its limit is no alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The limit of [`Counts::longest_wait`].
    pub wait: Duration,
    /// The limit of [`Counts::deadlocks`].
    pub deadlocks: usize,
    /// The limit of [`Counts::orphans`].
    pub orphans: usize,
    /// The limit of [`Counts::downgrades`].
    pub downgrades: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { wait: Duration::from_secs(60), deadlocks: 0, orphans: 5, downgrades: 10 }
    }
}

/// A count above its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alert {
    /// A waiter has waited for too long.
    LongWait {
        /// How long.
        waited: Duration,
        /// The limit.
        limit: Duration,
    },
    /// Owners wait for each other.
    Deadlocks {
        /// How many deadlocks.
        count: usize,
        /// The limit.
        limit: usize,
    },
    /// Locks outlived their holders.
    Orphans {
        /// How many.
        count: usize,
        /// The limit.
        limit: usize,
    },
    /// Parallel work fell back too often.
    Downgrades {
        /// How often within [`DOWNGRADE_SPAN`].
        count: usize,
        /// The limit.
        limit: usize,
    },
}

impl Alert {
    /// The code by which programs recognise the alert. It never changes.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::LongWait { .. } => "LOCK_WAIT",
            Self::Deadlocks { .. } => "DEADLOCKS",
            Self::Orphans { .. } => "ORPHAN_LOCKS",
            Self::Downgrades { .. } => "DOWNGRADES",
        }
    }

    /// The count that is above its limit; for a wait, in seconds.
    pub fn value(&self) -> u64 {
        match self {
            Self::LongWait { waited, .. } => waited.as_secs(),
            Self::Deadlocks { count, .. } | Self::Orphans { count, .. } | Self::Downgrades { count, .. } => {
                u64::try_from(*count).unwrap_or(u64::MAX)
            }
        }
    }

    /// The limit; for a wait, in seconds.
    pub fn limit(&self) -> u64 {
        match self {
            Self::LongWait { limit, .. } => limit.as_secs(),
            Self::Deadlocks { limit, .. } | Self::Orphans { limit, .. } | Self::Downgrades { limit, .. } => {
                u64::try_from(*limit).unwrap_or(u64::MAX)
            }
        }
    }

    /// What the user can do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::LongWait { .. } => {
                "`lockkeeper locks` shows who waits for whom, `lockkeeper why NAME` what to do"
            }
            Self::Deadlocks { .. } => {
                "`lockkeeper locks check-deadlock` and `lockkeeper group check-deadlock` name them: end one"
            }
            Self::Orphans { .. } => "`lockkeeper doctor --full` puts them away",
            Self::Downgrades { .. } => "let groups that run together work on paths that do not overlap",
        }
    }
}

impl fmt::Display for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LongWait { waited, limit } => {
                let waited = format_span(*waited);
                write!(f, "somebody has waited for {waited} (more than {}s)", limit.as_secs())
            }
            Self::Deadlocks { count, .. } => write!(f, "{count} deadlocked"),
            Self::Orphans { count, limit } => {
                write!(f, "{count} locks outlived their holders (more than {limit})")
            }
            Self::Downgrades { count, limit } => {
                write!(f, "{count} downgrades within an hour (more than {limit})")
            }
        }
    }
}

/// Raises an alert for each count that is above its limit.
pub fn raise(counts: &Counts, limits: &Limits) -> Vec<Alert> {
    let mut alerts = Vec::new();
    if counts.longest_wait > limits.wait {
        alerts.push(Alert::LongWait { waited: counts.longest_wait, limit: limits.wait });
    }
    if counts.deadlocks > limits.deadlocks {
        alerts.push(Alert::Deadlocks { count: counts.deadlocks, limit: limits.deadlocks });
    }
    if counts.orphans > limits.orphans {
        alerts.push(Alert::Orphans { count: counts.orphans, limit: limits.orphans });
    }
    if counts.downgrades > limits.downgrades {
        alerts.push(Alert::Downgrades { count: counts.downgrades, limit: limits.downgrades });
    }
    alerts
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_THE_LIMIT: Counts =
        Counts { longest_wait: Duration::from_secs(60), deadlocks: 0, orphans: 5, downgrades: 10 };

    fn codes(counts: &Counts) -> Vec<&'static str> {
        raise(counts, &Limits::default()).iter().map(Alert::code).collect()
    }

    /// Requirements 139, 140, 141, 142. Each limit is exceeded by one, and by nothing less.
    #[test]
    fn a_count_above_its_limit_is_an_alert_and_one_at_it_is_none() {
        assert_eq!(codes(&Counts::default()), [""; 0]);
        assert_eq!(codes(&AT_THE_LIMIT), [""; 0]);
        let long = Counts { longest_wait: Duration::from_millis(60_001), ..AT_THE_LIMIT };
        assert_eq!(codes(&long), ["LOCK_WAIT"]);
        assert_eq!(codes(&Counts { deadlocks: 1, ..AT_THE_LIMIT }), ["DEADLOCKS"]);
        assert_eq!(codes(&Counts { orphans: 6, ..AT_THE_LIMIT }), ["ORPHAN_LOCKS"]);
        assert_eq!(codes(&Counts { downgrades: 11, ..AT_THE_LIMIT }), ["DOWNGRADES"]);
        let all = Counts { longest_wait: Duration::MAX, deadlocks: 1, orphans: 6, downgrades: usize::MAX };
        assert_eq!(codes(&all).len(), 4);
    }

    #[test]
    fn an_alert_names_its_count_its_limit_and_a_hint() {
        let alert = Alert::LongWait { waited: Duration::from_secs(125), limit: Duration::from_secs(60) };
        assert_eq!(alert.to_string(), "somebody has waited for 2m 5s (more than 60s)");
        assert_eq!((alert.value(), alert.limit()), (125, 60));
        let alert = Alert::Orphans { count: 7, limit: 5 };
        assert_eq!(alert.to_string(), "7 locks outlived their holders (more than 5)");
        assert!(alert.hint().contains("doctor --full"));
    }
}
