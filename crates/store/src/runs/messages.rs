//! Messages about runs between a client and the server of a folder: one call and one answer, as JSON.

use lockkeeper_core::id::{HolderId, RequestId, RunId, WorkerId};
use lockkeeper_core::record::Priority;
use lockkeeper_core::request::Request;
use lockkeeper_core::run::transition::Transition;
use lockkeeper_core::run::{Run, Stamp};
use lockkeeper_core::time::Moment;
use serde::{Deserialize, Serialize};

use super::wire::{AutoRunMessage, ClaimsMessage, Form, OutputMessage, SubmissionMessage};
use super::{AutoRun, Listing, RequestFilter, Requeue, RunFilter, StoredEvent, StoredRequest, Worker};

/// What a client asks for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RunCall {
    /// Opens a snapshot under a number that the client has drawn.
    Begin {
        snapshot: u64,
    },
    Read {
        snapshot: u64,
        read: Read,
    },
    End {
        snapshot: u64,
    },
    /// Makes a change once. The number says which one it is.
    Write {
        number: i64,
        write: Box<Write>,
    },
    KeepOutput(Vec<Form<OutputMessage>>),
    Examine {
        thorough: bool,
    },
    MovedTo,
    SetMovedTo(Option<String>),
    /// Begins a transaction that fills the store, under a number that the client has drawn.
    BeginImport {
        import: u64,
    },
    /// The steps of an import count from 0: a step that comes again is not made again.
    Import {
        import: u64,
        step: u64,
        fill: Box<Fill>,
    },
}

/// Reads of a snapshot: the functions of [`super::RunRecords`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Read {
    Run(Form<RunId>),
    LatestRun(Form<RequestId>),
    RunsByPart(String),
    Runs(Form<RunFilter>),
    RunsWithRequests(Form<RunFilter>),
    OldestQueuedAt,
    RunCounts,
    Timings(i64),
    Request(Form<RequestId>),
    Requests(Form<RequestFilter>),
    RequestsWithRuns(Form<RequestFilter>),
    RequestsInOrder(Form<Option<RequestId>>, usize),
    RunsInOrder(Form<Option<RunId>>, usize),
    Matching(Form<RequestFilter>),
    CountMatching(Form<RequestFilter>),
    RequestCounts,
    OpenRequests(usize, usize),
    Unmet(Form<RequestId>),
    Prunable(i64),
    Claimable(Form<Listing>, usize),
    HasWork,
    QueueHead(usize),
    QueuePosition(Form<RunId>),
    Overdue(usize),
    NextDue(Form<Moment>),
    QueuedInStages,
    ActiveRuns,
    RunWithLock(Form<HolderId>),
    Workers,
    Hosts(Form<Vec<RunId>>),
    Output { run: Form<RunId>, attempt: u32, from: u64 },
    AutoRun,
    EventsOf(Form<RunId>, u32, usize),
    EventsAfter(u64, usize),
    LastPosition,
}

/// Changes: the functions of [`super::RunStore`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Write {
    Submit(Form<SubmissionMessage>),
    Replace(Form<SubmissionMessage>),
    Requeue(Form<Vec<Requeue>>),
    MoveAndClaim { transitions: Form<Vec<Transition>>, claims: Form<Option<ClaimsMessage>> },
    ClearProcesses(Form<Run>),
    RegisterWorker(Form<Worker>),
    RenewWorker { worker: Form<WorkerId>, expected: Vec<i64>, beat: i64 },
    RemoveWorker(Form<WorkerId>),
    ChangeAutoRun(AutoRunMessage),
    SetPriority(Form<RequestId>, Form<Priority>),
    Prune(i64),
}

/// Steps of an import: the functions of [`super::import::Filling`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fill {
    RemoveAll,
    AddRequests(Form<Vec<StoredRequest>>),
    AddDependencies(Form<Vec<StoredRequest>>),
    AddRuns(Form<Vec<(Run, Request)>>),
    AddEvents(Form<Vec<StoredEvent>>),
    SetAutoRun(Form<AutoRun>),
    SetLastPosition(u64),
    RequestsInOrder(Form<Option<RequestId>>, usize),
    RunsInOrder(Form<Option<RunId>>, usize),
    EventsAfter(u64, usize),
    AutoRun,
    LastPosition,
    QueueHead(usize),
    Commit,
    GiveUp,
}

/// What the server answers. The words are those of answers about leases, as far as both have them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer<T> {
    /// What was found or done, and the time of the store.
    Done { now: Form<Stamp>, found: T },
    /// A change does not fit the records. Nothing was changed.
    Misfit(String),
    /// Nothing was changed, because the store failed.
    Failed(String),
    /// Nothing was changed, because this server is not the store of that client.
    Refused(String),
    /// The change was made, and it is not known whether it survives a power cut.
    InDoubt(String),
    /// A record is damaged.
    Damaged(String),
    /// Records are to be copied into a store that has some.
    NotEmpty,
    /// The store was moved to another one.
    Moved(String),
}
