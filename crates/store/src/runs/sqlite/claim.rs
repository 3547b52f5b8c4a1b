//! Claims: the write transaction finds the next runs of the queue and moves them to running.

use lockkeeper_core::id::HolderId;
use lockkeeper_core::request::Request;
use lockkeeper_core::run::Run;
use lockkeeper_core::run::transition::{self, Claimant};
use lockkeeper_core::time::Moment;

use super::tables::Tables;
use crate::StoreError;
use crate::runs::order::in_order;
use crate::runs::{ClaimOrder, Claims, Listing};

impl Tables<'_> {
    /// Claims a run for each liveness lock, as long as there are runs.
    pub(super) fn claim(&self, claims: &Claims<'_>) -> Result<Vec<(Run, Request)>, StoreError> {
        let limit = claims.locks.len();
        if limit == 0 {
            return Ok(Vec::new());
        }
        let next = match claims.order {
            ClaimOrder::Strict => {
                let due = self.due_retries(self.now().moment, limit)?;
                in_order(due, self.ready(limit)?)
            }
            ClaimOrder::SkipLeased => self.ready_without_lease(limit)?,
        };
        let mut claimed = Vec::new();
        for ((run, request), lock) in next.into_iter().zip(claims.locks) {
            if !request.is_plain() {
                break;
            }
            let Some(run) = self.claim_run(&run, claims, *lock)? else { break };
            claimed.push((run, request));
        }
        Ok(claimed)
    }

    fn claim_run(&self, run: &Run, claims: &Claims<'_>, lock: HolderId) -> Result<Option<Run>, StoreError> {
        let now = self.now();
        if run.is_given_up(now.moment) {
            return Ok(None);
        }
        let claimant = Claimant { worker: claims.worker.clone(), holder: Some(lock), lease: None };
        let Ok(claimed) = transition::claim(run, claimant, now) else { return Ok(None) };
        if !self.apply(&claimed)? {
            return Err(StoreError::Mismatch(format!("run {} changed within a transaction", run.id)));
        }
        Ok(Some(claimed.run))
    }

    /// Runs that can be claimed now, in the order of the queue.
    pub(super) fn claimable(
        &self,
        listing: Listing,
        limit: usize,
    ) -> Result<Vec<(Run, Request)>, StoreError> {
        let ready = match listing {
            Listing::EveryRun => self.ready(limit)?,
            Listing::FirstOfEachLease => self.ready_by_lease(limit)?,
        };
        Ok(in_order(self.due_retries(self.now().moment, limit)?, ready))
    }

    /// Whether any run can be claimed, now or when its next attempt is due.
    pub(super) fn has_work(&self) -> Result<bool, StoreError> {
        Ok(!self.queue_head(1)?.is_empty() || !self.due_retries(Moment::MAX, 1)?.is_empty())
    }
}
