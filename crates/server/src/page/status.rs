//! Status badges: the text and colour of each status.

use lockkeeper_core::request::RequestStatus;
use lockkeeper_core::run::{Run, Status};
use lockkeeper_engine::runs::StoredRequest;
use lockkeeper_engine::stages::overview::{ExecutionState, GroupView};

use super::texts::Texts;

/// A badge: its text and its colour class.
pub(super) struct Badge {
    pub(super) text: &'static str,
    pub(super) tone: &'static str,
}

/// The badge of a request.
pub(super) fn of_request(status: RequestStatus, texts: &'static Texts) -> Badge {
    let (text, tone) = match status {
        RequestStatus::Queued => (texts.queued, ""),
        RequestStatus::Running => (texts.running, "info"),
        RequestStatus::Done => (texts.done_status, "good"),
        RequestStatus::NeedsInput => (texts.needs_input, "ask"),
        RequestStatus::Failed => (texts.failed, "bad"),
        RequestStatus::Canceled => (texts.canceled, ""),
    };
    Badge { text, tone }
}

/// The badge of a run.
pub(super) fn of_run(status: Status, texts: &'static Texts) -> Badge {
    let (text, tone) = match status {
        Status::Queued => (texts.queued, ""),
        Status::Running => (texts.running, "info"),
        Status::Cancelling => (texts.cancelling, "warn"),
        Status::Succeeded => (texts.succeeded, "good"),
        Status::Failed => (texts.failed, "bad"),
        Status::Canceled => (texts.canceled, ""),
        Status::TimedOut => (texts.timed_out, "bad"),
        Status::Rejected => (texts.rejected, "bad"),
    };
    Badge { text, tone }
}

/// The badge of a run, with its request: a run that ended because it needs input says so until somebody has answered.
pub(super) fn of_run_of(run: &Run, request: &StoredRequest, texts: &'static Texts) -> Badge {
    if needs_input(run, request) {
        of_request(RequestStatus::NeedsInput, texts)
    } else {
        of_run(run.status(), texts)
    }
}

/// Whether a run waits for the answer of a person.
pub(super) fn needs_input(run: &Run, request: &StoredRequest) -> bool {
    request.status == RequestStatus::NeedsInput && request.latest.as_ref() == Some(&run.id)
}

/// The badge of an execution.
pub(super) fn of_execution(state: ExecutionState, texts: &'static Texts) -> Badge {
    let (text, tone) = match state {
        ExecutionState::Running => (texts.running, "info"),
        ExecutionState::Succeeded => (texts.succeeded, "good"),
        ExecutionState::Failed => (texts.failed, "bad"),
        ExecutionState::Interrupted => (texts.interrupted, "warn"),
    };
    Badge { text, tone }
}

/// The badge of a group, which may wait for leases of others.
pub(super) fn of_view(view: &GroupView, texts: &'static Texts) -> Badge {
    match view.waits_for {
        Some(_) => Badge { text: texts.waits, tone: "warn" },
        None => of_group(view.status(), texts),
    }
}

/// The badge of a group by its status in the log. Other programs write the log, too, so there may be unknown words.
pub(super) fn of_group(status: &str, texts: &'static Texts) -> Badge {
    let (text, tone) = match status {
        "WAITING" => (texts.not_begun, ""),
        "STARTED" => (texts.running, "info"),
        "SUCCESS" => (texts.succeeded, "good"),
        "FAILED" => (texts.failed, "bad"),
        "CANCELED" => (texts.canceled, ""),
        "SKIPPED" => (texts.skipped, ""),
        "INTERRUPTED" => (texts.interrupted, "warn"),
        _ => (texts.unknown, ""),
    };
    Badge { text, tone }
}
