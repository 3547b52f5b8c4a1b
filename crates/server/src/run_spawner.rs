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
use lockkeeper_core::waiting::Blocker;
use lockkeeper_engine::doctor::Pass;
use lockkeeper_engine::executors::{self, ExecutorFormat, Registration};
use lockkeeper_engine::open::open_leases;
use lockkeeper_engine::queue::{self, FailedCheck, QueueBusy, QueueRunner};
use lockkeeper_engine::report::Report;
use lockkeeper_engine::runs::{RunError, RunFilter, Runs};
use lockkeeper_engine::work::{ClaimResult, Claimed, ControlListener, RescueWatch, Worker};
use lockkeeper_formats::status::StatusLog;
use lockkeeper_platform::wall_clock::WallTime;
use tokio::sync::mpsc;

use crate::state::AppState;

/// How many running runs are read to find those of the auto-run.
const MAX_RUNNING: usize = 10_000;

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
    // Dropped before the worker that it listens for.
    _listener: ControlListener,
    worker: Arc<Worker>,
    _registered: Registration,
}

/// Result of starting a run.
pub(super) enum Started {
    /// The run is executed.
    Run(Box<Run>),
    /// Other owners hold what it needs.
    Held(Vec<Blocker>),
}

/// Result of starting the queue.
pub(super) enum QueueStart {
    /// The queue is executed.
    Started(Selection),
    /// No request is ready.
    Empty(Selection),
    /// Another worker executes the queue.
    Busy(QueueBusy),
    /// A check of the doctor fails, so nothing is started.
    Unwell(FailedCheck),
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
        let active = self.active()?;
        let runs = state.runs();
        let entry = runs.request(request)?;
        remove_stale_lock_files(state);
        let held_by_file = || {
            let holder = state.settings().execution.lock_file_holder(&entry.request.request);
            holder.map(|holder| Report::locked_by_file(request, &holder))
        };
        if let Some(report) = held_by_file() {
            return Err(report);
        }
        let (id, is_new) = match &entry.latest {
            Some(run) if run.status() == Status::Queued => (run.id.clone(), false),
            Some(_) | None => (runs.run_again(request)?, true),
        };
        let worker = self.worker(state)?;
        match worker.worker.claim(&id)? {
            ClaimResult::Claimed(claimed) => {
                let run = claimed.run().clone();
                self.execute(state, active, worker, *claimed)?;
                Ok(Started::Run(Box::new(run)))
            }
            ClaimResult::Held(blockers) => {
                if is_new {
                    runs.cancel(&id, Some("others hold what it needs"))?;
                }
                Ok(Started::Held(blockers))
            }
            ClaimResult::FileHeld | ClaimResult::NotClaimable => {
                let run = runs.show(&id)?.run;
                // Another program has locked the request since it was looked at.
                if run.status() == Status::Queued
                    && let Some(report) = held_by_file()
                {
                    if is_new {
                        runs.cancel(&id, Some("another program executes the request"))?;
                    }
                    return Err(report);
                }
                // A worker claimed the run that was queued above: it is executed, as requested.
                if is_new {
                    return Ok(Started::Run(Box::new(run)));
                }
                Err(RunError::InProgress { request: request.clone(), status: run.status(), run: run.id }
                    .into())
            }
        }
    }

    /// Executes the queue: the next request, or with `all` one after the other.
    pub(super) fn run_queue(&self, state: &AppState, all: bool) -> Result<QueueStart, Report> {
        let active = self.active()?;
        remove_stale_lock_files(state);
        let registration = register_executor(state)?;
        let worker = Arc::new(begin_worker(state)?);
        let listener = ControlListener::begin(&worker, None)?;
        let aiflow = state.settings().execution.aiflow.as_ref();
        let mut runner = match QueueRunner::lock(&worker, listener, aiflow)? {
            Ok(runner) => runner,
            Err(busy) => return Ok(QueueStart::Busy(busy)),
        };
        let selection = queue::forecast(state.runs(), state.leases(), &state.settings().execution)?;
        if selection.next.is_none() {
            return Ok(QueueStart::Empty(selection));
        }
        // One request alone is refused at once. An auto-run asks the doctor before each request.
        if !all && let Some(check) = runner.ask(&mut || examined(state))? {
            return Ok(QueueStart::Unwell(check));
        }
        *locked(&self.queue_worker) = Some(worker.id().clone());
        let app = state.clone();
        spawn("queue", active, move || {
            let ended = if all {
                runner.auto(Limits::default(), &mut || examined(&app), &mut |_| {}).map(drop)
            } else {
                runner.run_one().map(drop)
            };
            if let Err(error) = ended {
                tracing::error!(%error, "the queue ended");
            }
            drop(registration);
        })?;
        Ok(QueueStart::Started(selection))
    }

    /// Starts no more runs, and asks the auto-run of this server to stop after its current run.
    pub(super) fn drain(&self, state: &AppState) {
        locked(&self.active).take();
        if let Some(worker) = locked(&self.worker).upgrade() {
            tracing::info!(worker = %worker.worker.id(), "waiting for running commands");
        }
        let ours = locked(&self.queue_worker).clone();
        if let Some(Err(error)) = ours.map(|worker| state.runs().stop_auto_run_of(&worker)) {
            tracing::warn!(%error, "cannot ask the queue to end");
        }
    }

    /// Returns when no run is executed any more.
    pub(super) async fn ended(&self) {
        self.all_ended.lock().await.recv().await;
    }

    /// Cancels the runs that are executed, also that of the queue.
    pub(super) fn stop(&self, runs: &Runs) -> Result<(), RunError> {
        let mut ours: Vec<RunId> = locked(&self.busy).iter().cloned().collect();
        if let Some(worker) = locked(&self.queue_worker).clone() {
            let filter =
                RunFilter { statuses: vec![Status::Running], limit: MAX_RUNNING, ..RunFilter::default() };
            let running = runs.entries(&filter)?.into_iter().map(|entry| entry.run);
            ours.extend(running.filter(|run| run.worker() == Some(&worker)).map(|run| run.id));
        }
        for id in &ours {
            // It fails when the run has just ended.
            let _ = runs.cancel(id, Some("the server was stopped"));
        }
        Ok(())
    }

    /// Executes a run to its end, including further attempts.
    fn execute(
        &self,
        state: &AppState,
        active: mpsc::Sender<()>,
        worker: Arc<ServerWorker>,
        claimed: Claimed,
    ) -> Result<(), Report> {
        let (id, app) = (claimed.run().id.clone(), state.clone());
        locked(&self.busy).insert(id.clone());
        spawn("run", active, move || {
            if let Err(error) = execute_all_attempts(&worker.worker, claimed) {
                tracing::error!(%error, "cannot execute a run to its end");
            }
            locked(&app.run_spawner().busy).remove(&id);
        })
    }

    /// What keeps the server from ending while a thread executes something. Fails while the server shuts down.
    fn active(&self) -> Result<mpsc::Sender<()>, Report> {
        locked(&self.active).clone().ok_or_else(|| {
            Report::new(
                lockkeeper_engine::report::Exit::Unreachable,
                "SHUTTING_DOWN",
                "the server is about to end",
            )
            .with_hint("ask again once it was started again")
        })
    }

    fn worker(&self, state: &AppState) -> Result<Arc<ServerWorker>, Report> {
        let mut known = locked(&self.worker);
        if let Some(worker) = known.upgrade() {
            return Ok(worker);
        }
        let _registered = register_executor(state)?;
        let worker = Arc::new(begin_worker(state)?);
        let _listener = ControlListener::begin(&worker, None)?;
        let registered = Arc::new(ServerWorker { _listener, worker, _registered });
        *known = Arc::downgrade(&registered);
        Ok(registered)
    }
}

