//! Activity: how many runs ended and how long they had waited, in bars over the last two hours.

use std::time::Duration;

use lockkeeper_core::run::{Run, Status};

use super::stats::Spread;
use super::{RunError, RunFilter, Runs};

/// How many bars there are.
pub const BARS: usize = 24;
/// The time that one bar stands for.
pub const BAR: Duration = Duration::from_secs(5 * 60);
/// How many of the latest ended runs are read.
const MOST_RUNS: usize = 2_000;

/// What happened in one bar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bar {
    /// How many runs succeeded.
    pub succeeded: u64,
    /// How many runs failed or timed out.
    pub failed: u64,
    /// How long runs that ended in this bar had waited for their first attempt: the median; none if no run did.
    pub wait: Option<Duration>,
}

impl Runs {
    /// The bars of the last two hours, the oldest first. Of very many runs it counts the latest only.
    pub fn activity(&self) -> Result<Vec<Bar>, RunError> {
        let statuses = vec![Status::Succeeded, Status::Failed, Status::TimedOut];
        let ended = self.list(&RunFilter { statuses, limit: MOST_RUNS, ..RunFilter::default() })?;
        Ok(bars(&ended, self.now().unix_micros))
    }
}

/// Sorts runs into bars that begin at whole multiples of [`BAR`]; the last bar has `now` in it.
fn bars(ended: &[Run], now: i64) -> Vec<Bar> {
    let number = |at: i64| at.div_euclid(i64::try_from(BAR.as_micros()).unwrap_or(i64::MAX));
    let mut waits: Vec<Vec<Duration>> = vec![Vec::new(); BARS];
    let mut bars = vec![Bar::default(); BARS];
    for run in ended {
        let Some(ended_at) = run.completed_at() else { continue };
        let age = usize::try_from(number(now) - number(ended_at.unix_micros));
        let Some(place) = age.ok().and_then(|age| BARS.checked_sub(age + 1)) else { continue };
        match run.status() {
            Status::Succeeded => bars[place].succeeded += 1,
            Status::Failed | Status::TimedOut => bars[place].failed += 1,
            Status::Queued | Status::Running | Status::Cancelling | Status::Canceled | Status::Rejected => {}
        }
        // Later attempts began again: the time before them is no wait in the queue.
        if let Some(started_at) = run.started_at().filter(|_| run.attempt() == 1) {
            let waited = started_at.unix_micros.saturating_sub(run.queued_at.unix_micros);
            waits[place].push(Duration::from_micros(u64::try_from(waited).unwrap_or(0)));
        }
    }
    for (bar, waits) in bars.iter_mut().zip(waits) {
        bar.wait = (!waits.is_empty()).then(|| Spread::of(waits).p50);
    }
    bars
}

#[cfg(test)]
mod tests {
    use lockkeeper_core::run::{Ending, RunRow, Stamp};
    use lockkeeper_core::time::Moment;

    use super::*;

    const MINUTE: i64 = 60_000_000;

    fn run(status: Status, queued: i64, started: i64, ended: i64) -> Run {
        let stamp = |at: i64| Stamp { moment: Moment::from_micros(at), unix_micros: at };
        let failed = status == Status::Failed;
        let row = RunRow {
            id: "RUN-1".parse().unwrap(),
            request: "RQ-1".parse().unwrap(),
            version: 3,
            status,
            attempt: 1,
            claim: 1,
            worker: None,
            process: None,
            lease: None,
            queued_at: stamp(queued),
            give_up_at: None,
            started_at: Some(stamp(started)),
            timeout: None,
            retry_at: None,
            completed_at: Some(stamp(ended)),
            ending: Some(Ending::Exited(u8::from(failed))),
            reason: failed.then_some(lockkeeper_core::run::Reason::ExitCode),
            message: None,
            help: false,
        };
        Run::try_from(row).unwrap()
    }

    #[test]
    fn a_run_counts_in_the_bar_of_its_end() {
        let now = 200 * MINUTE + 7;
        let ended = [
            run(Status::Succeeded, 190 * MINUTE, 195 * MINUTE, 200 * MINUTE),
            run(Status::Failed, 190 * MINUTE, 191 * MINUTE, 200 * MINUTE),
            run(Status::Succeeded, 0, MINUTE, 199 * MINUTE),
            run(Status::Succeeded, 0, MINUTE, 85 * MINUTE),
            run(Status::Succeeded, 0, MINUTE, 84 * MINUTE),
            // The clock was set back.
            run(Status::Succeeded, 0, MINUTE, 230 * MINUTE),
        ];
        let bars = bars(&ended, now);
        assert_eq!((bars.len(), bars[0].succeeded), (BARS, 1));
        let last = Bar { succeeded: 1, failed: 1, wait: Some(Duration::from_secs(60)) };
        assert_eq!(bars[BARS - 1], last);
        assert_eq!(bars[BARS - 2].succeeded, 1);
        assert_eq!(bars.iter().map(|bar| bar.succeeded + bar.failed).sum::<u64>(), 4);
        assert_eq!(bars[5], Bar::default());
    }
}
