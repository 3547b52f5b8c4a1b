//! Worker events: published to the listener of this process, and appended to the status log.

use std::panic::{self, AssertUnwindSafe};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use lockkeeper_core::id::{RunId, WorkerId};
use lockkeeper_core::request::{Request, RequestStatus};
use lockkeeper_core::run::{Reason, Run, Status};
use serde_json::{Map, Value, json};

use lockkeeper_formats::status::{State, StatusLine, StatusLog};
use lockkeeper_platform::wall_clock::WallTime;

/// Something that a worker publishes.
#[derive(Clone, Debug)]
pub enum WorkerEvent {
    /// The command of a run was started.
    Started(Run),
    /// A run has to wait for a lease or a lock file that others hold. Has the reason in words.
    Waiting(Run, String),
    /// An attempt failed; there will be another.
    Retrying(Run),
    /// A run has ended.
    Ended(Run),
    /// This worker has replaced the worker of a run, which is dead or silent.
    Adopted(Run),
    /// This worker executed a run, but another worker has it by now.
    Superseded(Run),
    /// The worker claims nothing more, and ends once what it executes has ended.
    Draining,
    /// The worker stops what it executes.
    Stopping,
    /// Something is wrong with the worker itself; it continues.
    Warning(String),
}

/// A function that receives the events of a worker.
pub type Listener = dyn Fn(&WorkerEvent) + Send + Sync;

/// Where the events of one worker go.
pub(super) struct Events {
    worker: WorkerId,
    listener: Box<Listener>,
    status: Option<StatusLog>,
    /// From this time on a store call that fails is not retried.
    store_deadline: OnceLock<Instant>,
    /// Whether a store call was not retried because of the deadline.
    has_given_up: AtomicBool,
}

impl Events {
    /// Events of this worker, for a listener and a status log.
    pub(super) fn new(worker: WorkerId, listener: Box<Listener>, status: Option<StatusLog>) -> Self {
        Self {
            worker,
            listener,
            status,
            store_deadline: OnceLock::new(),
            has_given_up: AtomicBool::new(false),
        }
    }

    /// Sets the time from which on a store call that fails is not retried, because the worker has to end.
    pub(super) fn set_deadline(&self, at: Instant) {
        // The first time counts.
        let _ = self.store_deadline.set(at);
    }

    /// Whether a store call that failed must not be retried. Remembers it for [`Events::has_given_up`].
    pub(super) fn is_past_deadline(&self) -> bool {
        let is_past = self.store_deadline.get().is_some_and(|at| *at <= Instant::now());
        self.has_given_up.fetch_or(is_past, Ordering::Relaxed);
        is_past
    }

    /// Whether the results of attempts were left to a rescuer because the store failed.
    pub(super) fn has_given_up(&self) -> bool {
        self.has_given_up.load(Ordering::Relaxed)
    }

    /// Publishes an event that happens now.
    pub(super) fn publish(&self, event: &WorkerEvent, request: Option<&Request>) {
        self.notify(event);
        self.log(event, request, WallTime::now());
    }

    /// Publishes that something is wrong with this worker.
    pub(super) fn warn(&self, what: String) {
        self.notify(&WorkerEvent::Warning(what));
    }

    /// Calls the listener only.
    pub(super) fn notify(&self, event: &WorkerEvent) {
        (self.listener)(event);
    }

    /// Does something for a run. None when this program itself panicked on the way: that costs one run, and neither the
    /// thread nor other runs.
    pub(super) fn catch_panic<T>(&self, run: &RunId, act: impl FnOnce() -> T) -> Option<T> {
        let done = panic::catch_unwind(AssertUnwindSafe(act)).ok();
        if done.is_none() {
            self.warn(format!("{run} was given up because of a bug of this program"));
        }
        done
    }

    /// Appends an event that happened at this time to the status log.
    pub(super) fn log(&self, event: &WorkerEvent, request: Option<&Request>, at: WallTime) {
        let Some(log) = &self.status else { return };
        let (run, state, message) = match event {
            WorkerEvent::Started(run) => (run, State::Start, request.map(|request| request.title.clone())),
            WorkerEvent::Waiting(run, why) => (run, State::Wait, Some(why.clone())),
            WorkerEvent::Retrying(run) => (run, State::Wait, Some("the next attempt".to_owned())),
            WorkerEvent::Ended(run) => (run, end_state(run), run.message().map(ToOwned::to_owned)),
            WorkerEvent::Adopted(_)
            | WorkerEvent::Superseded(_)
            | WorkerEvent::Draining
            | WorkerEvent::Stopping
            | WorkerEvent::Warning(_) => return,
        };
        if let Err(error) = StatusLine::new(state, run.request.as_str(), at)
            .and_then(|line| line.with_meta(meta(run)))
            .and_then(|line| line.with_worker(self.worker.as_str()))
            .map(|line| match message {
                Some(message) => line.with_message(message),
                None => line,
            })
            .map_err(|error| error.to_string())
            .and_then(|line| log.append(&line).map_err(|error| error.to_string()))
        {
            self.warn(format!("cannot write the status log: {error}"));
        }
    }
}

/// The word of the status log for the end of a run.
fn end_state(run: &Run) -> State {
    match RequestStatus::from(run) {
        RequestStatus::Done => State::Done,
        RequestStatus::NeedsInput => State::Help,
        RequestStatus::Canceled => State::Skip,
        RequestStatus::Failed if run.reason() == Some(Reason::QueueTimeout) => State::Skip,
        RequestStatus::Failed | RequestStatus::Queued | RequestStatus::Running => State::Error,
    }
}

fn meta(run: &Run) -> Map<String, Value> {
    let mut meta = Map::new();
    meta.insert("run_id".to_owned(), json!(run.id.as_str()));
    meta.insert("attempt".to_owned(), json!(run.attempt()));
    if run.status() != Status::Running || run.retry_at().is_some() {
        meta.insert("status".to_owned(), json!(run.status().as_str()));
        if let Some(reason) = run.reason() {
            meta.insert("error_type".to_owned(), json!(reason.as_str()));
        }
        if let Some(ending) = run.ending() {
            meta.insert("exit_code".to_owned(), json!(ending.exit_code()));
        }
    }
    meta
}
