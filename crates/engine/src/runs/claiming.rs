//! Claims of workers: each is a compare-and-set that moves a run from queued, or due for its next attempt, to running.

use lockkeeper_core::id::{HolderId, RunId, WorkerId};
use lockkeeper_core::request::Request;
use lockkeeper_core::run::Run;
use lockkeeper_core::run::transition::{self, Claimant};
use lockkeeper_core::time::Moment;

use super::Runs;
use lockkeeper_store::StoreError;
use lockkeeper_store::runs::{ClaimOrder, Claims, Listing, RunRecords};

impl Runs {
    /// Runs that can be claimed now, with their requests, in the order of the queue.
    pub(crate) fn claimable(
        &self,
        listing: Listing,
        limit: usize,
    ) -> Result<Vec<(Run, Request)>, StoreError> {
        self.store.snapshot()?.claimable(listing, limit)
    }

    /// Claims this run. None if another worker was first, or if the run cannot be claimed any more.
    ///
    /// The claim is on the disk when this returns.
    pub(crate) fn claim_for(&self, run: &Run, claimant: &Claimant) -> Result<Option<Run>, StoreError> {
        let claimed = self.try_move(run.clone(), |run, now| {
            if run.is_given_up(now.moment) {
                return Err(());
            }
            transition::claim(run, claimant.clone(), now).map_err(|_| ())
        })?;
        let Ok(claimed) = claimed else { return Ok(None) };
        self.store.sync()?;
        Ok(Some(claimed))
    }

    /// Claims the first queued run that needs neither a lease nor a lock file.
    ///
    /// The claim is on the disk when this returns.
    pub(crate) fn claim_plain(
        &self,
        worker: &WorkerId,
        lock: HolderId,
    ) -> Result<Option<(Run, Request)>, StoreError> {
        let claims = Claims { worker, locks: &[lock], order: ClaimOrder::SkipLeased };
        let claimed = self.store.claim(&claims)?.pop();
        if claimed.is_some() {
            self.store.sync()?;
        }
        Ok(claimed)
    }

    /// The run that was claimed with this kernel lock. A call that failed may still have been committed.
    pub(crate) fn claimed_with(&self, lock: HolderId) -> Result<Option<(Run, Request)>, StoreError> {
        let records = self.store.snapshot()?;
        with_request(&*records, records.run_with_lock(lock)?)
    }

    /// A run with its request.
    pub(crate) fn run_with_request(&self, id: &RunId) -> Result<Option<(Run, Request)>, StoreError> {
        let records = self.store.snapshot()?;
        with_request(&*records, records.run(id)?)
    }

    /// Whether a claim is still the current one of its run.
    pub(crate) fn is_current(&self, run: &Run) -> Result<bool, StoreError> {
        let found = self.store.snapshot()?.run(&run.id)?;
        Ok(found.is_some_and(|found| found.claim() == run.claim() && found.status().is_active()))
    }

    /// Whether any run can be claimed, now or when its next attempt is due.
    pub(crate) fn has_work(&self) -> Result<bool, StoreError> {
        self.store.snapshot()?.has_work()
    }

    /// When time alone will change something: a run times out, or its next attempt is due. Attempts that were due at
    /// `looked_at` do not wait for time.
    pub(crate) fn next_due(&self, looked_at: Moment) -> Result<Option<Moment>, StoreError> {
        self.store.snapshot()?.next_due(looked_at)
    }
}

pub(super) fn with_request(
    records: &dyn RunRecords,
    run: Option<Run>,
) -> Result<Option<(Run, Request)>, StoreError> {
    let Some(run) = run else { return Ok(None) };
    let request = records.request(&run.request)?;
    Ok(request.map(|stored| (run, stored.request)))
}
