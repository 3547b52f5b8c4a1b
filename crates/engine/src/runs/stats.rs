//! Statistics of runs: counts, waiting times, durations and throughput.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use lockkeeper_core::run::Status;

use super::{RunError, Runs};
use lockkeeper_store::runs::Timing;

/// Statistics of the runs since some time.
#[derive(Clone, Debug, PartialEq)]
pub struct Stats {
    /// How many runs have each status. A status that no run has is left out.
    pub counts: BTreeMap<Status, u64>,
    /// How many attempts were not the first of their run.
    pub retries: u64,
    /// How long they waited for the first claim.
    pub waits: Spread,
    /// How long they took from the first claim to their end, with all attempts.
    pub durations: Spread,
    /// How many ended per hour, from the first submission until now.
    pub ended_an_hour: f64,
    /// The same by title, the title with the most runs first.
    pub groups: Vec<Group>,
}

/// The runs of requests with one title.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The title.
    pub title: String,
    /// How many runs.
    pub runs: u64,
    /// How many of them succeeded.
    pub succeeded: u64,
    /// How long they took.
    pub durations: Spread,
}

/// Percentiles of spans. Each is one of the spans (nearest rank).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// How many spans.
    pub count: u64,
    /// The median.
    pub p50: Duration,
    /// The 90th percentile.
    pub p90: Duration,
    /// The 99th percentile.
    pub p99: Duration,
    /// The longest.
    pub max: Duration,
    /// The arithmetic mean.
    pub mean: Duration,
}

impl Spread {
    /// Computes the percentiles of these spans.
    pub fn of(mut spans: Vec<Duration>) -> Self {
        spans.sort_unstable();
        let (Some(max), count) = (spans.last().copied(), spans.len()) else { return Self::default() };
        let at = |percent: usize| spans[(count * percent).div_ceil(100).max(1) - 1];
        let total: Duration = spans.iter().sum();
        let mean = total / u32::try_from(count).unwrap_or(u32::MAX);
        Self { count: count as u64, p50: at(50), p90: at(90), p99: at(99), max, mean }
    }
}

impl Runs {
    /// Statistics of the runs that were submitted since this time on the wall clock.
    pub fn stats(&self, since_unix_micros: i64) -> Result<Stats, RunError> {
        let records = self.store.snapshot()?;
        Ok(measure(&records.timings(since_unix_micros)?, records.now().unix_micros))
    }
}

fn measure(timings: &[Timing], now: i64) -> Stats {
    let mut counts: BTreeMap<Status, u64> = BTreeMap::new();
    let mut titles: HashMap<&str, Vec<&Timing>> = HashMap::new();
    for timing in timings {
        *counts.entry(timing.status).or_default() += 1;
        titles.entry(&timing.title).or_default().push(timing);
    }
    let retries = timings.iter().map(|timing| u64::from(timing.attempts.saturating_sub(1))).sum();
    let waits = timings.iter().filter_map(|timing| Some(span(timing.queued_at, timing.claimed_at?)));
    let ended = timings.iter().filter(|timing| timing.completed_at.is_some() && timing.claimed_at.is_some());
    let first = timings.iter().map(|timing| timing.queued_at).min().unwrap_or(now);
    let hours = span(first, now).as_secs_f64() / 3600.0;
    let ended_an_hour = if hours > 0.0 { ended.count() as f64 / hours } else { 0.0 };
    let mut groups: Vec<Group> = titles
        .into_iter()
        .map(|(title, timings)| Group {
            title: title.to_owned(),
            runs: timings.len() as u64,
            succeeded: timings.iter().filter(|timing| timing.status == Status::Succeeded).count() as u64,
            durations: durations(timings.into_iter()),
        })
        .collect();
    groups.sort_by(|a, b| b.runs.cmp(&a.runs).then_with(|| a.title.cmp(&b.title)));
    let (waits, durations) = (Spread::of(waits.collect()), durations(timings.iter()));
    Stats { counts, retries, waits, durations, ended_an_hour, groups }
}

fn durations<'t>(timings: impl Iterator<Item = &'t Timing>) -> Spread {
    Spread::of(timings.filter_map(|timing| Some(span(timing.claimed_at?, timing.completed_at?))).collect())
}

/// Zero if the wall clock was set back between the two.
fn span(from: i64, to: i64) -> Duration {
    Duration::from_micros(u64::try_from(to.saturating_sub(from)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(title: &str, status: Status, queued: i64, claimed: Option<i64>, ended: Option<i64>) -> Timing {
        let second = |at: i64| at * 1_000_000;
        Timing {
            title: title.to_owned(),
            status,
            attempts: 2,
            queued_at: second(queued),
            claimed_at: claimed.map(second),
            completed_at: ended.map(second),
        }
    }

    #[test]
    fn percentiles_are_spans_of_the_list() {
        let spans = |count: u64| Spread::of((1..=count).map(Duration::from_secs).collect());
        let hundred = spans(100);
        assert_eq!([hundred.p50, hundred.p90, hundred.p99].map(|span| span.as_secs()), [50, 90, 99]);
        let three = spans(3);
        assert_eq!([three.p50, three.p90, three.max].map(|span| span.as_secs()), [2, 3, 3]);
        assert_eq!(spans(1).p50, Duration::from_secs(1));
        assert_eq!(Spread::of(Vec::new()), Spread::default());
    }

    #[test]
    fn only_a_run_that_was_claimed_and_has_ended_has_a_duration() {
        let timings = [
            timing("a", Status::Succeeded, 0, Some(10), Some(40)),
            timing("a", Status::Failed, 0, Some(20), Some(30)),
            timing("b", Status::Canceled, 0, None, Some(5)),
            timing("b", Status::Running, 0, Some(30), None),
        ];
        let stats = measure(&timings, 3600 * 1_000_000);
        assert_eq!((stats.waits.count, stats.durations.count, stats.retries), (3, 2, 4));
        assert_eq!(stats.durations.max, Duration::from_secs(30));
        assert!((stats.ended_an_hour - 2.0).abs() < 1e-9);
        let titles: Vec<(&str, u64, u64)> =
            stats.groups.iter().map(|group| (group.title.as_str(), group.runs, group.succeeded)).collect();
        assert_eq!(titles, [("a", 2, 1), ("b", 2, 0)]);
        assert_eq!(stats.counts[&Status::Canceled], 1);
    }
}
