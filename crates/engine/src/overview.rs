//! Overview: what is held, who waits and why, what runs, what failed, and what needs a person.

use std::path::Path;

use lockkeeper_core::alert::{Alert, Counts, DOWNGRADE_SPAN, Limits, raise};
use lockkeeper_core::request::RequestStatus;
use lockkeeper_core::time::Moment;
use lockkeeper_platform::clock;
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_store::StoreError;

use crate::doctor::count_leases;
use crate::foreign_locks::{ForeignLocks, ForeignPlaces};
use crate::queue::{self, QueueStop};
use crate::runs::{RequestEntry, RequestFilter, RunError, Runs, Stuck};
use crate::stages::report::Report as Executions;
use crate::{Engine, Listing};

/// How many requests of each status are shown. Those of all others are counted.
const SHOWN: usize = 10;

/// All locks at one moment: leases and tickets, locks of other formats, and the alerts that they raise.
#[derive(Clone, Debug)]
pub struct Locks {
    /// The leases and tickets.
    pub listing: Listing,
    /// The locks of other formats.
    pub foreign: ForeignLocks,
    /// Counts above their limits.
    pub alerts: Vec<Alert>,
}

impl Locks {
    /// Reads everything. Without a store there are no leases.
    pub fn read(
        leases: Option<&Engine>,
        state: &Path,
        places: ForeignPlaces<'_>,
    ) -> Result<Self, StoreError> {
        let now = WallTime::now();
        let foreign = ForeignLocks::look(places, now);
        let (listing, mut counts) = match leases {
            Some(engine) => {
                let listing = engine.listing()?;
                let counts = count_leases(engine, &listing)?;
                (listing, counts)
            }
            None => {
                let listing = Listing { now: clock::now(), holders: Vec::new(), waiters: Vec::new() };
                (listing, Counts::default())
            }
        };
        counts.downgrades = Executions::all_downgrades_since(state, now.before(DOWNGRADE_SPAN));
        foreign.add_to(&mut counts);
        Ok(Self { listing, foreign, alerts: raise(&counts, &Limits::default()) })
    }
}

/// The state of everything at one moment.
#[derive(Clone, Debug)]
pub struct Overview {
    /// Whether something was ever locked or submitted here.
    pub is_used: bool,
    /// The locks.
    pub locks: Locks,
    /// Requests that wait for an answer of a person.
    pub needs_input: Requests,
    /// Requests whose latest run failed, the latest first.
    pub failed: Requests,
    /// Requests that are executed.
    pub running: Requests,
    /// Requests in the queue, the next one first.
    pub queued: Requests,
    /// The queued requests that can never start.
    pub stuck: Vec<Stuck>,
    /// Why the queue stopped, if it did.
    pub stop: Option<QueueStop>,
    /// The moment.
    pub now: Moment,
}

/// Requests of one status.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    /// How many there are.
    pub count: u64,
    /// The first of them.
    pub first: Vec<RequestSummary>,
}

/// A request with its latest run, and the end of its output.
#[derive(Clone, Debug)]
pub struct RequestSummary {
    /// The request and its run.
    pub entry: RequestEntry,
    /// The last line of its output, if the run failed or needs input.
    pub last_line: Option<String>,
}

impl Overview {
    /// Reads everything, and expires queued runs first as every list of runs does. Creates nothing: a store that does not
    /// exist is empty.
    pub fn read(
        leases: Option<&Engine>,
        runs: Option<&Runs>,
        state: &Path,
        places: ForeignPlaces<'_>,
    ) -> Result<Self, RunError> {
        let locks = Locks::read(leases, state, places)?;
        runs.map(Runs::expire).transpose()?;
        let read =
            |status| runs.map_or_else(|| Ok(Requests::default()), |runs| Requests::read(runs, status, SHOWN));
        let stop = match (runs, leases) {
            (Some(runs), Some(leases)) => queue::state(runs, leases)?.1,
            (Some(_) | None, _) => None,
        };
        Ok(Self {
            is_used: leases.is_some() || runs.is_some(),
            locks,
            needs_input: read(RequestStatus::NeedsInput)?,
            failed: read(RequestStatus::Failed)?,
            running: read(RequestStatus::Running)?,
            queued: read(RequestStatus::Queued)?,
            stuck: runs.map(Runs::stuck).transpose()?.unwrap_or_default(),
            stop,
            now: runs.map_or_else(clock::now, |runs| runs.now().moment),
        })
    }

    /// Whether there is nothing to show.
    pub fn is_quiet(&self) -> bool {
        let requests = [&self.needs_input, &self.failed, &self.running, &self.queued];
        self.locks.listing.holders.is_empty()
            && self.locks.listing.waiters.is_empty()
            && self.locks.foreign == ForeignLocks::default()
            && self.locks.alerts.is_empty()
            && requests.iter().all(|requests| requests.count == 0)
    }
}

impl Requests {
    /// Reads at most `limit` requests of a status: the latest, or the next of the queue. Those that failed or need input have
    /// the last line of their output.
    pub fn read(runs: &Runs, status: RequestStatus, limit: usize) -> Result<Self, RunError> {
        let filter = RequestFilter { statuses: vec![status], limit, ..RequestFilter::default() };
        let mut entries = match status {
            RequestStatus::Queued => runs.queue(limit)?,
            RequestStatus::Running
            | RequestStatus::Done
            | RequestStatus::NeedsInput
            | RequestStatus::Failed
            | RequestStatus::Canceled => runs.requests(&filter)?,
        };
        entries.truncate(limit);
        let wants_line = matches!(status, RequestStatus::Failed | RequestStatus::NeedsInput);
        let summary = |entry: RequestEntry| {
            let run = entry.latest.as_ref().filter(|_| wants_line);
            let last_line = run.and_then(|run| runs.folder_of(&run.id).last_line());
            RequestSummary { entry, last_line }
        };
        let filter = RequestFilter { limit: usize::MAX, ..filter };
        Ok(Self { count: runs.count_matching(&filter)?, first: entries.into_iter().map(summary).collect() })
    }
}
