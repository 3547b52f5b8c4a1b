//! Requests that come after others: which of these are not done, and which requests can never start.

use std::collections::{BTreeSet, HashMap, HashSet};

use lockkeeper_core::id::RequestId;
use lockkeeper_core::request::{Request, RequestStatus};
use lockkeeper_store::StoreError;
use lockkeeper_store::runs::RunRecords;

use super::{RunError, Runs};
use crate::messages::{Sentence, said};

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
        Ok(FailedBefore::default().of(&*self.store.snapshot()?, request)?)
    }

    /// The queued requests that can never start.
    pub fn stuck(&self) -> Result<Vec<Stuck>, RunError> {
        let records = &*self.store.snapshot()?;
        let (mut stuck, mut failed) = (Vec::new(), FailedBefore::default());
        let waits = |status: RequestStatus, unmet: u32| status == RequestStatus::Queued && unmet > 0;
        for one in records.open_requests(0, MOST)?.into_iter().filter(|one| waits(one.status, one.unmet)) {
            let because = failed.of(records, &one.request.id)?;
            // The executor of a stage reports by itself what it does not start.
            if !because.is_empty() && one.request.conductor().is_none() {
                stuck.push(Stuck { request: one.request.id, because });
            }
        }
        Ok(stuck)
    }
}

impl Stuck {
    /// Says which requests can never start, and what helps.
    pub fn sentences(stuck: &[Self]) -> (Sentence, Sentence) {
        let item =
            |one: &Self| said("work.after").with("request", &one.request).with("because", list(&one.because));
        let first = stuck.first().and_then(|one| one.because.first()).map(ToString::to_string);
        let what = said("work.in_vain").with_list("list", stuck.iter().map(item));
        (what, said("work.in_vain_hint").with("first", first.unwrap_or_default()))
    }
}

/// Says that a request can never start, because these before it ended without success.
pub fn never_starts(failed: &[RequestId]) -> Sentence {
    let first = failed.first().map(ToString::to_string).unwrap_or_default();
    said("queue.never").with("failed", list(failed)).with("first", first)
}

/// The flags of a worker that executes a request: ` --label gpu`, or nothing.
pub fn flags_for(request: &Request) -> String {
    request.needs.iter().map(|label| format!(" --label {label}")).collect()
}

fn list(requests: &[RequestId]) -> String {
    requests.iter().map(RequestId::as_str).collect::<Vec<_>>().join(", ")
}

/// Finds the requests that ended without success among all that have to be done before a request. Many requests may come after
/// the same ones, so it remembers what it found.
#[derive(Debug, Default)]
pub(crate) struct FailedBefore {
    known: HashMap<RequestId, Vec<RequestId>>,
    /// How many more requests it reads; none for as many as there are.
    left: Option<usize>,
}

impl FailedBefore {
    /// For a list: reads at most `most` requests. Failures behind these are not found.
    pub(crate) fn at_most(most: usize) -> Self {
        Self { left: Some(most), ..Self::default() }
    }

    pub(crate) fn of(
        &mut self,
        records: &dyn RunRecords,
        request: &RequestId,
    ) -> Result<Vec<RequestId>, StoreError> {
        let (mut failed, mut seen) = (BTreeSet::new(), HashSet::new());
        let mut open = records.unmet(request)?;
        while let Some(id) = open.pop() {
            if let Some(known) = self.known.get(&id) {
                failed.extend(known.iter().cloned());
                continue;
            }
            if !seen.insert(id.clone()) || self.left == Some(0) {
                continue;
            }
            self.left = self.left.map(|left| left - 1);
            match records.request(&id)?.map(|stored| stored.status) {
                Some(RequestStatus::Queued) => open.extend(records.unmet(&id)?),
                Some(RequestStatus::Failed | RequestStatus::Canceled | RequestStatus::NeedsInput) => {
                    failed.insert(id);
                }
                Some(RequestStatus::Running | RequestStatus::Done) | None => {}
            }
        }
        let failed: Vec<RequestId> = failed.into_iter().collect();
        self.known.insert(request.clone(), failed.clone());
        Ok(failed)
    }
}
