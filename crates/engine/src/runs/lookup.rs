//! Queries for runs and requests: their state, and why a run has not started.

use std::collections::HashMap;

use lockkeeper_core::id::{RequestId, RunId, WorkerId};
use lockkeeper_core::request::RequestStatus;
use lockkeeper_core::run::{Run, Status};
use lockkeeper_core::time::Moment;
use lockkeeper_store::StoreError;
use lockkeeper_store::runs::{AutoRun, Filter, RequestFilter, StoredEvent, StoredRequest, Tables};

use super::{RunError, Runs};

/// Lists compute positions in the queue only up to this one.
const COUNTED: usize = 200;

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
}

/// A request in a list, with its latest run.
#[derive(Clone, Debug)]
pub struct RequestEntry {
    /// The request.
    pub request: StoredRequest,
    /// Its latest run; none when all were rejected.
    pub latest: Option<Run>,
    /// Why no worker executes that run; none when one does, or when it has ended.
    pub blocked: Option<Blocked>,
}

/// What changed after a position in the log of events.
#[derive(Clone, Debug)]
pub struct Changes {
    /// The events after it, the oldest first.
    pub events: Vec<StoredEvent>,
    /// The last auto-run.
    pub auto_run: Option<AutoRun>,
}

/// Why a run has not started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// These requests have to be done first.
    Dependencies(Vec<RequestId>),
    /// The next attempt is due at this moment.
    Retry(Moment),
    /// This many runs are before it in the queue.
    Position(u64),
    /// At least this many runs are before it. Lists do not count further.
    Behind(u64),
    /// No worker is running.
    NoWorker,
}

impl Runs {
    /// One run with its request and its events.
    pub fn show(&self, id: &RunId) -> Result<RunDetail, RunError> {
        self.store.read(|tables| {
            let run = match Self::found(tables, id)? {
                Ok(run) => run,
                Err(error) => return Ok(Err(error)),
            };
            let Some(request) = tables.request(&run.request)? else {
                return Ok(Err(RunError::NoRequest(run.request)));
            };
            let events = tables.events_of(id, 0, usize::MAX)?;
            let blocked = Queue::for_one().blocked(tables, &run, &request)?;
            Ok(Ok(RunDetail { run, request, events, blocked }))
        })?
    }

    /// One run.
    pub fn run(&self, id: &RunId) -> Result<Run, RunError> {
        self.store.read(|tables| Self::found(tables, id))?
    }

    /// Finds a run by its id, by a unique suffix of its id, or by the id of its request (then the latest run).
    pub fn find(&self, text: &str) -> Result<Run, RunError> {
        let no_run = || RunError::NoRun(text.to_owned());
        self.store.read(|tables| {
            let id: RunId = match text.parse() {
                Ok(id) => id,
                Err(_) => return Ok(Err(no_run())),
            };
            if let Some(run) = tables.run(&id)? {
                return Ok(Ok(run));
            }
            if let Ok(request) = text.parse::<RequestId>()
                && let Some(run) = tables.latest_run(&request)?
            {
                return Ok(Ok(run));
            }
            let mut ending = tables.runs_ending_with(text)?.into_iter();
            Ok(match (ending.next(), ending.next()) {
                (Some(run), None) => Ok(run),
                (None, _) => Err(no_run()),
                (Some(one), Some(other)) => {
                    Err(RunError::Ambiguous { text: text.to_owned(), one: one.id, other: other.id })
                }
            })
        })?
    }

    /// Runs with their requests, the latest first.
    pub fn entries(&self, filter: &Filter) -> Result<Vec<RunEntry>, RunError> {
        let entries = self.store.read(|tables| {
            let (mut entries, mut queue) = (Vec::new(), Queue::for_many());
            for run in tables.runs(filter)? {
                let Some(request) = tables.request(&run.request)? else { continue };
                let blocked = queue.blocked(tables, &run, &request)?;
                entries.push(RunEntry { run, request, blocked });
            }
            Ok(entries)
        })?;
        Ok(entries)
    }

    /// Requests with their latest runs, the latest first.
    pub fn requests(&self, filter: &RequestFilter) -> Result<Vec<RequestEntry>, RunError> {
        let entries = self.store.read(|tables| {
            let (found, mut queue) = (tables.requests(filter)?, Queue::for_many());
            found.into_iter().map(|request| request_entry(tables, request, &mut queue)).collect()
        })?;
        Ok(entries)
    }

    /// One request with its latest run.
    pub fn request(&self, id: &RequestId) -> Result<RequestEntry, RunError> {
        let found = self.store.read(|tables| {
            let request = tables.request(id)?;
            request.map(|request| request_entry(tables, request, &mut Queue::for_one())).transpose()
        })?;
        found.ok_or_else(|| RunError::NoRequest(id.clone()))
    }

    /// The events of a run after the one with this number.
    pub fn events(&self, id: &RunId, after: u32) -> Result<Vec<StoredEvent>, RunError> {
        Ok(self.store.read(|tables| tables.events_of(id, after, usize::MAX))?)
    }

