//! Submission of requests.

use lockkeeper_core::id::{RequestId, RunId};
use lockkeeper_core::request::Request;
use lockkeeper_core::run::admission::{Refusal, Submission, Submitted};
use lockkeeper_core::run::transition;
use thiserror::Error;

use super::{RunError, Runs, new_id};
use lockkeeper_store::StoreError;
use lockkeeper_store::runs::{Requeue, RunRecords, RunStore};

/// What the store returns for a submission.
type Answer = Result<Vec<Submitted>, Refusal>;

/// Why a request was not submitted.
#[derive(Debug, Error)]
pub enum SubmitError {
    /// It was refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The store failed.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl SubmitError {
    /// What the user can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Refused(refusal) => refusal.hint(),
            Self::Run(error) => error.hint(),
        }
    }
}

impl Runs {
    /// Makes an id for a request whose user did not choose one.
    pub fn new_request_id(&self) -> Result<RequestId, RunError> {
        new_id("RQ", self.store.now().unix_micros)
    }

    /// Submits a request, with one queued run. It survives a power cut when this returns.
    ///
    /// With `queue_limit`, at most this many runs may be queued.
    pub fn submit(&self, request: &Request, queue_limit: Option<u64>) -> Result<Submitted, SubmitError> {
        Ok(only(self.submit_all(std::slice::from_ref(request), queue_limit)?))
    }

    /// Submits several requests, all or none. They may depend on each other.
    pub fn submit_all(
        &self,
        requests: &[Request],
        queue_limit: Option<u64>,
    ) -> Result<Vec<Submitted>, SubmitError> {
        Ok(self.write(requests, queue_limit, None, RunStore::submit)??)
    }

    /// Submits a request whose id may be in use.
    pub fn replace(&self, request: &Request, queue_limit: Option<u64>) -> Result<Submitted, SubmitError> {
        Ok(only(self.replace_all(std::slice::from_ref(request), queue_limit)?))
    }

    /// Submits requests whose ids may be in use, all or none. A request that exists gets the new definition and a new run;
    /// its queued run is canceled. It is refused while one of them runs.
    pub fn replace_all(
        &self,
        requests: &[Request],
        queue_limit: Option<u64>,
    ) -> Result<Vec<Submitted>, SubmitError> {
        Ok(self.write(requests, queue_limit, None, RunStore::replace)??)
    }

    /// Records that a conflict rule forbids a request: it gets one run, which is rejected.
    pub fn reject(&self, request: &Request, why: &str) -> Result<(), RunError> {
        // The answer is the refusal.
        let _ = self.write(std::slice::from_ref(request), None, Some(why), RunStore::submit)?;
        Ok(())
    }

    /// Writes a submission with `write`. The answer is on the disk when this returns.
    fn write(
        &self,
        requests: &[Request],
        queue_limit: Option<u64>,
        forbidden: Option<&str>,
        write: impl FnOnce(&(dyn RunStore + 'static), &Submission<'_>) -> Result<Answer, StoreError>,
    ) -> Result<Answer, RunError> {
        let runs = self.new_run_ids(requests.len())?;
        let requests = &*self.portable(requests);
        let answer = write(&*self.store, &Submission { requests, runs: &runs, queue_limit, forbidden })?;
        if wrote(&answer) {
            self.store.sync()?;
        }
        Ok(answer)
    }

    /// Queues a new run of a request whose last run has ended.
    pub fn run_again(&self, request: &RequestId) -> Result<RunId, RunError> {
        let id = self.new_run_ids(1)?.swap_remove(0);
        loop {
            let requeue = requeue(&*self.store.snapshot()?, request, id.clone())?;
            // Another process may have queued one since.
            if self.store.requeue(&[requeue])? == [true] {
                self.store.sync()?;
                return Ok(id);
            }
        }
    }
}

/// A new run of a request, unless its last one has not ended.
pub(super) fn requeue(records: &dyn RunRecords, request: &RequestId, id: RunId) -> Result<Requeue, RunError> {
    let stored = records.request(request)?.ok_or_else(|| RunError::NoRequest(request.clone()))?;
    if let Some(latest) = records.latest_run(request)?.filter(|latest| !latest.status().is_terminal()) {
        let (request, status) = (request.clone(), latest.status());
        return Err(RunError::InProgress { request, run: latest.id, status });
    }
    let first = transition::submit(&stored.request, id, records.now());
    Ok(Requeue { first, expected: stored.latest })
}

fn only(mut submitted: Vec<Submitted>) -> Submitted {
    submitted.pop().expect("one request gives one answer")
}

/// Whether a submission has written anything.
fn wrote(answer: &Answer) -> bool {
    match answer {
        Ok(submitted) => submitted.iter().any(|one| !one.existing),
        Err(
            Refusal::Duplicate { run, .. } | Refusal::QueueFull { run, .. } | Refusal::Forbidden { run, .. },
        ) => run.is_some(),
        Err(Refusal::InProgress { .. } | Refusal::MissingDependency { .. } | Refusal::Cycle { .. }) => false,
    }
}
