//! Import: a write transaction of the server, which this client fills.

use std::cell::Cell;
use std::collections::HashMap;

use lockkeeper_core::id::{RequestId, RunId};
use lockkeeper_core::request::Request;
use lockkeeper_core::run::{Run, Stamp};

use super::HttpRunStore;
use crate::StoreError;
use crate::optimistic::random_number;
use crate::runs::import::Filling;
use crate::runs::messages::{Fill, RunCall};
use crate::runs::wire::Wire;
use crate::runs::{AutoRun, StoredEvent, StoredRequest};

/// The transaction. Dropping it rolls it back, unless it was committed.
pub(super) struct HttpFilling<'s> {
    store: &'s HttpRunStore,
    number: u64,
    now: Stamp,
    step: Cell<u64>,
}

impl<'s> HttpFilling<'s> {
    pub(super) fn begin(store: &'s HttpRunStore) -> Result<Self, StoreError> {
        let number = random_number("draw a number for", store.leases.address())?;
        let (now, ()) = store.call(RunCall::BeginImport { import: number }, false)?;
        Ok(Self { store, number, now, step: Cell::new(0) })
    }

    pub(super) fn commit(self) -> Result<(), StoreError> {
        self.fill(Fill::Commit, true)
    }

    fn fill<T: Wire>(&self, fill: Fill, is_change: bool) -> Result<T, StoreError> {
        let step = self.step.replace(self.step.get() + 1);
        let call = RunCall::Import { import: self.number, step, fill: Box::new(fill) };
        self.store.call(call, is_change).map(|(_, found)| found)
    }

    /// A step that changes nothing that others see.
    fn make<T: Wire>(&self, fill: Fill) -> Result<T, StoreError> {
        self.fill(fill, false)
    }
}

impl Drop for HttpFilling<'_> {
    fn drop(&mut self) {
        // The server gives up later if it does not hear of it.
        let _: Result<(), StoreError> = self.make(Fill::GiveUp);
    }
}

impl Filling for HttpFilling<'_> {
    const KEEPS_HOSTS: bool = false;

    fn now(&self) -> Stamp {
        self.now
    }

    fn remove_all(&self) -> Result<(), StoreError> {
        self.make(Fill::RemoveAll)
    }

    fn add_requests(&self, requests: &[StoredRequest]) -> Result<(), StoreError> {
        self.make(Fill::AddRequests(requests.to_vec().form(0)))
    }

    fn add_dependencies(&self, requests: &[StoredRequest]) -> Result<(), StoreError> {
        self.make(Fill::AddDependencies(requests.to_vec().form(0)))
    }

    fn add_runs(&self, runs: &[(Run, Request)], _hosts: &HashMap<RunId, String>) -> Result<(), StoreError> {
        self.make(Fill::AddRuns(runs.to_vec().form(0)))
    }

    fn add_events(&self, events: &[StoredEvent]) -> Result<(), StoreError> {
        self.make(Fill::AddEvents(events.to_vec().form(0)))
    }

    fn set_auto_run(&self, auto_run: &AutoRun) -> Result<(), StoreError> {
        self.make(Fill::SetAutoRun(auto_run.clone().form(0)))
    }

    fn set_last_position(&self, position: u64) -> Result<(), StoreError> {
        self.make(Fill::SetLastPosition(position))
    }

    fn requests_in_order(
        &self,
        after: Option<&RequestId>,
        limit: usize,
    ) -> Result<Vec<StoredRequest>, StoreError> {
        self.make(Fill::RequestsInOrder(after.cloned().form(0), limit))
    }

    fn runs_in_order(&self, after: Option<&RunId>, limit: usize) -> Result<Vec<(Run, Request)>, StoreError> {
        self.make(Fill::RunsInOrder(after.cloned().form(0), limit))
    }

    fn hosts(&self, _runs: &[&RunId]) -> Result<HashMap<RunId, String>, StoreError> {
        Ok(HashMap::new())
    }

    fn events_after(&self, position: u64, limit: usize) -> Result<Vec<StoredEvent>, StoreError> {
        self.make(Fill::EventsAfter(position, limit))
    }

    fn auto_run(&self) -> Result<Option<AutoRun>, StoreError> {
        self.make(Fill::AutoRun)
    }

    fn last_position(&self) -> Result<u64, StoreError> {
        self.make(Fill::LastPosition)
    }

    fn queue_head(&self, limit: usize) -> Result<Vec<RunId>, StoreError> {
        self.make(Fill::QueueHead(limit))
    }
}
