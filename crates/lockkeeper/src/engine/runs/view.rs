//! What is to be known about a run: where it is, and why it is still there.

use lockkeeper_core::id::{RequestId, RunId};
use lockkeeper_core::run::{Run, Status};
use lockkeeper_core::time::Moment;

use super::{RunError, Runs};
use crate::store::runs::{Filter, StoredEvent, StoredRequest};

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
            let blocked = match run.status {
                Status::Queued if request.unmet > 0 => {
                    Some(Blocked::Dependencies(tables.unmet(&run.request)?))
                }
                Status::Queued if tables.workers()?.is_empty() => Some(Blocked::NoWorker),
                Status::Queued => Some(Blocked::Position(tables.position(id)?)),
                Status::Running => run.retry_at.map(Blocked::Retry),
                Status::Cancelling
                | Status::Succeeded
                | Status::Failed
                | Status::Canceled
                | Status::TimedOut
                | Status::Rejected => None,
            };
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
            let mut ending = tables.runs_ending_with(text)?;
            Ok(if ending.len() == 1 { ending.pop().ok_or_else(no_run) } else { Err(no_run()) })
        })?
    }

    /// Runs, the latest first.
    pub fn list(&self, filter: &Filter) -> Result<Vec<Run>, RunError> {
        Ok(self.store.read(|tables| tables.runs(filter))?)
    }
}
