//! Run spawner: executes runs that are started over HTTP, each on a thread of its own.
//!
//! The server registers as a worker only while it executes something; an idle server is not a worker that queued runs would
//! wait for. Draining waits for the running commands, stopping cancels them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Instant;

use lockkeeper_core::id::{RequestId, RunId, WorkerId};
use lockkeeper_core::queue::{Limits, Selection};
use lockkeeper_core::run::{Run, Status};
use lockkeeper_core::waiting::Jam;
use lockkeeper_engine::doctor::{Pass, Status as Health};
use lockkeeper_engine::open::open_engine;
use lockkeeper_engine::queue::{self, QueueBusy, QueueTurn};
use lockkeeper_engine::report::Report;
use lockkeeper_engine::runs::{RunError, Runs};
use lockkeeper_engine::work::{Attendant, Executor, Job, Taken};
use lockkeeper_formats::status::StatusLog;
use lockkeeper_platform::clock;
use lockkeeper_platform::wall_clock::WallTime;
use tokio::sync::mpsc;

use crate::state::AppState;

/// Executes runs on threads of this process.
pub(super) struct RunSpawner {
    worker: Mutex<Weak<ServerWorker>>,
    /// The runs that are executed.
    busy: Mutex<BTreeSet<RunId>>,
    /// The worker of the auto-run of this server.
    queue_worker: Mutex<Option<WorkerId>>,
    /// Cloned by every thread that executes something; none while the server shuts down.
    active: Mutex<Option<mpsc::Sender<()>>>,
    all_ended: tokio::sync::Mutex<mpsc::Receiver<()>>,
}

/// The worker of this server. It lives as long as a thread executes a run.
struct ServerWorker {
    // Dropped before the executor that it listens for.
    _attendant: Attendant,
    executor: Arc<Executor>,
}

/// Result of starting a run.
pub(super) enum Started {
    /// The run is executed.
    Run(Box<Run>),
    /// Other owners hold what it needs.
    Held(Vec<Jam>),
}

/// Result of starting the queue.
pub(super) enum QueueStart {
    /// The queue is executed.
    Started(Selection),
    /// No request is ready.
    Empty(Selection),
    /// Another worker executes the queue.
    Busy(QueueBusy),
}

impl RunSpawner {
    pub(super) fn new() -> Self {
        let (active, all_ended) = mpsc::channel(1);
        Self {
            worker: Mutex::default(),
            busy: Mutex::default(),
            queue_worker: Mutex::default(),
            active: Mutex::new(Some(active)),
            all_ended: tokio::sync::Mutex::new(all_ended),
        }
    }

    /// Runs a request now: its queued run, or a new one when the last has ended.
    pub(super) fn run(&self, state: &AppState, request: &RequestId) -> Result<Started, Report> {
        let runs = state.runs();
        let entry = runs.request(request)?;
        let (id, is_new) = match entry.latest {
            Some(run) if run.status == Status::Queued => (run.id, false),
            Some(_) | None => (runs.run_again(request)?, true),
        };
        remove_stale_lock_files(state);
        let worker = self.worker(state)?;
        match worker.executor.take(&id)? {
            Taken::Job(job) => {
                let run = job.run().clone();
                self.execute(state, worker, *job)?;
                Ok(Started::Run(Box::new(run)))
            }
            Taken::Held(jams) => {
                if is_new {
                    runs.cancel(&id, Some("others hold what it needs"))?;
                }
                Ok(Started::Held(jams))
            }
            Taken::Lost => {
                let run = runs.show(&id)?.run;
                // A worker claimed the run that was queued above: it is executed, as requested.
                if is_new {
                    return Ok(Started::Run(Box::new(run)));
                }
                Err(RunError::InProgress { request: request.clone(), run: run.id, status: run.status }.into())
            }
        }
    }

    /// Executes the queue: the next request, or with `all` one after the other.
    pub(super) fn run_queue(&self, state: &AppState, all: bool) -> Result<QueueStart, Report> {
        remove_stale_lock_files(state);
        let executor = Arc::new(executor(state)?);
        let attendant = Attendant::begin(&executor, None)?;
        let mut turn =
            match QueueTurn::take(&executor, attendant, state.settings().execution.aiflow.as_ref())? {
                Ok(turn) => turn,
                Err(busy) => return Ok(QueueStart::Busy(busy)),
            };
        let selection = queue::selection(state.runs(), &[])?;
        if selection.next.is_none() {
            return Ok(QueueStart::Empty(selection));
        }
        *locked(&self.queue_worker) = Some(executor.worker().clone());
        let app = state.clone();
        self.spawn("queue", move || {
            let ended = if all {
                let mut doctor = || app.examine(Pass::Quick).status() != Health::Fail;
                turn.auto(Limits::default(), &mut doctor, &mut |_| {}).map(drop)
            } else {
                turn.run_next().map(drop)
            };
            if let Err(error) = ended {
                tracing::error!(%error, "the queue ended");
            }
        })?;
        Ok(QueueStart::Started(selection))
    }

