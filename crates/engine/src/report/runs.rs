//! Reports about requests, runs and conflicts.

use super::{Exit, Report};
use crate::LockFileHolder;
use crate::conflicts::ConflictsError;
use crate::queue::FailedCheck;
use crate::runs::new_request::BadRequest;
use crate::runs::{Refusal, RunError, SubmitError};
use lockkeeper_core::id::{RequestId, RunId};

impl From<RunError> for Report {
    fn from(error: RunError) -> Self {
        let error = match error {
            RunError::Store(error) => return error.into(),
            error => error,
        };
        let hint = error.hint();
        match &error {
            RunError::NoRun(id) => {
                Self::of(Exit::Usage, "NO_SUCH_RUN", &error).with_context("run_id", id.as_str())
            }
            RunError::Ambiguous { text, .. } => {
                Self::of(Exit::Usage, "AMBIGUOUS", &error).with_context("run_id", text.as_str())
            }
            RunError::NoRequest(id) => {
                Self::of(Exit::Usage, "NO_SUCH_REQUEST", &error).with_context("request_id", id.as_str())
            }
            RunError::Refused { run, current, .. } => Self::of(Exit::Refused, "TRANSITION_REFUSED", &error)
                .with_context("run_id", run.as_str())
                .with_context("status", current.as_str()),
            RunError::InProgress { request, run, status } => {
                Self::of(Exit::Refused, "RUN_IN_PROGRESS", &error)
                    .with_context("request_id", request.as_str())
                    .with_context("run_id", run.as_str())
                    .with_context("status", status.as_str())
            }
            RunError::DependsNotDone { request, unmet } => {
                let unmet: Vec<&str> = unmet.iter().map(|one| one.as_str()).collect();
                Self::of(Exit::Refused, "DEPENDS_NOT_DONE", &error)
                    .with_context("request_id", request.as_str())
                    .with_context("unmet", unmet)
            }
            RunError::NotAsked { request, status } => Self::of(Exit::Refused, "NOT_ASKED", &error)
                .with_context("request_id", request.as_str())
                .with_context("status", status.as_str()),
            RunError::WorkerTaken(worker) => {
                Self::of(Exit::LeaseLost, "LEASE_LOST", &error).with_context("worker", worker.as_str())
            }
            RunError::BadAnswer => Self::of(Exit::Usage, "BAD_INPUT", &error),
            RunError::Unreadable(error) => Self::of(Exit::Failed, "UNREADABLE", error),
            RunError::Machine(_) => Self::of(Exit::Failed, "MACHINE", &error),
            RunError::Store(_) => Self::of(Exit::Failed, "STORE_FAILED", &error),
        }
        .with_hint(hint)
    }
}

impl From<FailedCheck> for Report {
    fn from(check: FailedCheck) -> Self {
        let message = format!("the check {} of the doctor fails: {}", check.id, check.detail);
        let hint = check.fix.clone().unwrap_or_else(|| "`lockkeeper doctor` shows all checks".to_owned());
        Self::new(Exit::Refused, "DOCTOR_FAILED", message)
            .with_hint(hint)
            .with_context("check", serde_json::to_value(check).unwrap_or_default())
    }
}

impl Report {
    /// Reports that another program executes a request: it holds the lock file.
    pub fn locked_by_file(request: &RequestId, holder: &LockFileHolder) -> Self {
        let who = holder.holder.as_deref().map_or_else(String::new, |holder| format!(" ({holder})"));
        let path = holder.path.display();
        let message = format!("another program executes {request}{who}: it holds the lock file {path}");
        Self::new(Exit::Refused, "RUN_IN_PROGRESS", message)
            .explained_as("RUN_IN_PROGRESS_ELSEWHERE")
            .with_hint(format!(
                "wait until that program has ended; `lockkeeper locks --format {}` shows its lock",
                holder.format
            ))
            .with_context("request_id", request.as_str())
            .with_context("run_id", holder.holder.clone())
            .with_context("lock_file", path.to_string())
            .with_context("format", holder.format)
    }
}

impl From<SubmitError> for Report {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::Refused(refusal) => refusal.into(),
            SubmitError::Run(error) => error.into(),
        }
    }
}

impl From<Refusal> for Report {
    fn from(refusal: Refusal) -> Self {
        let of_run = |report: Self, run: &Option<RunId>| match run {
            Some(run) => report.with_context("run_id", run.as_str()),
            None => report,
        };
        let report = match &refusal {
            Refusal::Duplicate { request, run } => {
                of_run(Self::of(Exit::Refused, "DUPLICATE", &refusal), run)
                    .with_context("request_id", request.as_str())
            }
            Refusal::QueueFull { request, run, .. } => {
                of_run(Self::of(Exit::Refused, "QUEUE_FULL", &refusal), run)
                    .with_context("request_id", request.as_str())
            }
            Refusal::Forbidden { request, run, .. } => {
                of_run(Self::of(Exit::Refused, "CONFLICT_ABORT", &refusal), run)
                    .with_context("request_id", request.as_str())
            }
            Refusal::InProgress { request, run, .. } => Self::of(Exit::Refused, "RUN_IN_PROGRESS", &refusal)
                .with_context("request_id", request.as_str())
                .with_context("run_id", run.as_str()),
            Refusal::MissingDependency { .. } => Self::of(Exit::Usage, "NO_SUCH_REQUEST", &refusal),
            Refusal::Cycle { .. } => Self::of(Exit::Usage, "CIRCLE", &refusal),
        };
        report.with_hint(refusal.hint())
    }
}

impl From<BadRequest> for Report {
    fn from(error: BadRequest) -> Self {
        match error {
            BadRequest::Pattern(error) => error.into(),
            error => Self::of(Exit::Usage, "BAD_INPUT", &error).with_hint(error.hint()),
        }
    }
}

impl From<ConflictsError> for Report {
    fn from(error: ConflictsError) -> Self {
        let report = if error.is_usage() {
            Self::of(Exit::Usage, "NO_PATHS", &error)
        } else {
            Self::of(Exit::Failed, "UNREADABLE", &error).explained_as("FILE_UNREADABLE")
        };
        report.with_hint(error.hint())
    }
}
