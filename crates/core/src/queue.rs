//! Queue order: which request is next, why others are skipped, and when an auto-run stops.

use std::fmt;
use std::time::Duration;

use crate::id::RequestId;
use crate::request::RequestStatus;

/// A request, with what the selection needs to know about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its id.
    pub id: RequestId,
    /// Its status.
    pub status: RequestStatus,
    /// How many of the requests that it depends on are not done.
    pub unmet: u32,
    /// The requests before it that ended without success. While there is one, it never starts.
    pub failed: Vec<RequestId>,
    /// Whether it needs a label that the executor of the queue does not have.
    pub lacks_label: bool,
    /// Whether another holder has the request, or a resource that it needs.
    pub locked: bool,
}

/// Why a request was passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PassedOver {
    /// It failed or was canceled, and nobody has submitted it again.
    NotReady,
    /// A request that it depends on is not done.
    DependsNotDone,
    /// It needs a label that the executor of the queue does not have.
    NeedsLabel,
    /// It is being executed, or another holder has a resource that it needs.
    RequestLocked,
    /// It waits for the answer of a person.
    LatestRunNeedsInput,
}

impl PassedOver {
    /// Returns its code.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotReady => "NOT_READY",
            Self::DependsNotDone => "DEPENDS_NOT_DONE",
            Self::NeedsLabel => "NEEDS_LABEL",
            Self::RequestLocked => "REQUEST_LOCKED",
            Self::LatestRunNeedsInput => "LATEST_RUN_NEEDS_INPUT",
        }
    }
}

impl fmt::Display for PassedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A request that was passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The request.
    pub request: RequestId,
    /// Why.
    pub reason: PassedOver,
    /// The requests before it that ended without success. While there is one, it never starts.
    pub failed: Vec<RequestId>,
}

/// The selected request, and why others were skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The request to execute; `None` when there is nothing to do.
    pub next: Option<RequestId>,
    /// Every other request that is not done, with the reason.
    pub passed_over: Vec<Skipped>,
}

/// Selects the next request. The candidates come in order: by priority, then age, then id.
pub fn select(candidates: impl IntoIterator<Item = Candidate>) -> Selection {
    let mut selection = Selection::default();
    for candidate in candidates {
        let reason = match candidate.status {
            RequestStatus::Done => continue,
            RequestStatus::Running => PassedOver::RequestLocked,
            RequestStatus::NeedsInput => PassedOver::LatestRunNeedsInput,
            RequestStatus::Failed | RequestStatus::Canceled => PassedOver::NotReady,
            RequestStatus::Queued if candidate.unmet > 0 => PassedOver::DependsNotDone,
            RequestStatus::Queued if candidate.lacks_label => PassedOver::NeedsLabel,
            RequestStatus::Queued if candidate.locked => PassedOver::RequestLocked,
            RequestStatus::Queued if selection.next.is_none() => {
                selection.next = Some(candidate.id);
                continue;
            }
            // It is ready, but another one comes before it.
            RequestStatus::Queued => continue,
        };
        let Candidate { id: request, failed, .. } = candidate;
        selection.passed_over.push(Skipped { request, reason, failed });
    }
    selection
}

/// The limits of an auto-run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most runs.
    pub runs: u32,
    /// The longest duration. A run that is executing at that time is finished.
    pub span: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { runs: 20, span: Duration::from_secs(3600) }
    }
}

/// Why an auto-run stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stop {
    /// There is nothing to do.
    NothingLeft,
    /// The last request needs the answer of a person.
    NeedsInput,
    /// The last request failed.
    Failed,
    /// The last request was canceled.
    Canceled,
    /// The doctor found a problem that has to be fixed first.
    DoctorFailed,
    /// The limit of runs is reached.
    RunLimit,
    /// The time limit is reached.
    TimeLimit,
    /// The user asked for it.
    Asked,
    /// Another process has taken the queue lock.
    LockLost,
}

impl Stop {
    /// All reasons.
    pub const ALL: [Self; 9] = [
        Self::NothingLeft,
        Self::NeedsInput,
        Self::Failed,
        Self::Canceled,
        Self::DoctorFailed,
        Self::RunLimit,
        Self::TimeLimit,
        Self::Asked,
        Self::LockLost,
    ];

