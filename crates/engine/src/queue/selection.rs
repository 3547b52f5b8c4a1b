//! Which request is next in the queue, and why the others are not.

use lockkeeper_core::id::{Name, RequestId};
use lockkeeper_core::queue::{Candidate, PassedOver, Selection, Skipped, select};
use lockkeeper_core::request::{Request, RequestStatus};
use lockkeeper_store::StoreError;
use lockkeeper_store::runs::{RunRecords, StoredRequest};

use crate::Engine;
use crate::messages::{Sentence, said};
use crate::runs::{FailedBefore, RunError, Runs, never_starts};
use crate::work::Settings;

/// How many queued requests a selection reads, beside those that are known to be locked.
const CANDIDATES: usize = 100;
/// How many requests of each other state a selection lists.
const LISTED: usize = 100;
/// How many requests before others a selection reads.
const MOST_BEFORE: usize = 2_000;

/// Selects the next request for an executor with these labels, and says why others were passed over. The caller knows that
/// `locked` cannot run now.
pub fn selection(runs: &Runs, labels: &[Name], locked: &[RequestId]) -> Result<Selection, RunError> {
    select_among(runs, labels, locked.len(), |request| Ok(locked.contains(&request.id)))
}

/// Selects the request that would be executed now: also passes over those whose leases or lock files others hold.
pub fn forecast(runs: &Runs, leases: &Engine, settings: &Settings) -> Result<Selection, RunError> {
    select_among(runs, &settings.labels, 0, |request| {
        let has_lease = || leases.would_grant(request);
        Ok(settings.lock_file_holder(request).is_some() || !has_lease()?)
    })
}

fn select_among(
    runs: &Runs,
    labels: &[Name],
    more: usize,
    mut is_locked: impl FnMut(&Request) -> Result<bool, RunError>,
) -> Result<Selection, RunError> {
    let lacks_label = |request: &Request| !request.missing_labels(labels).is_empty();
    let open = open_requests(&*runs.store().snapshot()?, CANDIDATES + more, lacks_label)?;
    let (mut candidates, mut has_next) = (Vec::new(), false);
    for (stored, failed) in open {
        let lacks_label = lacks_label(&stored.request);
        // Requests after the next one need no check.
        let is_ready = is_ready(&stored) && !lacks_label && !has_next;
        let locked = is_ready && is_locked(&stored.request)?;
        has_next |= is_ready && !locked;
        candidates.push(Candidate {
            id: stored.request.id,
            status: stored.status,
            unmet: stored.unmet,
            failed,
            lacks_label,
            locked,
        });
    }
    Ok(select(candidates))
}

fn is_ready(stored: &StoredRequest) -> bool {
    stored.status == RequestStatus::Queued && stored.unmet == 0
}

/// The requests that are not done, with the failed ones before them. Among those that can run now are at least `wanted` whose
/// labels the executor has, if there are that many.
fn open_requests(
    records: &dyn RunRecords,
    wanted: usize,
    lacks_label: impl Fn(&Request) -> bool,
) -> Result<Vec<(StoredRequest, Vec<RequestId>)>, StoreError> {
    let mut most = wanted;
    let open = loop {
        let open = records.open_requests(most, LISTED)?;
        let ready: Vec<&StoredRequest> = open.iter().filter(|stored| is_ready(stored)).collect();
        let suitable = ready.iter().filter(|stored| !lacks_label(&stored.request)).count();
        if ready.len() < most || suitable >= wanted {
            break open;
        }
        most = most.saturating_mul(2);
    };
    let (mut before, mut unsuitable) = (FailedBefore::at_most(MOST_BEFORE), 0);
    let is_listed = |stored: &StoredRequest| {
        unsuitable += usize::from(is_ready(stored) && lacks_label(&stored.request));
        stored.request.conductor().is_none() && (unsuitable <= LISTED || !lacks_label(&stored.request))
    };
    let in_queue = open.into_iter().filter(is_listed);
    let with_failed = |stored: StoredRequest| {
        let waits = stored.status == RequestStatus::Queued && stored.unmet > 0;
        let failed = if waits { before.of(records, &stored.request.id)? } else { Vec::new() };
        Ok((stored, failed))
    };
    in_queue.map(with_failed).collect()
}

/// Why a request was passed over, as a sentence.
pub fn explain(skipped: &Skipped) -> Sentence {
    match skipped.reason {
        PassedOver::DependsNotDone if !skipped.failed.is_empty() => never_starts(&skipped.failed),
        PassedOver::DependsNotDone => said("passed_over.DEPENDS_NOT_DONE"),
        PassedOver::NotReady => said("passed_over.NOT_READY"),
        PassedOver::NeedsLabel => said("passed_over.NEEDS_LABEL"),
        PassedOver::RequestLocked => said("passed_over.REQUEST_LOCKED"),
        PassedOver::LatestRunNeedsInput => said("passed_over.LATEST_RUN_NEEDS_INPUT"),
    }
}
