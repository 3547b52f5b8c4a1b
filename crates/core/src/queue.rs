//! Which request is next, why the others are not, and when working through them one by one ends.

use std::fmt;
use std::time::Duration;

use crate::id::RequestId;
use crate::request::RequestStatus;

/// What the choice needs to know about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Which one.
    pub id: RequestId,
    /// Where it is.
    pub status: RequestStatus,
    /// How many of those that it comes after are not done.
    pub unmet: u32,
    /// Whether somebody else holds the request, or what it needs.
    pub locked: bool,
}

/// Why a request was passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PassedOver {
    /// It does not wait to be executed: it failed or was called off, and nobody asked for it again.
    NotReady,
    /// Something that it comes after is not done.
    DependsNotDone,
    /// It is being executed, or others hold what it needs.
    RequestLocked,
    /// It waits for somebody's answer.
    LatestRunNeedsInput,
}

impl PassedOver {
    /// The code for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotReady => "NOT_READY",
            Self::DependsNotDone => "DEPENDS_NOT_DONE",
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

/// The choice, and why it fell like that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The request to be executed; none when there is nothing to do.
    pub next: Option<RequestId>,
    /// Every other request that is not done, with the reason.
    pub passed_over: Vec<(RequestId, PassedOver)>,
}

/// Chooses among requests that are given in their order: by priority, then age, then id.
pub fn select(candidates: impl IntoIterator<Item = Candidate>) -> Selection {
    let mut selection = Selection::default();
    for candidate in candidates {
        let reason = match candidate.status {
            RequestStatus::Done => continue,
            RequestStatus::Running => PassedOver::RequestLocked,
            RequestStatus::NeedsInput => PassedOver::LatestRunNeedsInput,
            RequestStatus::Failed | RequestStatus::Canceled => PassedOver::NotReady,
            RequestStatus::Queued if candidate.unmet > 0 => PassedOver::DependsNotDone,
            RequestStatus::Queued if candidate.locked => PassedOver::RequestLocked,
            RequestStatus::Queued if selection.next.is_none() => {
                selection.next = Some(candidate.id);
                continue;
            }
            // It is ready; another one is before it.
            RequestStatus::Queued => continue,
        };
        selection.passed_over.push((candidate.id, reason));
    }
    selection
}

/// How far an auto-run goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// So many runs at most.
    pub runs: u32,
    /// For so long at most; a run that goes on then is seen through.
    pub span: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { runs: 20, span: Duration::from_secs(3600) }
    }
}

/// Why an auto-run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stop {
    /// There is nothing to do.
    NothingLeft,
    /// The last request needs somebody.
    NeedsInput,
    /// The last request failed.
    Failed,
    /// The last request was called off.
    Canceled,
    /// The doctor found something that has to be put right first.
    DoctorFailed,
    /// As many runs as allowed.
    RunLimit,
    /// As long as allowed.
    TimeLimit,
    /// Somebody asked for it.
    Asked,
    /// The queue's lock was taken away.
    LockLost,
}

impl Stop {
    /// The code for it.
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

/// Whether an auto-run ends after a run, which left its request in this state.
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
        Candidate { id: id.parse().unwrap(), status, unmet: 0, locked: false }
    }

    #[test]
    fn the_first_ready_one_is_next_and_the_others_say_why_not() {
        let selection = select([
            candidate("done", RequestStatus::Done),
            candidate("runs", RequestStatus::Running),
            Candidate { unmet: 1, ..candidate("waits", RequestStatus::Queued) },
            candidate("asks", RequestStatus::NeedsInput),
            Candidate { locked: true, ..candidate("held", RequestStatus::Queued) },
            candidate("next", RequestStatus::Queued),
            candidate("later", RequestStatus::Queued),
            candidate("failed", RequestStatus::Failed),
        ]);
        assert_eq!(selection.next.unwrap().as_str(), "next");
        let reasons: Vec<String> =
            selection.passed_over.iter().map(|(id, why)| format!("{id} {why}")).collect();
        assert_eq!(
            reasons,
            [
                "runs REQUEST_LOCKED",
                "waits DEPENDS_NOT_DONE",
                "asks LATEST_RUN_NEEDS_INPUT",
                "held REQUEST_LOCKED",
                "failed NOT_READY"
            ]
        );
        assert_eq!(select([]), Selection::default());
    }

    /// Requirement 185.
    #[test]
    fn an_auto_run_ends_at_what_needs_somebody_and_at_its_limits() {
        let limits = Limits::default();
        let ends = |last, runs, minutes: u64| ends(last, runs, Duration::from_secs(60 * minutes), limits);
        assert_eq!(ends(RequestStatus::Done, 19, 59), None);
        assert_eq!(ends(RequestStatus::Done, 20, 1), Some(Stop::RunLimit));
        assert_eq!(ends(RequestStatus::Done, 1, 60), Some(Stop::TimeLimit));
        assert_eq!(ends(RequestStatus::NeedsInput, 1, 1), Some(Stop::NeedsInput));
        assert_eq!(ends(RequestStatus::Failed, 20, 99), Some(Stop::Failed));
        assert_eq!(ends(RequestStatus::Canceled, 1, 1), Some(Stop::Canceled));
    }
}
