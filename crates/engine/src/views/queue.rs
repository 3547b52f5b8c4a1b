//! Views of the queue: the auto-run, requests that it skips, and runs that it executed.

use lockkeeper_core::queue::Skipped;
use lockkeeper_core::request::RequestStatus;
use lockkeeper_core::run::Run;
use lockkeeper_store::runs::AutoRun;
use serde::Serialize;

use super::time;
use crate::messages::{Language, Messages, Phrases};
use crate::queue::{FailedCheck, QueueStop, explain};

/// An auto-run: a worker that executes the queue one request after the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = AutoRun))]
pub struct AutoRunView {
    /// The worker.
    pub worker: String,
    /// When it started.
    pub started_at: String,
    /// How many runs it has started.
    pub runs: u32,
    /// The latest of them.
    pub current_run_id: Option<String>,
    /// Whether it was asked to stop.
    pub stopping: bool,
}

impl AutoRunView {
    /// Shows an auto-run.
    pub fn new(auto: &AutoRun) -> Self {
        Self {
            worker: auto.worker.to_string(),
            started_at: time(auto.started_at),
            runs: auto.runs,
            current_run_id: auto.current.as_ref().map(ToString::to_string),
            stopping: auto.stop,
        }
    }
}

/// Why the queue stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = QueueStop))]
pub struct QueueStopView {
    /// The reason, as a stable code such as `FAILED` or `DOCTOR_FAILED`.
    pub reason: &'static str,
    /// The reason in words.
    pub message: String,
    /// What the user can do about it.
    pub actions: Vec<String>,
    /// When; null in a record of an older version.
    pub at: Option<String>,
    /// The last run.
    pub run_id: Option<String>,
    /// The check of the doctor that failed, if that is the reason.
    pub check: Option<FailedCheck>,
}

impl QueueStopView {
    /// Shows why the queue stopped, in a language.
    pub fn new(stop: &QueueStop, language: Language, messages: &Messages) -> Self {
        let message = messages.get(language, &stop.message_key());
        Self {
            reason: stop.reason.as_str(),
            message: message.map_or_else(|| stop.reason.to_string(), |message| message.summary.clone()),
            actions: message.map(|message| message.actions.clone()).unwrap_or_default(),
            at: stop.at.map(time),
            run_id: stop.run.as_ref().map(ToString::to_string),
            check: stop.check.clone(),
        }
    }
}

/// An open request that is not next in the queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = PassedOver))]
pub struct PassedOverView {
    /// The request.
    pub request_id: String,
    /// Why, as a stable code.
    pub reason: &'static str,
    /// With `DEPENDS_NOT_DONE`: the requests before it that ended without success. Until they are run again, it never starts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
    /// Why, in words. The commands leave it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl PassedOverView {
    /// Shows a request with the code of the reason.
    pub fn new(skipped: &Skipped) -> Self {
        Self {
            request_id: skipped.request.to_string(),
            reason: skipped.reason.as_str(),
            failed: skipped.failed.iter().map(ToString::to_string).collect(),
            message: None,
        }
    }

    /// Shows a request with the reason in words, too.
    pub fn explained(skipped: &Skipped) -> Self {
        let message = Phrases::load(Language::En).put(&explain(skipped));
        Self { message: Some(message), ..Self::new(skipped) }
    }
}

/// A run that the queue executed, in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = QueueRun))]
pub struct QueueRunView {
    /// The run.
    pub id: String,
    /// Its request.
    pub request_id: String,
    /// The status of the run.
    pub status: String,
    /// The status of the request.
    pub request_status: String,
    /// The number of the last attempt.
    pub attempt: u32,
    /// The exit code of its command.
    pub exit_code: Option<u8>,
    /// Why it did not succeed, as a stable code.
    pub reason_code: Option<String>,
}

impl QueueRunView {
    /// Shows a run that has ended.
    pub fn new(run: &Run) -> Self {
        Self {
            id: run.id.to_string(),
            request_id: run.request.to_string(),
            status: run.status().to_string(),
            request_status: RequestStatus::from(run).to_string(),
            attempt: run.attempt(),
            exit_code: run.ending().map(|ending| ending.exit_code()),
            reason_code: run.reason().map(|reason| reason.to_string()),
        }
    }
}
