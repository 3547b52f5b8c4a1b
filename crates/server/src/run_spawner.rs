//! Executing runs that were asked for over HTTP: on threads of their own, so that no request waits for them.
//!
//! The server is a worker only while it executes something: idle, it is none that others would wait for. Who drains
//! waits for what runs; who stops ends it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Instant;

use lockkeeper_core::id::{RequestId, RunId, WorkerId};
use lockkeeper_core::queue::{Limits, Selection};
use lockkeeper_core::run::{Run, Status};
use lockkeeper_core::waiting::Jam;
use tokio::sync::mpsc;

use super::state::AppState;
use lockkeeper_engine::doctor::{Pass, Status as Health};
use lockkeeper_engine::open::open_engine;
use lockkeeper_engine::queue::{self, QueueBusy, QueueTurn};
use lockkeeper_engine::report::Report;
use lockkeeper_engine::runs::{RunError, Runs};
use lockkeeper_engine::work::{Attendant, Executor, Job, Taken};
use lockkeeper_formats::status::StatusLog;
use lockkeeper_platform::clock;
use lockkeeper_platform::wall_clock::WallTime;

/// Where runs are executed.
pub(super) struct RunSpawner {
    hands: Mutex<Weak<Hands>>,
    /// What is executed here.
    busy: Mutex<BTreeSet<RunId>>,
    /// Who works through the queue here.
    queue_worker: Mutex<Option<WorkerId>>,
    /// Cloned by every thread that executes something; none once the server ends.
    present: Mutex<Option<mpsc::Sender<()>>>,
    all_gone: tokio::sync::Mutex<mpsc::Receiver<()>>,
}

/// A worker, for as long as anything is executed.
struct Hands {
    // The attendant listens for the executor, so that it goes first.
    _attendant: Attendant,
    executor: Arc<Executor>,
}

/// What became of the request to run a request.
pub(super) enum Begun {
    /// It is executed.
    Run(Box<Run>),
    /// Others hold what it needs.
    Held(Vec<Jam>),
}

/// What became of the request to work through the queue.
pub(super) enum Turn {
    /// It is worked through.
    Begun(Selection),
    /// There is nothing to do.
    Nothing(Selection),
    /// Somebody else does.
    Busy(QueueBusy),
}

impl RunSpawner {
    pub(super) fn new() -> Self {
        let (present, all_gone) = mpsc::channel(1);
        Self {
            hands: Mutex::default(),
            busy: Mutex::default(),
            queue_worker: Mutex::default(),
            present: Mutex::new(Some(present)),
            all_gone: tokio::sync::Mutex::new(all_gone),
        }
    }

    /// Runs a request now: its queued run, or a new one when the last has ended.
    pub(super) fn run(&self, state: &AppState, request: &RequestId) -> Result<Begun, Report> {
        let runs = state.runs();
        let entry = runs.request(request)?;
        let (id, is_new) = match entry.latest {
            Some(run) if run.status == Status::Queued => (run.id, false),
            Some(_) | None => (runs.run_again(request)?, true),
        };
        recover_quickly(state);
        let hands = self.hands(state)?;
        match hands.executor.take(&id)? {
            Taken::Job(job) => {
                let run = job.run().clone();
                self.execute(state, hands, *job)?;
                Ok(Begun::Run(Box::new(run)))
            }
            Taken::Held(jams) => {
                if is_new {
                    runs.cancel(&id, Some("others hold what it needs"))?;
                }
                Ok(Begun::Held(jams))
            }
            Taken::Lost => {
                let run = runs.show(&id)?.run;
                // A worker took what was queued here a moment ago: it is executed, as was asked.
                if is_new {
                    return Ok(Begun::Run(Box::new(run)));
                }
                Err(RunError::InProgress { request: request.clone(), run: run.id, status: run.status }.into())
            }
        }
    }