    /// Returns the reason with this code.
    pub fn of_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stop| stop.as_str() == code)
    }

    /// Returns its code.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NothingLeft => "NOTHING_LEFT",
            Self::NeedsInput => "NEEDS_INPUT",
            Self::Failed => "FAILED",
            Self::Canceled => "CANCELED",
            Self::DoctorFailed => "DOCTOR_FAILED",
            Self::RunLimit => "RUN_LIMIT",
            Self::TimeLimit => "TIME_LIMIT",
            Self::Asked => "STOPPED",
            Self::LockLost => "LOCK_LOST",
        }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Says whether an auto-run stops after a run that left its request in this status.
pub fn ends(last: RequestStatus, runs: u32, span: Duration, limits: Limits) -> Option<Stop> {
    match last {
        RequestStatus::NeedsInput => Some(Stop::NeedsInput),
        RequestStatus::Failed => Some(Stop::Failed),
        RequestStatus::Canceled => Some(Stop::Canceled),
        RequestStatus::Done | RequestStatus::Queued | RequestStatus::Running if runs >= limits.runs => {
            Some(Stop::RunLimit)
        }
        RequestStatus::Done | RequestStatus::Queued | RequestStatus::Running if span >= limits.span => {
            Some(Stop::TimeLimit)
        }
        RequestStatus::Done | RequestStatus::Queued | RequestStatus::Running => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(id: &str, status: RequestStatus) -> Candidate {
        let id = id.parse().unwrap();
        Candidate { id, status, unmet: 0, failed: Vec::new(), lacks_label: false, locked: false }
    }

    #[test]
    fn each_reason_to_stop_is_found_by_its_code() {
        for stop in Stop::ALL {
            assert_eq!(Stop::of_code(stop.as_str()), Some(stop));
        }
        assert_eq!(Stop::of_code("NO_SUCH_CODE"), None);
    }

    #[test]
    fn the_first_ready_request_is_next_and_the_others_have_a_reason() {
        let selection = select([
            candidate("done", RequestStatus::Done),
            candidate("runs", RequestStatus::Running),
            Candidate { unmet: 1, ..candidate("waits", RequestStatus::Queued) },
            candidate("asks", RequestStatus::NeedsInput),
            Candidate { lacks_label: true, ..candidate("gpu", RequestStatus::Queued) },
            Candidate { locked: true, ..candidate("held", RequestStatus::Queued) },
            candidate("next", RequestStatus::Queued),
            candidate("later", RequestStatus::Queued),
            candidate("failed", RequestStatus::Failed),
        ]);
        assert_eq!(selection.next.unwrap().as_str(), "next");
        let reasons: Vec<String> =
            selection.passed_over.iter().map(|one| format!("{} {}", one.request, one.reason)).collect();
        assert_eq!(
            reasons,
            [
                "runs REQUEST_LOCKED",
                "waits DEPENDS_NOT_DONE",
                "asks LATEST_RUN_NEEDS_INPUT",
                "gpu NEEDS_LABEL",
                "held REQUEST_LOCKED",
                "failed NOT_READY"
            ]
        );
        assert_eq!(select([]), Selection::default());
    }

    /// Requirement 185.
    #[test]
    fn an_auto_run_stops_when_a_person_is_needed_and_at_its_limits() {
        let limits = Limits::default();
        let ends = |last, runs, minutes: u64| ends(last, runs, Duration::from_secs(60 * minutes), limits);
        assert_eq!(ends(RequestStatus::Done, 19, 59), None);
        assert_eq!(ends(RequestStatus::Done, 20, 1), Some(Stop::RunLimit));
        assert_eq!(ends(RequestStatus::Done, 1, 60), Some(Stop::TimeLimit));
        assert_eq!(ends(RequestStatus::NeedsInput, 1, 1), Some(Stop::NeedsInput));
        assert_eq!(ends(RequestStatus::Failed, 20, 99), Some(Stop::Failed));
        assert_eq!(ends(RequestStatus::Canceled, 1, 1), Some(Stop::Canceled));
    }

    /// Programs read these codes.
    #[test]
    fn the_codes_of_a_stop_never_change() {
        for (stop, code) in [
            (Stop::NothingLeft, "NOTHING_LEFT"),
            (Stop::NeedsInput, "NEEDS_INPUT"),
            (Stop::Failed, "FAILED"),
            (Stop::Canceled, "CANCELED"),
            (Stop::DoctorFailed, "DOCTOR_FAILED"),
            (Stop::RunLimit, "RUN_LIMIT"),
            (Stop::TimeLimit, "TIME_LIMIT"),
            (Stop::Asked, "STOPPED"),
            (Stop::LockLost, "LOCK_LOST"),
        ] {
            assert_eq!(stop.as_str(), code);
        }
    }
}
