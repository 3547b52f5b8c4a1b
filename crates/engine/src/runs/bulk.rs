//! Bulk operations: cancel the latest run of every request that matches a filter, or queue a new run of each.
//!
//! Each batch is one transaction, so that other processes can write in between. A request still matches at the moment when it is
//! changed: the filter reads only the latest run, and compare-and-set finds that run unchanged. Requests that are submitted
//! after the start are left alone.

use lockkeeper_core::id::{RequestId, RunId};
use lockkeeper_core::run::{NoSuchMove, Status};

use super::moves::{cancellation, refused};
use super::submit::requeue;
use super::{RunError, Runs};
use lockkeeper_store::runs::{Match, Moved, RequestFilter};

/// How many requests are changed in one transaction.
const BATCH: usize = 200;

/// A bulk operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bulk {
    /// Cancels the latest run.
    Cancel {
        /// Why, in words.
        reason: Option<String>,
    },
    /// Queues a new run.
    Retry,
}

/// What a bulk operation would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// How many requests match.
    pub matched: u64,
    /// How many of them would be changed. The others would be refused.
    pub movable: u64,
    /// The latest of them. As `newest` of the filter it leaves out requests that are submitted later.
    pub newest: Option<RequestId>,
}

/// What a bulk operation did.
#[derive(Debug, Default)]
pub struct Done {
    /// The requests that were changed.
    pub moved: Vec<Changed>,
    /// The requests that were not.
    pub refused: Vec<Left>,
    /// The last request of this part, if there are more: the cursor of the next part.
    pub next: Option<RequestId>,
}

/// A request that was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Which one.
    pub request: RequestId,
    /// The run that was canceled, or the new one.
    pub run: RunId,
    /// Its status.
    pub status: Status,
}

/// A request that was not changed.
#[derive(Debug)]
pub struct Left {
    /// Which one.
    pub request: RequestId,
    /// Why.
    pub error: RunError,
}

impl Bulk {
    /// Whether it changes a request whose latest run has this status.
    fn moves(&self, latest: Option<Status>) -> bool {
        match self {
            Self::Cancel { .. } => {
                latest.is_some_and(|status| !status.is_terminal() && status != Status::Cancelling)
            }
            Self::Retry => latest.is_none_or(Status::is_terminal),
        }
    }
}

impl Runs {
    /// What [`Runs::bulk`] would do, in all of its parts together.
    pub fn forecast(&self, bulk: &Bulk, filter: &RequestFilter) -> Result<Forecast, RunError> {
        let records = self.store.snapshot()?;
        let counts = records.count_matching(filter)?;
        let newest = records.matching(&RequestFilter { limit: 1, ..filter.clone() })?;
        let newest = newest.into_iter().next().map(|one| one.request);
        let sum = |keep: &dyn Fn(Option<Status>) -> bool| {
            counts.iter().filter(|(status, _)| keep(*status)).map(|(_, count)| count).sum()
        };
        Ok(Forecast { matched: sum(&|_| true), movable: sum(&|status| bulk.moves(status)), newest })
    }

    /// Changes at most as many requests as the limit of the filter, the latest first.
    pub fn bulk(&self, bulk: &Bulk, filter: &RequestFilter) -> Result<Done, RunError> {
        let mut done = Done::default();
        let mut from = filter.clone();
        // Requests that are submitted from now on are left alone.
        if from.newest.is_none() {
            let newest = self.store.snapshot()?.matching(&RequestFilter { limit: 1, ..from.clone() })?;
            from.newest = newest.into_iter().next().map(|one| one.request);
        }
        let mut left = filter.limit;
        loop {
            // One more than needed, to know whether there are more.
            from.limit = left.min(BATCH) + 1;
            let mut batch = self.store.snapshot()?.matching(&from)?;
            let has_more = batch.len() == from.limit;
            batch.truncate(from.limit - 1);
            let Some(last) = batch.last() else { return Ok(done) };
            let last = last.request.clone();
            left -= batch.len();
            self.change_batch(bulk, &from, batch, &mut done)?;
            if !has_more || left == 0 {
                done.next = has_more.then_some(last);
                return Ok(done);
            }
            from.before = Some(last);
        }
    }

