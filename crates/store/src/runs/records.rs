//! Records that a store returns, beside the runs themselves.

use lockkeeper_core::id::{HolderId, Name, RequestId, RunId, WorkerId};
use lockkeeper_core::liveness::{Origin, ProcessRef};
use lockkeeper_core::request::{Request, RequestStatus};
use lockkeeper_core::run::{EventId, Status};
use lockkeeper_core::time::Moment;

/// A request, with what the store knows about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRequest {
    /// The request.
    pub request: Request,
    /// When it was submitted, in microseconds since 1970.
    pub created_at: i64,
    /// Its status.
    pub status: RequestStatus,
    /// Its latest run; none if all were rejected.
    pub latest: Option<RunId>,
    /// How many of its dependencies are not done.
    pub unmet: u32,
}

/// The ids of a request that matches a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// The request.
    pub request: RequestId,
    /// Its latest run; none if all were rejected.
    pub run: Option<RunId>,
}

/// A request that was removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// Its id.
    pub request: RequestId,
    /// All its runs.
    pub runs: Vec<RunId>,
}

/// An event as it was appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    /// Its position in the log of all events, from 1. There may be gaps.
    pub position: u64,
    /// Its id: the run, and its number among the events of the run.
    pub id: EventId,
    /// The request of the run.
    pub request: String,
    /// When it happened, in microseconds since 1970.
    pub at: i64,
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
    /// Why, as a code.
    pub reason: Option<String>,
    /// Why, in words.
    pub message: Option<String>,
}

/// The timestamps of a run on the wall clock, in microseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The title of its request.
    pub title: String,
    /// Its status.
    pub status: Status,
    /// How many attempts there were.
    pub attempts: u32,
    /// When it was submitted.
    pub queued_at: i64,
    /// When it was claimed for the first time.
    pub claimed_at: Option<i64>,
    /// When it ended.
    pub completed_at: Option<i64>,
}

/// A worker that is registered: it has started and has not been removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    /// Its id. Every start of a worker has another one.
    pub id: WorkerId,
    /// The liveness lock that it holds while it lives.
    pub holder: HolderId,
    /// The machine, boot and pid namespace of its process.
    pub origin: Origin,
    /// Its process.
    pub process: ProcessRef,
    /// How many queued runs it executes at the same time; 0 if it executes single runs only.
    pub jobs: u32,
    /// Its labels: it also executes requests that need them.
    pub labels: Vec<Name>,
    /// When it started, in microseconds since 1970.
    pub started_at: i64,
    /// When its session was last renewed, on the store's clock. None where workers have no sessions: on one machine the kernel
    /// knows who lives.
    pub heartbeat_at: Option<Moment>,
}

/// The outcome of the renewal of a worker's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Renewal {
    /// It is renewed.
    Renewed,
    /// Another process has renewed it: a copy of the worker on a cloned machine.
    Taken,
    /// There is no such worker: its session has ended, and it was removed.
    Gone,
}

/// The last auto-run of the queue. It is still going on while the queue's lease is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutoRun {
    /// The worker that executes it.
    pub worker: WorkerId,
    /// When it started, in microseconds since 1970.
    pub started_at: i64,
    /// How many runs it has started.
    pub runs: u32,
    /// The latest of them.
    pub current: Option<RunId>,
    /// Whether it was asked to stop.
    pub stop: bool,
    /// Why it ended, once it has.
    pub ended: Option<String>,
}

/// A change of the record of the auto-run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoRunChange<'a> {
    /// A worker starts one. It replaces the record of the last one.
    Start {
        /// The worker.
        worker: &'a WorkerId,
    },
    /// The auto-run of this worker has started another run.
    CountRun {
        /// The worker.
        worker: &'a WorkerId,
        /// The run.
        run: &'a RunId,
    },
    /// The auto-run has to stop after its current run.
    RequestStop {
        /// Only if this worker executes it.
        worker: Option<&'a WorkerId>,
    },
    /// The auto-run of this worker has ended.
    End {
        /// The worker.
        worker: &'a WorkerId,
        /// Why.
        why: &'a str,
    },
}
