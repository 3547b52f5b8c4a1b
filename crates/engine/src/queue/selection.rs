//! Which request is next in the queue, and why the others are not.

use lockkeeper_core::id::RequestId;
use lockkeeper_core::queue::{Candidate, PassedOver, Selection, select};
use lockkeeper_core::request::{Request, RequestStatus};

use crate::Engine;
use crate::runs::{RunError, Runs};
use crate::work::Settings;

/// How many queued requests a selection reads, beside those that are known to be locked.
const CANDIDATES: usize = 100;
/// How many requests of each other state a selection lists.
const LISTED: usize = 100;

/// Selects the next request, and says why others were passed over. The caller knows that `locked` cannot run now.
pub fn selection(runs: &Runs, locked: &[RequestId]) -> Result<Selection, RunError> {
    select_among(runs, locked.len(), |request| Ok(locked.contains(&request.id)))
}

/// Selects the request that would be executed now: also passes over those whose leases or lock files others hold.
pub fn forecast(runs: &Runs, leases: &Engine, settings: &Settings) -> Result<Selection, RunError> {
    select_among(runs, 0, |request| {
        let has_lease = || leases.would_grant(request);
        Ok(settings.lock_file_holder(request).is_some() || !has_lease()?)
    })
}

fn select_among(
    runs: &Runs,
    more: usize,
    mut is_locked: impl FnMut(&Request) -> Result<bool, RunError>,
) -> Result<Selection, RunError> {
    let open = runs.store().snapshot()?.open_requests(CANDIDATES + more, LISTED)?;
    let mut candidates = Vec::new();
    let mut has_next = false;
    for stored in open.into_iter().filter(|stored| stored.request.conductor().is_none()) {
        // Requests after the next one need no check.
        let is_ready = stored.status == RequestStatus::Queued && stored.unmet == 0 && !has_next;
        let locked = is_ready && is_locked(&stored.request)?;
        has_next |= is_ready && !locked;
        candidates.push(Candidate {
            id: stored.request.id,
            status: stored.status,
            unmet: stored.unmet,
            locked,
        });
    }
    Ok(select(candidates))
}

/// Why a request was passed over, as a sentence.
pub const fn explain(reason: PassedOver) -> &'static str {
    match reason {
        PassedOver::NotReady => "it has ended, and nobody retried it",
        PassedOver::DependsNotDone => "a request that it depends on is not done",
        PassedOver::RequestLocked => "it is being executed, or others hold what it needs",
        PassedOver::LatestRunNeedsInput => "it waits for input",
    }
}
