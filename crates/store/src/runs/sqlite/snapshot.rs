//! A snapshot: a read transaction on a connection of the pool.

use std::collections::HashMap;
use std::sync::PoisonError;

use lockkeeper_core::id::{HolderId, RequestId, RunId};
use lockkeeper_core::request::{Request, RequestStatus};
use lockkeeper_core::run::{Run, Stamp, Status};
use lockkeeper_core::time::Moment;

use super::tables::Tables;
use super::{RequestCounts, SqliteRunStore, execute, now};
use crate::StoreError;
use crate::runs::{
    AutoRun, KeptOutput, Listing, Match, RequestFilter, RunFilter, RunRecords, StoredEvent, StoredRequest,
    Timing, Worker,
};
use crate::sqlite::Pooled;

/// The records of one moment. Dropping it ends the transaction.
pub(super) struct Snapshot<'s> {
    store: &'s SqliteRunStore,
    connection: Pooled<'s>,
    now: Stamp,
}

impl<'s> Snapshot<'s> {
    pub(super) fn begin(store: &'s SqliteRunStore, connection: Pooled<'s>) -> Result<Self, StoreError> {
        store.database(execute(&connection, "BEGIN"))?;
        Ok(Self { store, connection, now: now() })
    }

    pub(super) fn tables(&self) -> Tables<'_> {
        Tables::new(&self.connection, &self.store.path, self.now)
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        // A connection that is still in a transaction does not go back to the pool.
        let _ = execute(&self.connection, "ROLLBACK");
    }
}

impl RunRecords for Snapshot<'_> {
    fn now(&self) -> Stamp {
        self.now
    }

    fn run(&self, id: &RunId) -> Result<Option<Run>, StoreError> {
        self.tables().run(id)
    }

    fn latest_run(&self, request: &RequestId) -> Result<Option<Run>, StoreError> {
        self.tables().latest_run(request)
    }

    fn runs_by_part(&self, text: &str) -> Result<Vec<Run>, StoreError> {
        self.tables().runs_by_part(text)
    }

    fn runs(&self, filter: &RunFilter) -> Result<Vec<Run>, StoreError> {
        self.tables().runs(filter)
    }

    fn runs_with_requests(&self, filter: &RunFilter) -> Result<Vec<(Run, StoredRequest)>, StoreError> {
        self.tables().runs_with_requests(filter)
    }

    fn oldest_queued_at(&self) -> Result<Option<i64>, StoreError> {
        self.tables().oldest_queued_at()
    }

    fn run_counts(&self) -> Result<Vec<(Status, u64)>, StoreError> {
        self.tables().run_counts()
    }

    fn timings(&self, since_unix_micros: i64) -> Result<Vec<Timing>, StoreError> {
        self.tables().timings(since_unix_micros)
    }

    fn request(&self, id: &RequestId) -> Result<Option<StoredRequest>, StoreError> {
        self.tables().request(id)
    }

    fn requests(&self, filter: &RequestFilter) -> Result<Vec<StoredRequest>, StoreError> {
        self.tables().requests(filter)
    }

    fn requests_with_runs(
        &self,
        filter: &RequestFilter,
    ) -> Result<Vec<(StoredRequest, Option<Run>)>, StoreError> {
        self.tables().requests_with_runs(filter)
    }

    fn requests_in_order(
        &self,
        after: Option<&RequestId>,
        limit: usize,
    ) -> Result<Vec<StoredRequest>, StoreError> {
        self.tables().requests_in_order(after, limit)
    }

    fn runs_in_order(&self, after: Option<&RunId>, limit: usize) -> Result<Vec<(Run, Request)>, StoreError> {
        self.tables().runs_in_order(after, limit)
    }

    fn matching(&self, filter: &RequestFilter) -> Result<Vec<Match>, StoreError> {
        self.tables().matching(filter)
    }

    fn count_matching(&self, filter: &RequestFilter) -> Result<Vec<(Option<Status>, u64)>, StoreError> {
        self.tables().count_matching(filter)
    }

    /// Counts again only after an event: counting reads all requests.
    fn request_counts(&self) -> Result<Vec<(RequestStatus, u64)>, StoreError> {
        let position = self.tables().last_position()?;
        let cache = || self.store.request_counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cached) = cache().as_ref().filter(|cached| cached.position == position) {
            return Ok(cached.counts.clone());
        }
        let counts = self.tables().count_requests()?;
        *cache() = Some(RequestCounts { position, counts: counts.clone() });
        Ok(counts)
    }

    fn open_requests(&self, next: usize, others: usize) -> Result<Vec<StoredRequest>, StoreError> {
        self.tables().open_requests(next, others)
    }

    fn unmet(&self, id: &RequestId) -> Result<Vec<RequestId>, StoreError> {
        self.tables().unmet(id)
    }

    fn prunable(&self, before_unix_micros: i64) -> Result<Vec<RequestId>, StoreError> {
        let old = self.tables().prunable(before_unix_micros)?;
        Ok(old.into_iter().map(|old| old.request).collect())
    }

    fn claimable(&self, listing: Listing, limit: usize) -> Result<Vec<(Run, Request)>, StoreError> {
        self.tables().claimable(listing, limit)
    }

    fn has_work(&self) -> Result<bool, StoreError> {
        self.tables().has_work()
    }

    fn queue_head(&self, limit: usize) -> Result<Vec<RunId>, StoreError> {
        self.tables().queue_head(limit)
    }

    fn queue_position(&self, run: &RunId) -> Result<u64, StoreError> {
        self.tables().queue_position(run)
    }

    fn overdue(&self, limit: usize) -> Result<Vec<Run>, StoreError> {
        self.tables().overdue(limit)
    }

    fn next_due(&self, looked_at: Moment) -> Result<Option<Moment>, StoreError> {
        self.tables().next_due(looked_at)
    }

    fn queued_in_stages(&self) -> Result<Vec<Run>, StoreError> {
        self.tables().queued_in_stages()
    }

    fn active_runs(&self) -> Result<Vec<Run>, StoreError> {
        self.tables().active_runs()
    }

    fn run_with_lock(&self, holder: HolderId) -> Result<Option<Run>, StoreError> {
        self.tables().run_with_lock(holder)
    }

    fn workers(&self) -> Result<Vec<Worker>, StoreError> {
        self.tables().workers()
    }

    fn hosts(&self, runs: &[&RunId]) -> Result<HashMap<RunId, String>, StoreError> {
        self.tables().hosts(runs)
    }

    fn output(&self, run: &RunId, attempt: u32, from: u64) -> Result<Option<KeptOutput>, StoreError> {
        if !self.tables().is_served() {
            return Ok(None);
        }
        self.store.outputs.of(run, attempt, from)
    }

    fn auto_run(&self) -> Result<Option<AutoRun>, StoreError> {
        self.tables().auto_run()
    }

    fn events_of(&self, run: &RunId, after: u32, limit: usize) -> Result<Vec<StoredEvent>, StoreError> {
        self.tables().events_of(run, after, limit)
    }

    fn events_after(&self, position: u64, limit: usize) -> Result<Vec<StoredEvent>, StoreError> {
        self.tables().events_after(position, limit)
    }

    fn last_position(&self) -> Result<u64, StoreError> {
        self.tables().last_position()
    }
}