    /// Starts no more runs, and asks the auto-run of this server to stop after its current run.
    pub(super) fn drain(&self, state: &AppState) {
        locked(&self.active).take();
        if let Some(worker) = locked(&self.worker).upgrade() {
            let worker = worker.executor.worker().clone();
            tracing::info!(%worker, "waiting for running commands");
        }
        let ours = locked(&self.queue_worker).take();
        if let Some(Err(error)) = ours.map(|worker| state.runs().stop_auto_run_of(&worker)) {
            tracing::warn!(%error, "cannot ask the queue to end");
        }
    }

    /// Returns when no run is executed any more.
    pub(super) async fn ended(&self) {
        self.all_ended.lock().await.recv().await;
    }

    /// Cancels the runs that are executed.
    pub(super) fn stop(&self, runs: &Runs) {
        for id in locked(&self.busy).iter() {
            // It fails when the run has just ended.
            let _ = runs.cancel(id, Some("the server was stopped"));
        }
    }

    /// Executes a run to its end, including further attempts.
    fn execute(&self, state: &AppState, worker: Arc<ServerWorker>, job: Job) -> Result<(), Report> {
        let (id, app) = (job.run().id.clone(), state.clone());
        locked(&self.busy).insert(id.clone());
        self.spawn("run", move || {
            if let Err(error) = run_to_end(&worker.executor, job) {
                tracing::error!(%error, "cannot execute a run to its end");
            }
            locked(&app.run_spawner().busy).remove(&id);
        })
    }

    fn spawn(&self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Report> {
        let active = locked(&self.active).clone().ok_or_else(|| {
            Report::new(
                lockkeeper_engine::report::Exit::Unreachable,
                "SHUTTING_DOWN",
                "the server is about to end",
            )
            .with_hint("ask again once it was started again")
        })?;
        let work = move || {
            work();
            drop(active);
        };
        thread::Builder::new().name(name.to_owned()).spawn(work).map_err(RunError::Machine)?;
        Ok(())
    }

    fn worker(&self, state: &AppState) -> Result<Arc<ServerWorker>, Report> {
        let mut known = locked(&self.worker);
        if let Some(worker) = known.upgrade() {
            return Ok(worker);
        }
        let executor = Arc::new(executor(state)?);
        let worker = Arc::new(ServerWorker { _attendant: Attendant::begin(&executor, None)?, executor });
        *known = Arc::downgrade(&worker);
        Ok(worker)
    }
}

fn executor(state: &AppState) -> Result<Executor, Report> {
    let settings = state.settings();
    let runs = Runs::open(state.state_folder())?;
    let leases = open_engine(state.state_folder())?;
    let status = settings.status_dir.as_deref().map(StatusLog::open).transpose()?;
    Ok(Executor::begin(runs, leases, settings.execution.clone(), 1, status, state.worker_listener())?)
}

fn run_to_end(executor: &Executor, job: Job) -> Result<(), RunError> {
    let id = job.run().id.clone();
    let mut job = job;
    loop {
        let done = executor.execute(job);
        executor.conclude(done, None)?;
        job = loop {
            let run = executor.runs().show(&id)?.run;
            let Some(retry_at) = run.retry_at.filter(|_| run.waits_for_retry()) else { return Ok(()) };
            let until = Instant::now().checked_add(retry_at.since(clock::now()));
            if executor.runs().wait(&id, until, None)?.status.is_terminal() {
                return Ok(());
            }
            match executor.take(&id)? {
                Taken::Job(job) => break *job,
                // Another worker claimed it, or other owners hold what it needs: look again.
                Taken::Held(_) | Taken::Lost => {
                    let again = Instant::now().checked_add(std::time::Duration::from_secs(1));
                    executor.runs().wait(&id, again, None)?;
                }
            }
        };
    }
}

/// Removes lock files of aiflow whose TTL has ended, before each run.
fn remove_stale_lock_files(state: &AppState) {
    let Some(aiflow) = &state.settings().execution.aiflow else { return };
    match aiflow.recover(Pass::Quick, WallTime::now()) {
        Ok(recovery) => {
            for recovered in &recovery.recovered {
                tracing::warn!(reason_code = "LOCK_STALE_RECOVERED", subject = ?recovered.subject, "recovered");
            }
        }
        Err(error) => tracing::warn!(%error, "cannot remove stale lock files"),
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
