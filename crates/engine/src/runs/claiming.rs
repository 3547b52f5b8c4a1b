//! Claims of workers: each is a compare-and-set that moves a run from queued, or due for its next attempt, to running.

use lockkeeper_core::id::{HolderId, Name, RunId, WorkerId};
use lockkeeper_core::request::Request;
use lockkeeper_core::run::Run;
use lockkeeper_core::run::transition::{self, Claimant};
use lockkeeper_core::time::Moment;

use super::{RunError, Runs};
use lockkeeper_store::StoreError;
use lockkeeper_store::runs::{ClaimOrder, Claims, Listing, RunRecords};

/// How many requests are looked at for their labels.
const MOST_REQUESTS: usize = 4096;

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
    /// The claim is on the disk when this returns. The event of the claim has `note`, too.
    pub(crate) fn claim_for(
        &self,
        run: &Run,
        claimant: &Claimant,
        note: Option<&str>,
    ) -> Result<Option<Run>, StoreError> {
        let claimed = self.try_move(run.clone(), |run, now| {
            if run.is_given_up(now.moment) || self.is_silent() {
                return Err(());
            }
            let mut claim = transition::claim(run, claimant.clone(), now).map_err(|_| ())?;
            let texts = claim.event.message.iter().map(String::as_str).chain(note);
            claim.event.message = Some(texts.collect::<Vec<_>>().join("; "));
            Ok(claim)
        })?;
        let Ok(claimed) = claimed else { return Ok(None) };
        self.store.sync()?;
        Ok(Some(claimed))
    }

    /// Whether nothing can be claimed, because the store may have lost claims: workers write again what they execute.
    pub(crate) fn is_silent(&self) -> bool {
        self.store.silent_until().is_some()
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

    /// The run that was claimed with this liveness lock. A call that failed may still have been committed.
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

    /// Whether any run can be claimed, now or when its next attempt is due, by a worker with one of these sets of labels.
    pub(crate) fn has_work(&self, labels: &[&[Name]]) -> Result<bool, StoreError> {
        if !self.store.snapshot()?.has_work()? {
            return Ok(false);
        }
        // The labels are a part of the lease key, so the first run of each lease stands for all of them.
        let waiting = self.waiting_requests(Listing::FirstOfEachLease)?;
        Ok(waiting.len() >= MOST_REQUESTS || waiting.iter().any(|request| has_labels_of(labels, request)))
    }

    /// The requests that wait for a worker, and need labels that no worker has, nor the caller with these labels.
    pub fn requests_without_worker(&self, own: &[Name]) -> Result<Vec<Request>, RunError> {
        let workers = self.store.snapshot()?.workers()?;
        let pools = workers.iter().filter(|worker| worker.jobs > 0).map(|worker| worker.labels.as_slice());
        let labels: Vec<&[Name]> = pools.chain([own]).collect();
        let waiting = self.waiting_requests(Listing::EveryRun)?;
        Ok(waiting.into_iter().filter(|request| !has_labels_of(&labels, request)).collect())
    }

    /// The requests of runs that can be claimed, now or when their next attempt is due.
    fn waiting_requests(&self, listing: Listing) -> Result<Vec<Request>, StoreError> {
        let records = self.store.snapshot()?;
        let claimable = records.claimable(listing, MOST_REQUESTS)?;
        let mut waiting: Vec<Request> = claimable.into_iter().map(|(_, request)| request).collect();
        for run in self.waiting_attempts()? {
            waiting.extend(with_request(&*records, Some(run))?.map(|(_, request)| request));
        }
        Ok(waiting)
    }

    /// When time alone will change something: a run times out, or its next attempt is due. Attempts that were due at
    /// `looked_at` do not wait for time.
    pub(crate) fn next_due(&self, looked_at: Moment) -> Result<Option<Moment>, StoreError> {
        self.store.snapshot()?.next_due(looked_at)
    }
}

fn has_labels_of(labels: &[&[Name]], request: &Request) -> bool {
    labels.iter().any(|labels| request.missing_labels(labels).is_empty())
}

pub(super) fn with_request(
    records: &dyn RunRecords,
    run: Option<Run>,
) -> Result<Option<(Run, Request)>, StoreError> {
    let Some(run) = run else { return Ok(None) };
    let request = records.request(&run.request)?;
    Ok(request.map(|stored| (run, stored.request)))
}
