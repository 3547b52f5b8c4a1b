//! Filters: which runs and requests a list shows.

use lockkeeper_core::id::{RequestId, RunId, WorkerId};
use lockkeeper_core::request::RequestStatus;
use lockkeeper_core::run::Status;

/// Which runs are listed. An empty field leaves nothing out.
#[derive(Clone, Debug, Default)]
pub struct RunFilter {
    /// Only runs with one of these statuses.
    pub statuses: Vec<Status>,
    /// Only runs of this request.
    pub request: Option<RequestId>,
    /// Only runs that were submitted before this one (cursor).
    pub before: Option<RunId>,
    /// At most this many.
    pub limit: usize,
}

/// Which requests are listed, counted or changed. An empty field leaves nothing out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestFilter {
    /// Only requests with one of these statuses.
    pub statuses: Vec<RequestStatus>,
    /// Only requests whose latest run has one of these statuses.
    pub run_statuses: Vec<Status>,
    /// Only requests with this text in their title or id. The case of ASCII letters does not matter.
    pub text: Option<String>,
    /// Only requests that this worker executes.
    pub worker: Option<WorkerId>,
    /// Only these requests.
    pub ids: Vec<RequestId>,
    /// Only requests that were submitted before this one (cursor).
    pub before: Option<RequestId>,
    /// Only this request and those that were submitted before it.
    pub newest: Option<RequestId>,
    /// At most this many.
    pub limit: usize,
}

impl RequestFilter {
    /// Whether it leaves out any request.
    pub fn is_selective(&self) -> bool {
        !self.is_by_status_only() || !self.statuses.is_empty()
    }

    /// Whether it has nothing but statuses and a limit.
    pub fn is_by_status_only(&self) -> bool {
        self.run_statuses.is_empty()
            && self.text.is_none()
            && self.worker.is_none()
            && self.ids.is_empty()
            && self.before.is_none()
            && self.newest.is_none()
    }
}

/// Which runs [`super::RunRecords::claimable`] lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    /// Of all runs that need the same lease, only the first.
    FirstOfEachLease,
    /// Every run: each may need a lock file of its own.
    EveryRun,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_leaves_nothing_out_is_known() {
        assert!(!RequestFilter { limit: 5, ..RequestFilter::default() }.is_selective());
        let by_status = RequestFilter { statuses: vec![RequestStatus::Failed], ..RequestFilter::default() };
        assert!(by_status.is_selective() && by_status.is_by_status_only());
        let by_text = RequestFilter { text: Some("x".to_owned()), ..RequestFilter::default() };
        assert!(by_text.is_selective() && !by_text.is_by_status_only());
    }
}
