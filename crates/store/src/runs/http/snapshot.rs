//! A snapshot: a read transaction of the server.

use std::collections::HashMap;

use lockkeeper_core::id::{HolderId, RequestId, RunId};
use lockkeeper_core::request::{Request, RequestStatus};
use lockkeeper_core::run::{Run, Stamp, Status};
use lockkeeper_core::time::Moment;

use super::HttpRunStore;
use crate::StoreError;
use crate::optimistic::random_number;
use crate::runs::messages::{Read, RunCall};
use crate::runs::wire::Wire;
use crate::runs::{
    AutoRun, KeptOutput, Listing, Match, RequestFilter, RunFilter, RunRecords, StoredEvent, StoredRequest,
    Timing, Worker,
};

/// The records of one moment. Dropping it ends the transaction.
pub(super) struct Snapshot<'s> {
    store: &'s HttpRunStore,
    number: u64,
    now: Stamp,
}

impl<'s> Snapshot<'s> {
    pub(super) fn begin(store: &'s HttpRunStore) -> Result<Self, StoreError> {
        let number = random_number("draw a number for", store.leases.address())?;
        let (now, ()) = store.call(RunCall::Begin { snapshot: number }, false)?;
        Ok(Self { store, number, now })
    }

    fn read<T: Wire>(&self, read: Read) -> Result<T, StoreError> {
        self.store.ask(RunCall::Read { snapshot: self.number, read })
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        // The server ends it later if it does not hear of it.
        let _: Result<(), StoreError> = self.store.ask(RunCall::End { snapshot: self.number });
    }
}

impl RunRecords for Snapshot<'_> {
    fn now(&self) -> Stamp {
        self.now
    }

    fn run(&self, id: &RunId) -> Result<Option<Run>, StoreError> {
        self.read(Read::Run(id.clone().form(0)))
    }

    fn latest_run(&self, request: &RequestId) -> Result<Option<Run>, StoreError> {
        self.read(Read::LatestRun(request.clone().form(0)))
    }

    fn runs_by_part(&self, text: &str) -> Result<Vec<Run>, StoreError> {
        self.read(Read::RunsByPart(text.to_owned()))
    }

    fn runs(&self, filter: &RunFilter) -> Result<Vec<Run>, StoreError> {
        self.read(Read::Runs(filter.clone().form(0)))
    }

    fn runs_with_requests(&self, filter: &RunFilter) -> Result<Vec<(Run, StoredRequest)>, StoreError> {
        self.read(Read::RunsWithRequests(filter.clone().form(0)))
    }

    fn oldest_queued_at(&self) -> Result<Option<i64>, StoreError> {
        self.read(Read::OldestQueuedAt)
    }

    fn run_counts(&self) -> Result<Vec<(Status, u64)>, StoreError> {
        self.read(Read::RunCounts)
    }

    fn timings(&self, since_unix_micros: i64) -> Result<Vec<Timing>, StoreError> {
        self.read(Read::Timings(since_unix_micros))
    }

    fn request(&self, id: &RequestId) -> Result<Option<StoredRequest>, StoreError> {
        self.read(Read::Request(id.clone().form(0)))
    }

    fn requests(&self, filter: &RequestFilter) -> Result<Vec<StoredRequest>, StoreError> {
        self.read(Read::Requests(filter.clone().form(0)))
    }

    fn requests_with_runs(
        &self,
        filter: &RequestFilter,
    ) -> Result<Vec<(StoredRequest, Option<Run>)>, StoreError> {
        self.read(Read::RequestsWithRuns(filter.clone().form(0)))
    }

    fn requests_in_order(
        &self,
        after: Option<&RequestId>,
        limit: usize,
    ) -> Result<Vec<StoredRequest>, StoreError> {
        self.read(Read::RequestsInOrder(after.cloned().form(0), limit))
    }

    fn runs_in_order(&self, after: Option<&RunId>, limit: usize) -> Result<Vec<(Run, Request)>, StoreError> {
        self.read(Read::RunsInOrder(after.cloned().form(0), limit))
    }

    fn matching(&self, filter: &RequestFilter) -> Result<Vec<Match>, StoreError> {
        self.read(Read::Matching(filter.clone().form(0)))
    }

    fn count_matching(&self, filter: &RequestFilter) -> Result<Vec<(Option<Status>, u64)>, StoreError> {
        self.read(Read::CountMatching(filter.clone().form(0)))
    }

    fn request_counts(&self) -> Result<Vec<(RequestStatus, u64)>, StoreError> {
        self.read(Read::RequestCounts)
    }

    fn open_requests(&self, next: usize, others: usize) -> Result<Vec<StoredRequest>, StoreError> {
        self.read(Read::OpenRequests(next, others))
    }

    fn unmet(&self, id: &RequestId) -> Result<Vec<RequestId>, StoreError> {
        self.read(Read::Unmet(id.clone().form(0)))
    }

    fn prunable(&self, before_unix_micros: i64) -> Result<Vec<RequestId>, StoreError> {
        self.read(Read::Prunable(before_unix_micros))
    }

    fn claimable(&self, listing: Listing, limit: usize) -> Result<Vec<(Run, Request)>, StoreError> {
        self.read(Read::Claimable(listing.form(0), limit))
    }

    fn has_work(&self) -> Result<bool, StoreError> {
        self.read(Read::HasWork)
    }

    fn queue_head(&self, limit: usize) -> Result<Vec<RunId>, StoreError> {
        self.read(Read::QueueHead(limit))
    }

    fn queue_position(&self, run: &RunId) -> Result<u64, StoreError> {
        self.read(Read::QueuePosition(run.clone().form(0)))
    }

    fn overdue(&self, limit: usize) -> Result<Vec<Run>, StoreError> {
        self.read(Read::Overdue(limit))
    }

    fn next_due(&self, looked_at: Moment) -> Result<Option<Moment>, StoreError> {
        self.read(Read::NextDue(looked_at.form(0)))
    }

    fn queued_in_stages(&self) -> Result<Vec<Run>, StoreError> {
        self.read(Read::QueuedInStages)
    }

    fn active_runs(&self) -> Result<Vec<Run>, StoreError> {
        self.read(Read::ActiveRuns)
    }

    fn run_with_lock(&self, holder: HolderId) -> Result<Option<Run>, StoreError> {
        self.read(Read::RunWithLock(holder.form(0)))
    }

    fn workers(&self) -> Result<Vec<Worker>, StoreError> {
        self.read(Read::Workers)
    }

    fn hosts(&self, runs: &[&RunId]) -> Result<HashMap<RunId, String>, StoreError> {
        let runs: Vec<RunId> = runs.iter().map(|run| (*run).clone()).collect();
        self.read(Read::Hosts(runs.form(0)))
    }

    fn output(&self, run: &RunId, attempt: u32, from: u64) -> Result<Option<KeptOutput>, StoreError> {
        self.read(Read::Output { run: run.clone().form(0), attempt, from })
    }

    fn auto_run(&self) -> Result<Option<AutoRun>, StoreError> {
        self.read(Read::AutoRun)
    }

    fn events_of(&self, run: &RunId, after: u32, limit: usize) -> Result<Vec<StoredEvent>, StoreError> {
        self.read(Read::EventsOf(run.clone().form(0), after, limit))
    }

    fn events_after(&self, position: u64, limit: usize) -> Result<Vec<StoredEvent>, StoreError> {
        self.read(Read::EventsAfter(position, limit))
    }

    fn last_position(&self) -> Result<u64, StoreError> {
        self.read(Read::LastPosition)
    }
}
