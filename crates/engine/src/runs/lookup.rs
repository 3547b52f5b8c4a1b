//! Queries for runs and requests: their state, and why a run has not started.

use std::collections::HashMap;

use lockkeeper_core::id::{RequestId, RunId};
use lockkeeper_core::request::RequestStatus;
use lockkeeper_core::run::{Run, Status};
use lockkeeper_store::StoreError;
use lockkeeper_store::runs::{AutoRun, RequestFilter, RunFilter, RunRecords, StoredEvent, StoredRequest};

use super::blocked::{Blocked, QueueFacts};
use super::{RunError, Runs, found, short_id};

/// How many requests are searched for a part of an id.
const SEARCHED: usize = 200;
/// A shorter part of an id names no run: it would match many ids by chance.
const SHORTEST_PART: usize = 3;

/// A run with its request and its events.
#[derive(Clone, Debug)]
pub struct RunDetail {
    /// The run.
    pub run: Run,
    /// Its request.
    pub request: StoredRequest,
    /// Its events, the oldest first.
    pub events: Vec<StoredEvent>,
    /// Why no worker executes it; none when one does, or when it has ended.
    pub blocked: Option<Blocked>,
    /// The machine that executes or executed it, on a store that several machines share.
    pub host: Option<String>,
}

/// A run in a list, with its request.
#[derive(Clone, Debug)]
pub struct RunEntry {
    /// The run.
    pub run: Run,
    /// Its request.
    pub request: StoredRequest,
    /// Why no worker executes it; none when one does, or when it has ended.
    pub blocked: Option<Blocked>,
    /// The machine that executes or executed it, on a store that several machines share.
    pub host: Option<String>,
}

/// A request in a list, with its latest run.
#[derive(Clone, Debug)]
pub struct RequestEntry {
    /// The request.
    pub request: StoredRequest,
    /// Its latest run that was not rejected, or the newest one if all were.
    pub latest: Option<Run>,
    /// Why no worker executes that run; none when one does, or when it has ended.
    pub blocked: Option<Blocked>,
}

/// How many requests and runs there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Totals {
    /// How many requests have each status. A status that no request has is left out.
    pub requests: Vec<(RequestStatus, u64)>,
    /// How many runs have each status. A status that no run has is left out.
    pub runs: Vec<(Status, u64)>,
    /// When the oldest run of the queue entered it, in microseconds since 1970; none if the queue is empty.
    pub oldest_queued_at: Option<i64>,
}

/// What changed after a position in the log of events.
#[derive(Clone, Debug)]
pub struct Changes {
    /// The events after it, the oldest first.
    pub events: Vec<StoredEvent>,
    /// The last auto-run.
    pub auto_run: Option<AutoRun>,
}

impl Runs {
    /// One run with its request and its events.
    pub fn show(&self, id: &RunId) -> Result<RunDetail, RunError> {
        let records = &*self.store.snapshot()?;
        let run = found(records, id)?;
        let request = records.request(&run.request)?;
        let request = request.ok_or_else(|| RunError::NoRequest(run.request.clone()))?;
        let events = records.events_of(id, 0, usize::MAX)?;
        let blocked = QueueFacts::for_one(records, self).blocked(&run, &request)?;
        let host = records.hosts(&[id])?.remove(id);
        Ok(RunDetail { run, request, events, blocked, host })
    }

    /// One run.
    pub fn run(&self, id: &RunId) -> Result<Run, RunError> {
        found(&*self.store.snapshot()?, id)
    }

    /// Finds a run by its id, by the id of its request (then the latest run), or by a unique part of one of them: the end, or
    /// the beginning of the last part, of at least three letters.
    pub fn find(&self, text: &str) -> Result<Run, RunError> {
        let no_run = || RunError::NoRun(text.to_owned());
        let id: RunId = text.parse().map_err(|_| no_run())?;
        let records = self.store.snapshot()?;
        if let Some(run) = records.run(&id)? {
            return Ok(run);
        }
        if let Ok(request) = text.parse::<RequestId>()
            && let Some(run) = latest_or_rejected(&*records, &request)?
        {
            return Ok(run);
        }
        let mut found = records.runs_by_part(text)?;
        found.extend(latest_by_part(&*records, text)?);
        let mut found = found.into_iter();
        match (found.next(), found.next()) {
            (Some(run), None) if text.len() >= SHORTEST_PART => Ok(run),
            (Some(_), None) | (None, _) => Err(no_run()),
            (Some(one), Some(other)) => {
                Err(RunError::Ambiguous { text: text.to_owned(), one: one.id, other: other.id })
            }
        }
    }

