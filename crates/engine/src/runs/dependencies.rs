//! Requests that come after others: which of these are not done, and which requests can never start.

use std::collections::HashSet;

use lockkeeper_core::id::RequestId;
use lockkeeper_core::request::RequestStatus;
use lockkeeper_store::StoreError;
use lockkeeper_store::runs::RunRecords;

use super::{RunError, Runs};

/// How many requests are looked at for those that can never start.
const MOST: usize = 1000;

/// A queued request that can never start, unless the requests before it are retried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The request.
    pub request: RequestId,
    /// The requests before it that ended without success.
    pub because: Vec<RequestId>,
}

impl Runs {
    /// Refuses a request that comes after others which are not done.
    pub fn require_dependencies(&self, request: &RequestId) -> Result<(), RunError> {
        let unmet = self.store.snapshot()?.unmet(request)?;
        if unmet.is_empty() {
            return Ok(());
        }
        Err(RunError::DependsNotDone { request: request.clone(), unmet })
    }

    /// The requests before this one that ended without success. While there is one, it never starts.
    pub fn failed_dependencies(&self, request: &RequestId) -> Result<Vec<RequestId>, RunError> {
        Ok(failed_before(&*self.store.snapshot()?, request)?)
    }

    /// The queued requests that can never start.
    pub fn stuck(&self) -> Result<Vec<Stuck>, RunError> {
        let records = &*self.store.snapshot()?;
        let mut stuck = Vec::new();
        let waits = |status: RequestStatus, unmet: u32| status == RequestStatus::Queued && unmet > 0;
        for one in records.open_requests(0, MOST)?.into_iter().filter(|one| waits(one.status, one.unmet)) {
            let because = failed_before(records, &one.request.id)?;
            // The executor of a stage reports by itself what it does not start.
            if !because.is_empty() && one.request.conductor().is_none() {
                stuck.push(Stuck { request: one.request.id, because });
            }
        }
        Ok(stuck)
    }
}

/// The failed requests among all that have to be done before this one.
fn failed_before(records: &dyn RunRecords, request: &RequestId) -> Result<Vec<RequestId>, StoreError> {
    let (mut failed, mut seen) = (Vec::new(), HashSet::new());
    let mut open = records.unmet(request)?;
    while let Some(id) = open.pop() {
        if !seen.insert(id.clone()) {
            continue;
        }
        match records.request(&id)?.map(|stored| stored.status) {
            Some(RequestStatus::Queued) => open.extend(records.unmet(&id)?),
            Some(RequestStatus::Failed | RequestStatus::Canceled | RequestStatus::NeedsInput) => {
                failed.push(id);
            }
            Some(RequestStatus::Running | RequestStatus::Done) | None => {}
        }
    }
    failed.sort();
    Ok(failed)
}
