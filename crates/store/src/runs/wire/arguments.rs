//! The forms of what a store is given. Arguments are borrowed, so each has a record that owns them.

use std::ops::Range;

use lockkeeper_core::id::{HolderId, RequestId, RunId, WorkerId};
use lockkeeper_core::request::{Request, RequestStatus};
use lockkeeper_core::run::Status;
use lockkeeper_core::run::admission::Submission;
use serde::{Deserialize, Serialize};

use super::{Wire, record};
use crate::runs::{
    AutoRunChange, ClaimOrder, Claims, Listing, OutputChange, Piece, RequestFilter, RunFilter,
};

record!(RunFilter as RunFilterForm {
    statuses: Vec<Status>,
    request: Option<RequestId>,
    before: Option<RunId>,
    limit: usize,
});
record!(RequestFilter as RequestFilterForm {
    statuses: Vec<RequestStatus>,
    run_statuses: Vec<Status>,
    text: Option<String>,
    worker: Option<WorkerId>,
    ids: Vec<RequestId>,
    before: Option<RequestId>,
    newest: Option<RequestId>,
    limit: usize,
});

/// A submission.
pub(crate) struct SubmissionMessage {
    requests: Vec<Request>,
    runs: Vec<RunId>,
    queue_limit: Option<u64>,
    forbidden: Option<String>,
}

record!(SubmissionMessage as SubmissionForm {
    requests: Vec<Request>,
    runs: Vec<RunId>,
    queue_limit: Option<u64>,
    forbidden: Option<String>,
});

impl From<&Submission<'_>> for SubmissionMessage {
    fn from(submission: &Submission<'_>) -> Self {
        Self {
            requests: submission.requests.to_vec(),
            runs: submission.runs.to_vec(),
            queue_limit: submission.queue_limit,
            forbidden: submission.forbidden.map(ToOwned::to_owned),
        }
    }
}

impl SubmissionMessage {
    pub(crate) fn submission(&self) -> Submission<'_> {
        Submission {
            requests: &self.requests,
            runs: &self.runs,
            queue_limit: self.queue_limit,
            forbidden: self.forbidden.as_deref(),
        }
    }
}

/// A worker that claims runs.
pub(crate) struct ClaimsMessage {
    worker: WorkerId,
    locks: Vec<HolderId>,
    skips_leased: bool,
}

record!(ClaimsMessage as ClaimsForm { worker: WorkerId, locks: Vec<HolderId>, skips_leased: bool });

impl From<&Claims<'_>> for ClaimsMessage {
    fn from(claims: &Claims<'_>) -> Self {
        let skips_leased = match claims.order {
            ClaimOrder::Strict => false,
            ClaimOrder::SkipLeased => true,
        };
        Self { worker: claims.worker.clone(), locks: claims.locks.to_vec(), skips_leased }
    }
}

impl ClaimsMessage {
    pub(crate) fn claims(&self) -> Claims<'_> {
        let order = if self.skips_leased { ClaimOrder::SkipLeased } else { ClaimOrder::Strict };
        Claims { worker: &self.worker, locks: &self.locks, order }
    }
}

/// A change of the output of an attempt.
pub(crate) struct OutputMessage {
    run: RunId,
    attempt: u32,
    host: String,
    remove: Range<u64>,
    add: Vec<Piece>,
}

record!(OutputMessage as OutputForm {
    run: RunId,
    attempt: u32,
    host: String,
    remove: Range<u64>,
    add: Vec<Piece>,
});

impl Wire for Range<u64> {
    type Form = (u64, u64);

    fn form(self, _by: i64) -> (u64, u64) {
        (self.start, self.end)
    }

    fn read((start, end): (u64, u64), _by: i64) -> Result<Self, String> {
        Ok(start..end)
    }
}

impl From<&OutputChange<'_>> for OutputMessage {
    fn from(change: &OutputChange<'_>) -> Self {
        Self {
            run: change.run.clone(),
            attempt: change.attempt,
            host: change.host.to_owned(),
            remove: change.remove.clone(),
            add: change.add.to_vec(),
        }
    }
}

impl OutputMessage {
    pub(crate) fn change(&self) -> OutputChange<'_> {
        OutputChange {
            run: &self.run,
            attempt: self.attempt,
            host: &self.host,
            remove: &self.remove,
            add: &self.add,
        }
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ListingForm {
    FirstOfEachLease,
    EveryRun,
}

impl Wire for Listing {
    type Form = ListingForm;

    fn form(self, _by: i64) -> ListingForm {
        match self {
            Self::FirstOfEachLease => ListingForm::FirstOfEachLease,
            Self::EveryRun => ListingForm::EveryRun,
        }
    }

    fn read(form: ListingForm, _by: i64) -> Result<Self, String> {
        Ok(match form {
            ListingForm::FirstOfEachLease => Self::FirstOfEachLease,
            ListingForm::EveryRun => Self::EveryRun,
        })
    }
}

/// A change of the record of the auto-run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AutoRunMessage {
    Start { worker: String },
    CountRun { worker: String, run: String },
    RequestStop { worker: Option<String> },
    End { worker: String, why: String },
}

impl From<&AutoRunChange<'_>> for AutoRunMessage {
    fn from(change: &AutoRunChange<'_>) -> Self {
        match *change {
            AutoRunChange::Start { worker } => Self::Start { worker: worker.to_string() },
            AutoRunChange::CountRun { worker, run } => {
                Self::CountRun { worker: worker.to_string(), run: run.to_string() }
            }
            AutoRunChange::RequestStop { worker } => {
                Self::RequestStop { worker: worker.map(ToString::to_string) }
            }
            AutoRunChange::End { worker, why } => {
                Self::End { worker: worker.to_string(), why: why.to_owned() }
            }
        }
    }
}

impl AutoRunMessage {
    /// Hands the change to `make`.
    pub(crate) fn with<T>(self, make: impl FnOnce(&AutoRunChange<'_>) -> T) -> Result<T, String> {
        let id = |text: String| WorkerId::read(text, 0);
        Ok(match self {
            Self::Start { worker } => make(&AutoRunChange::Start { worker: &id(worker)? }),
            Self::CountRun { worker, run } => {
                make(&AutoRunChange::CountRun { worker: &id(worker)?, run: &RunId::read(run, 0)? })
            }
            Self::RequestStop { worker } => {
                let worker = worker.map(id).transpose()?;
                make(&AutoRunChange::RequestStop { worker: worker.as_ref() })
            }
            Self::End { worker, why } => make(&AutoRunChange::End { worker: &id(worker)?, why: &why }),
        })
    }
}
