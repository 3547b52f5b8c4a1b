//! Views of runs, of their events, and of what keeps a run waiting.

use lockkeeper_core::id::RequestId;
use lockkeeper_core::request::Request;
use lockkeeper_core::run::{Ending, Run};
use lockkeeper_core::time::Moment;
use lockkeeper_platform::wall_clock::{ClockOffset, WallTime};
use lockkeeper_store::runs::StoredEvent;
use serde::Serialize;

use super::HolderView;
use crate::Listing;
use crate::runs::{Blocked, RunEntry};

/// A run: one execution of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Run))]
pub struct RunView {
    /// Its id.
    pub id: String,
    /// The request that it executes.
    pub request_id: String,
    /// `queued`, `running`, `cancelling`, `succeeded`, `failed`, `canceled`, `timedOut` or `rejected`.
    pub status: String,
    /// The number of the current attempt, from 1.
    pub attempt: u32,
    /// The number of the current claim. It grows whenever a worker takes the run.
    pub claim: u64,
    /// The worker that executes it.
    pub worker: Option<String>,
    /// The exit code of its command.
    pub exit_code: Option<u8>,
    /// The signal that ended its command.
    pub signal: Option<u8>,
    /// Why it did not succeed, as a stable code.
    pub reason_code: Option<String>,
    /// Why it did not succeed, in words.
    pub message: Option<String>,
    /// Whether its command asked for help.
    pub help: bool,
    /// When it entered the queue.
    pub queued_at: String,
    /// When the current attempt started.
    pub started_at: Option<String>,
    /// When it ended.
    pub completed_at: Option<String>,
    /// When it leaves the queue without having started.
    pub gives_up_at: Option<String>,
    /// When its command is stopped because it takes too long.
    pub times_out_at: Option<String>,
    /// When the next attempt is due.
    pub retry_at: Option<String>,
    /// The process id of its command.
    pub pid: Option<u32>,
    /// The lease that it holds.
    pub lease: Option<String>,
    /// The fencing token of that lease.
    pub token: Option<u64>,
}

impl RunView {
    /// Shows a run. `now` relates the monotonic clock to the wall clock.
    pub fn new(run: &Run, now: Moment) -> Self {
        let dial = ClockOffset::at(now);
        let utc = |moment: Option<Moment>| moment.map(|moment| dial.utc(moment));
        let signal = match run.ending() {
            Some(Ending::Signaled(signal)) => Some(signal),
            Some(Ending::Exited(_)) | None => None,
        };
        Self {
            id: run.id.to_string(),
            request_id: run.request.to_string(),
            status: run.status().to_string(),
            attempt: run.attempt(),
            claim: run.claim(),
            worker: run.worker().map(ToString::to_string),
            exit_code: run.ending().map(Ending::exit_code),
            signal,
            reason_code: run.reason().map(|reason| reason.to_string()),
            message: run.message().map(ToOwned::to_owned),
            help: run.help(),
            queued_at: time(run.queued_at.unix_micros),
            started_at: run.started_at().map(|at| time(at.unix_micros)),
            completed_at: run.completed_at().map(|at| time(at.unix_micros)),
            gives_up_at: utc(run.give_up_at()),
            times_out_at: utc(run.times_out_at()),
            retry_at: utc(run.retry_at()),
            pid: run.process().and_then(|process| process.command).map(|command| command.pid),
            lease: run.lease().map(|(lease, _)| lease.to_string()),
            token: run.lease().map(|(_, token)| token.0),
        }
    }
}

/// A run in a list: with the title of its request, and why it has not started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunListItem {
    /// The run.
    #[serde(flatten)]
    pub run: RunView,
    /// The title of its request.
    pub title: String,
    /// Why no worker executes it; null when one does, or when it has ended.
    pub blocked: Option<BlockedView>,
    /// The machine that executes or executed it; null on a store of one machine, and before it was claimed.
    pub host: Option<String>,
}

impl RunListItem {
    /// Shows a run of a list.
    pub fn new(entry: &RunEntry, now: Moment) -> Self {
        Self {
            run: RunView::new(&entry.run, now),
            title: entry.request.request.title.clone(),
            blocked: entry.blocked.as_ref().map(|blocked| BlockedView::new(blocked, now)),
            host: entry.host.clone(),
        }
    }
}

/// Why a run has not started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Blocked))]
pub struct BlockedView {
    /// What it waits for.
    pub because: Because,
    /// With `dependencies`: the requests that are not done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<Vec<String>>,
    /// With `dependencies`: the requests before it that ended without success. Until they are run again, it never starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<Vec<String>>,
    /// With `retry`: when the next attempt is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<String>,
    /// With `queue`: how many runs are before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ahead: Option<u64>,
    /// With `queue`: true when more than `ahead` may be before it. Lists do not count further.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub or_more: Option<bool>,
    /// With `no_worker_with`: the labels that it needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<Vec<String>>,
    /// With `out_of_reach`: the user who has to look after it, if its processes belong to another user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
    /// The lock file or the task queue of another program that keeps it from starting, in words. Only `run show` looks it up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock_file: Option<String>,
    /// The leases that keep it from starting. Only the commands look them up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holders: Option<Vec<HolderView>>,
}

