//! The forms of what a store returns.

use lockkeeper_core::id::{HolderId, LeaseId, Name, RequestId, RunId, Token, WorkerId};
use lockkeeper_core::liveness::{Origin, ProcessRef};
use lockkeeper_core::request::{Request, RequestStatus};
use lockkeeper_core::run::admission::{Refusal, Submitted};
use lockkeeper_core::run::transition::Transition;
use lockkeeper_core::run::{Ending, Event, EventId, EventKind, Process, Reason, Run, RunRow, Stamp, Status};
use lockkeeper_core::time::{Moment, Ttl};
use serde::{Deserialize, Serialize};
use std::time::Duration;

use super::{Form, Hex, Wire, record};
use crate::runs::{
    AutoRun, KeptOutput, Match, Moved, MovedAndClaimed, Piece, Removed, Renewal, Requeue, StoredEvent,
    StoredRequest, Timing, Worker,
};

record!(Stamp as StampForm { moment: Moment, unix_micros: i64 });
record!(ProcessRef as ProcessRefForm { pid: u32, started: u64 });
record!(Process as ProcessForm { holder: HolderId, command: Option<ProcessRef> });
record!(RunRow as RunForm {
    id: RunId,
    request: RequestId,
    version: u32,
    status: Status,
    attempt: u32,
    claim: u64,
    worker: Option<WorkerId>,
    process: Option<Process>,
    lease: Option<(LeaseId, Token)>,
    queued_at: Stamp,
    give_up_at: Option<Moment>,
    started_at: Option<Stamp>,
    timeout: Option<Duration>,
    retry_at: Option<Moment>,
    completed_at: Option<Stamp>,
    ending: Option<Ending>,
    reason: Option<Reason>,
    message: Option<String>,
    help: bool,
});
record!(Event as EventForm {
    kind: EventKind,
    at: Stamp,
    from: Option<Status>,
    to: Status,
    reason: Option<Reason>,
    message: Option<String>,
});
record!(Transition as TransitionForm { run: Run, event: Event });
record!(Requeue as RequeueForm { first: Transition, expected: Option<RunId> });
record!(Submitted as SubmittedForm { request: RequestId, run: RunId, existing: bool, replaced: bool });
record!(MovedAndClaimed as MovedAndClaimedForm { moved: Vec<Moved>, claimed: Vec<(Run, Request)> });
record!(StoredRequest as StoredRequestForm {
    request: Request,
    created_at: i64,
    status: RequestStatus,
    latest: Option<RunId>,
    unmet: u32,
});
record!(Match as MatchForm { request: RequestId, run: Option<RunId> });
record!(Removed as RemovedForm { request: RequestId, runs: Vec<RunId> });
record!(StoredEvent as StoredEventForm {
    position: u64,
    id: EventId,
    request: String,
    at: i64,
    kind: String,
    from: Option<String>,
    to: String,
    attempt: u32,
    claim: u64,
    reason: Option<String>,
    message: Option<String>,
});
record!(Timing as TimingForm {
    title: String,
    status: Status,
    attempts: u32,
    queued_at: i64,
    claimed_at: Option<i64>,
    completed_at: Option<i64>,
});
record!(Origin as OriginForm { host: String, boot: String, pid_namespace: u64, session: Option<Ttl> });
record!(Worker as WorkerForm {
    id: WorkerId,
    holder: HolderId,
    origin: Origin,
    process: ProcessRef,
    jobs: u32,
    labels: Vec<Name>,
    started_at: i64,
    heartbeat_at: Option<Moment>,
});
record!(AutoRun as AutoRunForm {
    worker: WorkerId,
    started_at: i64,
    runs: u32,
    current: Option<RunId>,
    stop: bool,
    ended: Option<String>,
});
record!(KeptOutput as KeptOutputForm { host: String, size: u64, is_complete: bool, pieces: Vec<Piece> });

impl Wire for Run {
    type Form = RunForm;

    fn form(self, by: i64) -> RunForm {
        RunRow::from(&self).form(by)
    }

    fn read(form: RunForm, by: i64) -> Result<Self, String> {
        Self::try_from(RunRow::read(form, by)?).map_err(|error| error.to_string())
    }
}

impl Wire for Piece {
    type Form = (u64, Hex);

    fn form(self, _by: i64) -> Self::Form {
        (self.from, Hex::of(&self.bytes))
    }