/// Starts a thread that keeps the server from ending until its work is done.
fn spawn(name: &str, active: mpsc::Sender<()>, work: impl FnOnce() + Send + 'static) -> Result<(), Report> {
    let work = move || {
        work();
        drop(active);
    };
    thread::Builder::new().name(name.to_owned()).spawn(work).map_err(RunError::Machine)?;
    Ok(())
}

/// Looks after runs whose executor is gone, as long as the server runs.
pub(super) fn watch_runs(state: &AppState) -> Result<RescueWatch, RunError> {
    let (runs, leases) = (Runs::at(state.location())?, open_leases(state.location())?);
    let app = state.clone();
    let start = Box::new(move || begin_worker(&app));
    let trouble = Box::new(|error: &RunError| tracing::error!(%error, "cannot look after runs"));
    RescueWatch::begin(runs, leases, Arc::new(|_| true), start, trouble)
}

/// Registers the server as an executor of the store. The registration lasts while the server executes something.
fn register_executor(state: &AppState) -> Result<Registration, Report> {
    executors::register(state.state_folder(), ExecutorFormat::of(&state.settings().execution))
}

/// Runs the quick checks of the doctor. Returns the first that fails.
fn examined(state: &AppState) -> Option<FailedCheck> {
    state.examine(Pass::Quick).failed_check()
}

fn begin_worker(state: &AppState) -> Result<Worker, RunError> {
    let settings = state.settings();
    let runs = Runs::at(state.location())?;
    let leases = open_leases(state.location())?;
    let status = settings.status_dir.as_deref().map(StatusLog::open).transpose();
    let status = status.map_err(|error| RunError::Machine(std::io::Error::other(error)))?;
    Worker::begin(runs, leases, settings.execution.clone(), 0, status, state.worker_listener())
}

/// Executes a claimed run, and makes its further attempts when they are due.
fn execute_all_attempts(worker: &Worker, claimed: Claimed) -> Result<(), RunError> {
    let id = claimed.run().id.clone();
    let mut claimed = claimed;
    loop {
        worker.execute(claimed)?;
        claimed = loop {
            let run = worker.runs().show(&id)?.run;
            let Some(retry_at) = run.retry_at().filter(|_| run.waits_for_retry()) else { return Ok(()) };
            let until = Instant::now().checked_add(retry_at.since(worker.runs().now().moment));
            if worker.runs().wait(&id, until, None)?.status().is_terminal() {
                return Ok(());
            }
            match worker.claim(&id)? {
                ClaimResult::Claimed(next) => break *next,
                // Another worker claimed it, or other owners hold what it needs: look again.
                ClaimResult::Held(_) | ClaimResult::FileHeld | ClaimResult::NotClaimable => {
                    let again = Instant::now().checked_add(std::time::Duration::from_secs(1));
                    worker.runs().wait(&id, again, None)?;
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