/// What a run that has not started waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Because {
    /// Other requests have to be done first.
    Dependencies,
    /// The next attempt is not due yet.
    Retry,
    /// Other runs are before it in the queue.
    Queue,
    /// No pool worker is registered.
    NoWorker,
    /// No worker that is running has the labels that it needs.
    NoWorkerWith,
    /// Its worker is dead. The next process that starts or waits for a run rescues it.
    Unattended,
    /// Its worker is dead, and its processes live where this process can neither see nor end them: in another pid namespace, or
    /// those of another user.
    OutOfReach,
    /// Its time is up, and its processes are being ended.
    TimeIsUp,
}

impl BlockedView {
    /// Shows what a run waits for.
    pub fn new(blocked: &Blocked, now: Moment) -> Self {
        let because = |because| Self {
            because,
            requests: None,
            failed: None,
            retry_at: None,
            ahead: None,
            or_more: None,
            labels: None,
            user: None,
            lock_file: None,
            holders: None,
        };
        match blocked {
            Blocked::Dependencies { unmet, failed } => {
                let names = |ids: &[RequestId]| ids.iter().map(ToString::to_string).collect();
                let failed = Some(failed).filter(|failed| !failed.is_empty());
                Self {
                    requests: Some(names(unmet)),
                    failed: failed.map(|failed| names(failed)),
                    ..because(Because::Dependencies)
                }
            }
            Blocked::Retry(at) => {
                Self { retry_at: Some(ClockOffset::at(now).utc(*at)), ..because(Because::Retry) }
            }
            Blocked::Position(ahead) => Self { ahead: Some(*ahead), ..because(Because::Queue) },
            Blocked::Behind(ahead) => {
                Self { ahead: Some(*ahead), or_more: Some(true), ..because(Because::Queue) }
            }
            Blocked::NoWorker => because(Because::NoWorker),
            Blocked::NoWorkerWith(labels) => {
                let labels = labels.iter().map(ToString::to_string).collect();
                Self { labels: Some(labels), ..because(Because::NoWorkerWith) }
            }
            Blocked::Unattended => because(Because::Unattended),
            Blocked::OutOfReach(user) => Self { user: *user, ..because(Because::OutOfReach) },
            Blocked::TimeIsUp => because(Because::TimeIsUp),
        }
    }

    /// Adds the leases that block a request; none if the leases were not read.
    #[must_use]
    pub fn with_holders(self, request: &Request, leases: Option<&Listing>) -> Self {
        let holders = leases.map_or_else(Vec::new, |leases| HolderView::in_the_way(request, leases));
        Self { holders: Some(holders), ..self }
    }
}

/// An event: one move of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Event))]
pub struct EventView {
    /// Its id: the run and the number of the event.
    pub id: String,
    /// The run that moved.
    pub run_id: String,
    /// The request of that run.
    pub request_id: String,
    /// When it happened.
    pub at: String,
    /// What happened.
    pub kind: String,
    /// The status before.
    pub from: Option<String>,
    /// The status after.
    pub to: String,
    /// The number of the attempt.
    pub attempt: u32,
    /// The number of the claim.
    pub claim: u64,
    /// Why, as a stable code.
    pub reason_code: Option<String>,
    /// Why, in words.
    pub message: Option<String>,
}

impl EventView {
    /// Shows an event.
    pub fn new(event: &StoredEvent) -> Self {
        Self {
            id: event.id.to_string(),
            run_id: event.id.run.to_string(),
            request_id: event.request.clone(),
            at: time(event.at),
            kind: event.kind.clone(),
            from: event.from.clone(),
            to: event.to.clone(),
            attempt: event.attempt,
            claim: event.claim,
            reason_code: event.reason.clone(),
            message: event.message.clone(),
        }
    }
}

/// A time on the wall clock, as every front end writes it: RFC 3339 in UTC.
pub fn time(unix_micros: i64) -> String {
    WallTime::from_micros(unix_micros).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(blocked: &Blocked) -> String {
        serde_json::to_string(&BlockedView::new(blocked, Moment::from_micros(0))).unwrap()
    }

    #[test]
    fn only_the_fields_of_the_cause_are_written() {
        assert_eq!(written(&Blocked::NoWorker), r#"{"because":"no_worker"}"#);
        assert_eq!(written(&Blocked::Position(0)), r#"{"because":"queue","ahead":0}"#);
        assert_eq!(written(&Blocked::Behind(200)), r#"{"because":"queue","ahead":200,"or_more":true}"#);
        let build = || vec!["build".parse().unwrap()];
        let waits = Blocked::Dependencies { unmet: build(), failed: Vec::new() };
        assert_eq!(written(&waits), r#"{"because":"dependencies","requests":["build"]}"#);
        let never = Blocked::Dependencies { unmet: build(), failed: build() };
        assert_eq!(written(&never), r#"{"because":"dependencies","requests":["build"],"failed":["build"]}"#);
    }
}
