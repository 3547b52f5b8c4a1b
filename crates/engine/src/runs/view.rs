//! What is to be known about a run: where it is, and why it is still there.

use std::collections::HashMap;

use lockkeeper_core::id::{RequestId, RunId};
use lockkeeper_core::run::{Run, Status};
use lockkeeper_core::time::Moment;

use super::{RunError, Runs};
use lockkeeper_store::StoreError;
use lockkeeper_store::runs::{Filter, RequestFilter, StoredEvent, StoredRequest, Tables};

/// So many places of the line are counted in lists, however long it is.
const COUNTED: usize = 200;

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
    /// It is its turn after so many others or more: lists do not count further.
    Behind(u64),
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
            let blocked = Queue::for_one().blocked(tables, &run, &request)?;
            Ok(Ok(RunView { run, request, events, blocked }))
        })?
    }

    /// One run alone.
    pub fn run(&self, id: &RunId) -> Result<Run, RunError> {
        self.store.read(|tables| Self::found(tables, id))?
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

/// What was found out about the queue in one transaction, so that a long list looks once.
struct Queue {
    many: bool,
    is_worked: Option<bool>,
    places: Option<HashMap<RunId, u64>>,
}

impl Queue {
    /// For one run, whose place is counted.
    const fn for_one() -> Self {
        Self { many: false, is_worked: None, places: None }
    }

    /// For many runs, which are looked up in the line.
    const fn for_many() -> Self {
        Self { many: true, is_worked: None, places: None }
    }

    /// Why nobody executes a run, if that is so.
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
            // It comes before all others of its priority.
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
            // Who conducts it takes it by name: it stands in no line.
            None => Blocked::Position(0),
        })
    }
}
