//! How states are called and coloured.

use lockkeeper_core::request::RequestStatus;
use lockkeeper_core::run::Status;

use super::words::Words;

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