    /// The latest events of all runs, the oldest first.
    pub fn latest_events(&self, limit: usize) -> Result<Vec<StoredEvent>, RunError> {
        Ok(self.store.read(|tables| {
            let before = tables.last_position()?.saturating_sub(limit as u64);
            tables.events_after(before, limit)
        })?)
    }

    /// The position of the latest event in the log of all events; 0 when there is none.
    pub fn last_position(&self) -> Result<u64, RunError> {
        Ok(self.store.read(|tables| tables.last_position())?)
    }

    /// The events after a position, and the auto-run at the same moment.
    pub fn changes_after(&self, position: u64, limit: usize) -> Result<Changes, RunError> {
        Ok(self.store.read(|tables| {
            Ok(Changes { events: tables.events_after(position, limit)?, auto_run: tables.auto_run()? })
        })?)
    }

    /// The last auto-run. Whether it is still going on is known by the queue's lease only.
    pub fn auto_run(&self) -> Result<Option<AutoRun>, RunError> {
        Ok(self.store.read(|tables| tables.auto_run())?)
    }

    /// Asks an auto-run to stop after its current run, if this worker executes it.
    pub fn stop_auto_run_of(&self, worker: &WorkerId) -> Result<(), RunError> {
        Ok(self.store.write(|tables| {
            let is_theirs = tables.auto_run()?.is_some_and(|auto| auto.worker == *worker);
            if is_theirs { tables.stop_auto_run() } else { Ok(()) }
        })?)
    }

    /// How many requests are in each status that any is in.
    pub fn request_counts(&self) -> Result<Vec<(RequestStatus, u64)>, RunError> {
        Ok(self.store.request_counts()?)
    }

    /// How many requests match a filter; its limit does not count.
    pub fn count_matching(&self, filter: &RequestFilter) -> Result<u64, RunError> {
        let counts = self.store.read(|tables| tables.count_matching(filter))?;
        Ok(counts.iter().map(|(_, count)| count).sum())
    }

    /// Runs, the latest first.
    pub fn list(&self, filter: &Filter) -> Result<Vec<Run>, RunError> {
        Ok(self.store.read(|tables| tables.runs(filter))?)
    }
}

fn request_entry(
    tables: &Tables<'_>,
    request: StoredRequest,
    queue: &mut Queue,
) -> Result<RequestEntry, StoreError> {
    let latest = match &request.latest {
        Some(run) => tables.run(run)?,
        None => None,
    };
    let blocked = match &latest {
        Some(run) => queue.blocked(tables, run, &request)?,
        None => None,
    };
    Ok(RequestEntry { request, latest, blocked })
}

/// Facts about the queue that one transaction needs for many runs; each is read once.
struct Queue {
    many: bool,
    is_worked: Option<bool>,
    places: Option<HashMap<RunId, u64>>,
}

impl Queue {
    /// For one run: its position is counted exactly.
    const fn for_one() -> Self {
        Self { many: false, is_worked: None, places: None }
    }

    /// For a list: positions are looked up among the first [`COUNTED`].
    const fn for_many() -> Self {
        Self { many: true, is_worked: None, places: None }
    }

    /// Why no worker executes a run; none when one does, or when it has ended.
    fn blocked(
        &mut self,
        tables: &Tables<'_>,
        run: &Run,
        request: &StoredRequest,
    ) -> Result<Option<Blocked>, StoreError> {
        Ok(match run.status {
            Status::Queued if request.unmet > 0 => Some(Blocked::Dependencies(tables.unmet(&run.request)?)),
            Status::Queued if !self.is_worked(tables)? => Some(Blocked::NoWorker),
            Status::Queued => Some(self.place(tables, &run.id)?),
            Status::Running if run.was_given_back() && !self.is_worked(tables)? => Some(Blocked::NoWorker),
            // A run that a worker gave back is first among those of its priority.
            Status::Running if run.was_given_back() => Some(Blocked::Position(0)),
            Status::Running => run.retry_at.map(Blocked::Retry),
            Status::Cancelling
            | Status::Succeeded
            | Status::Failed
            | Status::Canceled
            | Status::TimedOut
            | Status::Rejected => None,
        })
    }

    fn is_worked(&mut self, tables: &Tables<'_>) -> Result<bool, StoreError> {
        match self.is_worked {
            Some(known) => Ok(known),
            None => Ok(*self.is_worked.insert(!tables.workers()?.is_empty())),
        }
    }

    fn place(&mut self, tables: &Tables<'_>, run: &RunId) -> Result<Blocked, StoreError> {
        if !self.many {
            return tables.position(run).map(Blocked::Position);
        }
        let places = match &mut self.places {
            Some(places) => places,
            None => self.places.insert(tables.line(COUNTED)?.into_iter().zip(0..).collect()),
        };
        Ok(match places.get(run) {
            Some(place) => Blocked::Position(*place),
            None if places.len() == COUNTED => Blocked::Behind(COUNTED as u64),
            // A run of a stage is claimed by its conductor and is not in the queue.
            None => Blocked::Position(0),
        })
    }
}