    /// Runs with their requests, the latest first.
    pub fn entries(&self, filter: &RunFilter) -> Result<Vec<RunEntry>, RunError> {
        let records = &*self.store.snapshot()?;
        let (mut entries, mut queue) = (Vec::new(), QueueFacts::for_many(records, self));
        let found = records.runs_with_requests(filter)?;
        let mut hosts = records.hosts(&found.iter().map(|(run, _)| &run.id).collect::<Vec<_>>())?;
        for (run, request) in found {
            let blocked = queue.blocked(&run, &request)?;
            let host = hosts.remove(&run.id);
            entries.push(RunEntry { run, request, blocked, host });
        }
        Ok(entries)
    }

    /// Requests with their latest runs, the latest first.
    pub fn requests(&self, filter: &RequestFilter) -> Result<Vec<RequestEntry>, RunError> {
        let records = &*self.store.snapshot()?;
        let mut queue = QueueFacts::for_many(records, self);
        let found = records.requests_with_runs(filter)?.into_iter();
        Ok(found
            .map(|(request, latest)| entry(&mut queue, records, request, latest))
            .collect::<Result<_, _>>()?)
    }

    /// Queued requests with their runs: first at most `limit` that can run, in the order of the queue, then at most `limit`
    /// that come after others.
    pub fn queue(&self, limit: usize) -> Result<Vec<RequestEntry>, RunError> {
        let records = &*self.store.snapshot()?;
        let open = records.open_requests(limit, limit)?;
        let queued = open.into_iter().filter(|stored| stored.status == RequestStatus::Queued);
        let ids: Vec<RequestId> = queued.map(|stored| stored.request.id).collect();
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let place: HashMap<RequestId, usize> = ids.iter().cloned().zip(0..).collect();
        let filter = RequestFilter { limit: ids.len(), ids, ..RequestFilter::default() };
        let mut found = records.requests_with_runs(&filter)?;
        found.sort_by_key(|(stored, _)| place.get(&stored.request.id).copied());
        let mut queue = QueueFacts::for_many(records, self);
        let entries = found.into_iter().map(|(request, latest)| entry(&mut queue, records, request, latest));
        Ok(entries.collect::<Result<_, _>>()?)
    }

    /// One request with its latest run.
    pub fn request(&self, id: &RequestId) -> Result<RequestEntry, RunError> {
        let records = &*self.store.snapshot()?;
        let filter = RequestFilter { ids: vec![id.clone()], limit: 1, ..RequestFilter::default() };
        let found = records.requests_with_runs(&filter)?.pop();
        let (request, latest) = found.ok_or_else(|| RunError::NoRequest(id.clone()))?;
        Ok(entry(&mut QueueFacts::for_one(records, self), records, request, latest)?)
    }

    /// One request; none if there is no such request.
    #[cfg(feature = "stages")]
    pub(crate) fn stored_request(&self, id: &RequestId) -> Result<Option<StoredRequest>, RunError> {
        Ok(self.store.snapshot()?.request(id)?)
    }

    /// The latest run of a request that was not rejected.
    pub(crate) fn latest_run(&self, id: &RequestId) -> Result<Option<Run>, RunError> {
        Ok(self.store.snapshot()?.latest_run(id)?)
    }

    /// The events of a run after the one with this number.
    pub fn events(&self, id: &RunId, after: u32) -> Result<Vec<StoredEvent>, RunError> {
        Ok(self.store.snapshot()?.events_of(id, after, usize::MAX)?)
    }

