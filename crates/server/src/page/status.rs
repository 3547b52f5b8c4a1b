//! How states are called and coloured.

use lockkeeper_core::request::RequestStatus;
use lockkeeper_core::run::Status;

use super::words::Words;
use lockkeeper_engine::stages::overview::{ExecutionState, GroupView};

/// A word and its tone.
pub(super) struct Badge {
    pub(super) text: &'static str,
    pub(super) tone: &'static str,
}

/// Of a request.
pub(super) fn of_request(status: RequestStatus, words: &'static Words) -> Badge {
    let (text, tone) = match status {
        RequestStatus::Queued => (words.queued, ""),
        RequestStatus::Running => (words.running, "info"),
        RequestStatus::Done => (words.done_status, "good"),
        RequestStatus::NeedsInput => (words.needs_input, "warn"),
        RequestStatus::Failed => (words.failed, "bad"),
        RequestStatus::Canceled => (words.canceled, ""),
    };
    Badge { text, tone }
}

/// Of a run.
pub(super) fn of_run(status: Status, words: &'static Words) -> Badge {
    let (text, tone) = match status {
        Status::Queued => (words.queued, ""),
        Status::Running => (words.running, "info"),
        Status::Cancelling => (words.cancelling, "warn"),
        Status::Succeeded => (words.succeeded, "good"),
        Status::Failed => (words.failed, "bad"),
        Status::Canceled => (words.canceled, ""),
        Status::TimedOut => (words.timed_out, "bad"),
        Status::Rejected => (words.rejected, "bad"),
    };
    Badge { text, tone }
}

/// Of an execution.
pub(super) fn of_execution(state: ExecutionState, words: &'static Words) -> Badge {
    let (text, tone) = match state {
        ExecutionState::Running => (words.running, "info"),
        ExecutionState::Succeeded => (words.succeeded, "good"),
        ExecutionState::Failed => (words.failed, "bad"),
        ExecutionState::Interrupted => (words.interrupted, "warn"),
    };
    Badge { text, tone }
}

/// Of a group, which may have begun and wait for what others hold.
pub(super) fn of_view(view: &GroupView, words: &'static Words) -> Badge {
    match view.waits_for {
        Some(_) => Badge { text: words.waits, tone: "warn" },
        None => of_group(view.status(), words),
    }
}

/// Of a group, by the word that the log has for it. Other programs write the log, too, with words of their own.
pub(super) fn of_group(status: &str, words: &'static Words) -> Badge {
    let (text, tone) = match status {
        "WAITING" => (words.not_begun, ""),
        "STARTED" => (words.running, "info"),
        "SUCCESS" => (words.succeeded, "good"),
        "FAILED" => (words.failed, "bad"),
        "CANCELED" => (words.canceled, ""),
        "SKIPPED" => (words.skipped, ""),
        "INTERRUPTED" => (words.interrupted, "warn"),
        _ => (words.unknown, ""),
    };
    Badge { text, tone }
}
