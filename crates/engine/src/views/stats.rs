//! View of run statistics.

use lockkeeper_core::run::Status;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::runs::{Group, Spread, Stats};

/// How runs went. Times are in seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StatsView {
    /// How many runs are in each status, every status included.
    pub counts: Map<String, Value>,
    /// How many attempts were repetitions.
    pub retries: u64,
    /// How long runs waited in the queue.
    pub waits: SpreadView,
    /// How long runs took, all attempts included.
    pub durations: SpreadView,
    /// How many runs ended in an hour.
    pub ended_an_hour: f64,
    /// The same by the title of the request, the most frequent first.
    pub by_title: Vec<TitleStatsView>,
}

/// The runs of requests with one title.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TitleStatsView {
    /// The title.
    pub title: String,
    /// How many runs there are.
    pub runs: u64,
    /// How many of them succeeded.
    pub succeeded: u64,
    /// How long they took.
    pub durations: SpreadView,
}

/// The distribution of a duration: percentiles, maximum and mean, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SpreadView {
    /// How many values there are.
    pub count: u64,
    /// The median.
    pub p50: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The largest value.
    pub max: f64,
    /// The mean.
    pub mean: f64,
}

impl StatsView {
    /// Shows statistics.
    pub fn new(stats: &Stats) -> Self {
        let count = |status: &Status| stats.counts.get(status).copied().unwrap_or(0);
        let counts = Status::ALL.iter().map(|status| (status.to_string(), count(status).into()));
        Self {
            counts: counts.collect(),
            retries: stats.retries,
            waits: SpreadView::new(&stats.waits),
            durations: SpreadView::new(&stats.durations),
            ended_an_hour: stats.ended_an_hour,
            by_title: stats.groups.iter().map(TitleStatsView::new).collect(),
        }
    }
}

impl TitleStatsView {
    fn new(group: &Group) -> Self {
        Self {
            title: group.title.clone(),
            runs: group.runs,
            succeeded: group.succeeded,
            durations: SpreadView::new(&group.durations),
        }
    }
}

impl SpreadView {
    fn new(spread: &Spread) -> Self {
        let [p50, p90, p99, max, mean] =
            [spread.p50, spread.p90, spread.p99, spread.max, spread.mean].map(|span| span.as_secs_f64());
        Self { count: spread.count, p50, p90, p99, max, mean }
    }
}