    /// The latest events of all runs, the oldest first.
    pub fn latest_events(&self, limit: usize) -> Result<Vec<StoredEvent>, RunError> {
        let records = self.store.snapshot()?;
        let before = records.last_position()?.saturating_sub(limit as u64);
        Ok(records.events_after(before, limit)?)
    }

    /// The position of the latest event in the log of all events; 0 if there is none.
    pub fn last_position(&self) -> Result<u64, RunError> {
        Ok(self.store.snapshot()?.last_position()?)
    }

    /// The events after a position, and the auto-run at the same moment.
    pub fn changes_after(&self, position: u64, limit: usize) -> Result<Changes, RunError> {
        let records = self.store.snapshot()?;
        Ok(Changes { events: records.events_after(position, limit)?, auto_run: records.auto_run()? })
    }

    /// The last auto-run. It is still under way while the queue's lease is held.
    pub fn auto_run(&self) -> Result<Option<AutoRun>, RunError> {
        Ok(self.store.snapshot()?.auto_run()?)
    }

    /// How many requests have each status. A status that no request has is left out.
    pub fn request_counts(&self) -> Result<Vec<(RequestStatus, u64)>, RunError> {
        Ok(self.store.snapshot()?.request_counts()?)
    }

    /// How many requests and runs have each status, and since when the oldest run of the queue waits.
    pub fn totals(&self) -> Result<Totals, RunError> {
        let records = self.store.snapshot()?;
        Ok(Totals {
            requests: records.request_counts()?,
            runs: records.run_counts()?,
            oldest_queued_at: records.oldest_queued_at()?,
        })
    }

    /// How many requests match a filter; its limit does not count.
    pub fn count_matching(&self, filter: &RequestFilter) -> Result<u64, RunError> {
        let counts = self.store.snapshot()?.count_matching(filter)?;
        Ok(counts.iter().map(|(_, count)| count).sum())
    }

    /// Runs, the latest first.
    pub fn list(&self, filter: &RunFilter) -> Result<Vec<Run>, RunError> {
        Ok(self.store.snapshot()?.runs(filter)?)
    }
}

/// The latest run of a request that was not rejected, or the newest one if all were: it says why.
fn latest_or_rejected(records: &dyn RunRecords, request: &RequestId) -> Result<Option<Run>, StoreError> {
    match records.latest_run(request)? {
        Some(run) => Ok(Some(run)),
        None => newest_run(records, request),
    }
}

fn newest_run(records: &dyn RunRecords, request: &RequestId) -> Result<Option<Run>, StoreError> {
    let filter = RunFilter { request: Some(request.clone()), limit: 1, ..RunFilter::default() };
    Ok(records.runs(&filter)?.pop())
}

/// The latest runs of requests whose short id begins with this text, or of the one whose short id it is.
fn latest_by_part(records: &dyn RunRecords, text: &str) -> Result<Vec<Run>, StoreError> {
    let filter = RequestFilter { text: Some(text.to_owned()), limit: SEARCHED, ..RequestFilter::default() };
    let mut found: Vec<RequestId> = records.requests(&filter)?.into_iter().map(|it| it.request.id).collect();
    found.retain(|id| short_id(id.as_str()) != id.as_str() && short_id(id.as_str()).starts_with(text));
    if let Some(whole) = found.iter().position(|id| short_id(id.as_str()) == text) {
        found = vec![found.swap_remove(whole)];
    }
    let runs = found.iter().map(|id| latest_or_rejected(records, id).transpose());
    runs.flatten().collect()
}

/// A request with its latest run.
fn entry(
    facts: &mut QueueFacts<'_>,
    records: &dyn RunRecords,
    mut request: StoredRequest,
    latest: Option<Run>,
) -> Result<RequestEntry, StoreError> {
    let latest = match latest {
        Some(run) => Some(run),
        None => newest_run(records, &request.request.id)?,
    };
    request.latest = latest.as_ref().map(|run| run.id.clone());
    let blocked = match &latest {
        Some(run) => facts.blocked(run, &request)?,
        None => None,
    };
    Ok(RequestEntry { request, latest, blocked })
}