    /// Changes these requests in one transaction. A request that another process has changed since it was read is read and
    /// decided again, if it still matches.
    fn change_batch(
        &self,
        bulk: &Bulk,
        filter: &RequestFilter,
        batch: Vec<Match>,
        done: &mut Done,
    ) -> Result<(), RunError> {
        let mut open: Vec<RequestId> = batch.into_iter().map(|one| one.request).collect();
        while !open.is_empty() {
            let these = RequestFilter { ids: open, before: None, ..filter.clone() };
            open = match bulk {
                Bulk::Cancel { reason } => self.cancel_batch(&these, reason.as_deref(), done)?,
                Bulk::Retry => self.retry_batch(&these, done)?,
            };
        }
        Ok(())
    }

    /// Cancels the latest runs of the requests that match. Returns the requests that have changed in between.
    fn cancel_batch(
        &self,
        filter: &RequestFilter,
        reason: Option<&str>,
        done: &mut Done,
    ) -> Result<Vec<RequestId>, RunError> {
        let records = self.store.snapshot()?;
        let (mut transitions, mut canceled) = (Vec::new(), Vec::new());
        for Match { request, run } in records.matching(filter)? {
            let run = match &run {
                Some(run) => records.run(run)?,
                None => None,
            };
            let steps = match &run {
                None => Err(RunError::NoRun(request.to_string())),
                Some(run) => cancellation(run, reason, records.now())
                    .and_then(|steps| {
                        let again = NoSuchMove { from: run.status(), to: Status::Cancelling };
                        if steps.is_empty() { Err(again.into()) } else { Ok(steps) }
                    })
                    .map_err(|error| refused(run, error)),
            };
            match steps {
                Ok(steps) => {
                    canceled.push((request, transitions.len(), transitions.len() + steps.len() - 1));
                    transitions.extend(steps);
                }
                Err(error) => done.refused.push(Left { request, error }),
            }
        }
        drop(records);
        if transitions.is_empty() {
            return Ok(Vec::new());
        }
        let moved = self.store.move_runs(&transitions)?;
        self.store.sync()?;
        let mut changed = Vec::new();
        for (request, first, last) in canceled {
            // If the first transition of a run applies, so does the second.
            match &moved[first] {
                Moved::Applied => {
                    let run = &transitions[last].run;
                    done.moved.push(Changed { request, run: run.id.clone(), status: run.status() });
                }
                Moved::Conflict(_) => changed.push(request),
            }
        }
        Ok(changed)
    }

    /// Queues new runs of the requests that match. Returns the requests that have changed in between.
    fn retry_batch(&self, filter: &RequestFilter, done: &mut Done) -> Result<Vec<RequestId>, RunError> {
        let ids = self.new_run_ids(filter.ids.len())?;
        let records = self.store.snapshot()?;
        let (mut queued, mut new) = (Vec::new(), Vec::new());
        for (Match { request, .. }, id) in records.matching(filter)?.into_iter().zip(ids) {
            match requeue(&*records, &request, id.clone()) {
                Ok(requeue) => {
                    new.push(requeue);
                    queued.push((request, id));
                }
                Err(RunError::Store(error)) => return Err(error.into()),
                Err(error) => done.refused.push(Left { request, error }),
            }
        }
        drop(records);
        if new.is_empty() {
            return Ok(Vec::new());
        }
        let answers = self.store.requeue(&new)?;
        self.store.sync()?;
        let mut changed = Vec::new();
        for ((request, run), is_queued) in queued.into_iter().zip(answers) {
            if is_queued {
                done.moved.push(Changed { request, run, status: Status::Queued });
            } else {
                changed.push(request);
            }
        }
        Ok(changed)
    }
}
