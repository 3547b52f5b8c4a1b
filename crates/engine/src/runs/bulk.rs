//! What is done to every request that matches a filter: its latest run called off, or a new one queued.
//!
//! A few at a time, each few in a transaction of their own, so that others come to their turn in between. Every one still
//! matches in the moment in which it is changed, and what came later than the newest one at the beginning is left alone.

use lockkeeper_core::id::{RequestId, RunId};
use lockkeeper_core::run::life::Lost;
use lockkeeper_core::run::{NoSuchMove, Status};

use super::moves::call_off;
use super::submit::queue_again;
use super::{RunError, Runs, new_id};
use lockkeeper_store::StoreError;
use lockkeeper_store::runs::{Match, RequestFilter, Tables};

/// So many are changed in one transaction.
const AT_ONCE: usize = 200;

/// What is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bulk {
    /// The latest run is called off.
    Cancel {
        /// Why, in words.
        reason: Option<String>,
    },
    /// A new run is queued.
    Retry,
}

/// What would be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// How many requests match.
    pub matched: u64,
    /// How many of them would be changed; the others are where they would be refused.
    pub movable: u64,
    /// The one of them that came last: naming it as the newest keeps out what comes until it is done.
    pub newest: Option<RequestId>,
}

/// What was done.
#[derive(Debug, Default)]
pub struct Done {
    /// What was changed.
    pub moved: Vec<Changed>,
    /// What was left as it is.
    pub refused: Vec<Left>,
    /// There are more: go on after this one.
    pub next: Option<RequestId>,
}

/// A request that was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Which one.
    pub request: RequestId,
    /// The run that was called off, or the new one.
    pub run: RunId,
    /// Where that is.
    pub status: Status,
}

/// A request that was left as it is.
#[derive(Debug)]
pub struct Left {
    /// Which one.
    pub request: RequestId,
    /// Why.
    pub error: RunError,
}

impl Bulk {
    /// Whether a request whose latest run is here would be changed.
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
        let (counts, newest) = self.store.read(|tables| {
            let counts = tables.count_matching(filter)?;
            let newest = tables.matching(&RequestFilter { limit: 1, ..filter.clone() })?;
            Ok((counts, newest.into_iter().next().map(|one| one.request)))
        })?;
        let sum = |keep: &dyn Fn(Option<Status>) -> bool| {
            counts.iter().filter(|(status, _)| keep(*status)).map(|(_, count)| count).sum()
        };
        Ok(Forecast { matched: sum(&|_| true), movable: sum(&|status| bulk.moves(status)), newest })
    }

    /// Does it to as many requests as the filter's limit says, the latest first.
    pub fn bulk(&self, bulk: &Bulk, filter: &RequestFilter) -> Result<Done, RunError> {
        let mut done = Done::default();
        let mut from = filter.clone();
        // What comes from now on, new runs of the same requests aside, is not meant.
        if from.newest.is_none() {
            let newest =
                self.store.read(|tables| tables.matching(&RequestFilter { limit: 1, ..from.clone() }))?;
            from.newest = newest.into_iter().next().map(|one| one.request);
        }
        let mut left = filter.limit;
        loop {
            // One more tells whether there are more.
            from.limit = left.min(AT_ONCE) + 1;
            let mut few = self.store.read(|tables| tables.matching(&from))?;
            let has_more = few.len() == from.limit;
            few.truncate(from.limit - 1);
            let Some(last) = few.last() else { return Ok(done) };
            let last = last.request.clone();
            left -= few.len();
            self.change_few(bulk, &from, few, &mut done)?;
            if !has_more || left == 0 {
                done.next = has_more.then_some(last);
                return Ok(done);
            }
            from.before = Some(last);
        }
    }

    /// Changes these, unless they do not match any more.
    fn change_few(
        &self,
        bulk: &Bulk,
        filter: &RequestFilter,
        few: Vec<Match>,
        done: &mut Done,
    ) -> Result<(), RunError> {
        let now = lockkeeper_store::runs::now().unix_micros;
        let ids = few.iter().map(|_| new_id::<RunId>("RUN", now)).collect::<Result<Vec<_>, _>>()?;
        let these = RequestFilter {
            ids: few.into_iter().map(|one| one.request).collect(),
            before: None,
            ..filter.clone()
        };
        let changed = self.store.write(|tables| {
            let mut changed = Vec::new();
            for (one, id) in tables.matching(&these)?.into_iter().zip(ids) {
                let outcome = change(tables, bulk, &one, id)?;
                changed.push((one.request, outcome));
            }
            Ok(changed)
        })?;
        for (request, outcome) in changed {
            match outcome {
                Ok((run, status)) => done.moved.push(Changed { request, run, status }),
                Err(error) => done.refused.push(Left { request, error }),
            }
        }
        Ok(())
    }
}

/// Changes one request within a transaction. `id` is for a new run.
fn change(
    tables: &Tables<'_>,
    bulk: &Bulk,
    one: &Match,
    id: RunId,
) -> Result<Result<(RunId, Status), RunError>, StoreError> {
    match bulk {
        Bulk::Cancel { reason } => {
            let run = match &one.run {
                Some(run) => tables.run(run)?,
                None => None,
            };
            let Some(run) = run else { return Ok(Err(RunError::NoRun(one.request.to_string()))) };
            if run.status == Status::Cancelling {
                let source = Lost::Status(NoSuchMove { from: run.status, to: Status::Cancelling });
                return Ok(Err(RunError::Lost { run: run.id, current: run.status, source }));
            }
            let called_off = call_off(tables, run, reason.as_deref())?;
            Ok(called_off.map(|run| (run.id, run.status)))
        }
        Bulk::Retry => Ok(queue_again(tables, &one.request, id)?.map(|run| (run, Status::Queued))),
    }
}