    fn read((from, bytes): Self::Form, _by: i64) -> Result<Self, String> {
        Ok(Self { from, bytes: bytes.bytes()? })
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EndingForm {
    Exited(u8),
    Signaled(u8),
}

impl Wire for Ending {
    type Form = EndingForm;

    fn form(self, _by: i64) -> EndingForm {
        match self {
            Self::Exited(code) => EndingForm::Exited(code),
            Self::Signaled(signal) => EndingForm::Signaled(signal),
        }
    }

    fn read(form: EndingForm, _by: i64) -> Result<Self, String> {
        Ok(match form {
            EndingForm::Exited(code) => Self::Exited(code),
            EndingForm::Signaled(signal) => Self::Signaled(signal),
        })
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MovedForm {
    Applied,
    Conflict(Option<Box<RunForm>>),
}

impl Wire for Moved {
    type Form = MovedForm;

    fn form(self, by: i64) -> MovedForm {
        match self {
            Self::Applied => MovedForm::Applied,
            Self::Conflict(run) => MovedForm::Conflict(run.map(|run| Box::new(run.form(by)))),
        }
    }

    fn read(form: MovedForm, by: i64) -> Result<Self, String> {
        Ok(match form {
            MovedForm::Applied => Self::Applied,
            MovedForm::Conflict(None) => Self::Conflict(None),
            MovedForm::Conflict(Some(run)) => Self::Conflict(Some(Box::new(Run::read(*run, by)?))),
        })
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RenewalForm {
    Renewed,
    Taken,
    Gone,
}

impl Wire for Renewal {
    type Form = RenewalForm;

    fn form(self, _by: i64) -> RenewalForm {
        match self {
            Self::Renewed => RenewalForm::Renewed,
            Self::Taken => RenewalForm::Taken,
            Self::Gone => RenewalForm::Gone,
        }
    }

    fn read(form: RenewalForm, _by: i64) -> Result<Self, String> {
        Ok(match form {
            RenewalForm::Renewed => Self::Renewed,
            RenewalForm::Taken => Self::Taken,
            RenewalForm::Gone => Self::Gone,
        })
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RefusalForm {
    Duplicate { request: Form<RequestId>, run: Form<Option<RunId>> },
    QueueFull { request: Form<RequestId>, run: Form<Option<RunId>>, length: u64 },
    Forbidden { request: Form<RequestId>, run: Form<Option<RunId>>, why: String },
    InProgress { request: Form<RequestId>, run: Form<RunId>, status: Form<Status> },
    MissingDependency { request: Form<RequestId>, after: Form<RequestId> },
    Cycle { cycle: Form<Vec<RequestId>> },
}

impl Wire for Refusal {
    type Form = RefusalForm;

    fn form(self, by: i64) -> RefusalForm {
        match self {
            Self::Duplicate { request, run } => {
                RefusalForm::Duplicate { request: request.form(by), run: run.form(by) }
            }
            Self::QueueFull { request, run, length } => {
                RefusalForm::QueueFull { request: request.form(by), run: run.form(by), length }
            }
            Self::Forbidden { request, run, why } => {
                RefusalForm::Forbidden { request: request.form(by), run: run.form(by), why }
            }
            Self::InProgress { request, run, status } => RefusalForm::InProgress {
                request: request.form(by),
                run: run.form(by),
                status: status.form(by),
            },
            Self::MissingDependency { request, after } => {
                RefusalForm::MissingDependency { request: request.form(by), after: after.form(by) }
            }
            Self::Cycle { cycle } => RefusalForm::Cycle { cycle: cycle.form(by) },
        }
    }

    fn read(form: RefusalForm, by: i64) -> Result<Self, String> {
        let id = |form: String| RequestId::read(form, by);
        Ok(match form {
            RefusalForm::Duplicate { request, run } => {
                Self::Duplicate { request: id(request)?, run: Wire::read(run, by)? }
            }
            RefusalForm::QueueFull { request, run, length } => {
                Self::QueueFull { request: id(request)?, run: Wire::read(run, by)?, length }
            }
            RefusalForm::Forbidden { request, run, why } => {
                Self::Forbidden { request: id(request)?, run: Wire::read(run, by)?, why }
            }
            RefusalForm::InProgress { request, run, status } => Self::InProgress {
                request: id(request)?,
                run: Wire::read(run, by)?,
                status: Wire::read(status, by)?,
            },
            RefusalForm::MissingDependency { request, after } => {
                Self::MissingDependency { request: id(request)?, after: id(after)? }
            }
            RefusalForm::Cycle { cycle } => Self::Cycle { cycle: Wire::read(cycle, by)? },
        })
    }
}

#[cfg(test)]
mod tests {
    use lockkeeper_core::run::transition;

    use super::*;

    fn carried<T: Wire>(value: T, by: i64) -> T {
        let text = serde_json::to_string(&value.form(by)).unwrap();
        T::read(serde_json::from_str(&text).unwrap(), -by).unwrap()
    }

    #[test]
    fn a_run_comes_back_and_its_moments_are_moved_in_between() {
        let request = Request::new("r".parse().unwrap(), vec!["true".to_owned()], "/tmp".to_owned());
        let at = |moment| Stamp { moment: Moment::from_micros(moment), unix_micros: 7 };
        let first = transition::submit(&request, "RUN-1".parse().unwrap(), at(100));
        assert_eq!(carried(first.clone(), 50), first);
        let form = first.run.form(50);
        assert_eq!(Run::read(form, 0).unwrap().queued_at, at(150));
        assert_eq!(carried(request.clone(), 50), request);
    }

    #[test]
    fn every_refusal_comes_back() {
        let (request, run): (RequestId, RunId) = ("r".parse().unwrap(), "RUN-1".parse().unwrap());
        let all = [
            Refusal::Duplicate { request: request.clone(), run: None },
            Refusal::QueueFull { request: request.clone(), run: Some(run.clone()), length: 3 },
            Refusal::Forbidden { request: request.clone(), run: None, why: "w".to_owned() },
            Refusal::InProgress { request: request.clone(), run, status: Status::Running },
            Refusal::MissingDependency { request: request.clone(), after: request.clone() },
            Refusal::Cycle { cycle: vec![request] },
        ];
        for refusal in all {
            let answer: Result<Vec<Submitted>, Refusal> = Err(refusal);
            assert_eq!(carried(answer.clone(), 9), answer);
        }
    }

    #[test]
    fn a_form_that_no_run_can_have_is_refused() {
        let request = Request::new("r".parse().unwrap(), vec!["true".to_owned()], "/tmp".to_owned());
        let at = Stamp { moment: Moment::from_micros(1), unix_micros: 7 };
        let form = transition::submit(&request, "RUN-1".parse().unwrap(), at).run.form(0);
        let form = RunForm { status: "running".to_owned(), ..form };
        assert!(Run::read(form, 0).is_err());
        assert!(Piece::read((0, Hex("0g".to_owned())), 0).is_err());
        let piece = Piece { from: 3, bytes: vec![0, 255, 10] };
        assert_eq!(carried(piece.clone(), 0), piece);
    }
}
