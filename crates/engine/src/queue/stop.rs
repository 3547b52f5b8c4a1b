//! Why the queue stopped. It is kept with the record of the auto-run, until the next one begins.

use lockkeeper_core::id::RunId;
use lockkeeper_core::queue::Stop;
use lockkeeper_store::runs::AutoRun;
use serde::{Deserialize, Serialize};

/// A check of the doctor that failed and stopped the queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FailedCheck {
    /// The id of the check.
    pub id: String,
    /// What is true when the check passes.
    pub title: String,
    /// What the check observed.
    pub detail: String,
    /// How to fix it.
    pub fix: Option<String>,
}

/// Why the queue stopped, when, and after which run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueStop {
    /// The reason.
    pub reason: Stop,
    /// When, in microseconds since 1970; none in a record of an older version.
    pub at: Option<i64>,
    /// The last run.
    pub run: Option<RunId>,
    /// The check that failed, if that is the reason.
    pub check: Option<FailedCheck>,
}

/// The text in the record of the auto-run.
#[derive(Serialize, Deserialize)]
struct Written {
    reason: String,
    at: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    check: Option<FailedCheck>,
}

impl QueueStop {
    /// Reads why an auto-run ended; none while it is under way, or if a newer version wrote a reason that this one does not know.
    pub fn of(auto: &AutoRun) -> Option<Self> {
        let text = auto.ended.as_deref()?;
        let written: Option<Written> = serde_json::from_str(text).ok();
        // Older versions wrote the code alone.
        let code = written.as_ref().map_or(text, |written| written.reason.as_str());
        Some(Self {
            reason: Stop::of_code(code)?,
            at: written.as_ref().map(|written| written.at),
            run: auto.current.clone(),
            check: written.and_then(|written| written.check),
        })
    }

    /// The key of its text in the tables of messages.
    pub fn message_key(&self) -> String {
        format!("STOP_{}", self.reason)
    }
}

/// Formats a reason for the record of the auto-run.
pub(super) fn to_text(reason: Stop, at: i64, check: Option<&FailedCheck>) -> String {
    let written = Written { reason: reason.as_str().to_owned(), at, check: check.cloned() };
    serde_json::to_string(&written).expect("texts and numbers can always be written")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(text: Option<&str>) -> AutoRun {
        let ended = text.map(str::to_owned);
        let worker = "W-1".parse().unwrap();
        AutoRun { worker, started_at: 1, runs: 1, current: "RUN-1".parse().ok(), stop: false, ended }
    }

    #[test]
    fn a_reason_comes_back_as_it_was_written() {
        let check = FailedCheck {
            id: "free-space".to_owned(),
            title: "there is free space for locks".to_owned(),
            detail: "0 bytes".to_owned(),
            fix: Some("make room".to_owned()),
        };
        for reason in Stop::ALL {
            let auto = ended(Some(&to_text(reason, 7, Some(&check))));
            let stop = QueueStop::of(&auto).unwrap();
            assert_eq!((stop.reason, stop.at, stop.run.as_ref()), (reason, Some(7), auto.current.as_ref()));
            assert_eq!(stop.check.as_ref(), Some(&check));
            let plain = QueueStop::of(&ended(Some(reason.as_str()))).unwrap();
            assert_eq!((plain.reason, plain.at, plain.check), (reason, None, None), "an older record");
        }
        assert_eq!(QueueStop::of(&ended(None)), None);
        assert_eq!(QueueStop::of(&ended(Some("SOMETHING_NEW"))), None);
    }
}
