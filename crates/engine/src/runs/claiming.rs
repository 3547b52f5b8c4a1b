//! Claims of workers: each is a compare-and-set that moves a run from queued, or due for its next attempt, to running.

use std::cmp::Reverse;

use lockkeeper_core::id::{HolderId, RunId, WorkerId};
use lockkeeper_core::request::Request;
use lockkeeper_core::run::life::{self, Taker};
use lockkeeper_core::run::{Run, Status};
use lockkeeper_core::time::Moment;

use super::Runs;
use super::moves::advance;
use lockkeeper_store::StoreError;
use lockkeeper_store::runs::Tables;

/// A worker that can begin with some runs now.
pub(crate) struct Claimant<'c> {
    /// The worker.
    pub(crate) worker: &'c WorkerId,
    /// One kernel lock for each run that it can begin with. The worker holds them, and the commands will share them.
    pub(crate) locks: &'c [HolderId],
}

/// Which runs [`Runs::claimable`] lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listing {
    /// Of all runs that need the same lease, only the first.
    FirstOfEachLease,
    /// Every run: each may be locked by a file of its own.
    EveryRun,
}

impl Runs {
    /// Runs that can begin now, with their requests, the next one first.
    pub(crate) fn claimable(
        &self,
        listing: Listing,
        limit: usize,
    ) -> Result<Vec<(Run, Request)>, StoreError> {
        self.store.read(|tables| {
            let ready = match listing {
                Listing::EveryRun => tables.ready(None, limit)?,
                Listing::FirstOfEachLease => tables.ready_by_wish(limit)?,
            };
            let due = tables.due_retries(tables.now().moment, limit)?;
            in_order(tables, due, with_requests(tables, ready)?)
        })
    }

    /// Claims this run. None when another worker was first, or the run does not wait any more.
    ///
    /// The claim is on the disk when this returns.
    pub(crate) fn claim_for(&self, id: &RunId, taker: &Taker) -> Result<Option<Run>, StoreError> {
        self.store.write(|tables| match tables.run(id)? {
            Some(run) => claim(tables, &run, taker.clone()),
            None => Ok(None),
        })
    }

    /// Claims the next run that needs neither a lease nor a lock file, whatever comes before it in the queue.
    ///
    /// The claim is on the disk when this returns.
    pub(crate) fn claim_plain(&self, taker: &Taker) -> Result<Option<(Run, Request)>, StoreError> {
        self.store.write(|tables| {
            let Some((run, request)) = with_request(tables, tables.ready_for("")?)? else { return Ok(None) };
            Ok(claim(tables, &run, taker.clone())?.map(|run| (run, request)))
        })
    }

    /// The run that was claimed with this kernel lock. An operation that failed may have been committed all the same.
    pub(crate) fn claimed_with(&self, lock: HolderId) -> Result<Option<(Run, Request)>, StoreError> {
        self.store.read(|tables| with_request(tables, tables.run_of_holder(lock)?))
    }

    /// A run with its request.
    pub(crate) fn run_with_request(&self, id: &RunId) -> Result<Option<(Run, Request)>, StoreError> {
        self.store.read(|tables| with_request(tables, tables.run(id)?))
    }

    /// Whether a claim is still the current one of its run.
    pub(crate) fn is_current(&self, run: &Run) -> Result<bool, StoreError> {
        let found = self.store.read(|tables| tables.run(&run.id))?;
        Ok(found.is_some_and(|found| found.claim == run.claim && found.status.is_active()))
    }

    /// Whether any run can begin, now or when its next attempt is due.
    pub(crate) fn has_work(&self) -> Result<bool, StoreError> {
        self.store.read(|tables| {
            let waits = !tables.ready(None, 1)?.is_empty();
            Ok(waits || !tables.due_retries(Moment::MAX, 1)?.is_empty())
        })
    }

    /// When time alone will change something: a run is given up, or its next attempt is due. Attempts that were due at
    /// `looked_at` wait for something else than time.
    pub(crate) fn next_due(&self, looked_at: Moment) -> Result<Option<Moment>, StoreError> {
        self.store.read(|tables| tables.next_due(looked_at))
    }
}

/// Claims the first runs of the queue, one for each kernel lock, in the transaction that is under way. It ends at the
/// first run that needs a lease or a lock file: that run is next, and only a claimer can get what it needs.
pub(super) fn claim_next(
    tables: &Tables<'_>,
    claimant: &Claimant<'_>,
) -> Result<Vec<(Run, Request)>, StoreError> {
    let limit = claimant.locks.len();
    let mut claimed = Vec::new();
    if limit == 0 {
        return Ok(claimed);
    }
    let due = tables.due_retries(tables.now().moment, limit)?;
    let next = in_order(tables, due, tables.ready_with_requests(limit)?)?;
    for ((run, request), lock) in next.into_iter().zip(claimant.locks) {
        if request.needs_lease() || request.task().is_some() {
            break;
        }
        let taker = Taker { worker: claimant.worker.clone(), holder: Some(*lock), lease: None };
        let Some(run) = claim(tables, &run, taker)? else { break };
        claimed.push((run, request));
    }
    Ok(claimed)
}

pub(super) fn with_request(
    tables: &Tables<'_>,
    run: Option<Run>,
) -> Result<Option<(Run, Request)>, StoreError> {
    let Some(run) = run else { return Ok(None) };
    let request = tables.request(&run.request)?;
    Ok(request.map(|stored| (run, stored.request)))
}

fn claim(tables: &Tables<'_>, run: &Run, taker: Taker) -> Result<Option<Run>, StoreError> {
    let now = tables.now();
    if run.status == Status::Queued && run.give_up_at.is_some_and(|at| at <= now.moment) {
        return Ok(None);
    }
    match life::claim(run, taker, now) {
        Ok(moved) => advance(tables, run, moved).map(Some),
        Err(_) => Ok(None),
    }
}

/// Runs whose next attempt is due and runs that have not begun: by priority, and among equals the due ones first.
fn in_order(
    tables: &Tables<'_>,
    due: Vec<Run>,
    ready: Vec<(Run, Request)>,
) -> Result<Vec<(Run, Request)>, StoreError> {
    if due.is_empty() {
        return Ok(ready);
    }
    let mut all = with_requests(tables, due)?;
    all.extend(ready);
    all.sort_by_key(|(_, request)| Reverse(request.priority.get()));
    Ok(all)
}

fn with_requests(tables: &Tables<'_>, runs: Vec<Run>) -> Result<Vec<(Run, Request)>, StoreError> {
    let mut found = Vec::new();
    for run in runs {
        found.extend(with_request(tables, Some(run))?);
    }
    Ok(found)
}
