//! What is to be known about a run: where it is, and why it is still there.

use lockkeeper_core::id::{RequestId, RunId};
use lockkeeper_core::run::{Run, Status};
use lockkeeper_core::time::Moment;

use super::{RunError, Runs};
use crate::store::StoreError;
use crate::store::runs::{Filter, RequestFilter, StoredEvent, StoredRequest, Tables};

/// A run with everything around it.
#[derive(Clone, Debug)]
pub struct RunView {
    /// The run.
    pub run: Run,
    /// Its request.
    pub request: StoredRequest,
    /// What happened to it.
    pub events: Vec<StoredEvent>,
    /// Why nobody executes it, while that is so.
    pub blocked: Option<Blocked>,
}

/// A run in a list, with its request.
#[derive(Clone, Debug)]
pub struct RunEntry {
    /// The run.
    pub run: Run,
    /// Its request.
    pub request: StoredRequest,
    /// Why nobody executes it, while that is so.
    pub blocked: Option<Blocked>,
}

/// A request in a list, with its latest run.
#[derive(Clone, Debug)]
pub struct RequestEntry {
    /// The request.
    pub request: StoredRequest,
    /// Its latest run; none when all were refused.
    pub latest: Option<Run>,
    /// Why nobody executes that, while that is so.
    pub blocked: Option<Blocked>,
}

/// Why a run has not begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// These are not done yet.
    Dependencies(Vec<RequestId>),
    /// Its next attempt is not due before this moment.
    Retry(Moment),
    /// It is its turn after so many others.
    Position(u64),
    /// Nobody works.
    NoWorker,
}

impl Runs {
    /// One run with everything around it.
    pub fn show(&self, id: &RunId) -> Result<RunView, RunError> {
        self.store.read(|tables| {
            let run = match Self::found(tables, id)? {
                Ok(run) => run,
                Err(error) => return Ok(Err(error)),
            };
            let Some(request) = tables.request(&run.request)? else {
                return Ok(Err(RunError::NoRequest(run.request)));
            };
            let events = tables.events_of(id, 0, usize::MAX)?;
            let blocked = blocked(tables, &run, &request)?;
            Ok(Ok(RunView { run, request, events, blocked }))
        })?
    }

    /// The run that a text means: a run's id, the end of one that no other has, or a request's id for its latest.
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
            let mut entries = Vec::new();
            for run in tables.runs(filter)? {
                let Some(request) = tables.request(&run.request)? else { continue };
                let blocked = blocked(tables, &run, &request)?;
                entries.push(RunEntry { run, request, blocked });
            }
            Ok(entries)
        })?;
        Ok(entries)
    }

    /// Requests with their latest runs, the latest first.
    pub fn requests(&self, filter: &RequestFilter) -> Result<Vec<RequestEntry>, RunError> {
        let entries = self.store.read(|tables| {
            let found = tables.requests(filter)?;
            found.into_iter().map(|request| request_entry(tables, request)).collect()
        })?;
        Ok(entries)
    }

    /// One request with its latest run.
    pub fn request(&self, id: &RequestId) -> Result<RequestEntry, RunError> {
        let found = self.store.read(|tables| {
            let request = tables.request(id)?;
            request.map(|request| request_entry(tables, request)).transpose()
        })?;
        found.ok_or_else(|| RunError::NoRequest(id.clone()))
    }

    /// The events of a run after the one with this number.
    pub fn events(&self, id: &RunId, after: u32) -> Result<Vec<StoredEvent>, RunError> {
        Ok(self.store.read(|tables| tables.events_of(id, after, usize::MAX))?)
    }

    /// Runs, the latest first.
    pub fn list(&self, filter: &Filter) -> Result<Vec<Run>, RunError> {
        Ok(self.store.read(|tables| tables.runs(filter))?)
    }
}

fn request_entry(tables: &Tables<'_>, request: StoredRequest) -> Result<RequestEntry, StoreError> {
    let latest = match &request.latest {
        Some(run) => tables.run(run)?,
        None => None,
    };
    let blocked = match &latest {
        Some(run) => blocked(tables, run, &request)?,
        None => None,
    };
    Ok(RequestEntry { request, latest, blocked })
}

fn blocked(tables: &Tables<'_>, run: &Run, request: &StoredRequest) -> Result<Option<Blocked>, StoreError> {
    Ok(match run.status {
        Status::Queued if request.unmet > 0 => Some(Blocked::Dependencies(tables.unmet(&run.request)?)),
        Status::Queued if tables.workers()?.is_empty() => Some(Blocked::NoWorker),
        Status::Queued => Some(Blocked::Position(tables.position(&run.id)?)),
        Status::Running => run.retry_at.map(Blocked::Retry),
        Status::Cancelling
        | Status::Succeeded
        | Status::Failed
        | Status::Canceled
        | Status::TimedOut
        | Status::Rejected => None,
    })
}