    /// Works through the queue: one request, or all of them one after the other.
    pub(super) fn work_through(&self, state: &AppState, all: bool) -> Result<Turn, Report> {
        recover_quickly(state);
        let executor = Arc::new(executor(state)?);
        let attendant = Attendant::begin(&executor, None)?;
        let mut turn =
            match QueueTurn::take(&executor, attendant, state.settings().execution.aiflow.as_ref())? {
                Ok(turn) => turn,
                Err(busy) => return Ok(Turn::Busy(busy)),
            };
        let selection = queue::selection(state.runs(), &[])?;
        if selection.next.is_none() {
            return Ok(Turn::Nothing(selection));
        }
        *locked(&self.queue_worker) = Some(executor.worker().clone());
        let here = state.clone();
        self.spawn("queue", move || {
            let ended = if all {
                let mut doctor = || here.examine(Pass::Quick).status() != Health::Fail;
                turn.auto(Limits::default(), &mut doctor, &mut |_| {}).map(drop)
            } else {
                turn.run_next().map(drop)
            };
            if let Err(error) = ended {
                tracing::error!(%error, "the queue ended");
            }
        })?;
        Ok(Turn::Begun(selection))
    }

    /// Begins nothing new, and asks a queue that is worked through here to end after the present run.
    pub(super) fn drain(&self, state: &AppState) {
        locked(&self.present).take();
        if let Some(hands) = locked(&self.hands).upgrade() {
            let worker = hands.executor.worker().clone();
            tracing::info!(%worker, "waiting for what runs to end");
        }
        let ours = locked(&self.queue_worker).take();
        if let Some(Err(error)) = ours.map(|worker| state.runs().stop_auto_run_of(&worker)) {
            tracing::warn!(%error, "cannot ask the queue to end");
        }
    }

    /// Returns when nothing is executed any more.
    pub(super) async fn ended(&self) {
        self.all_gone.lock().await.recv().await;
    }

    /// Ends what is executed.
    pub(super) fn stop(&self, runs: &Runs) {
        for id in locked(&self.busy).iter() {
            // It may have ended meanwhile.
            let _ = runs.cancel(id, Some("the server was stopped"));
        }
    }

    /// Executes a run to its end, further attempts included.
    fn execute(&self, state: &AppState, hands: Arc<Hands>, job: Job) -> Result<(), Report> {
        let (id, here) = (job.run().id.clone(), state.clone());
        locked(&self.busy).insert(id.clone());
        self.spawn("run", move || {
            if let Err(error) = see_through(&hands.executor, job) {
                tracing::error!(%error, "a run cannot be looked after");
            }
            locked(&here.run_spawner().busy).remove(&id);
        })
    }

    fn spawn(&self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Report> {
        let present = locked(&self.present).clone().ok_or_else(|| {
            Report::new(
                lockkeeper_engine::report::Exit::Unreachable,
                "SHUTTING_DOWN",
                "the server is about to end",
            )
            .with_hint("ask again once it was started again")
        })?;
        let work = move || {
            work();
            drop(present);
        };
        thread::Builder::new().name(name.to_owned()).spawn(work).map_err(RunError::Machine)?;
        Ok(())
    }

    fn hands(&self, state: &AppState) -> Result<Arc<Hands>, Report> {
        let mut known = locked(&self.hands);
        if let Some(hands) = known.upgrade() {
            return Ok(hands);
        }
        let executor = Arc::new(executor(state)?);
        let hands = Arc::new(Hands { _attendant: Attendant::begin(&executor, None)?, executor });
        *known = Arc::downgrade(&hands);
        Ok(hands)
    }
}

fn executor(state: &AppState) -> Result<Executor, Report> {
    let settings = state.settings();
    let runs = Runs::open(state.state_folder())?;
    let leases = open_engine(state.state_folder())?;
    let status = settings.status_dir.as_deref().map(StatusLog::open).transpose()?;
    Ok(Executor::begin(runs, leases, settings.execution.clone(), 1, status, state.worker_listener())?)
}

fn see_through(executor: &Executor, job: Job) -> Result<(), RunError> {
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
                // A worker may have been faster, or holds what is needed: then it is looked at again.
                Taken::Held(_) | Taken::Lost => {
                    let again = Instant::now().checked_add(std::time::Duration::from_secs(1));
                    executor.runs().wait(&id, again, None)?;
                }
            }
        };
    }
}

/// Before each run, lock files whose time is up are put away.
fn recover_quickly(state: &AppState) {
    let Some(aiflow) = &state.settings().execution.aiflow else { return };
    match aiflow.recover(Pass::Quick, WallTime::now()) {
        Ok(recovery) => {
            for recovered in &recovery.recovered {
                tracing::warn!(reason_code = "LOCK_STALE_RECOVERED", subject = ?recovered.subject, "recovered");
            }
        }
        Err(error) => tracing::warn!(%error, "stale lock files cannot be put away"),
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
